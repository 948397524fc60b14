"""The structure: what it refuses, and the laws of going down and up in it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.errors import DataError
from xmcascade.tree import LabelTree

RUN = settings(max_examples=100, deadline=None)


@st.composite
def trees(draw, min_levels=0):
    """Any tree: labels in any order, clusters of any size."""
    n_labels = size = draw(st.integers(1, 20))
    offsets = []
    for _ in range(draw(st.integers(min_levels, 3))):
        cuts = draw(st.sets(st.integers(1, size - 1))) if size > 1 else set()
        offsets.insert(0, np.array([0, *sorted(cuts), size]))
        size = len(cuts) + 1
    return LabelTree(np.array(draw(st.permutations(range(n_labels)))), tuple(offsets))


def labels_below(tree, level, cluster):
    """Slowly: the label ids below a cluster."""
    if level == tree.n_levels - 1:
        return [int(tree.order[cluster])]
    return [
        label for child in tree.children(level, cluster) for label in labels_below(tree, level + 1, child)
    ]


@pytest.mark.parametrize(
    ("order", "offsets", "message"),
    [
        ([], [], "no labels"),
        ([0, 0], [], "permutation"),
        ([0, 2], [], "permutation"),
        ([[0, 1]], [], "no labels"),
        ([0, 1], [[0, 1]], "level 0 of the tree does not cover level 1"),
        ([0, 1], [[1, 2]], "does not cover"),
        ([0, 1], [[0]], "does not cover"),
        ([0, 1], [[0, 0, 2]], "a cluster of level 0 has no children"),
        ([0, 1], [[0, 2, 1, 2]], "has no children"),
        ([0, 1], [[0, 1], [0, 1, 2]], "level 0 of the tree does not cover level 1"),
        ([0, 1], [[0, 2], [0, 2, 3]], "level 1 of the tree does not cover level 2"),
    ],
)
def test_what_is_refused(order, offsets, message):
    with pytest.raises(DataError, match=message):
        LabelTree(np.array(order), tuple(np.array(level) for level in offsets))


@given(tree=trees(min_levels=1), data=st.data())
@RUN
def test_down_and_up(tree, data):
    level = data.draw(st.integers(0, tree.n_levels - 2))
    clusters = data.draw(st.lists(st.integers(0, tree.sizes[level] - 1), unique=True))
    children = tree.refine(level, clusters)
    assert children.tolist() == [child for c in clusters for child in tree.children(level, c)]
    assert tree.cover(level, children).tolist() == sorted(clusters)
    for c in clusters:
        assert all(tree.parents[level][child] == c for child in tree.children(level, c))
    places = data.draw(st.lists(st.integers(0, tree.sizes[level + 1] - 1)))
    assert set(places) <= set(tree.refine(level, tree.cover(level, places)).tolist())


@given(tree=trees())
@RUN
def test_every_label_has_one_place_in_every_level(tree):
    assert tree.positions[tree.order].tolist() == list(range(tree.n_labels))
    for level in range(tree.n_levels):
        found = [label for c in range(tree.sizes[level]) for label in labels_below(tree, level, c)]
        assert found == tree.order.tolist()
    assert tree.summary().count("\n") == tree.n_levels - 1


@given(tree=trees())
@RUN
def test_the_labels_below_a_node_and_the_way_to_a_label(tree):
    for level in range(tree.n_levels):
        for node in range(tree.sizes[level]):
            labels = tree.order[list(tree.below(level, node))].tolist()
            assert labels == labels_below(tree, level, node)
            assert all(tree.path(label)[level] == node for label in labels)


@given(tree=trees(), data=st.data())
@RUN
def test_relevance(tree, data):
    weights = st.lists(
        st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]), min_size=tree.n_labels, max_size=tree.n_labels
    )
    labels = np.array(data.draw(st.lists(weights, min_size=1, max_size=4)))
    matrix = sp.csr_matrix(labels)
    levels = tree.relevance(matrix)
    assert (matrix.toarray() == labels).all()
    for level, found in enumerate(levels):
        assert found.has_sorted_indices
        for c in range(tree.sizes[level]):
            below = labels[:, labels_below(tree, level, c)].sum(axis=1)
            assert found[:, [c]].toarray().ravel().tolist() == below.tolist()


@given(tree=trees(), data=st.data())
@RUN
def test_picked_levels_have_the_same_labels_below(tree, data):
    kept = sorted(data.draw(st.sets(st.integers(0, tree.n_levels - 2)))) if tree.n_levels > 1 else []
    picked = tree.picked(kept)
    assert picked.sizes == [*(tree.sizes[t] for t in kept), tree.n_labels]
    for new, old in enumerate(kept):
        for c in range(tree.sizes[old]):
            assert labels_below(picked, new, c) == labels_below(tree, old, c)


@given(tree=trees())
@RUN
def test_to_arrays_and_back(tree):
    again = LabelTree.from_arrays(tree.to_arrays())
    assert again.order.tolist() == tree.order.tolist()
    assert [level.tolist() for level in again.offsets] == [level.tolist() for level in tree.offsets]


def test_flat():
    tree = LabelTree.flat(3)
    assert (tree.sizes, tree.n_levels, tree.order.tolist()) == ([3], 1, [0, 1, 2])


@given(tree=trees(), data=st.data())
@RUN
def test_new_labels_come_last_in_their_clusters(tree, data):
    n_clusters = len(tree.label_offsets) - 1
    homes = data.draw(st.lists(st.integers(0, n_clusters - 1), min_size=1, max_size=5))
    grown, sources = tree.grown(homes)
    assert grown.sizes == [*tree.sizes[:-1], tree.n_labels + len(homes)]
    assert [own.tolist() for own in sources[:-1]] == [list(range(size)) for size in tree.sizes[:-1]]
    for cluster in range(n_clusters):
        here = slice(*grown.label_offsets[cluster : cluster + 2])
        new = [tree.n_labels + i for i, home in enumerate(homes) if home == cluster]
        before = tree.order[slice(*tree.label_offsets[cluster : cluster + 2])].tolist()
        assert grown.order[here].tolist() == before + new
    every = [*tree.order, *range(tree.n_labels, grown.n_labels)]
    assert [every[i] for i in sources[-1]] == grown.order.tolist()


@given(tree=trees(), data=st.data())
@RUN
def test_what_is_left_keeps_its_place(tree, data):
    kept = sorted(data.draw(st.sets(st.integers(0, tree.n_labels - 1), min_size=1)))
    pruned, sources = tree.pruned(kept)
    assert pruned.n_labels == len(kept)
    for level, nodes in enumerate(sources):
        left = [c for c in range(tree.sizes[level]) if set(labels_below(tree, level, c)) & set(kept)]
        assert nodes.tolist() == left
        for new, old in enumerate(nodes):
            below = [label for label in labels_below(tree, level, old) if label in kept]
            assert [kept[label] for label in labels_below(pruned, level, new)] == below
