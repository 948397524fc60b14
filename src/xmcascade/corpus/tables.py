"""Tables of any library become a Corpus: whatever speaks Arrow is read batch by batch, and so is Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import open_bytes
from xmcascade.corpus.reading import ReadSettings, listed, split_labels
from xmcascade.errors import DataError, Place
from xmcascade.progress import tracker
from xmcascade.store import Strings

__all__ = ["read_parquet", "read_table"]

BATCH_ROWS = 8192
LABELS_KEY = b"xmcascade.labels"  # Parquet metadata: all labels in order, and their texts
LABEL_TEXTS_KEY = b"xmcascade.label_texts"


def read_table(table: Any, settings: ReadSettings | None = None, **values: Any) -> Corpus:
    """A corpus from a pandas, polars or Arrow table, a `datasets` data set, or a dict of columns.

    >>> read_table({"title": ["a text"], "tags": ["x;y"]}, text="title", labels="tags").label_set(0)
    ['x', 'y']
    """
    import pyarrow as pa

    settings = (settings or ReadSettings()).with_values(values)
    source = f"the {type(table).__name__}"
    builder = settings.builder()
    if hasattr(table, "__arrow_c_stream__"):
        try:
            arrow = pa.table(table)
        except (pa.ArrowException, TypeError, ValueError) as error:
            remedy = "give every column one type"
            raise DataError(f"cannot become an Arrow table ({error})", where=source, remedy=remedy) from error
        columns = _columns(arrow.column_names, settings, source)
        _add_batches(builder, arrow.select(columns).to_batches(BATCH_ROWS), settings, source)
    else:
        named = table if isinstance(table, Mapping) else _dataset_columns(table, source)
        columns = _columns(list(named), settings, source)
        picked = {name: list(named[name]) for name in columns}
        if len({len(values) for values in picked.values()}) > 1:
            sizes = ", ".join(f"{name!r} {len(values):,}" for name, values in picked.items())
            raise DataError(f"the columns differ in length: {sizes}", where=source, remedy="make them equally long")
        _add_rows(builder, picked, settings, source, 0)
    return builder.build()


def _dataset_columns(table: Any, source: str) -> Mapping[str, Any]:
    names = getattr(table, "column_names", None)
    if not isinstance(names, (list, tuple)):
        remedy = "give a pandas, polars or Arrow table, a datasets.Dataset, or a dict of columns"
        raise DataError("not a table", where=source, remedy=remedy)
    return {name: table[name] for name in names}


def read_parquet(path: Path, settings: ReadSettings) -> Corpus:
    """A corpus from a Parquet file, a batch of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_bytes(path) as (stream, _):
        try:
            file = pq.ParquetFile(path if path.suffix.lower() == ".parquet" else pa.BufferReader(stream.read()))
            columns = _columns(file.schema_arrow.names, settings, path.name)
            names = _metadata_strings(file, LABELS_KEY)
            builder = settings.builder(label_names=names)
            with tracker(f"reading {path.name}", file.metadata.num_rows) as seen:
                for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                    _add_batches(builder, [batch], settings, path.name, seen.done)
                    seen.advance(batch.num_rows)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            remedy = "the file is damaged or not Parquet: make it again"
            raise DataError(f"cannot be read ({error})"[:300], where=path.name, remedy=remedy) from error
        texts = _metadata_strings(file, LABEL_TEXTS_KEY)
    given = dict(zip(names, texts, strict=False)) if names is not None and texts is not None else None
    return builder.build(label_texts=given)


def _metadata_strings(file: Any, key: bytes) -> list[str] | None:
    import json

    raw = (file.schema_arrow.metadata or {}).get(key)
    if raw is None:
        return None
    try:
        names = json.loads(raw)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"the metadata {key.decode()!r} is not a list of strings", remedy="write the file again")
    return names


def _columns(names: list[str], settings: ReadSettings, source: str) -> list[str]:
    """The columns to read, after a check that those needed are there."""
    needed = [settings.text, *([settings.labels] if settings.need_labels else [])]
    for name in needed:
        if name not in names:
            what = f"there is no column {name!r}; the columns are {listed(names)}"
            raise DataError(what, where=source, remedy="name the right column (text=, labels=)")
    return [name for name in settings.fields if name in names]


def _add_batches(
    builder: CorpusBuilder, batches: Iterable[Any], settings: ReadSettings, source: str, first: int = 0
) -> None:
    for batch in batches:
        rows = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        _add_rows(builder, rows, settings, source, first)
        first += batch.num_rows


def _add_rows(
    builder: CorpusBuilder, rows: Mapping[str, list[Any]], settings: ReadSettings, source: str, first: int
) -> None:
    nothing = [None] * len(rows[settings.text])
    separator = settings.separator or ";"
    columns = (rows.get(name, nothing) for name in settings.fields)
    for i, (text, labels, doc_id, weights) in enumerate(zip(*columns, strict=True)):
        if isinstance(labels, str):
            labels = split_labels(labels, separator)
        elif labels is None and (settings.labels not in rows or not settings.need_labels):
            labels = ()
        at = Place(source, first + i + 1, unit="row")
        builder.add(text, labels, doc_id=doc_id, weights=weights, place=at, fields=settings.fields)


def to_arrow(corpus: Corpus) -> Any:
    """The documents as an Arrow table with columns id, text, labels and, where they say something, weights."""
    import json

    import pyarrow as pa

    if corpus.texts is None:
        raise DataError("this corpus has features but no texts", remedy="only corpora with texts can be written")
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
