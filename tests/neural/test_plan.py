"""The one dial: the paper's own corpora get the paper's values, and any other size gets valid ones."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xmcascade.neural import plan

# Table 9 of the paper: labels, clusters of each level, encoder layers that each level reads of twelve.
TABLE_9 = {
    "Wiki10-31K": (30_938, (2**9, 2**12), ((9, 10), (11,), (12,))),
    "AmazonCat-13K": (13_330, (2**8, 2**11), ((7, 8), (10,), (12,))),
    "Wiki-500K": (501_070, (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,))),
    "Amazon-670K": (670_091, (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,))),
    "Amazon-3M": (2_812_281, (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,))),
}


@pytest.mark.parametrize("corpus", TABLE_9)
def test_table_9(corpus):
    n_labels, clusters, layers = TABLE_9[corpus]
    assert plan.cluster_levels(n_labels) == clusters
    if (
        corpus != "Wiki10-31K"
    ):  # the same levels and encoder as AmazonCat-13K, other layers: no rule gives both
        assert plan.layers_read(len(clusters) + 1, 12) == layers


@given(n_labels=st.integers(10, 3_000_000))
@example(n_labels=plan.NO_TREE - 1)
@example(n_labels=plan.NO_TREE)
def test_any_number_of_labels_gets_a_tree_that_can_be_built(n_labels):
    levels = plan.cluster_levels(n_labels)
    assert bool(levels) == (n_labels >= plan.NO_TREE)
    assert all(size >= 2 and size & (size - 1) == 0 for size in levels)  # powers of two
    assert all(coarse < fine for coarse, fine in pairwise(levels))
    assert all(2 * size <= n_labels for size in levels)  # at least two labels a cluster
    keeps = plan.shortlists([*levels, n_labels])
    assert len(keeps) == len(levels)
    assert all(1 <= keep <= size for keep, size in zip(keeps, levels, strict=True))


@given(n_levels=st.integers(1, 4), n_layers=st.integers(1, 48))
def test_any_encoder_can_be_read(n_levels, n_layers):
    reads = plan.layers_read(n_levels, n_layers)
    assert len(reads) == n_levels
    every = [layer for layers in reads for layer in layers]
    assert all(1 <= layer <= n_layers for layer in every)
    assert every == sorted(every)  # a finer level never reads below a coarser one
    assert reads[-1][-1] == n_layers
    assert all(len(set(layers)) == len(layers) for layers in reads)


@given(n_tokens=st.integers(0, 10**12), n_docs=st.integers(1, 10**8))
def test_the_more_text_the_fewer_epochs(n_tokens, n_docs):
    chosen, reason = plan.epochs(n_tokens, n_docs)
    assert 1 <= chosen <= 30
    assert chosen >= plan.epochs(2 * n_tokens, n_docs)[0]
    assert f"{n_tokens:,} tokens" in reason


@given(n_levels=st.integers(1, 4))
def test_scores_count_from_the_labels_up(n_levels):
    assert sum(plan.powers("last", n_levels)) == 1
    assert sum(plan.powers("parent", n_levels)) == min(2, n_levels)
    assert sum(plan.powers("path", n_levels)) == n_levels
    for mode in ("last", "parent", "path"):
        powers = plan.powers(mode, n_levels)
        assert powers[-1] == 1 and list(powers) == sorted(powers)
    assert len(plan.dropouts(n_levels)) == n_levels


def test_rows_are_kept_short_when_they_would_take_much_memory():
    assert plan.precision(670_091, 384)[0] == "float32"
    chosen, reason = plan.precision(2_812_281, 768)
    assert chosen == "bfloat16" and "8.0 GiB" in reason


def test_memory_is_told_by_purpose():
    memory = plan.Memory({"rows": 3 * 2**20, "scores": 2**30})
    assert memory.total == 3 * 2**20 + 2**30
    assert str(memory) == "1.00 GiB (MiB: rows 3, scores 1,024)"


@given(st.integers(1, 10**10), st.floats(0, 100))
def test_heads_start_from_all_documents_unless_that_takes_long(n_tokens, epochs):
    share = plan.start_share(n_tokens, epochs)
    assert 0 < share <= 1
    read = share * n_tokens
    assert read <= 1.01 * max(plan.START_TOKENS, plan.START_PART * epochs * n_tokens)
    assert share == 1 or read >= 0.99 * plan.START_TOKENS


def test_numbers_are_rounded_where_that_is_faster(monkeypatch):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    assert plan.arithmetic("cpu", 384)[0] == "bfloat16"
    assert plan.arithmetic("cpu", 16)[0] == plan.arithmetic("cuda", 384)[0] == "float32"
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx2": True})
    assert plan.arithmetic("cpu", 384)[0] == "float32"
