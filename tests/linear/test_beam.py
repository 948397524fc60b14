from typing import get_args

import numpy as np
import pytest
import scipy.sparse as sp

from reference.linear import path_scores
from xmcascade import XRLinear, make_synthetic
from xmcascade.features import MixedRows
from xmcascade.kernels import blocks
from xmcascade.linear import (
    BlockWeights,
    Combine,
    LinearSettings,
    probability,
    score_paths,
    search,
    train_level,
)
from xmcascade.tree import LabelTree


@pytest.fixture(scope="module")
def world():
    corpus = make_synthetic(400, 90, seed=2)
    model = XRLinear(tree={"arity": 4, "max_leaf": 4}, features={"min_df": 1}).fit(corpus)
    state = model._learnt.state
    member = state.ranker.members[0]
    assert member.tree.n_levels >= 3
    return state.tfidf.transform(corpus.texts[:40]), member.tree, member.weights


@pytest.mark.parametrize("combine", get_args(Combine))
def test_a_beam_of_all_is_exact(world, combine):
    queries, tree, weights = world
    labels, scores = search(queries, tree, weights, beam=1000, k=tree.n_labels, combine=combine)
    for doc in range(queries.shape[0]):
        exact = path_scores(queries[[doc]].toarray()[0], tree, weights, combine)
        np.testing.assert_allclose(scores[doc], exact[labels[doc]], rtol=1e-4, atol=1e-7)
        chances = probability(scores[doc], combine)
        assert (chances >= 0).all()
        assert (chances <= 1).all()
        assert sorted(labels[doc]) == list(range(tree.n_labels))
        assert (np.diff(scores[doc]) <= 0).all()


def test_given_labels_get_the_scores_of_the_search(world):
    queries, tree, weights = world
    labels, scores = search(queries, tree, weights, beam=1000, k=7, combine="l3-hinge")
    ends = np.arange(0, labels.size + 1, 7)
    asked = sp.csr_matrix((np.ones(labels.size), labels.ravel(), ends), shape=(len(labels), tree.n_labels))
    np.testing.assert_array_equal(score_paths(queries, tree, weights, asked, "l3-hinge"), scores.ravel())


def test_table_and_search_find_the_same(world, monkeypatch):
    queries, tree, weights = world
    many = search(queries, tree, weights, beam=5, k=5, combine="l3-hinge")
    one = [
        search(queries[[doc]], tree, weights, beam=5, k=5, combine="l3-hinge")
        for doc in range(queries.shape[0])
    ]
    assert queries.shape[0] >= blocks.MANY  # in a batch the table is used, alone the search
    np.testing.assert_array_equal(many[0], np.concatenate([found for found, _ in one]))
    np.testing.assert_array_equal(many[1], np.concatenate([scores for _, scores in one]))


def test_a_narrow_beam_still_finds_k_labels(world):
    queries, tree, weights = world
    labels, _ = search(queries, tree, weights, beam=1, k=30, combine="l3-hinge")
    assert (labels >= 0).all()
    assert all(len(set(row)) == 30 for row in labels.tolist())


def test_the_search_may_end_at_clusters(world):
    queries, tree, weights = world
    clusters, _ = search(queries, tree, weights, beam=3, k=3, combine="l3-hinge", n_levels=1)
    assert clusters.max() < tree.sizes[0]


def test_no_queries_no_answers(world):
    queries, tree, weights = world
    labels, scores = search(queries[:0], tree, weights, beam=3, k=3, combine="l3-hinge")
    assert labels.shape == scores.shape == (0, 3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("n_labels", [20, 600])
def test_dense_features_and_wide_blocks_are_scored_as_plainly(precision, n_labels):
    rng = np.random.default_rng(4)
    rows = MixedRows.of(sp.random(60, 30, 0.2, "csr", np.float32, rng=rng), rng.normal(size=(60, 5)))
    offsets = np.array([0, 3, n_labels // 4, n_labels])
    tree = LabelTree(rng.permutation(n_labels), (offsets,))
    levels = []
    for t, (n_blocks, bounds) in enumerate([(1, np.array([0, 3])), (3, offsets)]):
        reached = sp.csc_matrix(np.ones((60, n_blocks), np.float32))
        targets = sp.csc_matrix((rng.random((60, bounds[-1])) < 0.2).astype(np.float32))
        how = LinearSettings(precision=precision)
        levels.append(train_level(rows, reached, targets, bounds, how, seed=t))
    weights = BlockWeights.join(levels)
    weights.check(tree.block_offsets, 30, 5)
    labels, scores = search(rows, tree, weights, beam=3, k=n_labels, combine="log-l2-hinge")
    whole = np.hstack([rows.sparse.toarray(), rows.dense])
    for doc in range(60):
        exact = path_scores(whole[doc], tree, weights, "log-l2-hinge", n_dense=5)
        np.testing.assert_allclose(scores[doc], exact[labels[doc]], rtol=1e-3, atol=1e-4)
    asked = sp.csr_matrix(np.ones((60, n_labels), np.float32))
    given = score_paths(rows, tree, weights, asked, "log-l2-hinge").reshape(60, n_labels)
    np.testing.assert_array_equal(np.take_along_axis(given, labels, axis=1), scores)
    one = search(rows[7:8], tree, weights, beam=3, k=n_labels, combine="log-l2-hinge")
    np.testing.assert_array_equal(one[1][0], scores[7])


def test_threads_change_nothing(world):
    queries, tree, weights = world
    many = sp.vstack([queries] * 20, format="csr")
    one = search(many, tree, weights, beam=5, k=5, combine="sigmoid", threads=1)
    two = search(many, tree, weights, beam=5, k=5, combine="sigmoid", threads=3)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
