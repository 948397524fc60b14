"""The walk down the tree against its slow twin. Numbers are chosen so that every product is exact in float32:
what is equal is equal in both, and ties are decided alike."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import reference.cascade as twin
from xmcascade.kernels import bfloat, cascade
from xmcascade.kernels.parallel import read_only

DEPTHS = st.integers(1, 4)
SEEDS = st.integers(0, 10**6)


def log_sigmoid(z):
    return cascade._log_sigmoid(np.float32(z))


class World:
    """Some documents, a tree, and a head at every level; steps: how many different numbers there are."""

    def __init__(self, seed, depth, steps=64, precision="float32", n_docs=4, exact=True):
        rng = self.rng = np.random.default_rng(seed)
        self.offsets = twin.random_offsets(rng, depth)
        self.parents = twin.parents_of(self.offsets)
        self.sizes = [int(level[-1]) for level in self.offsets]
        widths = rng.integers(1, 12, depth)

        def numbers(*shape):
            if not exact:
                return rng.normal(size=shape).astype(np.float32)
            return (rng.integers(-steps, steps + 1, shape) / steps).astype(np.float32)

        self.xs = [numbers(n_docs, width) for width in widths]
        rows = [numbers(size, width) for size, width in zip(self.sizes, widths, strict=True)]
        self.biases = [numbers(size) for size in self.sizes]
        self.rows = rows if precision == "float32" else [bfloat.narrowed(level) for level in rows]
        self.logits = [x @ w.T + b for x, w, b in zip(self.xs, rows, self.biases, strict=True)]
        self.ranks = rng.permutation(self.sizes[-1]).astype(np.int32)

    def walk(self, keeps, powers, k, allowed=None, docs=slice(None)):
        xs = [x[docs] for x in self.xs]
        best, values = np.empty((len(xs[0]), k), np.int64), np.empty((len(xs[0]), k), np.float32)
        masks = (np.zeros(0, np.bool_),) * len(xs) if allowed is None else tuple(allowed)
        cascade.walk(
            read_only(*xs), read_only(*self.rows), read_only(*self.biases), read_only(*self.offsets), masks,
            np.array([*keeps, 0]), np.array(powers, np.float32), *read_only(self.ranks), best, values,
        )  # fmt: skip
        return best, values

    def score(self, powers, wanted):
        """Scores of some positions for each document."""
        rows = np.concatenate([[0], np.cumsum([len(row) for row in wanted])])
        flat = np.array([p for row in wanted for p in row], np.int32)
        out = np.empty(len(flat), np.float32)
        cascade.score_labels(
            read_only(*self.xs), read_only(*self.rows), read_only(*self.biases), read_only(*self.parents),
            np.array(powers, np.float32), rows, flat, out,
        )  # fmt: skip
        return np.split(out, rows[1:-1])


def some_powers(rng, depth):
    return [*rng.choice([0.0, 0.5, 1.0], depth - 1).tolist(), 1.0]


@given(
    seed=SEEDS, depth=DEPTHS, steps=st.sampled_from([1, 2, 64]), keep=st.integers(0, 12), k=st.integers(1, 20)
)
@settings(max_examples=120, deadline=None)
def test_a_walk_is_that_of_the_twin(seed, depth, steps, keep, k):
    world = World(seed, depth, steps)
    keeps = world.rng.integers(0, keep + 1, depth - 1).tolist()
    powers = some_powers(world.rng, depth)
    share = world.rng.choice([0.2, 0.7, 1.0])
    allowed = [world.rng.random(size) < share for size in world.sizes]
    for masks in (None, allowed):
        best, values = world.walk(keeps, powers, k, masks)
        for doc in range(len(best)):
            wanted = twin.walk(
                [level[doc] for level in world.logits], world.offsets,
                masks or [np.ones(size, bool) for size in world.sizes],
                keeps, np.array(powers, np.float32), world.ranks, k, log_sigmoid,
            )  # fmt: skip
            missing = k - len(wanted)
            assert best[doc].tolist() == [label for label, _ in wanted] + [-1] * missing
            assert values[doc].tolist() == [score for _, score in wanted] + [-np.inf] * missing


@given(seed=SEEDS, depth=st.sampled_from([1, 3]), steps=st.sampled_from([1, 64]))
@settings(max_examples=40, deadline=None)
def test_bfloat16_rows_are_the_numbers_they_hold(seed, depth, steps):
    powers = some_powers(np.random.default_rng(seed), depth)
    wide, short = (World(seed, depth, steps, precision) for precision in ("float32", "bfloat16"))
    for one, other in zip(
        wide.walk([2] * (depth - 1), powers, 6), short.walk([2] * (depth - 1), powers, 6), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    asked = [range(wide.sizes[-1])] * len(wide.xs[0])
    assert np.concatenate(wide.score(powers, asked)).tobytes() == (
        np.concatenate(short.score(powers, asked)).tobytes()
    )


@given(seed=SEEDS, depth=DEPTHS, steps=st.sampled_from([1, 64]))
@settings(max_examples=60, deadline=None)
def test_scores_of_given_labels_are_those_of_the_walk_and_of_the_twin(seed, depth, steps):
    world = World(seed, depth, steps)
    powers = some_powers(world.rng, depth)
    best, values = world.walk([3] * (depth - 1), powers, 6)
    found = [row[row >= 0] for row in best]
    for scores, own in zip(world.score(powers, found), values, strict=True):
        assert scores.tolist() == own[: len(scores)].tolist()
    asked = [world.rng.integers(0, world.sizes[-1], world.rng.integers(0, 5)).tolist() for _ in found]
    for doc, (scores, labels) in enumerate(zip(world.score(powers, asked), asked, strict=True)):
        own = [level[doc] for level in world.logits]
        assert scores.tolist() == [
            twin.score(own, world.parents, np.array(powers, np.float32), label, log_sigmoid)
            for label in labels
        ]


@given(seed=SEEDS, depth=DEPTHS)
@settings(max_examples=30, deadline=None)
def test_a_batch_is_its_documents_one_by_one(seed, depth):
    world = World(seed, depth, exact=False, n_docs=7)  # with rounding: still the same to the bit
    powers = some_powers(world.rng, depth)
    best, values = world.walk([2] * (depth - 1), powers, 5)
    for doc in range(7):
        alone = world.walk([2] * (depth - 1), powers, 5, docs=slice(doc, doc + 1))
        assert alone[0].tobytes() == best[doc].tobytes()
        assert alone[1].tobytes() == values[doc].tobytes()
    for scores, own in zip(world.score(powers, np.maximum(best, 0)), values, strict=True):
        np.testing.assert_allclose(scores[own > -np.inf], own[own > -np.inf], rtol=1e-5, atol=1e-5)


def test_with_everything_kept_the_walk_is_exhaustive():
    world = World(1, 3, exact=False)
    best, values = world.walk([10**6] * 2, [1, 1, 1], world.sizes[-1])
    every = sum(
        -np.logaddexp(0, -level.astype(float))[:, above]
        for level, above in zip(world.logits, ancestors(world), strict=True)
    )
    np.testing.assert_allclose(values, -np.sort(-every, axis=1), rtol=1e-4)
    assert all(sorted(row) == list(range(world.sizes[-1])) for row in best.tolist())


def ancestors(world):
    """For each level the node above each label."""
    nodes = [np.arange(world.sizes[-1])]
    for above in reversed(world.parents[1:]):
        nodes.insert(0, above[nodes[0]])
    return nodes


def test_equal_labels_go_by_rank_and_equal_clusters_by_number():
    world = World(2, 2, n_docs=1)
    for level in (*world.rows, *world.biases):
        level[:] = 0
    best, values = world.walk([1], [0, 1], 99)
    first = np.arange(world.offsets[1][1])
    assert best[0, : len(first)].tolist() == sorted(first, key=lambda label: world.ranks[label])
    assert set(values[0, : len(first)].tolist()) == {np.float32(-np.log(2)).item()}


def test_scores_that_are_no_numbers_come_last():
    world = World(3, 3, exact=False, n_docs=8)
    keeps, powers = [2, 2], [1, 1, 1]
    wanted = world.walk(keeps, powers, 4)
    for level in range(3):
        broken = World(3, 3, exact=False, n_docs=8)
        broken.xs[level][5] = np.nan
        best, values = broken.walk(keeps, powers, 4)
        others = np.arange(8) != 5
        assert best[others].tobytes() == wanted[0][others].tobytes()
        assert values[others].tobytes() == wanted[1][others].tobytes()
        assert set(values[5].tolist()) == {-np.inf} and (best[5] >= -1).all()


def test_log_sigmoid_neither_overflows_nor_loses_the_tail():
    z = np.array([-300, -30, -1, 0, 1, 10, 30, 300], np.float32)
    found = np.array([log_sigmoid(value) for value in z])
    np.testing.assert_allclose(found, -np.logaddexp(0, -z.astype(float)), rtol=1e-6, atol=1e-40)
