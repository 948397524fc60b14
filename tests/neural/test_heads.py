"""Shortlists and heads: by block or as one product of matrices, with few threads or many, all the same."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference.heads as twin
from xmcascade.neural import Head, RowOptimizer, Shortlist, TorchHead, heads, row_bytes, torch_heads

OPTIMIZERS = get_args(RowOptimizer)
PRECISIONS = ["float32", "bfloat16"]
BLOCKS, DENSE = 0, 10**9  # values of DENSE_GAIN that force one way
SEEDS = st.integers(0, 10**6)

every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
both_ways = pytest.mark.parametrize("gain", [BLOCKS, DENSE], ids=["blocks", "dense"])


def some_shortlist(rng, n_docs=6, n_clusters=5, share=0.6):
    """Clusters of uneven sizes, wanted by some documents; a document may want none."""
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 8, n_clusters))])
    wanted = rng.random((n_docs, n_clusters)) < share
    wanted[0, 0] = True
    return Shortlist(np.concatenate([[0], np.cumsum(wanted.sum(1))]), np.nonzero(wanted)[1], offsets)


def numbers(rng, *shape, exact=False):
    """Random ones; exact: of few bits, so that sums are the same in any order."""
    found = rng.normal(size=shape)
    return (np.round(8 * found) / 8 if exact else found).astype(np.float32)


class World:
    def __init__(self, seed, optimizer="sgd", precision="float32", exact=False, width=11, **shape):
        rng = self.rng = np.random.default_rng(seed)
        self.short, self.exact = some_shortlist(rng, **shape), exact
        self.x = numbers(rng, self.short.n_docs, width, exact=exact)
        n_rows = int(self.short.offsets[-1])
        self.places = twin.entries(self.short.doc_pairs, self.short.clusters, self.short.offsets)
        self.touched = np.isin(np.arange(n_rows), self.short.rows)
        self.start = dict(optimizer=optimizer, precision=precision, decay=0.1, scale=1.0), n_rows, width

    def head(self, threads=None):
        how, n_rows, width = self.start
        head = Head.random(n_rows, width, np.random.default_rng(5), threads=threads, **how)
        head.biases[:] = np.linspace(-1, 1, n_rows)
        return head

    def slopes(self):
        return numbers(self.rng, self.short.n_entries, exact=self.exact)

    def run(self, gain, slopes, threads=None, hold=False):
        """A head after some steps, and all that the steps returned."""
        head, said = self.head(threads), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(heads, "DENSE_GAIN", gain)
            for number, own in enumerate(slopes):
                said.append(head.logits(self.x, self.short))
                said.append(head.step(self.x, self.short, own, 0.1, seed=number, hold=hold))
        return head, said


def rows_of(head):
    """The rows as numbers."""
    return (
        head.rows if head.rows.dtype == np.float32 else (head.rows.astype(np.uint32) << 16).view(np.float32)
    )


def same_bytes(one, other):
    ours, theirs = one.to_arrays(whole=True), other.to_arrays(whole=True)
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


# Shortlists -----------------------------------------------------------------------------------------------


@given(seed=SEEDS, n_docs=st.integers(1, 9), share=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_entries_are_the_children_of_each_documents_clusters(seed, n_docs, share):
    short = some_shortlist(np.random.default_rng(seed), n_docs, share=share)
    places = twin.entries(short.doc_pairs, short.clusters, short.offsets)
    assert short.n_docs == n_docs and short.n_entries == len(places)
    assert short.rows.tolist() == [row for _, row in places]
    docs = [doc for doc, _ in places]
    assert np.repeat(short.docs, np.diff(short.starts)).tolist() == docs
    assert np.repeat(range(n_docs), np.diff(short.entry_bounds)).tolist() == docs


@given(seed=SEEDS, n_docs=st.integers(1, 30), n_clusters=st.integers(1, 60), share=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_shards_hold_all_pairs_and_never_cut_a_block(seed, n_docs, n_clusters, share):
    short = some_shortlist(np.random.default_rng(seed), n_docs, n_clusters, share)
    assert sorted(short.order.tolist()) == list(range(len(short.clusters)))
    bounds = [low for low, _ in short.shards] + [short.shards[-1][1]]
    assert (bounds[0], bounds[-1]) == (0, len(short.clusters))
    assert all(a[1] == b[0] for a, b in pairwise(short.shards))
    blocks = [set(short.clusters[short.order[low:high]].tolist()) for low, high in short.shards]
    assert all(blocks) and sum(map(len, blocks)) == len(set().union(*blocks))
    work = [int(np.diff(short.starts)[short.order[low:high]].sum()) for low, high in short.shards]
    largest = np.bincount(short.clusters, np.diff(short.starts)).max()
    assert max(work) <= short.n_entries / heads.SHARDS + 2 * largest
    assert len(work) <= heads.SHARDS


def test_no_pairs_no_shards():
    short = Shortlist(np.array([0, 0, 0]), np.zeros(0, np.int64), np.array([0, 2, 5]))
    assert (short.n_docs, short.n_entries, short.shards) == (2, 0, [])


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_joined_batches_are_one(seed):
    rng = np.random.default_rng(seed)
    offsets = some_shortlist(rng).offsets
    parts = [some_shortlist(rng, n_docs) for n_docs in (1, 4, 2)]
    parts = [Shortlist(part.doc_pairs, part.clusters, offsets) for part in parts]
    joined = Shortlist.join(parts)
    first_docs = np.cumsum([0, *(part.n_docs for part in parts)])
    assert joined.n_docs == first_docs[-1]
    assert joined.rows.tolist() == [row for part in parts for row in part.rows]
    wanted = [doc + first for first, part in zip(first_docs[:-1], parts, strict=True) for doc in part.docs]
    assert joined.docs.tolist() == wanted


def test_the_root_has_every_row_for_every_document():
    short = Shortlist.root(3, 4)
    assert short.rows.tolist() == [0, 1, 2, 3] * 3
    assert short.entry_bounds.tolist() == [0, 4, 8, 12]


# Heads ----------------------------------------------------------------------------------------------------


@both_ways
@every_precision
@every_optimizer
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_step_is_the_twins_and_leaves_other_rows_alone(optimizer, precision, gain, seed):
    world = World(seed, optimizer, precision)
    slopes = world.slopes()
    before, rate = world.head(), 0.1
    head, (scores, back) = world.run(gain, [slopes])
    rows = rows_of(before).astype(float)
    wanted = twin.logits(world.x, rows, before.biases, world.places)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)
    of_x, of_rows, of_biases = twin.gradients(world.x.astype(float), rows, world.places, slopes)
    np.testing.assert_allclose(back, of_x, rtol=1e-4, atol=1e-4)
    state = dict(one=np.zeros(len(rows)), steps=np.zeros(len(rows)), first=np.zeros((len(rows), 12)))
    state["second"] = state["first"].copy()
    how = rate, 0.1, heads.BETA1, heads.BETA2, heads.EPSILON
    touched = np.flatnonzero(world.touched)
    rows, biases = twin.updated(
        optimizer, rows, before.biases.astype(float), state, of_rows, of_biases, touched, how
    )
    short = {"rtol": 2**-7, "atol": 1e-3} if precision == "bfloat16" else {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(rows_of(head), rows, **short)
    np.testing.assert_allclose(head.biases, biases, rtol=1e-3, atol=1e-3)
    others = ~world.touched
    assert head.rows[others].tobytes() == before.rows[others].tobytes()
    assert head.biases[others].tobytes() == before.biases[others].tobytes()
    assert all(not part[others].any() for part in head.state if len(part))


@every_precision
@every_optimizer
@given(seed=SEEDS, share=st.sampled_from([0.1, 0.5, 1.0]))
@settings(max_examples=8, deadline=None)
def test_one_product_of_matrices_is_the_blocks(optimizer, precision, seed, share):
    world = World(seed, optimizer, precision, exact=True, share=share)
    slopes = [world.slopes() for _ in range(3)]
    (one, said), (other, meant) = (world.run(gain, slopes) for gain in (BLOCKS, DENSE))
    assert same_bytes(one, other)  # the gradients are exact, so all that follows is too
    for found, wanted in zip(said, meant, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@both_ways
@every_optimizer
def test_holding_changes_nothing_and_gives_the_same_back(optimizer, gain):
    world = World(1, optimizer)
    slopes = world.slopes()
    held, said = world.run(gain, [slopes], hold=True)
    assert same_bytes(held, world.head())
    assert said[1].tobytes() == world.run(gain, [slopes])[1][1].tobytes()


@both_ways
@every_precision
@every_optimizer
def test_threads_change_nothing(optimizer, precision, gain):
    world = World(2, optimizer, precision, n_docs=40, n_clusters=300, width=67)
    slopes = [world.slopes() for _ in range(2)]
    runs = [world.run(gain, slopes, threads) for threads in (1, 2, 8)]
    for head, said in runs[1:]:
        assert same_bytes(head, runs[0][0])
        assert [one.tobytes() for one in said] == [one.tobytes() for one in runs[0][1]]


def test_few_of_many_rows_are_scored_by_block_and_most_in_one_product():
    head = Head.random(800, 4, np.random.default_rng(0))
    offsets = np.arange(0, 801, 10)
    few, most = Shortlist(np.array([0, 1]), np.array([3]), offsets), Shortlist.root(1, 800)
    assert (head.is_dense(few), head.is_dense(most)) == (False, True)


@every_optimizer
def test_a_head_goes_on_from_what_it_kept(optimizer):
    world = World(3, optimizer, "bfloat16")
    slopes = [world.slopes() for _ in range(4)]
    head, _ = world.run(BLOCKS, slopes[:2])
    again = world.head()
    again.take({name: array.copy() for name, array in head.to_arrays(whole=True).items()})
    assert same_bytes(head, again)
    for one in (head, again):
        one.step(world.x, world.short, slopes[2], 0.1, seed=9)
    assert same_bytes(head, again)
    again.take(world.head().to_arrays())  # rows alone: the optimizer's memory stays
    assert again.rows.tobytes() == world.head().rows.tobytes()
    assert again.state[0].tobytes() == head.state[0].tobytes()


@every_precision
@every_optimizer
def test_a_row_takes_what_is_said(optimizer, precision):
    head = Head.random(50, 12, np.random.default_rng(0), optimizer=optimizer, precision=precision)
    arrays = head.to_arrays(whole=True)
    assert sum(array.nbytes for array in arrays.values()) == 50 * row_bytes(12, optimizer, precision)


@every_precision
def test_random_rows_follow_from_the_generator(precision):
    one, other, third = (
        Head.random(70_000, 2, np.random.default_rng(seed), precision=precision) for seed in (4, 4, 5)
    )
    assert one.rows.tobytes() == other.rows.tobytes() != third.rows.tobytes()
    assert rows_of(one).std() == pytest.approx(0.02, rel=0.02) and not one.biases.any()
    assert len(np.unique(rows_of(one).view(np.uint64))) > 0.9 * 70_000 or precision == "bfloat16"


# In torch operations --------------------------------------------------------------------------------------


def torch_twin(head):
    """The same head, as a device would have it."""
    parts = {name: array.copy() for name, array in head.to_arrays(whole=True).items()}
    state = tuple(parts[name] for name in ("squares", "steps", "firsts", "seconds"))
    return TorchHead(parts["rows"], parts["biases"], head.optimizer, head.decay, state=state, device="cpu")


@every_precision
@every_optimizer
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_head_in_torch_is_a_head(optimizer, precision, seed):
    world = World(seed, optimizer, precision)
    head = world.head()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_heads, "ENTRIES_AT_ONCE", 7)
        other, near = torch_twin(head), {"rtol": 1e-3, "atol": 1e-3}
        for number in range(3):
            slopes = world.slopes()
            np.testing.assert_allclose(
                other.logits(world.x, world.short), head.logits(world.x, world.short), **near
            )
            backs = [one.step(world.x, world.short, slopes, 0.1, seed=number) for one in (head, other)]
            np.testing.assert_allclose(*backs, **near)
            if precision == "bfloat16":  # each rounds at random in its own way
                other.to_arrays()
                np.testing.assert_allclose(rows_of(other), rows_of(head), rtol=2**-6, atol=1e-3)
                other.take(head.to_arrays(whole=True))
        for name, array in other.to_arrays(whole=True).items():
            if array.dtype != np.uint16:
                np.testing.assert_allclose(array, head.to_arrays(whole=True)[name], **near)
    others = ~world.touched
    assert other.rows[others].tobytes() == world.head().rows[others].tobytes()


@every_optimizer
def test_a_head_in_torch_holds_and_goes_on(optimizer):
    world = World(4, optimizer, "bfloat16")
    slopes, head = [world.slopes() for _ in range(3)], torch_twin(world.head())
    head.step(world.x, world.short, slopes[0], 0.1, hold=True)
    assert same_bytes(head, world.head())
    head.step(world.x, world.short, slopes[0], 0.1, seed=1)
    again = torch_twin(world.head())
    again.take({name: array.copy() for name, array in head.to_arrays(whole=True).items()})
    for one in (head, again):
        one.step(world.x, world.short, slopes[1], 0.1, seed=2)
    assert same_bytes(head, again)
    empty = Shortlist(np.array([0, 0]), np.zeros(0, np.int64), world.short.offsets)
    assert head.logits(world.x[:1], empty).shape == (0,)
