"""Label trees: the structure, and the ways to build one."""

from xmcascade.tree.label_tree import LabelTree

__all__ = ["LabelTree"]
