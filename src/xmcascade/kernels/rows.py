"""Counts become tf-idf rows: terms get their columns, columns are put in order, counts get their weights.

Matrices are CSR: the entries of row i are at indptr[i] : indptr[i + 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["fill_rows", "kept_per_row", "weigh_rows"]


@njit(nogil=True, cache=True)
def kept_per_row(rows: Any, ids: Any, column_of: Any) -> Any:
    """How many entries of each row have a column (column_of[id] >= 0)."""
    kept = np.zeros(len(rows) - 1, np.int64)
    for row in range(len(kept)):
        for i in range(rows[row], rows[row + 1]):
            kept[row] += column_of[ids[i]] >= 0
    return kept


@njit(nogil=True, cache=True)
def fill_rows(
    rows: Any, ids: Any, counts: Any, column_of: Any, indptr: Any, columns: Any, values: Any
) -> None:
    """Write each row's kept entries to columns[indptr[row]:indptr[row+1]], ascending, with their counts."""
    for row in range(len(rows) - 1):
        n = indptr[row + 1] - indptr[row]
        packed = np.empty(n, np.int64)  # column and count in one number, so that one sort moves both
        k = 0
        for i in range(rows[row], rows[row + 1]):
            column = np.int64(column_of[ids[i]])
            if column >= 0:
                packed[k] = (column << 32) | np.int64(counts[i])
                k += 1
        packed.sort()
        base = indptr[row]
        for k in range(n):
            columns[base + k] = packed[k] >> 32
            values[base + k] = packed[k] & 0xFFFFFFFF


@njit(nogil=True, cache=True)
def weigh_rows(indptr: Any, columns: Any, values: Any, idf: Any, sublinear: bool, l2: bool) -> None:
    """Turn counts into tf-idf in place; an empty idf means tf alone."""
    for row in range(len(indptr) - 1):
        square = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            value = np.float64(values[i])
            if sublinear:
                value = 1.0 + np.log(value)
            if len(idf):
                value *= idf[columns[i]]
            values[i] = value
            square += value * value
        if l2 and square > 0.0:
            scale = 1.0 / np.sqrt(square)
            for i in range(indptr[row], indptr[row + 1]):
                values[i] *= scale
