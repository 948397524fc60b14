"""What all readers share: their settings, lines as the builder wants them, and labels out of strings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.checks import is_missing, kind
from xmcascade.corpus.lines import MAX_LINE_BYTES, Line, place, read_lines
from xmcascade.errors import DataError, Place
from xmcascade.settings import Settings

__all__ = [
    "Format",
    "ReadSettings",
    "as_number",
    "checked_lines",
    "joined",
    "listed",
    "named",
    "needed_columns",
    "read_names",
    "report_line",
    "split_labels",
]

Format = Literal["jsonl", "csv", "tsv", "parquet", "fasttext", "raw", "svmlight", "text2text", "npz"]


@dataclass(frozen=True, kw_only=True)
class ReadSettings(Settings):
    """How to read a file or a table."""

    format: Format | None = None
    """None: by the file's name and first lines."""
    text: str = "text"
    """Field or column of the text, or several, as title+body; also one each: `labels`, `ids`, `weights`."""
    labels: str = "labels"
    ids: str = "id"
    weights: str = "weights"
    separator: str | None = None
    """Between labels in one string; None: ";" in tables, blanks in label files (commas between numbers)."""
    label_prefix: str = "__label__"
    """fastText's mark of a label."""
    labels_file: str | None = None
    """The file with the labels, where these are not in the file itself; None: the usual name beside it."""
    label_names: str | None = None
    """A file with one label name a line, where labels are numbers from 0."""
    need_labels: bool = True
    """Whether documents must say their labels (an empty list will do); False for texts to be tagged."""
    on_error: Literal["raise", "skip"] = "raise"
    empty_text: Literal["error", "keep"] = "error"
    max_line_bytes: int = MAX_LINE_BYTES

    def check(self) -> None:
        """Refuse values out of range."""
        self.require(1 <= self.max_line_bytes < 2**31, "max_line_bytes", "from 1 to 2^31 - 1")
        self.require(all(self.text_fields), "text", "a name, or names with + between them")
        self.require(len(self.label_prefix) > 0, "label_prefix", "at least one character")
        self.require(self.separator is None or len(self.separator) > 0, "separator", "at least one character")

    @property
    def fields(self) -> tuple[str, str, str, str]:
        """Names of text, labels, ids and weights, in the builder's order."""
        return self.text, self.labels, self.ids, self.weights

    @property
    def text_fields(self) -> list[str]:
        """Names of the fields that make up a text."""
        return self.text.split("+")

    def builder(self, source: str, **values: Any) -> CorpusBuilder:
        """A builder that treats problems as these settings say."""
        return CorpusBuilder(
            on_error=self.on_error, empty_text=self.empty_text, source=source, fields=self.fields, **values
        )


def checked_lines(path: Path, settings: ReadSettings, builder: CorpusBuilder) -> Iterator[Line]:
    """The lines that can be read; the others are the builder's problem."""
    for line in read_lines(path, settings.max_line_bytes):
        if line.problem:
            report_line(line, path, builder)
        else:
            yield line


def report_line(line: Line, path: Path, builder: CorpusBuilder) -> None:
    """Hand an unreadable line to the builder as its problem."""
    reason = "line too long" if "longer" in line.problem else "line not UTF-8"
    builder.problem(reason, line.problem, place(path, line.number), line.remedy)


def listed(names: Collection[Any]) -> str:
    """A few names for a message.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(f"{name!r:.40}" for name in islice(names, 8))
    return f"{shown}, ..." if len(names) > 8 else shown or "none"


def needed_columns(names: Sequence[str], settings: ReadSettings, where: str) -> list[str]:
    """The columns to read, after a check that those needed are there, each once."""
    others, usual = settings.fields[1:], ReadSettings().fields[1:]
    needed = [*settings.text_fields, *([settings.labels] if settings.need_labels else [])]
    needed += [name for name, own in zip(others, usual, strict=True) if name != own]
    for name in needed:
        if name not in names:
            what = f"there is no column {name!r}; the columns are {listed(names)}"
            remedy = "name the right column (text=, labels=; --text, --labels)"
            if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
                remedy = "the columns seem to be separated otherwise: save the file with commas, or as .tsv"
            raise DataError(what, where=where, remedy=remedy)
    found = [name for name in (*settings.text_fields, *others) if name in names]
    for name in found:
        if names.count(name) > 1:
            raise DataError(
                f"the column {name!r} is there twice", where=where, remedy="rename one of the two"
            )
    return list(dict.fromkeys(found))


def split_labels(cell: str, separator: str) -> list[str]:
    """Labels out of one string, without blanks around them; nothing in, nothing out.

    >>> split_labels("a; b c;", ";")
    ['a', 'b c']
    """
    return [name for part in cell.split(separator) if (name := part.strip())]


def read_names(path: str | None) -> list[str] | None:
    """One name a line; the line's number from 0 is the label's number."""
    if path is None:
        return None
    lines: dict[str, int] = {}
    for line in read_lines(Path(path)):
        name, what = line.text.strip(), line.problem
        if not what and not name:
            what = "the name is empty"
        elif not what and name in lines:
            what = f"the name {name!r:.60} occurs twice, here and in line {lines[name]:,}"
        if what:
            remedy = line.remedy or "write one label name a line, each once"
            raise DataError(what, where=str(place(Path(path), line.number)), remedy=remedy)
        lines[name] = line.number
    return list(lines)


def joined(values: Sequence[Any]) -> Any:
    """One text of several fields; what is no string stays as it is, for the builder to say so.

    >>> joined(["A title", None, "The body"])
    'A title\\nThe body'
    """
    if len(values) == 1:
        return values[0]
    told = [value for value in values if not is_missing(value)]
    for value in told:
        if not isinstance(value, str):
            return value
    return "\n".join(filter(None, told))


def as_number(text: str) -> float | str:
    """A weight written as text; what is no number stays as it is, for the builder to say so.

    >>> as_number("0.5"), as_number("half")
    (0.5, 'half')
    """
    try:
        return float(text)
    except ValueError:
        return text


def named(numbers: Any, names: list[str] | None, at: Place, builder: CorpusBuilder) -> Any:
    """Names of labels given by number; None when one is no number or out of range.

    Without names, and of what is no list, what was given: the builder will say what is wrong with it.
    """
    if names is None or isinstance(numbers, (str, bytes, Mapping)) or not isinstance(numbers, Iterable):
        return numbers
    found = []
    for number in numbers:
        if not 0 <= (own := _whole(number)) < len(names):
            what = f"{kind(number)} is not the number of a label (0 to {len(names) - 1:,})"
            builder.problem("label number out of range", what, at, "correct it, or the file of label names")
            return None
        found.append(names[own])
    return found


def _whole(number: Any) -> int:
    """A whole number, also when it is written as text; -1 when it is none."""
    if isinstance(number, str):  # Python refuses to convert thousands of digits
        return int(number) if number.isdecimal() and len(number) < 20 else -1
    return int(number) if isinstance(number, (int, np.integer)) and not isinstance(number, bool) else -1
