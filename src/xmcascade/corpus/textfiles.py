"""Text formats: each is one function that hands documents to the builder, line by line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import BARE_RETURN, COMPRESSED, Line, open_bytes, place, read_lines
from xmcascade.corpus.reading import (
    ReadSettings,
    as_number,
    checked_lines,
    joined,
    listed,
    named,
    read_names,
    report_line,
    split_labels,
)
from xmcascade.errors import DataError

__all__ = [
    "labels_beside",
    "read_fasttext",
    "read_jsonl",
    "read_raw",
    "read_text2text",
]


def read_jsonl(path: Path, settings: ReadSettings) -> Corpus:
    """JSON Lines: one object a document; blank lines are ignored."""
    names = read_names(settings.label_names)
    builder = settings.builder(path.name, label_names=names)
    texts, (_, labels, ids, weights) = settings.text_fields, settings.fields
    needed = {*texts, labels} if settings.need_labels else set(texts)
    for line in checked_lines(path, settings, builder):
        if not line.text or line.text.isspace():
            continue
        record = _record(line, builder)
        if record is None:
            continue
        if not needed <= record.keys():
            lacking = next((text for text in texts if text not in record), None)
            name, option = (lacking, "--text") if lacking is not None else (labels, "--labels")
            what = f"there is no field {name!r}; the fields are {listed(record)}"
            remedy = f"name the right field ({option}){', or write [] for none' * (name == labels)}"
            builder.problem(f"{option[2:]} missing", what, builder.at(line.number), remedy)
            continue
        found = record.get(labels)
        if found is None and labels not in needed:
            found = []
        elif names is not None and found is not None:
            found = named(found, names, builder.at(line.number, labels), builder)
            if found is None:
                continue
        text = joined([record[name] for name in texts])
        builder.add(text, found, doc_id=record.get(ids), weights=record.get(weights), line=line.number)
    return builder.build()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)  # json.loads would make one for each line
_JSON_NAMES: dict[type, str] = {list: "array", str: "string", bool: "truth value", type(None): "null"}


def _record(line: Line, builder: CorpusBuilder) -> dict[str, Any] | None:
    """The line's JSON object; None when it has none, which is then the builder's problem."""
    try:
        record = _DECODER.decode(line.text)
    except (ValueError, RecursionError) as error:
        said = str(error)
        if isinstance(error, json.JSONDecodeError):  # its own words count lines, which are not the file's
            said = f"{error.msg} at character {error.pos + 1}"
        remedy = "write one JSON object a line"
        if "\r" in line.text:
            remedy = BARE_RETURN
        elif line.number == 1 and line.text.lstrip().startswith(("[", "{")) and len(line.text) < 100:
            remedy = "if this is one JSON value over many lines, write one object a line (jq -c '.[]')"
        builder.problem("not JSON", f"not JSON ({said})", builder.at(line.number), remedy)
        return None
    if isinstance(record, dict):
        return record
    remedy = "write one JSON object a line"
    if isinstance(record, list) and line.number == 1:
        remedy = "this looks like one JSON array: write one object a line instead (jq -c '.[]')"
    what = f"a JSON {_JSON_NAMES.get(type(record), 'number')}, not an object"
    builder.problem("not an object", what, builder.at(line.number), remedy)
    return None


BLANKS = r" \t\v\f\0"  # what fastText parts words by; a non-breaking space is part of a word


def read_fasttext(path: Path, settings: ReadSettings) -> Corpus:
    """Words with the label prefix, mostly the first ones, are labels; the rest is the text.

    Blank lines are ignored.
    """
    builder = settings.builder(path.name)
    mark = re.compile(rf"(?<![^{BLANKS}]){re.escape(settings.label_prefix)}([^{BLANKS}]*)[{BLANKS}]*")
    for line in checked_lines(path, settings, builder):
        if line.text.strip():
            builder.add(mark.sub("", line.text).strip(), mark.findall(line.text), line=line.number)
    return builder.build()


def read_text2text(path: Path, settings: ReadSettings) -> Corpus:
    """PECOS's layout: label numbers, a tab, the text; 7::0.5 weighs label 7. Blank lines are ignored."""
    names = read_names(settings.label_names)
    builder = settings.builder(path.name, label_names=names)
    for line in checked_lines(path, settings, builder):
        if not line.text.strip():
            continue
        numbers, tab, text = line.text.partition("\t")
        if not tab:
            remedy = "write label numbers, a tab, and the text"
            builder.problem("no tab", "there is no tab", builder.at(line.number), remedy)
            continue
        at = builder.at(line.number, settings.labels)
        parts = [part.partition("::") for part in split_labels(numbers, settings.separator or ",")]
        labels = named([number.strip() for number, _, _ in parts], names, at, builder)
        weights = [as_number(weight) if mark else 1.0 for _, mark, weight in parts]
        if labels is not None:
            weighed = any(mark for _, mark, _ in parts)
            builder.add(text, labels, weights=weights if weighed else None, line=line.number)
    corpus = builder.build()
    return corpus if names is None else replace(corpus, label_texts=corpus.label_names)


def labels_beside(path: Path) -> Path | None:
    """The label file that belongs to a raw text file by the names in use."""
    plain = path.name
    for suffix in COMPRESSED:
        plain = plain.removesuffix(suffix)
    stem = plain.removesuffix(".txt")
    names = [stem.replace("raw_texts", "labels"), stem.replace("texts", "labels"), stem.replace("X.", "Y.")]
    for name in names:
        for suffix in ("", *COMPRESSED) if name != stem else ():
            if (other := path.with_name(f"{name}.txt{suffix}")).exists():
                return other
    return None


def read_raw(path: Path, settings: ReadSettings) -> Corpus:
    """The XMC repository's raw layout: one text a line, and one line of labels for it in a second file.

    A blank line is a document with an empty text here, since lines are matched by their number.
    """
    beside = Path(settings.labels_file) if settings.labels_file else labels_beside(path)
    if beside is None and settings.need_labels:
        with open_bytes(path):  # a missing file is the first thing to say
            remedy = "name it: labels_file= (--labels-file)"
            raise DataError("there is no file of labels beside it", where=path.name, remedy=remedy)
    names = read_names(settings.label_names)
    builder = settings.builder(path.name, label_names=names)
    label_lines = None if beside is None else read_lines(beside, settings.max_line_bytes)
    for line in read_lines(path, settings.max_line_bytes):
        labels: list[str] | None = []
        if label_lines is not None and beside is not None:
            own = next(label_lines, None)
            if own is None:
                _disagree(path, beside, f"{beside.name} ends after line {line.number - 1:,}")
            if own.problem:
                report_line(own, beside, builder)
                continue
            at = place(beside, own.number)
            labels = named(_label_line(own.text, settings.separator), names, at, builder)
        if line.problem:
            report_line(line, path, builder)
        elif labels is not None:
            builder.add(line.text, labels, line=line.number)
    if label_lines is not None and beside is not None and next(label_lines, None) is not None:
        _disagree(path, beside, f"{path.name} ends before it")
    return builder.build()


def _disagree(path: Path, labels: Path, what: str) -> NoReturn:
    remedy = "give one line of labels for each line of text"
    raise DataError(f"{path.name} and {labels.name} have different numbers of lines: {what}", remedy=remedy)


def _label_line(line: str, separator: str | None) -> list[str]:
    if separator is not None:
        return split_labels(line, separator)
    parts = line.split()
    if "," in line and all(part.replace(",", "").isdecimal() for part in parts):
        return split_labels(line.replace(" ", ","), ",")
    return parts
