"""Clusters are named by what their labels have in common, always in the same way."""

import time

import numpy as np

from contract.suite import make
from contract.world import make_lists
from xmcascade.models.views import look_inside
from xmcascade.report.names import TreeNames, shortened
from xmcascade.store import Strings
from xmcascade.tree import LabelTree


def named(names, counts=None, bounds=(0, 2, 4), view=None):
    strings = Strings.of(names)
    counts = np.ones(len(names), np.int64) if counts is None else np.array(counts)
    return TreeNames(strings, counts, LabelTree(np.arange(len(names)), (np.array(bounds),)), view)


def test_a_word_that_labels_share_comes_first():
    names = named(["river Rhine", "river Thames", "mount Etna", "mount Everest"])
    assert names.of(0, 0).split(", ")[0] == "river"
    assert names.of(0, 1).split(", ")[0] == "mount"
    assert names.of(1, 2) == "mount Etna"


def test_a_word_that_all_clusters_have_is_not_typical():
    names = named(["history of art", "history of painting", "history of war", "history of arms"])
    assert "history" not in names.of(0, 0) and "of" not in names.of(0, 0).split(", ")


def test_frequent_labels_name_a_cluster_of_many_things():
    assert named(["alpha", "beta", "gamma", "delta"], [1, 900, 1, 1]).of(0, 0).startswith("beta")


def test_names_without_letters():
    assert named(["12", "#7", "3", "4"], [1, 5, 1, 1]).of(0, 0) == "#7, 12"


def test_codes_are_named_by_words_that_speak_for_them():
    texts, labels = make_lists(names=[f"Q{i}" for i in range(13)])
    model = make("xr-linear", tree={"levels": [4]}).fit(texts, labels)
    inside = look_inside(model)
    (view,) = inside.views
    names = TreeNames(inside.label_names, inside.label_counts, view.tree, view)
    assert all(word.startswith("word") for word in names.of(0, 0).split(", "))


def test_the_same_tree_has_the_same_names():
    words = [f"{a} {b}" for a in ("red", "green", "blue", "old", "new") for b in ("car", "cat", "sky", "sea")]
    first, second = (named(words, range(20), (0, 5, 10, 20)) for _ in range(2))
    assert [first.of(0, i) for i in range(3)] == [second.of(0, i) for i in range(3)]


def test_forty_thousand_labels_are_named_quickly():
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(3000)]
    names = [" ".join(words[j] for j in rng.integers(3000, size=3)) for _ in range(40_000)]
    many = named(names, bounds=range(0, 40_001, 10))
    start = time.monotonic()
    assert all(many.of(0, i) for i in range(4000))
    assert time.monotonic() - start < 30  # some seconds on a busy machine


def test_long_names_are_cut():
    assert shortened("x" * 500) == "x" * 79 + "…"
    assert shortened("  two\n\tlines ") == "two lines"
