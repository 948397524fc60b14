import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from reference.linear import logistic_objective, objective, tron
from xmcascade.kernels.lanes import LANES
from xmcascade.kernels.newton import LOGISTIC, SQUARED_HINGE, newton_lanes

LOSSES = [SQUARED_HINGE, LOGISTIC]
VALUE = {SQUARED_HINGE: objective, LOGISTIC: logistic_objective}


def problem(seed, n_docs=40, n_features=25, density=0.3):
    rng = np.random.default_rng(seed)
    rows = sp.random(n_docs, n_features, density, "csr", np.float32, rng=rng)
    y = np.where(rng.random((n_docs, LANES)) < rng.uniform(0.1, 0.9, LANES), 1, -1).astype(np.float32)
    y[0], y[-1] = 1, -1  # every label has both kinds
    cost = rng.uniform(0.2, 3, (n_docs, LANES)).astype(np.float32)
    return rows, y, cost


def solve(rows, y, cost, loss, *, bias=1.0, tolerance=1e-4, max_steps=1000, unused=(), start=None):
    w = np.zeros((rows.shape[1] + 1, LANES), np.float32) if start is None else start.copy()
    idle = np.isin(np.arange(LANES), unused)
    ranges = rows.indptr.astype(np.int64)
    steps = newton_lanes(
        ranges, rows.indices.astype(np.int32), rows.data, y, cost, np.float32(bias), loss,
        np.float32(tolerance), max_steps, idle, w,
    )  # fmt: skip
    return w, steps


def values(rows, y, cost, loss, w, bias=1.0):
    """The objective of each lane."""
    dense, w = rows.toarray().astype(np.float64), w.astype(np.float64)
    return np.array(
        [VALUE[loss](dense, y[:, k], cost[:, k], w[:-1, k], w[-1, k], bias) for k in range(LANES)]
    )


def twin(rows, y, cost, loss, bias=1.0, **more):
    dense, cost = rows.toarray().astype(np.float64), cost.astype(np.float64)
    lanes = range(LANES)
    return np.stack([tron(dense, y[:, k], cost[:, k], loss == LOGISTIC, bias, **more) for k in lanes], 1)


def witness(rows, y, cost, loss):
    """scikit-learn's LIBLINEAR."""
    made = np.zeros((rows.shape[1] + 1, LANES))
    for lane in range(LANES):
        if loss == SQUARED_HINGE:
            model = LinearSVC(tol=1e-8, dual=False, max_iter=10_000)
        else:
            model = LogisticRegression(solver="liblinear", tol=1e-8, max_iter=10_000)
        model.fit(rows.toarray().astype(np.float64), y[:, lane], sample_weight=cost[:, lane])
        made[:-1, lane], made[-1, lane] = model.coef_[0], model.intercept_[0]
    return made


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from(LOSSES), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_objective_is_liblinears_within_a_thousandth(seed, loss, scale):
    rows, y, cost = problem(seed)
    cost *= scale
    w, _ = solve(rows, y, cost, loss)
    best = values(rows, y, cost, loss, witness(rows, y, cost, loss))
    assert (values(rows, y, cost, loss, w) <= best * 1.001).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
def test_the_weights_are_the_twins(loss, bias):
    rows, y, cost = problem(1, 60, 20)
    w, _ = solve(rows, y, cost, loss, bias=bias, tolerance=1e-5)
    np.testing.assert_allclose(w, twin(rows, y, cost, loss, bias), atol=2e-3)
    if bias == 0:
        assert not w[-1].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_end_is_where_liblinears_rule_says(loss):
    rows, y, cost = problem(2, 80, 20)
    wide = np.hstack([rows.toarray(), np.ones((80, 1))]).astype(np.float64)

    def norms(w):
        margins = y * (wide @ w)
        slope = -1 / (1 + np.exp(margins)) if loss == LOGISTIC else -2 * np.maximum(0, 1 - margins)
        return np.linalg.norm(w + wide.T @ (y * cost * slope), axis=0)

    rarer = np.minimum((y > 0).sum(0), (y < 0).sum(0)) / 80
    limit = 0.1 * rarer * norms(np.zeros((21, LANES)))
    w, steps = solve(rows, y, cost, loss, tolerance=0.1)
    assert (norms(w.astype(np.float64)) <= limit * 1.001).all()
    short, taken = solve(rows, y, cost, loss, tolerance=0.1, max_steps=steps - 1)
    assert taken == steps - 1
    assert (norms(short.astype(np.float64)) > limit).any()


@pytest.mark.parametrize("loss", LOSSES)
def test_separable_documents(loss):
    rows = sp.csr_matrix(np.eye(6, dtype=np.float32)[[0, 0, 1, 1, 2, 3]])
    y = np.repeat(np.array([1, 1, -1, -1, 1, -1], np.float32)[:, None], LANES, 1)
    cost = np.full_like(y, 1000)
    w, _ = solve(rows, y, cost, loss)
    assert (y * (rows @ w[:-1] + w[-1]) > 0.9).all()
    best = values(rows, y, cost, loss, twin(rows, y, cost, loss))
    assert (values(rows, y, cost, loss, w) <= best * 1.001).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("n_docs", [1, 30])
def test_one_document_and_labels_of_one_kind(loss, sign, n_docs):
    rows, y, cost = problem(3, n_docs, 10)
    y[:] = sign
    w, _ = solve(rows, y, cost, loss)
    best = values(rows, y, cost, loss, twin(rows, y, cost, loss))
    assert (values(rows, y, cost, loss, w) <= best * 1.001).all()
    assert (w[-1] * sign > 0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_no_documents_and_empty_documents(loss):
    rows, y, cost = problem(4, 30, 10)
    w, steps = solve(rows[:0], y[:0], cost[:0], loss)
    assert steps == 0
    assert not w.any()
    w, _ = solve(sp.csr_matrix((30, 10), dtype=np.float32), y, cost, loss)
    assert not w[:-1].any()
    assert w[-1].all()


@pytest.mark.parametrize("loss", LOSSES)
def test_unused_lanes_are_not_touched(loss):
    rows, y, cost = problem(5)
    start = np.random.default_rng(0).normal(size=(26, LANES)).astype(np.float32)
    every, _ = solve(rows, y, cost, loss, start=start)
    y[:, [2, 7]], cost[:, [2, 7]] = np.nan, np.nan  # whatever they hold
    w, _ = solve(rows, y, cost, loss, start=start, unused=[2, 7])
    np.testing.assert_array_equal(w[:, [2, 7]], start[:, [2, 7]])
    rest = [0, 1, 3, 4, 5, 6]
    np.testing.assert_array_equal(w[:, rest], every[:, rest])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_at_the_end_takes_no_step(loss):
    rows, y, cost = problem(6)
    w, steps = solve(rows, y, cost, loss, tolerance=1e-2)
    assert steps > 0
    again, steps = solve(rows, y, cost, loss, tolerance=1e-2, start=w)
    assert steps == 0
    np.testing.assert_array_equal(again, w)


@pytest.mark.parametrize("loss", LOSSES)
def test_any_start_leads_to_the_same_end(loss):
    rows, y, cost = problem(7)
    cold, _ = solve(rows, y, cost, loss, tolerance=1e-5)
    start = np.random.default_rng(0).normal(size=cold.shape).astype(np.float32) * 30
    warm, _ = solve(rows, y, cost, loss, tolerance=1e-5, start=start)
    np.testing.assert_allclose(warm, cold, atol=2e-3)


def check_each_lane_alone(rows, y, cost, loss, max_steps=1000):
    w, _ = solve(rows, y, cost, loss, max_steps=max_steps)
    again, _ = solve(rows, y, cost, loss, max_steps=max_steps)
    np.testing.assert_array_equal(again, w)
    for lane in range(LANES):
        copies = (np.repeat(part[:, [lane]], LANES, 1) for part in (y, cost))
        alone, _ = solve(rows, *copies, loss, max_steps=max_steps)
        np.testing.assert_array_equal(alone, np.repeat(w[:, [lane]], LANES, 1))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [0.1, 100.0])
def test_a_lane_does_not_depend_on_the_others(loss, scale):
    rows, y, cost = problem(8, 400, 150, 0.1)
    y[:, 3] = -1
    y[5, 3] = 1  # ends at another time than the others
    cost[:, :4] *= scale
    check_each_lane_alone(rows, y, cost, loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lane_that_waits_long_stays_whole(loss):
    """Some lanes end their conjugate gradients at once and wait for others, which need hundreds."""
    rng = np.random.default_rng(9)
    spread = np.logspace(-2, 2, 200, dtype=np.float32)
    rows = sp.csr_matrix(rng.normal(size=(300, 200)).astype(np.float32) * spread)
    y = np.where(rng.random((300, LANES)) < 0.5, 1, -1).astype(np.float32)
    cost = np.repeat(np.logspace(-6, 2, LANES, dtype=np.float32)[None], 300, 0)
    check_each_lane_alone(rows, y, cost, loss, max_steps=12)


@pytest.mark.parametrize("loss", LOSSES)
def test_step_for_step_it_is_the_twin(loss):
    rows, y, cost = problem(10)
    rows.data *= 3
    cost[:] *= 0.1
    start = np.ones((26, LANES), np.float32)
    before = values(rows, y, cost, loss, start)
    refused = 0
    for steps in range(1, 9):
        w, _ = solve(rows, y, cost, loss, start=start, max_steps=steps)
        now = values(rows, y, cost, loss, w)
        expected = twin(rows, y, cost, loss, steps=steps, start=np.ones(26))
        np.testing.assert_allclose(now, values(rows, y, cost, loss, expected), rtol=1e-4)
        refused += int((now == before).sum())
        before = now
    assert loss != LOGISTIC or refused > LANES  # a refused step leaves its lane as it was


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1e3, 1e6])
def test_large_values_do_not_overflow(loss, size):
    rows, y, cost = problem(10)
    rows.data *= np.float32(size)
    start = np.ones((26, LANES), np.float32)
    w, _ = solve(rows, y, cost, loss, start=start, max_steps=200)
    assert np.isfinite(w).all()
    before = values(rows, y, cost, loss, start)
    assert (values(rows, y, cost, loss, w) < before * 0.1).all()
