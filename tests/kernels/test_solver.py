import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from reference.linear import objective
from xmcascade.kernels import solver


def problem(seed, n_docs, n_features, n_labels, density=0.3):
    rng = np.random.default_rng(seed)
    rows = sp.random(n_docs, n_features, density, "csr", np.float32, rng=rng)
    truth = rng.random((n_docs, n_labels)) < 0.4
    truth[0], truth[1] = True, False  # every label has both kinds
    targets = sp.csc_matrix(truth.astype(np.float32))
    return rows, targets


def train(
    rows, targets, *, docs=None, cost=1.0, negative=None, threshold=0.0, max_kept=0, tolerance=1e-4, seed=1
):
    n_docs, n_features = rows.shape
    docs = np.arange(n_docs, dtype=np.int32) if docs is None else docs
    number_of, features = np.full(n_features, -1, np.int32), np.empty(n_features, np.int32)
    made = solver.train_block(
        rows.indptr.astype(np.int64), rows.indices, rows.data, docs, targets.indptr.astype(np.int64),
        targets.indices, targets.data, 0, targets.shape[1], cost, cost if negative is None else negative,
        1.0, tolerance, 1000,        threshold, max_kept, np.uint64(seed), number_of, features,
    )  # fmt: skip
    assert (number_of == -1).all()
    found, ranges, labels, weights, biases = made
    dense = np.zeros((n_features, targets.shape[1]))
    dense[np.repeat(found, np.diff(ranges)), labels] = weights
    assert (np.diff(found) > 0).all()
    return dense, biases


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
