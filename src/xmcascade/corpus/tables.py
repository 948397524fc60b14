"""Tables of any library become a Corpus: whatever speaks Arrow is read batch by batch, and so is Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.checks import is_missing
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import open_bytes, read_whole, suffixes
from xmcascade.corpus.reading import ReadSettings, joined, named, needed_columns, read_names, split_labels
from xmcascade.errors import DataError, XmcError
from xmcascade.progress import tracker
from xmcascade.store import Strings

__all__ = ["read_parquet", "read_table"]

BATCH_ROWS = 1024  # as Python objects at one time
LABELS_KEY = b"xmcascade.labels"  # Parquet metadata: all labels in order, and their texts
LABEL_TEXTS_KEY = b"xmcascade.label_texts"

_Rows = dict[str, list[Any]]


def read_table(table: Any, settings: ReadSettings | None = None, **values: Any) -> Corpus:
    """A corpus from a pandas, polars or Arrow table, a `datasets` data set, or a dict of columns.

    >>> read_table({"title": ["a text"], "tags": ["x;y"]}, text="title", labels="tags").label_set(0)
    ['x', 'y']
    """
    settings = (settings or ReadSettings()).with_values(values)
    source = f"the {type(table).__name__}"
    names = read_names(settings.label_names)
    builder = settings.builder(source, unit="row", label_names=names)
    first = 0
    for rows in _guarded(_row_batches(table, settings, source), source, "give every column one type"):
        first += _add_rows(builder, rows, settings, names, first)
    return builder.build()


def _row_batches(table: Any, settings: ReadSettings, source: str) -> Iterator[_Rows]:
    """The needed columns of any kind of table as Python lists, some rows at a time."""
    import pyarrow as pa

    if hasattr(table, "iloc"):
        # pandas; a column may hold mixed types, which Arrow would refuse as a whole.
        names = needed_columns(list(table.columns), settings, source)
        for lo in range(0, len(table), BATCH_ROWS):
            part = table.iloc[lo : lo + BATCH_ROWS]
            yield {name: part[name].tolist() for name in names}
    elif hasattr(table, "__arrow_c_stream__"):
        arrow = pa.table(table)
        names = needed_columns(arrow.column_names, settings, source)
        yield from map(_python_rows, arrow.select(names).to_batches(BATCH_ROWS))
    else:
        given = list(table) if isinstance(table, Mapping) else getattr(table, "column_names", None)
        if not isinstance(given, (list, tuple)):
            remedy = "give a pandas, polars or Arrow table, a datasets.Dataset, or a dict of columns"
            raise DataError("not a table", where=source, remedy=remedy)
        columns = {name: list(table[name]) for name in needed_columns(given, settings, source)}
        if len({len(values) for values in columns.values()}) > 1:
            sizes = ", ".join(f"{name!r} {len(values):,}" for name, values in columns.items())
            what, remedy = f"the columns differ in length: {sizes}", "make them equally long"
            raise DataError(what, where=source, remedy=remedy)
        yield columns


def read_parquet(path: Path, settings: ReadSettings) -> Corpus:
    """A corpus from a Parquet file, a batch of rows at a time."""
    import pyarrow.parquet as pq

    remedy = "the file is damaged or not Parquet: make it again"
    with open_bytes(path):
        with _faults(path.name, remedy):
            source = read_whole(path) if suffixes(path)[1] else path
            file = pq.ParquetFile(source, pre_buffer=False)  # or it would hold the whole file
            given, metadata = file.schema_arrow.names, file.schema_arrow.metadata or {}
        columns = needed_columns(given, settings, path.name)
        numbered = read_names(settings.label_names)
        names = numbered or _metadata_strings(metadata, LABELS_KEY, path)
        texts = None if numbered else _metadata_strings(metadata, LABEL_TEXTS_KEY, path)
        if texts is not None and len(texts) != len(names or ()):
            what = f"the metadata has {len(texts):,} label texts for {len(names or ()):,} labels"
            raise DataError(what, where=path.name, remedy="write the file again")
        builder = settings.builder(path.name, unit="row", label_names=names)
        batches = map(_python_rows, file.iter_batches(BATCH_ROWS, columns=columns))
        with tracker(f"reading {path.name}", file.metadata.num_rows) as seen:
            for rows in _guarded(batches, path.name, remedy):
                seen.advance(_add_rows(builder, rows, settings, numbered, seen.done))
    return builder.build(label_texts=None if texts is None else dict(zip(names or (), texts, strict=True)))


@contextmanager
def _faults(source: str, remedy: str) -> Iterator[None]:
    """Whatever a table library finds wrong with a table, in its dozen types, becomes a DataError."""
    try:
        yield
    except XmcError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        what = f"cannot be read ({said:.200})"
        raise DataError(what, where=source, remedy=remedy) from error


def _guarded(batches: Iterable[_Rows], source: str, remedy: str) -> Iterator[_Rows]:
    with _faults(source, remedy):  # around the library's work only: what is done with a batch is outside
        yield from batches


def _python_rows(batch: Any) -> _Rows:
    return {name: batch.column(name).to_pylist() for name in batch.schema.names}


def _metadata_strings(metadata: Mapping[bytes, bytes], key: bytes, path: Path) -> list[str] | None:
    if key not in metadata:
        return None
    try:
        names = json.loads(metadata[key])
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        what = f"the metadata {key.decode()!r} is not a list of strings"
        raise DataError(what, where=path.name, remedy="write the file again")
    return names


def _add_rows(
    builder: CorpusBuilder, rows: _Rows, settings: ReadSettings, names: list[str] | None, first: int
) -> int:
    """Hand rows to the builder, the first being this one; returns how many there were."""
    texts = [rows[name] for name in settings.text_fields]
    nothing = [None] * len(texts[0])
    separator = settings.separator or ";"
    may_lack = settings.labels not in rows or not settings.need_labels
    others = (rows.get(name, nothing) for name in settings.fields[1:])
    columns = zip(zip(*texts, strict=True), *others, strict=True)
    for line, (text, labels, doc_id, weights) in enumerate(columns, first + 1):
        if isinstance(labels, str):
            labels = split_labels(labels, separator)
        elif may_lack and is_missing(labels):
            labels = []
        if names is not None and not is_missing(labels):
            labels = named(labels, names, builder.at(line, settings.labels), builder)
            if labels is None:
                continue
        doc_id, weights = (None if is_missing(value) else value for value in (doc_id, weights))
        builder.add(joined(text), labels, doc_id=doc_id, weights=weights, line=line)
    return len(nothing)


def to_arrow(corpus: Corpus) -> Any:
    """The documents as an Arrow table with columns id, text, labels and, unless all are 1, weights."""
    import pyarrow as pa

    if corpus.texts is None:
        raise DataError(
            "this corpus has features but no texts", remedy="only corpora with texts can be written"
        )
    columns = {} if corpus.ids is None else {"id": corpus.ids.to_arrow()}
    columns["text"] = corpus.texts.to_arrow()
    offsets = pa.array(corpus.labels.indptr, pa.int64())
    names = corpus.label_names.to_arrow().take(pa.array(corpus.labels.indices))
    columns["labels"] = pa.LargeListArray.from_arrays(offsets, names)
    if corpus.has_weights:
        columns["weights"] = pa.LargeListArray.from_arrays(offsets, pa.array(corpus.labels.data))
    metadata = {LABELS_KEY: json.dumps(list(corpus.label_names))}
    if corpus.label_texts is not None:
        metadata[LABEL_TEXTS_KEY] = json.dumps(list(Strings.of(corpus.label_texts)))
    return pa.table(columns).replace_schema_metadata(metadata)
