"""Labels as sparse rows, for trees to be built from: what their documents say, their own text, or both."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError
from xmcascade.features.mixed import MixedRows

__all__ = ["LabelFeatures", "label_features", "normalise_rows"]

LabelFeatures = Literal["pifa", "text", "both"]


def normalise_rows(matrix: Any) -> Any:
    """Scale each row of a CSR matrix of floats to length 1, in place; empty rows stay empty.

    >>> normalise_rows(sp.csr_matrix([[3.0, 4.0], [0.0, 0.0]])).toarray().tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    squares = np.zeros(matrix.shape[0])
    sizes = np.diff(matrix.indptr)
    filled = sizes > 0  # reduceat takes no empty ranges
    if filled.any():
        squares[filled] = np.add.reduceat(matrix.data.astype(np.float64) ** 2, matrix.indptr[:-1][filled])
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
    matrix.data[:] = matrix.data / np.repeat(lengths, sizes)  # in float64: float32 overflows for tiny values
    return matrix


def label_features(
    kind: LabelFeatures, *, documents: Any = None, labels: Any = None, texts: Any = None
) -> Any:
    """One row a label, CSR, float32, of length 1 (0 for a label of which nothing is known).

    "pifa" sums the features of the label's documents (`documents` N x D or MixedRows, `labels` N x L, of
    which the weights do not count); "text" takes the features of its own text (`texts` L x E); "both" puts
    the two side by side with equal weight.

    >>> documents = sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]])
    >>> labels = sp.csr_matrix([[1.0, 0.0], [1.0, 1.0]])
    >>> label_features("pifa", documents=documents, labels=labels).toarray().round(2).tolist()
    [[0.7099999785423279, 0.7099999785423279], [0.0, 1.0]]
    """
    if kind not in ("pifa", "text", "both"):
        raise SettingError(f"label features are {kind!r}", remedy="allowed: pifa, text, both")
    parts = []
    if kind in ("pifa", "both"):
        if documents is None or labels is None:
            remedy = "give the documents' features and their labels"
            raise DataError(f"label features {kind!r} need documents and labels", remedy=remedy)
        n_docs = len(documents) if isinstance(documents, MixedRows) else documents.shape[0]
        _check_rows("documents", n_docs, labels.shape[0], "rows of labels")
        labels = labels.tocsr()
        ones = np.ones(labels.nnz, np.float32)
        marks = sp.csr_matrix((ones, labels.indices, labels.indptr), shape=labels.shape)
        rows = MixedRows.of(documents)
        summed = sp.csr_matrix(marks.T.tocsr() @ rows.sparse)
        if rows.n_dense:
            summed = sp.hstack([summed, marks.T.tocsr() @ rows.dense], format="csr", dtype=np.float32)
        parts.append(normalise_rows(summed))
    if kind in ("text", "both"):
        if texts is None:
            remedy = 'give the labels texts, or use "pifa"'
            raise DataError(f"label features {kind!r} need texts of the labels", remedy=remedy)
        parts.append(normalise_rows(sp.csr_matrix(texts, dtype=np.float32, copy=True)))
    if len(parts) == 2:
        _check_rows("label texts", parts[1].shape[0], parts[0].shape[0], "labels")
        parts = [normalise_rows(sp.hstack(parts, format="csr", dtype=np.float32))]
    parts[0].sort_indices()
    return parts[0]


def _check_rows(what: str, n: int, expected: int, of: str) -> None:
    if n != expected:
        raise DataError(f"{n:,} {what} for {expected:,} {of}", remedy="give one row for each")
