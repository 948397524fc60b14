from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference.heads as twin
from xmcascade.kernels import bfloat, heads

METHODS = {"sgd": heads.SGD, "adagrad": heads.ADAGRAD, "row-adam": heads.ROW_ADAM, "adam": heads.ADAM}
HOW = 0.05, 0.1, 0.9, 0.99, 1e-6  # rate, decay, beta1, beta2, epsilon


class World:
    """Some documents, a tree of some clusters, and a shortlist."""

    def __init__(self, seed, n_docs=6, n_clusters=5, width=11):
        rng = self.rng = np.random.default_rng(seed)
        self.offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 8, n_clusters))])
        self.parents = np.repeat(np.arange(n_clusters), np.diff(self.offsets))
        self.n_rows = int(self.offsets[-1])
        wanted = rng.random((n_docs, n_clusters)) < 0.6
        self.clusters = np.nonzero(wanted)[1]
        self.doc_pairs = np.concatenate([[0], np.cumsum(wanted.sum(axis=1))])
        docs = np.nonzero(wanted)[0]
        starts = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[self.clusters])])
        self.pairs = docs, self.clusters, starts
        self.order = np.argsort(self.clusters, kind="stable")
        self.places = twin.entries(self.doc_pairs, self.clusters, self.offsets)
        self.x = rng.normal(size=(n_docs, width)).astype(np.float32)
        self.rows = rng.normal(size=(self.n_rows, width)).astype(np.float32)
        self.biases = rng.normal(size=self.n_rows).astype(np.float32)
        self.touched = sorted({child for _, child in self.places})

    def forward(self, rows=None):
        logits = np.full(len(self.places), np.nan, np.float32)
        heads.forward(
            self.x, self.rows if rows is None else rows, self.biases, self.offsets, self.pairs, self.order,
            0, len(self.order), logits,
        )  # fmt: skip
        return logits

    def state(self, method):
        """As the kernel takes it, and as the twin does."""
        wide = (self.n_rows, self.x.shape[1] + 1) if method == "adam" else (0, 0)
        state = (
            np.zeros(self.n_rows, np.float32), np.zeros(self.n_rows, np.int32),
            np.zeros(wide, np.float32), np.zeros(wide, np.float32),
        )  # fmt: skip
        return state, dict(
            zip(("one", "steps", "first", "second"), (part.astype(float) for part in state), strict=True)
        )

    def step(self, method, rows, biases, state, slopes, seed=1):
        back = np.zeros_like(self.x)
        how = heads.HOLD if method == "hold" else METHODS[method], *HOW
        heads.step(
            self.x, rows, biases, state, self.offsets, self.pairs, self.order, 0, len(self.order), slopes,
            how, np.uint64(seed), back,
        )  # fmt: skip
        return back


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_scores_are_those_of_the_twin(seed):
    world = World(seed)
    wanted = twin.logits(world.x, world.rows, world.biases, world.places)
    np.testing.assert_allclose(world.forward(), wanted, rtol=1e-4, atol=1e-4)
    short = bfloat.narrowed(world.rows)
    back = (short.astype(np.uint32) << 16).view(np.float32)
    wanted = twin.logits(world.x, back, world.biases, world.places)
    np.testing.assert_allclose(world.forward(short), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_steps_are_those_of_the_twin_and_touch_only_what_was_asked_for(method, seed):
    world = World(seed)
    state, plain = world.state(method)
    rows, biases = world.rows.copy(), world.biases.copy()
    wanted_rows, wanted_biases = rows.astype(float), biases.astype(float)
    for _ in range(3):
        slopes = world.rng.normal(size=len(world.places)).astype(np.float32)
        of_x, of_rows, of_biases = twin.gradients(
            world.x.astype(float), wanted_rows, world.places, slopes.astype(float)
        )
        back = world.step(method, rows, biases, state, slopes)
        np.testing.assert_allclose(back, of_x, rtol=1e-3, atol=1e-3)
        wanted_rows, wanted_biases = twin.updated(
            method, wanted_rows, wanted_biases, plain, of_rows, of_biases, world.touched, HOW
        )
        np.testing.assert_allclose(rows, wanted_rows, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(biases, wanted_biases, rtol=1e-3, atol=1e-3)
    others = np.setdiff1d(np.arange(world.n_rows), world.touched)
    np.testing.assert_array_equal(rows[others], world.rows[others])


def test_rounding_at_random_is_right_on_average():
    world = World(3)
    state, _ = world.state("sgd")
    slopes = np.full(len(world.places), 1e-3, np.float32)  # far below what bfloat16 can hold at 1
    exact = world.rows.copy()
    world.step("sgd", exact, world.biases.copy(), state, slopes)
    start = (bfloat.narrowed(world.rows).astype(np.uint32) << 16).view(np.float32)
    moves = []
    for seed in range(1, 4001):
        rows = bfloat.narrowed(world.rows)
        world.step("sgd", rows, world.biases.copy(), state, slopes, seed=seed * 7919)
        moves.append((rows.astype(np.uint32) << 16).view(np.float32) - start)
    wanted = exact - world.rows
    spread = np.std(moves, axis=0) / np.sqrt(len(moves))
    off = np.abs(np.mean(moves, axis=0) - wanted)[world.touched]
    assert (off <= 6 * spread[world.touched] + 2e-5).mean() > 0.99
    assert np.abs(wanted[world.touched]).mean() > 5 * off.mean()


@given(seed=st.integers(0, 10**6), k=st.integers(1, 12), ties=st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_best_and_the_true_are_chosen(seed, k, ties):
    world = World(seed)
    logits = world.forward()
    if ties:
        logits = np.round(logits)
    n_docs = len(world.doc_pairs) - 1
    scores = [{} for _ in range(n_docs)]
    for (doc, child), value in zip(world.places, logits.tolist(), strict=True):
        scores[doc][child] = value
    true = [sorted(c for c in scores[doc] if world.rng.random() < 0.3) for doc in range(n_docs)]
    truth_rows = np.concatenate([[0], np.cumsum([len(t) for t in true])]).astype(np.int64)
    truth = np.array([c for t in true for c in t], np.int64)
    found, ends = np.empty(len(logits), np.int64), np.empty(n_docs + 1, np.int64)
    hit, crowded = heads.choose(
        world.pairs, world.doc_pairs, world.offsets, logits, k, truth_rows, truth, found, ends
    )
    wanted = [twin.chosen(scores[doc], k, true[doc]) for doc in range(n_docs)]
    assert [found[a:b].tolist() for a, b in pairwise(ends)] == [w[0] for w in wanted]
    assert hit == sum(w[1] for w in wanted)
    assert crowded == sum(len(t) > k for t in true)

    y = np.zeros(len(logits), np.float32)
    where = world.pairs, world.doc_pairs, world.offsets, world.parents, truth_rows, truth
    assert heads.targets(*where, np.zeros(0, np.float32), y) == 0
    assert y.tolist() == [float(child in true[doc]) for doc, child in world.places]
    values = 1 + world.rng.random(len(truth)).astype(np.float32)
    heads.targets(*where, values, y)
    own = {
        (doc, child): values[truth_rows[doc] + i] for doc, t in enumerate(true) for i, child in enumerate(t)
    }
    assert y.tolist() == [float(own.get(place, 0.0)) for place in world.places]


def test_scores_that_are_no_numbers_are_not_chosen():
    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = rng.normal(size=64).astype(np.float32)
        logits[rng.random(64) < 0.4] = np.nan
        pairs, found = (np.array([0]), np.array([0]), np.array([0, 64])), np.empty(64, np.int64)
        ends, nothing = np.empty(2, np.int64), (np.zeros(2, np.int64), np.zeros(0, np.int64))
        heads.choose(pairs, np.array([0, 1]), np.array([0, 64]), logits, 5, *nothing, found, ends)
        best = np.argsort(-np.where(np.isnan(logits), -np.inf, logits), kind="stable")[:5]
        assert found[: ends[1]].tolist() == sorted(best.tolist())


def test_true_ones_outside_the_shortlist_are_counted():
    pairs = np.array([0]), np.array([1]), np.array([0, 2])
    y = np.zeros(2, np.float32)
    truth = np.array([0, 3])
    where = pairs, np.array([0, 1]), np.array([0, 2, 4]), np.array([0, 0, 1, 1])
    missed = heads.targets(*where, np.array([0, 2]), truth, np.zeros(0, np.float32), y)
    assert (missed, y.tolist()) == (1, [0.0, 1.0])


def test_cross_entropy_and_its_slopes():
    z = np.array([-200.0, -3.0, 0.0, 0.5, 300.0, 300.0], np.float32)
    y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0], np.float32)
    slopes = np.empty_like(z)
    total = heads.cross_entropy(z, y, np.array([0, 2, 2, 6]), np.array([0.5, 9.0, 0.25]), slopes)
    wide, scale = z.astype(float), np.repeat([0.5, 0.25], [2, 4])
    np.testing.assert_allclose(total, (scale * (np.logaddexp(0, wide) - wide * y)).sum(), rtol=1e-6)
    np.testing.assert_allclose(slopes, scale * (1 / (1 + np.exp(-wide)) - y), atol=1e-6)


def test_true_entries_of_cross_entropy_have_their_weights():
    z, y = np.array([-3.0, 0.5, 2.0], np.float32), np.array([2.5, 0.0, 0.5], np.float32)
    slopes = np.empty_like(z)
    total = heads.cross_entropy(z, y, np.array([0, 3]), np.array([2.0]), slopes)
    wanted = 2 * (2.5 * np.logaddexp(0, 3) + np.logaddexp(0, 0.5) + 0.5 * np.logaddexp(0, -2))
    np.testing.assert_allclose(total, wanted, rtol=1e-6)
    chance = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(slopes, 2 * np.array([2.5, 1, 0.5]) * (chance - (y > 0)), rtol=1e-5)


def test_squared_hinge_and_its_slopes():
    z = np.array([-2.0, 0.5, 1.5, -0.5, -3.0, 0.25], np.float32)
    y = np.array([0.5, 2.0, 1.0, 0.0, 0.0, 0.0], np.float32)

    def loss(z):
        weight, sign = np.where(y > 0, y, 0.125), np.where(y > 0, 1, -1)
        return float((0.25 * weight * np.maximum(0, 1 - sign * z) ** 2).sum())

    slopes = np.empty_like(z)
    np.testing.assert_allclose(heads.squared_hinge(z, y, 0.25, 0.125, slopes), loss(z), rtol=1e-6)
    small = 1e-4 * np.eye(6)
    numbers = [(loss(z + step) - loss(z - step)) / 2e-4 for step in small]
    np.testing.assert_allclose(slopes, numbers, atol=1e-5)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_gather_and_scatter_are_each_others_opposite(seed):
    world = World(seed)
    docs, children = np.array(world.places, np.int64).reshape(-1, 2).T
    dense = world.rng.normal(size=(len(world.x), world.n_rows)).astype(np.float32)
    entries = np.full(len(docs), np.nan, np.float32)
    heads.gather(dense, world.offsets, world.pairs, entries)
    assert entries.tolist() == dense[docs, children].tolist()
    again, touched = np.zeros_like(dense), np.zeros(world.n_rows, np.bool_)
    heads.scatter(entries, world.offsets, world.pairs, again, touched)
    inside = np.zeros(dense.shape, bool)
    inside[docs, children] = True
    np.testing.assert_array_equal(again, np.where(inside, dense, 0))
    assert np.flatnonzero(touched).tolist() == world.touched


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_gradients_applied_whole_are_steps(method, precision, seed):
    world = World(seed)
    world.x = np.round(4 * world.x) / 4  # sums of such numbers are exact, in whatever order
    start = world.rows if precision == "float32" else bfloat.narrowed(world.rows)
    ways = [(start.copy(), world.biases.copy(), world.state(method)[0]) for _ in range(2)]
    touched = np.isin(np.arange(world.n_rows), world.touched)
    for number in range(3):
        slopes = np.round(8 * world.rng.normal(size=len(world.places))).astype(np.float32) / 8
        _, of_rows, of_biases = twin.gradients(world.x, world.rows, world.places, slopes)
        world.step(method, *ways[0], slopes, seed=number)
        how = METHODS[method], *HOW
        of_rows, of_biases = of_rows.astype(np.float32), of_biases.astype(np.float32)
        for first, last in ((0, 5), (5, world.n_rows)):
            heads.apply(*ways[1], of_rows, of_biases, touched, first, last, how, np.uint64(number))
        for one, other in zip(parts(*ways[0]), parts(*ways[1]), strict=True):
            assert one.tobytes() == other.tobytes()
    assert start[~touched].tobytes() == ways[1][0][~touched].tobytes()


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_holding_gives_the_same_back_and_changes_nothing(seed):
    world = World(seed)
    rows, biases, state = world.rows.copy(), world.biases.copy(), world.state("adam")[0]
    before = [part.copy() for part in parts(rows, biases, state)]
    slopes = world.rng.normal(size=len(world.places)).astype(np.float32)
    held = world.step("hold", rows, biases, state, slopes)
    for one, other in zip(parts(rows, biases, state), before, strict=True):
        assert one.tobytes() == other.tobytes()
    assert held.tobytes() == world.step("adam", rows, biases, state, slopes).tobytes()


def parts(rows, biases, state):
    return rows, biases, *state
