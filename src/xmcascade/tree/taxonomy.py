"""Label trees that people made: from paths, from edges, and to and from JSON.

All labels of a LabelTree lie equally deep. Where a taxonomy is shallower, its clusters are carried down as
their own only children; labels that stand directly under an inner cluster share one such cluster.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xmcascade.errors import DataError
from xmcascade.tree.label_tree import LabelTree

__all__ = ["read_tree", "tree_from_edges", "tree_from_json", "tree_from_paths", "tree_to_json"]

log = logging.getLogger("xmcascade")

MAX_DEPTH = 64  # levels; a deeper taxonomy is a mistake (a chain of labels, a file read wrongly)
SHOWN = 5  # labels named in a message


def tree_from_paths(paths: Mapping[str, Sequence[str]], label_names: Sequence[str]) -> LabelTree:
    """A tree from the names of the clusters above each label, topmost first.

    Equal names under different clusters are different clusters. Labels without a path share one extra
    cluster; paths of labels that are not in label_names are ignored. A single cluster above everything is
    left out.

    >>> paths = {"Paris": ["Europe", "France"], "Lyon": ["Europe", "France"], "Lima": ["America"]}
    >>> names = ["Lima", "Lyon", "Paris"]
    >>> tree = tree_from_paths(paths, names)
    >>> tree.sizes, tree_to_json(tree, names)["tree"]
    ([2, 2, 3], [[['Lima']], [['Lyon', 'Paris']]])
    """
    ids = _ids(label_names)
    own = []
    for name in ids:
        path = paths.get(name, ())
        if isinstance(path, str) or not all(isinstance(cluster, str) for cluster in path):
            remedy = "give a list of cluster names, topmost first"
            raise DataError(f"the path of label {name!r} is {path!r:.60}", remedy=remedy)
        own.append(tuple(path))
    return _tree(own, label_names)


def tree_from_edges(edges: Iterable[tuple[str, str]], label_names: Sequence[str]) -> LabelTree:
    """A tree from (parent, child) pairs of a taxonomy in which labels are nodes, leaves or not.

    A label with other labels below it becomes a child of its own cluster. A node with several parents stays
    with the first one given. Nodes without labels at or below them are left out; labels that are not in the
    taxonomy, or stand alone in it, share one extra cluster. A single root above everything is left out.

    >>> names = ["cat", "felines", "lion", "oak"]
    >>> tree = tree_from_edges([("felines", "cat"), ("felines", "lion"), ("plants", "oak")], names)
    >>> tree_to_json(tree, names)["tree"]
    [['cat', 'felines', 'lion'], ['oak']]
    """
    parents: dict[str, str] = {}
    for edge in edges:
        if isinstance(edge, str) or len(edge) != 2 or not all(isinstance(node, str) for node in edge):
            raise DataError(f"{edge!r:.60} is not an edge", remedy="give pairs of names: (parent, child)")
        parents.setdefault(edge[1], edge[0])
    _refuse_cycles(parents)
    above = {name: _ancestors(name, parents) for name in _ids(label_names)}
    inner = {node for path in above.values() for node in path}
    return _tree([(*path, name) if name in inner else path for name, path in above.items()], label_names)


def _refuse_cycles(parents: dict[str, str]) -> None:
    safe: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}  # a set that keeps its order
        node: str | None = start
        while node is not None and node not in safe:
            if node in path:
                found = list(path)
                cycle = [*found[found.index(node) :], node][::-1]
                remedy = "remove one of these edges"
                raise DataError(f"the taxonomy has a cycle: {_listed(cycle, ' -> ')}", remedy=remedy)
            path[node] = None
            node = parents.get(node)
        safe.update(path)


def _ancestors(name: str, parents: dict[str, str]) -> tuple[str, ...]:
    path: list[str] = []
    node = parents.get(name)
    while node is not None and len(path) <= MAX_DEPTH:
        path.append(node)
        node = parents.get(node)
    return tuple(reversed(path))


def _tree(paths: list[tuple[str, ...]], label_names: Sequence[str]) -> LabelTree:
    """The tree in which each label stands under its path; clusters in the order of their first labels."""
    depth = max(map(len, paths))
    if depth == 0:
        remedy = "check that both write labels in the same way"
        raise DataError(f"none of the {len(paths):,} labels is in the taxonomy", remedy=remedy)
    if depth > MAX_DEPTH:
        deepest = label_names[max(range(len(paths)), key=lambda i: len(paths[i]))]
        what = f"label {deepest!r} has more than {MAX_DEPTH} clusters above it"
        raise DataError(what, remedy="use fewer levels")
    if homeless := sum(not path for path in paths):
        log.info("%s of %s labels have no place in the taxonomy: one cluster", homeless, len(paths))
    # clusters_tl[t, i]: the cluster of level t above label i, numbered as they appear
    clusters_tl = np.zeros((depth, len(paths)), np.int64)
    for t in range(depth):
        seen: dict[Hashable, int] = {}
        for i, path in enumerate(paths):
            key = (clusters_tl[t - 1, i].item() if t else 0, path[t] if t < len(path) else None)
            clusters_tl[t, i] = seen.setdefault(key, len(seen))
    order = np.lexsort(clusters_tl[::-1])
    changes = clusters_tl[:, order][:, 1:] != clusters_tl[:, order][:, :-1]
    starts = [np.concatenate([[0], 1 + np.flatnonzero(row), [len(paths)]]) for row in changes]
    while len(starts) > 1 and len(starts[0]) == 2:
        del starts[0]
    below = [*starts[1:], np.arange(len(paths) + 1)]
    return LabelTree(
        order.astype(np.int32),
        tuple(np.searchsorted(b, level) for level, b in zip(starts, below, strict=True)),
    )


def tree_to_json(tree: LabelTree, label_names: Sequence[str]) -> dict[str, Any]:
    """The tree as nested lists of label names, ready for JSON.

    >>> tree = LabelTree(np.array([2, 0, 1]), (np.array([0, 2, 3]),))
    >>> tree_to_json(tree, ["a", "b", "c"])
    {'tree': [['c', 'a'], ['b']]}
    """
    if len(_ids(label_names)) != tree.n_labels:
        what = f"{len(label_names):,} label names for a tree of {tree.n_labels:,} labels"
        raise DataError(what, remedy="give one name for each label")
    nodes: list[Any] = [label_names[i] for i in tree.order]
    for level in reversed(tree.offsets):
        nodes = [nodes[low:high] for low, high in pairwise(level.tolist())]
    return {"tree": nodes}


def tree_from_json(value: Mapping[str, Any], label_names: Sequence[str]) -> LabelTree:
    """The opposite of `tree_to_json`: every label once, all equally deep.

    >>> tree_from_json({"tree": [["c", "a"], ["b"]]}, ["a", "b", "c"]).order.tolist()
    [2, 0, 1]
    >>> tree_from_json({"tree": [["c", "a"]]}, ["a", "b", "c"])
    Traceback (most recent call last):
    ...
    xmcascade.errors.DataError: labels missing in the tree: 'b'. Remedy: name every label once
    """
    nodes = value.get("tree") if isinstance(value, Mapping) else None
    if not isinstance(nodes, list) or not nodes:
        raise DataError("there is no tree", remedy='give {"tree": [...]}, lists of lists of label names')
    offsets: list[Any] = []
    while all(isinstance(node, list) for node in nodes):
        if len(offsets) == MAX_DEPTH:
            raise DataError(f"the tree has more than {MAX_DEPTH} levels", remedy="use fewer levels")
        sizes = [len(node) for node in nodes]
        if 0 in sizes:
            what = f"cluster {sizes.index(0)} of level {len(offsets)} is empty"
            raise DataError(what, remedy="remove it")
        offsets.append(np.concatenate([[0], np.cumsum(sizes)]))
        nodes = [child for node in nodes for child in node]
    if other := [node for node in nodes if not isinstance(node, str)]:
        what = f"level {len(offsets)} of the tree has labels and other things beside them: {other[0]!r:.60}"
        raise DataError(what, remedy="put a shallow label into lists until all are equally deep")
    ids = _ids(label_names)
    _refuse("labels that are not known", [name for name in nodes if name not in ids])
    placed = set(nodes)
    _refuse("labels missing in the tree", [name for name in ids if name not in placed])
    _refuse("labels twice in the tree", _repeated(nodes))
    return LabelTree(np.array([ids[name] for name in nodes], np.int32), tuple(offsets))


def read_tree(path: str | Path, label_names: Sequence[str]) -> LabelTree:
    """The tree in a JSON file that holds what `tree_to_json` makes.

    >>> read_tree("tree.json", ["a"])
    Traceback (most recent call last):
    ...
    xmcascade.errors.DataError: tree.json: cannot be read (No such file or directory). Remedy: check the path
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        what, remedy = f"cannot be read ({error.strerror})", "check the path"
        raise DataError(what, where=str(path), remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        what = f"is not JSON ({error!s:.80})"
        raise DataError(what, where=str(path), remedy="write it with tree_to_json") from error
    try:
        return tree_from_json(value, label_names)
    except DataError as error:
        raise DataError(error.what, where=str(path), remedy=error.remedy) from error


def _ids(label_names: Sequence[str]) -> dict[str, int]:
    if not len(label_names):
        raise DataError("there are no labels", remedy="give at least one label name")
    ids = {name: i for i, name in enumerate(label_names)}
    if len(ids) < len(label_names):
        what = f"label names that occur twice: {_listed(_repeated(label_names))}"
        raise DataError(what, remedy="give every label its own name")
    return ids


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        raise DataError(f"{what}: {_listed(names)}", remedy="name every label once")


def _listed(names: Sequence[str], between: str = ", ") -> str:
    shown = between.join(f"{name!r:.60}" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} ... ({len(names):,} in all)"
