"""Clustering against dense twins; numbers are small fractions, so that sums are exact and ties abound."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cluster as twin
from xmcascade.kernels import cluster

VALUES = [0.0, 0.0, 0.25, 0.5, 1.0]


def matrices(min_rows=2, max_rows=12, n_columns=4, values=VALUES):
    row = st.lists(st.sampled_from(values), min_size=n_columns, max_size=n_columns)
    rows = st.lists(row, min_size=min_rows, max_size=max_rows)
    return rows.map(lambda found: np.array(found, np.float32))


def both_kinds(rows):
    sparse = sp.csr_matrix(rows)
    return [(sparse.indptr, sparse.indices, sparse.data), (None, None, rows)]


def halve(arrays, n_features, order, seed, iterations):
    n = len(order)
    flags, floats = [np.empty(n, np.uint8) for _ in range(2)], [np.empty(n, np.float32) for _ in range(2)]
    sums = np.zeros((n_features, 2), np.float32)
    scratch = (*flags, *floats, np.empty(n, np.int32))
    done = cluster.halve(*arrays, order, np.uint64(seed), iterations, sums, scratch)
    assert not sums.any()
    return done


@given(
    values=st.lists(
        st.sampled_from([-1.0, 0.0, 0.5, 0.5, 2.0, np.inf]) | st.floats(-5, 5, width=32), min_size=1
    ),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_select(values, data):
    k = data.draw(st.integers(0, len(values) - 1))
    given_values = np.array(values, np.float32)
    expected = np.partition(given_values, k)[k]
    assert cluster.select(given_values.copy(), k) == expected


@pytest.mark.parametrize("values", [range(2000), range(2000, 0, -1), [1] * 2000, [0, 1] * 1000])
def test_select_of_sorted_and_equal_values(values):
    for k in (0, 1, 999, 1998, 1999):
        assert cluster.select(np.array(values, np.float32), k) == sorted(values)[k]


@given(rows=matrices(), seed=st.integers(0, 2**64 - 1), iterations=st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_halves(rows, seed, iterations):
    expected = twin.halved(rows, seed, iterations)
    for arrays in both_kinds(rows):
        order = np.arange(len(rows), dtype=np.int32)
        done = halve(arrays, rows.shape[1], order, seed, iterations)
        assert done <= iterations
        assert order.tolist() == expected.tolist()


@pytest.mark.parametrize("n_rows", [511, 512, 900, 3000])
def test_halves_of_a_large_cluster_begin_with_a_sample(n_rows):
    rng = np.random.default_rng(n_rows)
    rows = (
        rng.random((n_rows, 4), dtype=np.float32)
        + 3 * np.eye(4, dtype=np.float32)[rng.integers(0, 4, n_rows)]
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for seed in range(5):
        expected = twin.halved(rows, seed, 20)
        for arrays in both_kinds(rows):
            order = np.arange(n_rows, dtype=np.int32)
            halve(arrays, 4, order, seed, 20)
            half = (n_rows + 1) // 2
            # Rounding may carry a row or two that lie in the middle to the other side, or choose between two
            # attempts that found the same halves the other way round.
            differ = len(set(order[:half].tolist()) ^ set(expected[:half].tolist()))
            assert min(differ, n_rows - differ) <= n_rows // 250
            assert sorted(order.tolist()) == list(range(n_rows))


@given(rows=matrices(min_rows=4), seed=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_a_cluster_is_halved_alike_alone_and_beside_others(rows, seed):
    bounds = np.array([0, len(rows) // 2, len(rows)])
    for arrays in both_kinds(rows):
        together = np.arange(len(rows), dtype=np.int32)
        cluster.halve_clusters(*arrays, 4, together, bounds, 0, 2, np.uint64(seed), 3, 5)
        apart = np.arange(len(rows), dtype=np.int32)
        for c in (1, 0):
            cluster.halve_clusters(*arrays, 4, apart, bounds, c, c + 1, np.uint64(seed), 3, 5)
        assert together.tolist() == apart.tolist()
        for low, high in pairwise(bounds):
            assert sorted(together[low:high]) == list(range(low, high))


@given(rows=matrices(), data=st.data(), k=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_a_round_of_kmeans(rows, data, k):
    parts = st.lists(st.integers(0, k - 1), min_size=len(rows), max_size=len(rows))
    before, after = (np.array(data.draw(parts), np.int32) for _ in range(2))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int32)
    for arrays in both_kinds(rows):
        near, sums, scale = (
            np.full(len(rows), -1, np.int32),
            np.zeros((4, k), np.float32),
            np.zeros(k, np.float32),
        )
        assert cluster.update(*arrays, order, near, before, sums, scale) == len(rows)
        assert cluster.update(*arrays, order, near, after, sums, scale) == (before != after).sum()
        assert near.tolist() == after.tolist()
        scores, expected_scale = twin.nearest(rows[order], after, k)
        np.testing.assert_allclose(scale, expected_scale, rtol=1e-6)
        fresh = np.empty(len(rows), np.int32)
        cluster.assign(*arrays, order, sums, scale, fresh)
        chosen = scores[np.arange(len(rows)), fresh]
        np.testing.assert_allclose(chosen, scores.max(axis=1), rtol=1e-5, atol=1e-6)


@given(seed=st.integers(0, 50), copies=st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_starts_lie_apart(seed, copies):
    rows = np.repeat(np.eye(4, dtype=np.float32), copies, axis=0)
    for arrays in both_kinds(rows):
        order, near = np.arange(len(rows), dtype=np.int32), np.full(len(rows), -1, np.int32)
        assert cluster.spread(*arrays, 4, order, 7, np.uint64(seed), near) == 4  # no more differ
        assert len({tuple(block) for block in near.reshape(4, copies)}) == 4
        assert cluster.spread(*arrays, 4, order, 2, np.uint64(seed), near) == 2
