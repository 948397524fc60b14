"""Shortlists, loss and gradients of a cascade against what is computed densely, document by document.

Numbers have few bits, so that scores are exact and ties are decided alike."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference.cascade as twin
from xmcascade.kernels.cascade import _log_sigmoid
from xmcascade.neural import Cascade, Head, Truth, cascade
from xmcascade.tree import LabelTree

SEEDS = st.integers(0, 10**6)
DEPTHS = st.integers(1, 4)
KEEPS = st.integers(1, 8)


class World:
    """A tree, heads, and documents with label sets; steps: how many different numbers there are."""

    def __init__(self, seed, depth, keep, n_docs=6, steps=8, **how):
        rng = self.rng = np.random.default_rng(seed)
        self.offsets = twin.random_offsets(rng, depth)
        n_labels = int(self.offsets[-1][-1])
        self.tree = LabelTree(rng.permutation(n_labels), tuple(self.offsets[1:]))
        widths = rng.integers(1, 9, depth)

        def numbers(*shape):
            return (rng.integers(-steps, steps + 1, shape) / steps).astype(np.float32)

        heads = [
            Head(numbers(size, width), numbers(size), "sgd")
            for size, width in zip(self.tree.sizes, widths, strict=True)
        ]
        self.keeps = tuple(rng.integers(1, keep + 1, depth - 1).tolist())
        self.cascade = Cascade(self.tree, heads, self.keeps, **how)
        self.xs = [numbers(n_docs, width) for width in widths]
        self.labels = sp.csr_matrix(rng.random((n_docs, n_labels)) < rng.choice([0.0, 0.1, 0.5]), dtype=float)
        self.relevance = self.tree.relevance(self.labels)
        self.truths = [Truth.of(level, np.arange(n_docs)) for level in self.relevance]
        self.logits = [
            x @ head.rows.T + head.biases for x, head in zip(self.xs, self.cascade.heads, strict=True)
        ]

    def true(self, t, doc):
        return set(self.relevance[t][doc].indices.tolist())

    def best(self, t, doc, nodes):
        """Those of the nodes that go on."""
        return sorted(nodes, key=lambda node: (-self.logits[t][doc, node], node))[: self.keeps[t]]

    def children(self, t, clusters):
        return [c for cluster in sorted(clusters) for c in range(*self.offsets[t][cluster : cluster + 2])]

    def shortlists(self, doc, teach=True):
        """The nodes of each level that are scored for a document; teach: true ones go on beside the best."""
        lists = [self.children(0, [0])]
        for t in range(len(self.keeps)):
            best = {*self.best(t, doc, lists[t])}
            lists.append(self.children(t + 1, best | self.true(t, doc) if teach else best))
        return lists


def entries(level, doc):
    """The nodes that were scored for a document, and the slopes they got."""
    own = slice(*level.short.entry_bounds[doc : doc + 2])
    return level.short.rows[own].tolist(), level.slopes[own].tolist()


@given(seed=SEEDS, depth=DEPTHS, keep=KEEPS, steps=st.sampled_from([1, 8]))
@settings(max_examples=80, deadline=None)
def test_the_true_are_added_to_the_best_and_nothing_else_is_scored(seed, depth, keep, steps):
    world = World(seed, depth, keep, steps=steps)
    levels = world.cascade.forward(world.xs, world.truths)
    for doc in range(6):
        wanted = world.shortlists(doc)
        for t, level in enumerate(levels):
            found, slopes = entries(level, doc)
            assert found == wanted[t]
            true = {node for node, slope in zip(found, slopes, strict=True) if slope < 0}
            assert true == world.true(t, doc)  # every one has an entry, with target 1
            if t < len(world.keeps):
                below = entries(levels[t + 1], doc)[0]
                assert set(world.children(t + 1, world.best(t, doc, found))) <= set(below)  # none displaced
    for t, level in enumerate(levels):
        true = [world.true(t, doc) for doc in range(6)]
        assert level.n_true == sum(map(len, true))
        if t < len(world.keeps):
            best = [world.best(t, doc, world.shortlists(doc)[t]) for doc in range(6)]
            assert level.n_found == sum(len(own & {*top}) for own, top in zip(true, best, strict=True))
            assert level.n_crowded == sum(len(own) > world.keeps[t] for own in true)


@given(seed=SEEDS, depth=DEPTHS)
@settings(max_examples=20, deadline=None)
def test_labels_can_weigh_more_where_they_are_true(seed, depth):
    world = World(seed, depth, 2)
    plain = world.cascade.forward(world.xs, world.truths)
    weights = np.random.default_rng(seed).uniform(0.5, 2, world.cascade.tree.n_labels).astype(np.float32)
    world.cascade.weights = weights
    weighed = world.cascade.forward(world.xs, world.truths)
    for one, other in zip(plain[:-1], weighed[:-1], strict=True):
        assert one.slopes.tobytes() == other.slopes.tobytes()
    for doc in range(6):
        nodes, before = entries(plain[-1], doc)
        factors = [weights[node] if slope < 0 else 1.0 for node, slope in zip(nodes, before, strict=True)]
        np.testing.assert_allclose(entries(weighed[-1], doc)[1], np.multiply(before, factors), rtol=1e-5)


def dense_loss(world, xs, rescale):
    """The loss of each level by torch, in float64, each document's entries one by one."""
    losses = [torch.zeros((), dtype=torch.float64) for _ in xs]
    n_docs = len(xs[0])
    for doc in range(n_docs):
        lists = world.shortlists(doc)
        least = min(map(len, lists))
        for t, (x, head, nodes) in enumerate(zip(xs, world.cascade.heads, lists, strict=True)):
            rows, biases = (torch.from_numpy(part[nodes]).double() for part in (head.rows, head.biases))
            y = torch.tensor([float(node in world.true(t, doc)) for node in nodes], dtype=torch.float64)
            mean = torch.nn.functional.binary_cross_entropy_with_logits(rows @ x[doc] + biases, y)
            losses[t] = losses[t] + mean * (len(nodes) / least if rescale else 1) / n_docs
    return losses


@pytest.mark.parametrize("rescale", [True, False])
@given(seed=SEEDS, depth=DEPTHS, keep=KEEPS)
@settings(max_examples=40, deadline=None)
def test_loss_and_gradients_are_those_of_a_plain_cross_entropy(rescale, seed, depth, keep):
    world = World(seed, depth, keep, rescale=rescale)
    xs = [torch.from_numpy(x).double().requires_grad_() for x in world.xs]
    wanted = dense_loss(world, xs, rescale)
    sum(wanted).backward()
    levels = world.cascade.forward(world.xs, world.truths)
    np.testing.assert_allclose([level.loss for level in levels], [loss.item() for loss in wanted], rtol=1e-5)
    before = [head.rows.copy() for head in world.cascade.heads]
    for found, x in zip(world.cascade.backward(levels, 0.1, seed=1), xs, strict=True):
        np.testing.assert_allclose(found, x.grad, rtol=1e-4, atol=1e-6)
    assert all((head.rows != old).any() for head, old in zip(world.cascade.heads, before, strict=True))


@given(seed=SEEDS, depth=DEPTHS, cut=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_parts_of_a_batch_add_up_to_it(seed, depth, cut):
    world = World(seed, depth, keep=4)
    whole = world.cascade.forward(world.xs, world.truths)
    parts = []
    for docs in (np.arange(cut), np.arange(cut, 6)):
        truths = [Truth.of(level, docs) for level in world.relevance]
        parts.append(world.cascade.forward([x[docs] for x in world.xs], truths, n_docs=6))
    for level, *own in zip(whole, *parts, strict=True):
        assert level.loss == pytest.approx(sum(part.loss for part in own))
        assert level.slopes.tolist() == [slope for part in own for slope in part.slopes]


@given(seed=SEEDS, depth=DEPTHS, keep=KEEPS)
@settings(max_examples=30, deadline=None)
def test_recall_is_the_share_of_true_clusters_that_a_prediction_reaches(seed, depth, keep):
    world = World(seed, depth, keep, n_docs=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "BATCH", 3)
        found = world.cascade.recall(world.xs, world.truths)
    wanted = []
    for t in range(depth - 1):
        hits = total = 0
        for doc in range(7):
            best = world.best(t, doc, world.shortlists(doc, teach=False)[t])
            hits += len(world.true(t, doc) & {*best})
            total += len(world.true(t, doc))
        wanted.append(hits / max(total, 1))
    assert found == pytest.approx(wanted)


@given(seed=SEEDS, depth=DEPTHS, k=st.integers(1, 9), allow=st.booleans())
@settings(max_examples=60, deadline=None)
def test_found_labels_are_those_of_the_walks_twin(seed, depth, k, allow):
    world = World(seed, depth, keep=4)
    powers = [*world.rng.choice([0.0, 1.0], depth - 1), 1.0]
    some = np.flatnonzero(world.rng.random(world.tree.n_labels) < 0.4)
    masks = world.cascade.masks(some) if allow else [np.ones(size, bool) for size in world.tree.sizes]
    found, scores = world.cascade.find(world.xs, powers, k, masks if allow else None)
    k = min(k, world.tree.n_labels)
    assert found.shape == scores.shape == (6, k)
    for doc in range(6):
        keeps = [max(keep, k) for keep in world.keeps]  # never fewer clusters than labels are asked for
        wanted = twin.walk(
            [level[doc] for level in world.logits], world.offsets, masks, keeps,
            np.array(powers, np.float32), world.tree.order, k, lambda z: _log_sigmoid(np.float32(z)),
        )  # fmt: skip
        labels = [int(world.tree.order[position]) for position, _ in wanted]
        assert found[doc].tolist() == labels + [-1] * (k - len(labels))
        assert scores[doc, : len(labels)].tolist() == [score for _, score in wanted]
        assert not allow or {*labels} <= {*some.tolist()}
    kept = found >= 0
    rows = np.concatenate([[0], np.cumsum(kept.sum(1))])
    candidates = sp.csr_matrix((np.ones(kept.sum()), found[kept], rows), shape=world.labels.shape)
    assert world.cascade.score(world.xs, powers, candidates).tolist() == scores[kept].tolist()


@given(seed=SEEDS, depth=DEPTHS)
@settings(max_examples=30, deadline=None)
def test_masks_hold_the_labels_and_all_above_them(seed, depth):
    world = World(seed, depth, keep=1)
    some = np.flatnonzero(world.rng.random(world.tree.n_labels) < 0.3)
    wanted = [world.tree.positions[some]]
    for t in range(depth - 2, -1, -1):
        wanted.insert(0, world.tree.cover(t, wanted[0]))
    for found, size, nodes in zip(world.cascade.masks(some), world.tree.sizes, wanted, strict=True):
        assert (found.dtype, len(found)) == (np.bool_, size)
        assert np.flatnonzero(found).tolist() == sorted(nodes.tolist())


def test_answers_do_not_depend_on_threads_or_neighbours():
    world = World(7, 3, keep=3, n_docs=200)
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=x.shape).astype(np.float32) for x in world.xs]
    wanted = world.cascade.find(xs, [1, 1, 1], 5)
    for threads in (1, 8):
        world.cascade.threads = threads
        for one, other in zip(world.cascade.find(xs, [1, 1, 1], 5), wanted, strict=True):
            assert one.tobytes() == other.tobytes()
    alone = world.cascade.find([x[150:151] for x in xs], [1, 1, 1], 5)
    assert alone[0].tobytes() == wanted[0][150].tobytes() and alone[1].tobytes() == wanted[1][150].tobytes()
