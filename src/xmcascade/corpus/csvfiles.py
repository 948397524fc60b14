"""CSV and TSV: rows that may span lines, under a header that must be right before anything else is read."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import BARE_RETURN, Line, read_lines
from xmcascade.corpus.reading import (
    ReadSettings,
    as_number,
    joined,
    named,
    needed_columns,
    read_names,
    report_line,
    split_labels,
)
from xmcascade.errors import DataError

__all__ = ["read_csv", "read_tsv"]

REMEDIES = {  # by what Python's csv module says
    "unexpected end": "close the quote that this row opens, or double it if it belongs to the value",
    "field larger": "close the quote that this row opens, or raise max_line_bytes",
    "expected after": "double the quotes inside a quoted value",
    "new-line character": BARE_RETURN,
}


def read_csv(path: Path, settings: ReadSettings, delimiter: str = ",") -> Corpus:
    """A table with a header; labels in one column, separated. Blank lines are ignored."""
    names = read_names(settings.label_names)
    builder = settings.builder(path.name, label_names=names)
    rows = _Rows(path, settings, builder, delimiter)
    header = [name.strip() for name in next(rows, [])]
    if not header or builder.n_problems:
        remedy = "name the columns in the first line"
        raise DataError("there is no header that can be read", where=path.name, remedy=remedy)
    needed_columns(header, settings, str(builder.at(rows.line)))
    columns = {name: i for i, name in enumerate(header)}
    at_texts, at_labels = [columns[name] for name in settings.text_fields], columns.get(settings.labels)
    at_id, at_weights = columns.get(settings.ids), columns.get(settings.weights)
    separator = settings.separator or ";"
    for row in rows:
        if len(row) != len(header):
            what = f"{len(row):,} values for {len(header):,} columns"
            remedy = "quote values that hold the delimiter"
            builder.problem("row does not fit the header", what, builder.at(rows.line), remedy)
            continue
        labels = [] if at_labels is None else split_labels(row[at_labels], separator)
        if names is not None:
            labels = named(labels, names, builder.at(rows.line, settings.labels), builder)
            if labels is None:
                continue
        builder.add(
            joined([row[i] for i in at_texts]),
            labels,
            doc_id=None if at_id is None else row[at_id],
            weights=None if at_weights is None else _weights(row[at_weights], separator),
            line=rows.line,
        )
    return builder.build()


def read_tsv(path: Path, settings: ReadSettings) -> Corpus:
    """As CSV, with tabs."""
    return read_csv(path, settings, "\t")


class _Unreadable(Exception):
    """A line that came with a problem; a row that it is part of is lost."""

    def __init__(self, line: Line) -> None:
        self.line = line
        super().__init__(line.problem)


class _Rows(Iterator[list[str]]):
    """The rows that are not blank, and the number of each one's first line; problems are the builder's."""

    def __init__(self, path: Path, settings: ReadSettings, builder: CorpusBuilder, delimiter: str) -> None:
        self.line = self._n_read = 0
        self._path, self._builder, self._limit = path, builder, settings.max_line_bytes
        self._lines = read_lines(path, settings.max_line_bytes)
        # An iterator of this kind lives on after an exception, where a generator would end.
        self._reader = csv.reader(iter(self._next_line, None), delimiter=delimiter, strict=True)

    def _next_line(self) -> str | None:
        line = next(self._lines, None)
        if line is None:
            return None
        self._n_read = line.number
        if line.problem:
            raise _Unreadable(line)
        return line.text + "\n"

    def __next__(self) -> list[str]:
        while True:
            self.line = self._n_read + 1
            # The limit is the csv module's own global; set it only while a row is read.
            before = csv.field_size_limit(self._limit)
            try:
                if row := next(self._reader):
                    return row
            except csv.Error as error:
                known = (remedy for said, remedy in REMEDIES.items() if said in str(error))
                remedy = next(known, "check the row")
                self._builder.problem("not CSV", f"not CSV ({error})", self._builder.at(self.line), remedy)
            except _Unreadable as error:
                report_line(error.line, self._path, self._builder)
            finally:
                csv.field_size_limit(before)


def _weights(cell: str, separator: str) -> list[float | str] | None:
    return [as_number(part) for part in split_labels(cell, separator)] or None
