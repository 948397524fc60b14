"""A tree on a page: every cluster opens, names are only text, and large trees are cut with a count."""

import re

import numpy as np
import pytest

from report.test_page import Seen
from xmcascade.report.names import TreeNames
from xmcascade.report.treepage import TreePart
from xmcascade.store import Strings
from xmcascade.tree import LabelTree


def part(names, *bounds, most=25_000, counts=None):
    tree = LabelTree(np.arange(len(names)), tuple(map(np.array, bounds)))
    counts = np.arange(len(names)) if counts is None else counts
    return TreePart(TreeNames(Strings.of(names), counts, tree), most)


def test_all_of_a_small_tree_is_there():
    names = [f"label {i}" for i in range(8)]
    html = part(names, [0, 2, 4], [0, 2, 4, 6, 8]).to_html().text
    assert html.count("<details>") == html.count("</details>") == 2 + 4
    assert all(f"<li>{name} " in html for name in names)
    assert "more" not in html and html.count("4 labels") == 2
    assert html.index("<li>label 1 ") < html.index("<li>label 0 ")  # the more frequent first


def test_names_are_only_text():
    nasty = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "</details>", "x" * 5000]
    html = part(nasty, [0, 2, 4]).to_html().text
    seen = Seen(html)
    assert set(seen.tags) <= {"div", "details", "summary", "i", "u", "b", "small", "ul", "li", "p"}
    assert set(seen.attributes) <= {"class", "style"}
    assert "<script>alert(1)</script>" in seen.words and len(html) < 3000


@pytest.mark.parametrize("most", [200, 1000, 5000])
def test_large_trees_are_cut_and_counted(most):
    n = 20_000
    bounds = [range(0, 101, 10), range(0, 1001, 10), range(0, n + 1, 20)]
    whole = part([f"n{i}" for i in range(n)], *map(list, bounds), most=most)
    html = whole.to_html().text
    n_labels = html.count("<li>")
    assert n_labels == whole.n_labels_written
    assert n_labels + html.count("<details>") <= 1.2 * most
    left = sum(int(number.replace(",", "")) for number in re.findall(r"and ([\d,]+) more labels?<", html))
    assert left + n_labels == n


def test_small_clusters_leave_room_for_large_ones():
    cut = part([f"n{i}" for i in range(110)], [0, 5, 10, 110], most=73)
    assert cut.labels_each == 60 and cut.n_labels_written == 70


def test_many_siblings_are_cut():
    html = part([f"n{i}" for i in range(3000)], list(range(3001))).to_html().text
    assert "and 2,000 more clusters" in html
