"""Sparse and dense features of the same documents, side by side: tf-idf beside an encoder's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import DataError
from xmcascade.kernels.parallel import read_only

__all__ = ["MixedRows"]


@dataclass(frozen=True)
class MixedRows:
    """A CSR matrix and a dense one with the same rows; either may have no columns.

    >>> rows = MixedRows.of(sp.csr_matrix(np.eye(3)), np.ones((3, 2)))
    >>> len(rows), rows.n_sparse, rows.n_dense, len(rows[1:])
    (3, 3, 2, 2)
    """

    sparse: Any
    """CSR, float32, columns ascending in each row."""
    dense: npt.NDArray[np.float32]

    @classmethod
    def of(cls, features: Any, dense: Any = None) -> MixedRows:
        """From a sparse matrix, a dense one, or both; no copy when they are as the kernels want them."""
        if dense is not None and not sp.issparse(features):
            raise DataError("dense features are given twice", remedy="put them side by side in one matrix")
        if isinstance(features, cls):
            return features
        if not sp.issparse(features):
            given = np.asarray(features)
            return cls.of(sp.csr_matrix((given.shape[0], 0), dtype=np.float32), given)
        ready = features.format == "csr" and features.dtype == np.float32
        sparse = features if ready else sp.csr_matrix(features, dtype=np.float32)
        if not sparse.has_canonical_format:
            sparse = sparse.copy()
            sparse.sum_duplicates()
        beside = np.zeros((sparse.shape[0], 0), np.float32) if dense is None else np.asarray(dense)
        if beside.ndim != 2 or beside.shape[0] != sparse.shape[0]:
            what = f"dense features have the shape {beside.shape} beside {sparse.shape[0]:,} sparse rows"
            raise DataError(what, remedy="give one row a document")
        with np.errstate(over="ignore"):  # is said below
            beside = np.ascontiguousarray(beside, np.float32)
        if not np.isfinite(beside).all():
            what = "dense features are not finite, or too large for float32"
            raise DataError(what, remedy="remove NaN and infinity")
        return cls(sparse, beside)

    def __len__(self) -> int:
        """Number of documents."""
        return int(self.sparse.shape[0])

    def __getitem__(self, rows: slice) -> MixedRows:
        """Some of the documents."""
        if rows.indices(len(self)) == (0, len(self), 1):
            return self
        return MixedRows(self.sparse[rows], self.dense[rows])

    @property
    def n_sparse(self) -> int:
        """Sparse features."""
        return int(self.sparse.shape[1])

    @property
    def n_dense(self) -> int:
        """Dense features."""
        return int(self.dense.shape[1])

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """As the kernels take them: row starts, columns, values, dense rows."""
        indptr = self.sparse.indptr.astype(np.int64, copy=False)
        columns = self.sparse.indices.astype(np.int32, copy=False)
        return read_only(indptr, columns, self.sparse.data, self.dense)
