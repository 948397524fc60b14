"""Progress of long work: a bar on a terminal, a log line now and then elsewhere, nothing for short work.

Library code only ever calls `tracker` and `tell`; whether anything is shown, and who listens, is decided here
and by the command line.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Listener", "listening", "patient", "set_console", "tell", "tracker"]

log = logging.getLogger("xmcascade")

QUIET_SECONDS = 1.0  # work shorter than this shows nothing
LINE_SECONDS = 10.0  # without a terminal: one log line in this time
BAR_SECONDS = 0.1  # drawing costs more than most units of work
TELL_SECONDS = 1.0  # listeners hear of progress so often

Listener = Callable[[dict[str, Any]], None]

_console: Any = None  # a rich Console that is a terminal, set by the command line
_listeners: list[Listener] = []


def set_console(console: Any) -> None:
    """Draw bars on this rich console; None goes back to log lines."""
    global _console
    _console = console


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hand every event to this function for a while: a dict with its name, the time and what it tells.

    >>> heard = []
    >>> with listening(heard.append):
    ...     tell("done", documents=3)
    >>> heard[0]["event"], heard[0]["documents"]
    ('done', 3)
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(event: str, **facts: Any) -> None:
    """Let listeners know; facts are ready for JSON.

    >>> tell("nobody listens")
    """
    if _listeners:
        told = {"event": event, "time": round(time.time(), 3), **facts}
        for listener in list(_listeners):
            listener(told)


class _Tracker:
    """Counts units done and shows them, at most as often as a person can read."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0
        self.start = time.monotonic()
        self._next = self.start + (LINE_SECONDS if _console is None else QUIET_SECONDS)
        self._tell = self.start + TELL_SECONDS
        self._before = 0
        self._bar: Any = None
        self._task: Any = None

    def skip(self, n: int) -> None:
        """Count what an earlier run has done: it takes no time now."""
        self.done += n
        self._before += n

    def advance(self, n: int = 1, facts: dict[str, Any] | None = None) -> None:
        """Count n more; facts are shown beside."""
        self.done += n
        now = time.monotonic()
        if _listeners and now >= self._tell:
            self._tell = now + TELL_SECONDS
            rate, left = self._pace(now)
            what = {"title": self.title, "done": self.done, "total": self.total, "unit": self.unit}
            tell("progress", **what, per_second=rate, seconds_left=left, **(facts or {}))
        if now < self._next:
            return
        if _console is None:
            self._next = now + LINE_SECONDS
            log.info("%s: %s%s", self.title, self._line(now), _beside(facts))
        else:
            self._next = now + BAR_SECONDS
            if self._bar is None:
                self._open_bar()
            rate, _ = self._pace(now)
            self._bar.update(self._task, completed=self.done, beside=f"{rate:,.0f}/s{_beside(facts)}")

    def _pace(self, now: float) -> tuple[float, float | None]:
        """Units a second, and the seconds that are left if that is known."""
        rate = (self.done - self._before) / max(now - self.start, 1e-9)
        return rate, (self.total - self.done) / max(rate, 1e-9) if self.total else None

    def _line(self, now: float) -> str:
        rate, left = self._pace(now)
        if left is None:
            return f"{self.done:,} {self.unit} ({rate:,.0f}/s)"
        return f"{self.done:,} of {self.total:,} {self.unit} ({rate:,.0f}/s, {left:,.0f} s left)"

    def _open_bar(self) -> None:
        from rich import progress as rp

        columns = [rp.TextColumn("{task.description}"), rp.BarColumn(), rp.MofNCompleteColumn()]
        columns += [rp.TimeRemainingColumn(), rp.TextColumn("{task.fields[beside]}", markup=False)]
        self._bar = rp.Progress(*columns, console=_console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.total, beside="")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)
            self._bar.stop()


def _beside(facts: dict[str, Any] | None) -> str:
    """ ", loss 0.4 0.2, P@1 71.3"."""
    shown = ""
    for name, value in (facts or {}).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        shown += f", {name} {' '.join(map(str, values))}"
    return shown


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


@contextmanager
def patient() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait for a good moment: gives a function that tells whether it came.

    Who is told so saves the work and leaves. It comes at the end of the block anyway; a second one at once.

    >>> with patient() as asked:
    ...     asked()
    False
    """
    came = False

    def note(number: int, frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False  # somebody else decides what it means
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
