"""Text formats: each is one function that hands documents to the builder, line by line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import COMPRESSED, Line, place, read_lines
from xmcascade.corpus.reading import ReadSettings, checked_lines, listed, numbered, read_names, split_labels
from xmcascade.errors import DataError

__all__ = ["labels_beside", "read_csv", "read_fasttext", "read_jsonl", "read_raw", "read_text2text", "read_tsv"]


def read_jsonl(path: Path, settings: ReadSettings) -> Corpus:
    """JSON Lines: one object a document."""
    builder = settings.builder()
    for line in checked_lines(path, settings, builder):
        if not line.text or line.text.isspace():
            continue
        at = place(path, line.number)
        try:
            record = json.loads(line.text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            remedy = "write one JSON object a line"
            if line.text.lstrip().startswith("[") and line.number == 1:
                remedy = "this looks like one JSON array: write one object a line instead (jq -c '.[]')"
            elif "\r" in line.text:
                remedy = "the line has a bare carriage return: convert the line ends (tr '\\r' '\\n')"
            builder.problem("not JSON", f"not JSON ({error})"[:200], at, remedy)
            continue
        if not isinstance(record, dict):
            what = f"a JSON {type(record).__name__}, not an object"
            builder.problem("not an object", what, at, f'write {{"{settings.text}": ..., "{settings.labels}": [...]}}')
            continue
        if settings.need_labels and settings.labels not in record:
            what = f"there is no field {settings.labels!r}; the fields are {listed(record)}"
            builder.problem("labels missing", what, at, "name the right field (--labels), or write [] for none")
            continue
        if settings.text not in record:
            what = f"there is no field {settings.text!r}; the fields are {listed(record)}"
            builder.problem("text missing", what, at, "name the right field (--text)")
            continue
        labels = record.get(settings.labels)
        builder.add(
            record[settings.text],
            () if labels is None and not settings.need_labels else labels,
            doc_id=record.get(settings.ids),
            weights=record.get(settings.weights),
            place=at,
            fields=settings.fields,
        )
    return builder.build()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def read_csv(path: Path, settings: ReadSettings, delimiter: str = ",") -> Corpus:
    """A table with a header; labels in one column, separated."""
    builder = settings.builder()
    reader = _CsvRows(path, settings, builder, delimiter)
    header = next(reader, None)
    if header is None:
        raise DataError("the file has no header", where=path.name, remedy="name the columns in the first line")
    columns = {name.strip(): i for i, name in enumerate(header)}
    wanted = [settings.text, *([settings.labels] if settings.need_labels else [])]
    for name in wanted:
        if name not in columns:
            what = f"there is no column {name!r}; the columns are {listed(columns)}"
            raise DataError(what, where=str(place(path, 1)), remedy="name the right column (--text, --labels)")
    at_text, at_labels = columns[settings.text], columns.get(settings.labels)
    at_id, at_weights = columns.get(settings.ids), columns.get(settings.weights)
    separator = settings.separator or ";"
    for row in reader:
        at = place(path, reader.line)
        if not row:
            continue
        if len(row) != len(header):
            what = f"{len(row)} values for {len(header)} columns"
            builder.problem("row does not fit the header", what, at, "quote values that hold the delimiter")
            continue
        labels = [] if at_labels is None else split_labels(row[at_labels], separator)
        weights = None if at_weights is None else _numbers(row[at_weights], separator)
        builder.add(
            row[at_text],
            labels,
            doc_id=None if at_id is None else row[at_id],
            weights=weights,
            place=at,
            fields=settings.fields,
        )
    return builder.build()


class _CsvRows:
    """Rows of a CSV file with the number of their last line; csv's own complaints become the builder's."""

    def __init__(self, path: Path, settings: ReadSettings, builder: CorpusBuilder, delimiter: str) -> None:
        self.path, self.builder, self.line, self._rows = path, builder, 0, 0
        self._limit = settings.max_line_bytes
        self._reader = csv.reader(self._lines(checked_lines(path, settings, builder)), delimiter=delimiter)

    def _lines(self, lines: Iterator[Line]) -> Iterator[str]:
        for line in lines:
            self.line = line.number
            yield line.text + "\n"

    def __iter__(self) -> _CsvRows:
        return self

    def __next__(self) -> list[str]:
        # The limit is the csv module's own global; set it only while a row is read.
        before = csv.field_size_limit(self._limit)
        try:
            return next(self._reader)
        except csv.Error as error:
            remedy = "check the quotes: a value may be missing its closing one"
            self.builder.problem("not CSV", f"not CSV ({error})", place(self.path, self.line), remedy)
            return []
        finally:
            csv.field_size_limit(before)


def _numbers(cell: str, separator: str) -> list[Any] | None:
    parts = split_labels(cell, separator)
    try:
        return [float(part) for part in parts] or None
    except ValueError:
        return list(parts)  # the builder says which one is no number


def read_fasttext(path: Path, settings: ReadSettings) -> Corpus:
    """Labels marked by a prefix, then the text."""
    builder = settings.builder()
    prefix = settings.label_prefix
    for line in checked_lines(path, settings, builder):
        if not line.text.strip():
            continue
        rest, labels = line.text.lstrip(), []
        while rest.startswith(prefix):
            word, _, rest = rest.partition(" ") if " " in rest else (rest, "", "")
            labels.append(word[len(prefix) :])
            rest = rest.lstrip()
        builder.add(rest.strip(), labels, place=place(path, line.number), fields=settings.fields)
    return builder.build()


def read_text2text(path: Path, settings: ReadSettings) -> Corpus:
    """PECOS's layout: label numbers, a tab, the text."""
    names = read_names(settings.label_names)
    builder = settings.builder(label_names=names)
    for line in checked_lines(path, settings, builder):
        if not line.text.strip():
            continue
        at = place(path, line.number)
        numbers, tab, text = line.text.partition("\t")
        if not tab:
            builder.problem("no tab", "there is no tab", at, "write label numbers, a tab, and the text")
            continue
        labels = numbered(split_labels(numbers, settings.separator or ","), names, at, builder)
        if labels is not None:
            builder.add(text, labels, place=at, fields=settings.fields)
    corpus = builder.build()
    return corpus if names is None else replace(corpus, label_texts=corpus.label_names)


def labels_beside(path: Path) -> Path | None:
    """The label file that belongs to a raw text file by the names in use."""
    plain = path.name
    for suffix in COMPRESSED:
        plain = plain.removesuffix(suffix)
    stem = plain.removesuffix(".txt")
    found = [stem.replace("raw_texts", "labels"), stem.replace("texts", "labels"), stem.replace("X.", "Y.")]
    for name in found:
        for suffix in ("", *COMPRESSED):
            other = path.with_name(f"{name}.txt{suffix}")
            if name != stem and other.exists():
                return other
    return None


def read_raw(path: Path, settings: ReadSettings) -> Corpus:
    """The XMC repository's raw layout: one text a line, and one line of labels for it in a second file."""
    beside = Path(settings.labels_file) if settings.labels_file else labels_beside(path)
    if beside is None and settings.need_labels:
        remedy = "name it: labels_file= (--labels-file)"
        raise DataError("there is no file of labels beside it", where=path.name, remedy=remedy)
    names = read_names(settings.label_names)
    builder = settings.builder(label_names=names)
    label_lines = None if beside is None else read_lines(beside, settings.max_line_bytes)
    for line in read_lines(path, settings.max_line_bytes):
        labels: list[str] | None = []
        if label_lines is not None and beside is not None:
            own = next(label_lines, None)
            if own is None:
                _disagree(path, beside, f"{beside.name} ends after line {line.number - 1:,}")
            else:
                at = place(beside, own.number)
                if own.problem:
                    builder.problem("labels unreadable", own.problem, at, own.remedy)
                    continue
                labels = _label_line(own.text, settings.separator)
                labels = labels if names is None else numbered(labels, names, at, builder)
        if line.problem:
            builder.problem("line unreadable", line.problem, place(path, line.number), line.remedy)
        elif labels is not None:
            builder.add(line.text, labels, place=place(path, line.number), fields=settings.fields)
    if label_lines is not None and beside is not None and next(label_lines, None) is not None:
        _disagree(path, beside, f"{path.name} ends before it")
    return builder.build()


def _disagree(path: Path, labels: Path, what: str) -> None:
    remedy = "give one line of labels for each line of text"
    raise DataError(f"{path.name} and {labels.name} have different numbers of lines: {what}", remedy=remedy)


def _label_line(line: str, separator: str | None) -> list[str]:
    if separator is not None:
        return split_labels(line, separator)
    parts = line.split()
    if "," in line and all(part.replace(",", "").isdecimal() for part in parts):
        return split_labels(line.replace(" ", ","), ",")
    return parts


def read_tsv(path: Path, settings: ReadSettings) -> Corpus:
    """As CSV, with tabs."""
    return read_csv(path, settings, "\t")
