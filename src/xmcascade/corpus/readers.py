"""Files of documents become a Corpus.

The format follows from the file's name or else from its first lines; `format=` overrides both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmcascade.corpus import csvfiles, matrices, tables, textfiles
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import first_lines, suffixes
from xmcascade.corpus.reading import Format, ReadSettings
from xmcascade.corpus.textfiles import labels_beside
from xmcascade.errors import DataError, SettingError

__all__ = ["READERS", "read_corpus"]

READERS: dict[Format, Callable[[Path, ReadSettings], Corpus]] = {
    "jsonl": textfiles.read_jsonl,
    "csv": csvfiles.read_csv,
    "tsv": csvfiles.read_tsv,
    "parquet": tables.read_parquet,
    "fasttext": textfiles.read_fasttext,
    "raw": textfiles.read_raw,
    "svmlight": matrices.read_svmlight,
    "text2text": textfiles.read_text2text,
    "npz": matrices.read_npz,
}


def read_corpus(path: str | Path, settings: ReadSettings | None = None, **values: Any) -> Corpus:
    """Read a file of documents; the values are those of `ReadSettings`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"text": "red apple", "labels": ["fruit"]}')
    ...     read_corpus(Path(folder, "a.jsonl")).label_set(0)
    ['fruit']
    """
    path = Path(path)
    settings = (settings or ReadSettings()).with_values(values)
    form = settings.format or _guessed_format(path, settings)
    if settings.labels_file is not None and form not in LABELS_APART:
        what = f"labels_file is {settings.labels_file!r}, but {path.name} is {form}, with labels in it"
        raise SettingError(what, remedy=f"leave it out; it is for {' and '.join(LABELS_APART)}")
    corpus = READERS[form](path, settings)
    if corpus.n_docs == 0:
        skipped = sum(found.count for found in corpus.left_out)
        reasons = "; ".join(f"{found.reason} ({found.count:,})" for found in corpus.left_out)
        what = (
            f"all {skipped:,} documents were left out: {reasons}" if skipped else "the file has no documents"
        )
        remedy = "check that this is the right file and format"
        if skipped:
            remedy += f"; the first: {corpus.left_out[0].what}"
        raise DataError(what, where=path.name, remedy=remedy)
    return corpus


LABELS_APART: tuple[Format, ...] = ("raw", "npz")
BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".ft": "fasttext",
    ".fasttext": "fasttext",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}


def _guessed_format(path: Path, settings: ReadSettings) -> Format:
    suffix, _ = suffixes(path)
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    lines = first_lines(path, 2)
    if suffix == ".txt" and (settings.labels_file or labels_beside(path)):
        return "raw"
    if (
        len(lines) == 2
        and re.fullmatch(r"\d+ \d+ \d+\s*", lines[0])
        and re.search(r"(^|\s)\d+:\S+\s*$", lines[1])
    ):
        return "svmlight"
    if lines and all(re.match(r"\d+(::[\d.e+-]+)?(,\d+(::[\d.e+-]+)?)*\t", line) for line in lines):
        return "text2text"
    if lines and all(line.startswith(settings.label_prefix) for line in lines):
        return "fasttext"
    if suffix == ".txt" and not settings.need_labels:  # anything may stand in a text
        return "raw"
    if lines and lines[0].startswith("{"):
        return "jsonl"
    if any(settings.label_prefix in line for line in lines):
        return "fasttext"
    remedy = f"name it: format= (--format) one of {', '.join(READERS)}"
    raise DataError("cannot tell what kind of file this is", where=path.name, remedy=remedy)
