"""Given trees: paths, edges and JSON, and what is wrong with some."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.errors import DataError
from xmcascade.tree import LabelTree, tree_from_edges, tree_from_json, tree_from_paths, tree_to_json

NAMES = ["a", "b", "c", "d"]


def nested(tree, names=NAMES):
    return tree_to_json(tree, names)["tree"]


def test_paths_of_different_depths():
    paths = {"a": ["x", "y", "z"], "b": ["x"], "c": ["w"], "d": ["x"]}
    assert nested(tree_from_paths(paths, NAMES)) == [[[["a"]], [["b", "d"]]], [[["c"]]]]


def test_clusters_of_the_same_name_in_different_places_differ():
    paths = {"a": ["x", "other"], "b": ["y", "other"], "c": ["x", "other"], "d": ["y", "x"]}
    assert nested(tree_from_paths(paths, NAMES)) == [[["a", "c"]], [["b"], ["d"]]]


def test_labels_without_a_path_share_a_cluster_and_unknown_ones_are_ignored():
    assert nested(tree_from_paths({"a": ["x"], "c": ["x"], "zebra": ["y"]}, NAMES)) == [
        ["a", "c"],
        ["b", "d"],
    ]


def test_one_root_above_everything_is_left_out():
    paths = {name: ["all", "x" if name < "c" else "y"] for name in NAMES}
    assert nested(tree_from_paths(paths, NAMES)) == [["a", "b"], ["c", "d"]]
    assert nested(tree_from_paths(dict.fromkeys(NAMES, ("all",)), NAMES)) == [NAMES]


@pytest.mark.parametrize("path", ["x/y", [1, 2]])
def test_paths_that_are_not(path):
    with pytest.raises(DataError, match="the path of label 'b' is"):
        tree_from_paths({"b": path}, NAMES)


def test_no_label_in_the_taxonomy():
    with pytest.raises(DataError, match="none of the 4 labels is in the taxonomy"):
        tree_from_paths({"A": ["x"]}, NAMES)
    with pytest.raises(DataError, match="none of the 4 labels"):
        tree_from_edges([("x", "A")], NAMES)


def test_inner_labels_are_children_of_their_own_cluster():
    edges = [("a", "b"), ("b", "c"), ("a", "d")]
    assert nested(tree_from_edges(edges, NAMES)) == [["a", "d"], ["b", "c"]]


def test_several_roots_several_parents_and_useless_nodes():
    edges = [
        ("r", "a"),
        ("s", "a"),
        ("s", "b"),
        ("a", "not a label"),
        ("s", "c"),
        ("s", "c"),
        ("d", "no label"),
    ]
    assert nested(tree_from_edges(edges, NAMES)) == [["a"], ["b", "c"], ["d"]]


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([("a", "a")], "'a' -> 'a'"),
        ([("r", "d"), ("a", "b"), ("b", "c"), ("c", "a")], "'[abc]' -> '[abc]' -> '[abc]' -> '[abc]'"),
        ([("x", "y"), ("y", "x"), ("y", "a")], "'[xy]' -> '[xy]' -> '[xy]'"),
    ],
)
def test_cycles(edges, cycle):
    with pytest.raises(DataError, match=f"the taxonomy has a cycle: {cycle}[.]"):
        tree_from_edges(edges, NAMES)


def test_a_long_cycle_is_shortened_and_a_second_parent_makes_none():
    ring = [str(i) for i in range(20_000)]
    with pytest.raises(DataError, match=r"\(20,001 in all\)"):
        tree_from_edges(zip(ring, [*ring[1:], "0"], strict=True), NAMES)
    assert tree_from_edges([("r", "a"), ("a", "b"), ("b", "a"), ("r", "c")], NAMES).n_labels == 4


def test_edges_that_are_not():
    for edge in [("a",), "ab", ("a", 1), ("a", "b", "c")]:
        with pytest.raises(DataError, match="is not an edge"):
            tree_from_edges([edge], NAMES)


def test_too_deep():
    chain = [str(i) for i in range(3000)]
    with pytest.raises(DataError, match="more than 64 clusters above it"):
        tree_from_edges(pairwise(chain), chain)
    with pytest.raises(DataError, match="more than 64"):
        tree_from_paths({"a": chain}, NAMES)
    deep = ["a"]
    for _ in range(100):
        deep = [deep]
    with pytest.raises(DataError, match="more than 64 levels"):
        tree_from_json({"tree": deep}, ["a"])


@st.composite
def taxonomies(draw):
    names = [f"label {i}" for i in range(draw(st.integers(1, 15)))]
    path = st.lists(st.sampled_from("xyz"), max_size=4)
    paths = draw(st.dictionaries(st.sampled_from(names), path, max_size=len(names)))
    return {**paths, names[0]: ["x"]}, names


@given(taxonomy=taxonomies())
@settings(max_examples=100, deadline=None)
def test_labels_share_a_cluster_as_far_as_they_share_a_path(taxonomy):
    paths, names = taxonomy
    tree = tree_from_paths(paths, names)
    depth = max(map(len, paths.values()))
    padded = [[*paths.get(name, []), *[None] * depth][:depth] for name in names]
    left_out = depth - (tree.n_levels - 1)
    assert all(len({tuple(path[: t + 1]) for path in padded}) == 1 for t in range(left_out))
    above = tree.positions
    for t in range(tree.n_levels - 2, -1, -1):
        above = tree.parents[t][above]
        for i, one in enumerate(padded):
            for j, other in enumerate(padded):
                alike = one[: left_out + t + 1] == other[: left_out + t + 1]
                assert (above[i] == above[j]) == alike


@given(taxonomy=taxonomies())
@settings(max_examples=50, deadline=None)
def test_json_and_back(taxonomy):
    paths, names = taxonomy
    tree = tree_from_paths(paths, names)
    again = tree_from_json(json.loads(json.dumps(tree_to_json(tree, names))), names)
    assert again.order.tolist() == tree.order.tolist()
    assert [level.tolist() for level in again.offsets] == [level.tolist() for level in tree.offsets]


def test_json_of_a_flat_tree():
    assert tree_to_json(LabelTree.flat(4), NAMES) == {"tree": NAMES}
    assert tree_from_json({"tree": NAMES}, NAMES).sizes == [4]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "there is no tree"),
        ([], "there is no tree"),
        ({"tree": []}, "there is no tree"),
        ({"tree": "abcd"}, "there is no tree"),
        ({"tree": [["a", "b", "c", "d"], []]}, "cluster 1 of level 0 is empty"),
        ({"tree": [["a", "b"], "c", "d"]}, r"level 0 of the tree has labels and other things .*\['a', 'b'\]"),
        ({"tree": [["a", 1], ["c", "d"]]}, "level 1 of the tree has labels and other things beside them: 1"),
        ({"tree": [["a", "b"], ["c", "d", "e"]]}, "labels that are not known: 'e'"),
        ({"tree": [["a", "b"], ["d"]]}, "labels missing in the tree: 'c'"),
        ({"tree": [["a", "b"], ["c", "d", "b", "b"]]}, "labels twice in the tree: 'b'[.]"),
    ],
)
def test_json_that_is_refused(value, message):
    with pytest.raises(DataError, match=message):
        tree_from_json(value, NAMES)


def test_label_names_that_are_refused():
    with pytest.raises(DataError, match="occur twice: 'a'"):
        tree_from_json({"tree": ["a", "b"]}, ["a", "b", "a"])
    with pytest.raises(DataError, match="there are no labels"):
        tree_from_paths({}, [])
    with pytest.raises(DataError, match="3 label names for a tree of 4 labels"):
        tree_to_json(LabelTree.flat(4), NAMES[:3])
