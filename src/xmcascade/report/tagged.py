"""Predictions as a file: JSON Lines, CSV or Parquet, written as they come, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from xmcascade.errors import SettingError
from xmcascade.models import Prediction
from xmcascade.store.files import replacing_file

__all__ = ["Tagged", "as_line", "tagged_file"]

COMPRESSED = (".gz", ".xz", ".zst")
BETWEEN = ";"  # labels in one cell

Tagged = Callable[[Sequence[Any], Sequence[Sequence[Prediction]]], None]
"""Takes the ids of some documents and their predictions."""


@contextmanager
def tagged_file(
    path: str | Path, between: str | None = None, label_names: Iterable[str] = ()
) -> Iterator[Tagged]:
    """A writer to a file; its name says how: .jsonl or .csv (also .gz, .xz, .zst), or .parquet.

    between: what separates labels in one cell [";"]; of these label names, none may hold it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with tagged_file(f"{folder}/tags.csv") as write:
    ...         write(["a"], [[Prediction("fruit", 1.5, 0.75), Prediction("apple", 1.0, 0.5)]])
    ...     Path(folder, "tags.csv").read_text().splitlines()
    ['id,labels,probabilities', 'a,fruit;apple,0.7500;0.5000']
    """
    kinds = [suffix for suffix in Path(path).suffixes if suffix.lower() not in COMPRESSED]
    kind = kinds[-1].lower() if kinds else ".jsonl"
    writers = {".jsonl": _lines, ".ndjson": _lines, ".json": _lines, ".csv": _cells, ".parquet": _columns}
    if kind not in writers:
        raise SettingError(f"predictions as {kind!r}", remedy="name the file .jsonl, .csv or .parquet")
    between = between or BETWEEN
    if kind == ".csv" and (held := next((name for name in label_names if between in name), None)):
        what = f"the label {held!r:.60} holds {between!r}, which separates labels in one cell"
        raise SettingError(what, remedy="use another --separator, or write .jsonl or .parquet")
    with replacing_file(path) as stream, writers[kind](stream, between) as write:
        yield write


def as_line(document: Any, found: Sequence[Prediction]) -> bytes:
    """One document's predictions as a line of JSON.

    >>> as_line(3, [Prediction("fruit", 1.5, 0.75)])
    b'{"id": 3, "predictions": [{"label": "fruit", "score": 1.5, "probability": 0.75}]}\\n'
    """
    told = {"id": document, "predictions": [prediction._asdict() for prediction in found]}
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


@contextmanager
def _lines(stream: IO[bytes], between: str) -> Iterator[Tagged]:
    def write(ids: Sequence[Any], rows: Sequence[Sequence[Prediction]]) -> None:
        stream.write(b"".join(map(as_line, ids, rows)))

    yield write


@contextmanager
def _cells(stream: IO[bytes], between: str) -> Iterator[Tagged]:
    """A row for each document."""

    def write_rows(rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        plain = csv.writer(text, lineterminator="\n")
        quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        for row in rows:  # Python leaves a carriage return without quotes, which ends a line for most readers
            (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
        stream.write(text.getvalue().encode("utf-8", "replace"))

    def write(ids: Sequence[Any], rows: Sequence[Sequence[Prediction]]) -> None:
        write_rows(
            [
                [name, between.join(p.label for p in row), between.join(f"{p.probability:.4f}" for p in row)]
                for name, row in zip(ids, rows, strict=True)
            ]
        )

    write_rows([["id", "labels", "probabilities"]])
    yield write


@contextmanager
def _columns(stream: IO[bytes], between: str) -> Iterator[Tagged]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.list_(pa.float32())
    kinds = [pa.string(), pa.list_(pa.string()), numbers, numbers]
    schema = pa.schema(zip(["id", "labels", "scores", "probabilities"], kinds, strict=True))
    with pq.ParquetWriter(pa.PythonFile(stream, "w"), schema) as writer:

        def write(ids: Sequence[Any], rows: Sequence[Sequence[Prediction]]) -> None:
            parts = [[list(column) for column in zip(*row, strict=True)] or [[], [], []] for row in rows]
            columns = [list(map(str, ids)), *map(list, zip(*parts, strict=True))] if rows else [[]] * 4
            writer.write_table(pa.table(columns, schema=schema))

        yield write
