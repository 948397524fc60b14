import numpy as np
import pytest
from numba import njit

from xmcascade.kernels.lanes import LANES, add_rows, dot_pairs, dot_rows


@njit
def dot(w, columns, values, start, stop, out):
    dot_rows(w, columns, values, start, stop, out)


@njit
def add(w, columns, values, start, stop, factor):
    add_rows(w, columns, values, start, stop, factor)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 40])
def test_lanes_agree_with_numpy(size):
    rng = np.random.default_rng(size)
    w = rng.normal(size=(30, LANES)).astype(np.float32)
    columns = rng.integers(0, 30, 50).astype(np.int32)
    values = rng.normal(size=50).astype(np.float32)
    start, stop = 3, 3 + size
    out = rng.normal(size=LANES).astype(np.float32)
    expected = out + values[start:stop] @ w[columns[start:stop]]
    dot(w, columns, values, start, stop, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)

    factor = rng.normal(size=LANES).astype(np.float32)
    expected = w.copy()
    np.add.at(expected, columns[start:stop], values[start:stop, None] * factor)  # a column may occur twice
    add(w, columns, values, start, stop, factor)
    np.testing.assert_allclose(w, expected, rtol=1e-5, atol=1e-5)


@njit
def dot_two(w, columns, values, start, stop, out):
    dot_pairs(w, columns, values, start, stop, out)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 40])
def test_pairs_agree_with_numpy(size):
    rng = np.random.default_rng(size)
    w = rng.normal(size=(30, 2)).astype(np.float32)
    columns, values = rng.integers(0, 30, 50).astype(np.int32), rng.normal(size=50).astype(np.float32)
    out = rng.normal(size=2).astype(np.float32)
    expected = out + values[3 : 3 + size] @ w[columns[3 : 3 + size]]
    dot_two(w, columns, values, 3, 3 + size, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
