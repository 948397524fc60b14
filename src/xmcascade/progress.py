"""Progress of long work: a bar on a terminal, a log line now and then elsewhere, nothing for short work.

Library code only ever calls `tracker`; whether anything is shown is decided here and by the command line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["set_console", "tracker"]

log = logging.getLogger("xmcascade")

QUIET_SECONDS = 1.0  # work shorter than this shows nothing
LINE_SECONDS = 10.0  # without a terminal: one log line in this time
BAR_SECONDS = 0.1  # drawing costs more than most units of work

_console: Any = None  # a rich Console that is a terminal, set by the command line


def set_console(console: Any) -> None:
    """Draw bars on this rich console; None goes back to log lines."""
    global _console
    _console = console


class _Tracker:
    """Counts units done and shows them, at most as often as a person can read."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0
        self.start = time.monotonic()
        self._next = self.start + (LINE_SECONDS if _console is None else QUIET_SECONDS)
        self._bar: Any = None
        self._task: Any = None

    def advance(self, n: int = 1) -> None:
        self.done += n
        now = time.monotonic()
        if now < self._next:
            return
        if _console is None:
            self._next = now + LINE_SECONDS
            log.info("%s: %s", self.title, self._line(now))
        else:
            self._next = now + BAR_SECONDS
            if self._bar is None:
                self._open_bar()
            self._bar.update(self._task, completed=self.done)

    def _line(self, now: float) -> str:
        rate = self.done / max(now - self.start, 1e-9)
        if not self.total:
            return f"{self.done:,} {self.unit} ({rate:,.0f}/s)"
        left = (self.total - self.done) / max(rate, 1e-9)
        return f"{self.done:,} of {self.total:,} {self.unit} ({rate:,.0f}/s, {left:,.0f} s left)"

    def _open_bar(self) -> None:
        from rich import progress as rp

        columns = [rp.TextColumn("{task.description}"), rp.BarColumn(), rp.MofNCompleteColumn()]
        self._bar = rp.Progress(*columns, rp.TimeRemainingColumn(), console=_console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)
            self._bar.stop()


@contextmanager
def tracker(title: str, total: int | None = None, unit: str = "documents") -> Iterator[_Tracker]:
    """A counter to advance by hand.

    >>> with tracker("reading", unit="bytes") as seen:
    ...     seen.advance(10)
    """
    shown = _Tracker(title, total, unit)
    try:
        yield shown
    finally:
        shown.close()
