"""Small files to read, and what makes two corpora the same."""

from __future__ import annotations

import gzip
import io
import json
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from xmcascade.corpus import Corpus


def packed(data: bytes, suffix: str) -> bytes:
    """The bytes as a file whose name ends like this would hold them."""
    if suffix == ".gz":
        return gzip.compress(data, mtime=0)
    if suffix == ".xz":
        return lzma.compress(data)
    if suffix == ".zst":
        return pa.compress(data, codec="zstd", asbytes=True)
    return data


def documents(corpus: Corpus) -> list[tuple]:
    """Everything a corpus says of its documents, as plain Python values."""
    found = []
    for doc in range(corpus.n_docs):
        row = corpus.labels[doc]
        weights = dict(zip(corpus.label_set(doc), row.data.tolist(), strict=True))
        text = None if corpus.texts is None else corpus.texts[doc]
        found.append((text, None if corpus.ids is None else corpus.ids[doc], weights))
    return found


def jsonl(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def parquet(**columns: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def npz(rows: object) -> bytes:
    out = io.BytesIO()
    sp.save_npz(out, sp.csr_matrix(np.array(rows, dtype=np.float32)))
    return out.getvalue()
