import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from reference.linear import objective
from xmcascade.features import MixedRows
from xmcascade.kernels import newton, solver
from xmcascade.linear import BlockWeights


def problem(seed, n_docs, n_features, n_labels, density=0.3):
    rng = np.random.default_rng(seed)
    rows = sp.random(n_docs, n_features, density, "csr", np.float32, rng=rng)
    truth = rng.random((n_docs, n_labels)) < 0.4
    truth[0], truth[1] = True, False  # every label has both kinds
    targets = sp.csc_matrix(truth.astype(np.float32))
    return rows, targets


def train(
    rows, targets, *, docs=None, cost=1.0, negative=None, threshold=0.0, max_kept=0, tolerance=1e-4, seed=1,
    dense=None, method=None,
):  # fmt: skip
    """Weights [sparse features, then dense, labels] and biases."""
    documents = MixedRows.of(rows, dense)
    docs = np.arange(len(documents), dtype=np.int32) if docs is None else docs
    number_of = np.full(documents.n_sparse, -1, np.int32)
    compact = solver.compact_rows(documents.arrays(), docs, number_of, np.empty_like(number_of))
    assert (number_of == -1).all()
    labels = targets.indptr.astype(np.int64), targets.indices, targets.data
    n_labels = targets.shape[1]
    nothing = BlockWeights.empty(documents.n_dense).arrays()
    found, ends, children, weights, biases, of_dense = solver.train_labels(
        compact, docs, labels, 0, n_labels, 0, (cost, cost if negative is None else negative), 1.0, tolerance,
        1000, method, threshold, max_kept, np.uint64(seed), nothing, -1,
    )  # fmt: skip
    matrix = np.zeros((documents.n_sparse, n_labels))
    matrix[np.repeat(found, np.diff(ends, prepend=0)), children] = weights
    assert (np.diff(found) > 0).all()
    return np.vstack([matrix, of_dense.T]), biases


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n_labels=st.integers(1, 19), cost=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_objective_is_liblinears_within_a_thousandth(seed, n_labels, cost):
    rows, targets = problem(seed, 40, 25, n_labels)
    weights, biases = train(rows, targets, cost=cost)
    dense = rows.toarray().astype(np.float64)
    for label in range(n_labels):
        y = np.where(targets[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        witness = LinearSVC(C=cost, tol=1e-8, max_iter=100_000).fit(dense, y)
        best = objective(dense, y, cost, witness.coef_[0], witness.intercept_[0])
        ours = objective(dense, y, cost, weights[:, label], biases[label])
        assert ours <= best * 1.001


def test_documents_may_weigh_differently():
    rows, targets = problem(3, 60, 20, 1)
    rng = np.random.default_rng(0)
    targets.data[:] = rng.uniform(0.2, 3, len(targets.data))
    weights, biases = train(rows, targets, cost=2.0, negative=0.5)
    dense, weight = rows.toarray().astype(np.float64), targets.toarray().ravel()
    y = np.where(weight > 0, 1.0, -1.0)
    cost = np.where(weight > 0, 2.0 * weight, 0.5)
    witness = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(dense, y, sample_weight=cost)
    best = objective(dense, y, cost, witness.coef_[0], witness.intercept_[0])
    assert objective(dense, y, cost, weights[:, 0], biases[0]) <= best * 1.001


def test_only_the_blocks_documents_count():
    rows, targets = problem(4, 50, 20, 3)
    docs = np.arange(30, dtype=np.int32)
    inside = sp.csc_matrix(targets.toarray() * (np.arange(50) < 30)[:, None])
    inside.eliminate_zeros()
    some = train(rows, inside, docs=docs)
    alone = train(rows[:30], sp.csc_matrix(inside[:30]))
    np.testing.assert_allclose(some[0], alone[0], atol=1e-5)


def test_small_weights_are_dropped():
    rows, targets = problem(5, 60, 30, 9)
    every, _ = train(rows, targets)
    kept, _ = train(rows, targets, threshold=0.2)
    np.testing.assert_array_equal(kept, np.where(np.abs(every) > 0.2, every, 0))


@pytest.mark.parametrize("most", [1, 5, 100])
def test_a_label_keeps_its_largest_weights(most):
    rows, targets = problem(6, 60, 30, 9)
    every, _ = train(rows, targets)
    kept, _ = train(rows, targets, max_kept=most)
    for label in range(9):
        largest = np.sort(np.abs(every[:, label]))[::-1][:most]
        assert np.array_equal(np.sort(np.abs(kept[kept[:, label] != 0, label]))[::-1], largest[largest > 0])


def test_a_label_without_documents_gets_an_answer_too():
    rows, _ = problem(7, 30, 10, 2)
    empty = sp.csc_matrix((30, 2), dtype=np.float32)
    weights, biases = train(rows, empty)
    assert np.isfinite(weights).all()
    assert (biases < 0).all()
    nothing, _ = train(rows, empty, docs=np.zeros(0, np.int32))
    assert not nothing.any()


@pytest.mark.parametrize("method", [None, newton.SQUARED_HINGE])
def test_dense_features_beside_sparse_ones_count_like_any_others(method):
    rows, targets = problem(8, 60, 30, 9)
    beside = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    found = train(rows, targets, dense=beside, tolerance=1e-5, method=method)
    plain = train(sp.hstack([rows, sp.csr_matrix(beside)], format="csr"), targets, tolerance=1e-5)
    np.testing.assert_allclose(found[0], plain[0], atol=2e-3)
    np.testing.assert_allclose(found[1], plain[1], atol=2e-3)


def test_dense_weights_are_not_dropped():
    rows, targets = problem(8, 60, 30, 9)
    beside = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    weights, _ = train(rows, targets, dense=beside, threshold=100.0)
    assert not weights[:30].any()
    assert weights[30:].all()


def lanes(rows, targets):
    """The arguments of solve_lanes for up to eight labels over all documents."""
    y = np.full((rows.shape[0], 8), -1, np.float32)
    y[:, : targets.shape[1]] = np.where(targets.toarray() > 0, 1, -1)
    squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float32).ravel()
    half = np.full(y.shape, 0.5, np.float32)
    unused = np.arange(8) >= targets.shape[1]
    return (rows.indptr.astype(np.int64), rows.indices, rows.data, squares, y, half, np.float32(1)), unused


def test_a_start_from_a_solution_takes_few_sweeps():
    rows, targets = problem(9, 300, 60, 5)
    data, unused = lanes(rows, targets)
    w = np.zeros((61, 8), np.float32)
    cold = solver.solve_lanes(*data, np.float32(1e-3), 1000, unused, np.uint64(1), w)
    again = w.copy()
    warm = solver.solve_lanes(*data, np.float32(1e-3), 1000, unused, np.uint64(1), again)
    assert warm <= cold // 2
    np.testing.assert_allclose(again, w, atol=0.01)
