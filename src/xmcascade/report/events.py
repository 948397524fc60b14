"""What happens in a run, written as it happens: a JSON object a line, and curves for TensorBoard."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from xmcascade.errors import DataError, SettingError
from xmcascade.progress import Listener, listening

__all__ = ["recorded"]

log = logging.getLogger("xmcascade")


@contextmanager
def recorded(lines: str | Path | None = None, board: str | Path | None = None) -> Iterator[None]:
    """Write events to a file of JSON Lines (after what is there) and to a folder that TensorBoard reads.

    >>> from tempfile import TemporaryDirectory
    >>> from xmcascade.progress import tell
    >>> with TemporaryDirectory() as folder:
    ...     with recorded(lines=f"{folder}/events.jsonl"):
    ...         tell("evaluation", step=3)
    ...     json.loads(Path(folder, "events.jsonl").read_text())["step"]
    3
    """
    with ExitStack() as open_:
        if lines is not None:
            open_.enter_context(listening(open_.enter_context(_lines(Path(lines)))))
        if board is not None:
            open_.enter_context(listening(open_.enter_context(_curves(Path(board)))))
        yield


@contextmanager
def _lines(path: Path) -> Iterator[Listener]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a", encoding="utf-8")
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise DataError(what, where=str(path), remedy="name another file") from error
    with stream:

        def listener(event: dict[str, Any]) -> None:
            try:
                stream.write(json.dumps(event, ensure_ascii=False) + "\n")
                stream.flush()  # who looks on sees whole lines
            except OSError as error:  # the work is worth more than its record
                log.warning("%s: an event is lost (%s)", path, error.strerror or error)

        yield listener


@contextmanager
def _curves(folder: Path) -> Iterator[Listener]:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        what = "curves for TensorBoard need tensorboardX, which is not installed"
        raise SettingError(what, remedy='pip install "xmcascade[report]"') from error
    with SummaryWriter(str(folder)) as writer:

        def listener(event: dict[str, Any]) -> None:
            at = event.get("done") if event["event"] == "progress" else event.get("step")
            for name, value in _numbers(event) if at is not None else ():
                writer.add_scalar(f"{event.get('title', event['event'])}/{name}", value, at, event["time"])

        yield listener


def _numbers(event: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """What can be drawn: numbers by name, those of a list by level."""
    for name, value in event.items():
        if name in ("event", "time", "title", "done", "total", "unit", "step"):
            continue
        values = enumerate(value) if isinstance(value, list) else [(None, value)]
        for t, number in values:
            if isinstance(number, (int, float)):
                yield name if t is None else f"{name} of level {t}", float(number)
