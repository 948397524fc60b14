"""Label trees: the structure, and the ways to build one."""

from xmcascade.tree.build import TreeSettings, balanced_tree, build_tree, kmeans_tree, smooth
from xmcascade.tree.label_tree import LabelTree
from xmcascade.tree.taxonomy import (
    read_tree,
    tree_from_edges,
    tree_from_json,
    tree_from_paths,
    tree_to_json,
)

__all__ = [
    "LabelTree",
    "TreeSettings",
    "balanced_tree",
    "build_tree",
    "kmeans_tree",
    "read_tree",
    "smooth",
    "tree_from_edges",
    "tree_from_json",
    "tree_from_paths",
    "tree_to_json",
]
