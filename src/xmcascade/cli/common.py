"""What commands share: where they print, how they are told to read files, how an answer looks."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from xmcascade.corpus import BUILT_IN, Corpus, ReadSettings
from xmcascade.errors import SettingError
from xmcascade.store.manifest import ARRAYS, MANIFEST

__all__ = [
    "READING", "AsJson", "Data", "ModelFolder", "Threads", "apart", "err", "group", "out", "reads",
    "report_left_out", "said", "say", "show", "table_of",
]  # fmt: skip

WIDE = 160  # characters of a table that no terminal bounds
CONTROLS = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n"}  # they could steer a terminal
UNHEARD = OSError, ValueError, AttributeError  # of a standard error that is full, closed, or never was


class _Said:
    """Standard error, where what cannot be said is let go: nobody reading it is no reason to stop work."""

    def write(self, text: str) -> int:
        with suppress(*UNHEARD):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(*UNHEARD):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


said = _Said()
out = Console(soft_wrap=True, highlight=False)
err = Console(file=said, highlight=False)  # type: ignore[arg-type]

READING = {
    "text": (str, "text", "--text", "Field or column of the text, or several: title+body."),
    "labels": (str, "labels", "--labels", "Field or column of the labels."),
    "ids": (str, "id", "--ids", "Field or column of the documents' ids."),
    "separator": (str | None, None, "--separator", "Between labels in one string [default: ; in tables]."),
    "format": (str | None, None, "--format", "File format, where its name does not tell it."),
    "labels_file": (str | None, None, "--labels-file", "File of label lines beside raw texts."),
    "label_names": (str | None, None, "--label-names", "File of label names, for numbered labels."),
    "on_error": (
        str,
        "raise",
        "--on-error",
        "raise: stop at the first bad document; skip: leave it out, and count.",
    ),
}

Data = Annotated[str, Argument(metavar="DATA", help=f"A file of documents, or: {', '.join(BUILT_IN)}.")]
ModelFolder = Annotated[Path, Argument(metavar="MODEL", help="A model folder.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
Threads = Annotated[int | None, Option(help="Threads to use [default: all cores].")]
Runtime = Annotated[
    str | None, Option(help="What runs the encoder: torch, onnx or onnx-int8 [default: the fastest there].")
]


def group(text: str, example: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(
        help=f"{text}\n\n\b\nExample: {example}",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of READING, and their values as one ReadSettings."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        values = {name: given.pop(name) for name in READING}
        command(**given, reading=ReadSettings(**values))

    own = inspect.signature(command, eval_str=True).parameters.values()
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, Option(flag, help=text)],
        )
        for name, (kind, default, flag, text) in READING.items()
    ]
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in own
        if parameter.name != "reading"
    ]
    wrapper.__signature__ = inspect.Signature([*parameters, *added])  # type: ignore[attr-defined]
    return wrapper


def show(values: dict[str, Any], as_json: bool) -> None:
    """One answer: a JSON object, or a line for each of its plain values."""
    if as_json:
        say(json.dumps(values, ensure_ascii=False))
        return
    plain = {name: value for name, value in values.items() if not isinstance(value, (dict, list))}
    width = max(map(len, plain))
    for name, value in plain.items():
        number = (
            f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        )
        say(f"{name:{width}}  {number}")


def say(line: str) -> None:
    """A line on standard output, as it is but for control characters."""
    out.print(line.translate(CONTROLS), markup=False)


def apart(to: Path, *inputs: str | Path | None) -> None:
    """Refuse to write over what is read, and into a model folder."""
    target = to.resolve()
    for given in inputs:
        if given is not None and Path(given).exists() and Path(given).resolve() == target:
            raise SettingError(f"{to} is what is read", remedy="name another file to write to")
    if all((target.parent / name).exists() for name in (MANIFEST, ARRAYS)):
        raise SettingError(f"{to} lies in a model folder", remedy="name a file elsewhere")


def table_of(columns: list[str], rows: list[list[str]], right: int = 1) -> None:
    """A table on standard output; columns from `right` on hold numbers."""
    table = Table(*columns, box=None)
    for column in table.columns[right:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(Text, row))
    where = out if out.is_terminal else Console(width=max(out.width, WIDE), highlight=False)
    where.print(table, soft_wrap=False)


def report_left_out(corpus: Corpus) -> None:
    """Say on standard error what was left out of a corpus."""
    for found in corpus.left_out:
        err.print(f"left out: {found.count:,} x {found.reason} (first: {found.first})", markup=False)
