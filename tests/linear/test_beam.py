import numpy as np
import pytest
import scipy.sparse as sp

from reference.linear import path_scores
from xmcascade import XRLinear, make_synthetic
from xmcascade.kernels import blocks
from xmcascade.linear import block_offsets, score_paths, search


@pytest.fixture(scope="module")
def world():
    corpus = make_synthetic(400, 90, seed=2)
    model = XRLinear(tree={"arity": 4, "max_leaf": 4}, features={"min_df": 1}).fit(corpus)
    state = model._learnt.state
    member = state.members[0]
    assert len(member.levels) >= 3
    return state.tfidf.transform(corpus.texts[:40]), member.tree, member.levels


@pytest.mark.parametrize("combine", ["l3-hinge", "l2-hinge", "l1-hinge", "sigmoid"])
def test_a_beam_of_all_is_exact(world, combine):
    queries, tree, levels = world
    labels, scores = search(queries, tree, levels, beam=1000, k=tree.n_labels, combine=combine)
    for doc in range(queries.shape[0]):
        exact = path_scores(queries[[doc]].toarray()[0], tree, levels, block_offsets, combine)
        np.testing.assert_allclose(scores[doc], exact[labels[doc]], rtol=1e-4, atol=1e-7)
        assert sorted(labels[doc]) == list(range(tree.n_labels))
        assert (np.diff(scores[doc]) <= 0).all()


def test_given_labels_get_the_scores_of_the_search(world):
    queries, tree, levels = world
    labels, scores = search(queries, tree, levels, beam=1000, k=7, combine="l3-hinge")
    ends = np.arange(0, labels.size + 1, 7)
    asked = sp.csr_matrix((np.ones(labels.size), labels.ravel(), ends), shape=(len(labels), tree.n_labels))
    np.testing.assert_array_equal(score_paths(queries, tree, levels, asked, "l3-hinge"), scores.ravel())


def test_table_and_search_find_the_same(world, monkeypatch):
    queries, tree, levels = world
    many = search(queries, tree, levels, beam=5, k=5, combine="l3-hinge")
    one = [
        search(queries[[doc]], tree, levels, beam=5, k=5, combine="l3-hinge")
        for doc in range(queries.shape[0])
    ]
    assert queries.shape[0] >= blocks.MANY  # in a batch the table is used, alone the search
    np.testing.assert_array_equal(many[0], np.concatenate([found for found, _ in one]))
    np.testing.assert_array_equal(many[1], np.concatenate([scores for _, scores in one]))


def test_a_narrow_beam_still_finds_k_labels(world):
    queries, tree, levels = world
    labels, _ = search(queries, tree, levels, beam=1, k=30, combine="l3-hinge")
    assert (labels >= 0).all()
    assert all(len(set(row)) == 30 for row in labels.tolist())


def test_the_search_may_end_at_clusters(world):
    queries, tree, levels = world
    clusters, _ = search(queries, tree, levels, beam=3, k=3, combine="l3-hinge", n_levels=1)
    assert clusters.max() < tree.sizes[0]


def test_no_queries_no_answers(world):
    queries, tree, levels = world
    labels, scores = search(queries[:0], tree, levels, beam=3, k=3, combine="l3-hinge")
    assert labels.shape == scores.shape == (0, 3)
