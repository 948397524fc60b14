"""The label tree: a permutation of the labels and offsets per level, nothing else.

Labels are renumbered once, to positions, so that the children of a cluster are a range. Refining a shortlist
is expanding ranges; covering a label set is one gather. Balanced or not, learnt or given: the same structure.

    level 0          clusters    children of cluster c: offsets[0][c] : offsets[0][c + 1] of level 1
    ...
    level n_levels-1 labels      label at position p: order[p]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import DataError
from xmcascade.kernels.blocks import panel_starts

__all__ = ["LabelTree"]

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Clusters of clusters of labels.

    >>> tree = LabelTree(np.array([2, 0, 1], np.int32), (np.array([0, 2, 3]),))
    >>> tree.sizes, tree.children(0, 0), tree.order[tree.children(0, 0)].tolist()
    ([2, 3], range(0, 2), [2, 0])
    """

    order: Ids
    """The label at each position."""
    offsets: tuple[Offsets, ...]
    """For each level of clusters, coarsest first: where each one's children begin and end one level down."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", np.asarray(self.order, np.int32))
        object.__setattr__(self, "offsets", tuple(np.asarray(level, np.int64) for level in self.offsets))
        self.check()

    def check(self) -> None:
        """Raise unless every label has one place and every cluster has children."""
        if self.order.ndim != 1 or not len(self.order):
            raise DataError("the tree has no labels", remedy="give at least one label")
        if not np.array_equal(np.sort(self.order), np.arange(len(self.order))):
            raise DataError(
                "the tree's order is not a permutation of the labels", remedy="build the tree again"
            )
        for t, (level, size) in enumerate(zip(self.offsets, self.sizes[1:], strict=True)):
            if level.ndim != 1 or len(level) < 2 or level[0] != 0 or level[-1] != size:
                raise DataError(
                    f"level {t} of the tree does not cover level {t + 1}", remedy="build the tree again"
                )
            if (np.diff(level) < 1).any():
                raise DataError(f"a cluster of level {t} has no children", remedy="build the tree again")

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.order)

    @property
    def n_levels(self) -> int:
        """Levels, that of the labels included."""
        return len(self.offsets) + 1

    @property
    def sizes(self) -> list[int]:
        """Clusters of each level; the last one is the number of labels."""
        return [len(level) - 1 for level in self.offsets] + [self.n_labels]

    @cached_property
    def positions(self) -> Ids:
        """The position of each label."""
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(len(self.order), dtype=np.int32)
        return positions

    @cached_property
    def parents(self) -> tuple[Ids, ...]:
        """parents[t][c]: the cluster of level t that has child c of level t + 1."""
        return tuple(
            np.repeat(np.arange(len(level) - 1, dtype=np.int32), np.diff(level)) for level in self.offsets
        )

    @cached_property
    def level_starts(self) -> Offsets:
        """With the nodes of all levels in one numbering, coarsest first: each level's first, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def block_offsets(self) -> Offsets:
        """In that numbering: the children of the root, then of each cluster, level by level.

        >>> LabelTree(np.arange(3), (np.array([0, 2, 3]),)).block_offsets.tolist()
        [0, 2, 4, 5]
        """
        starts = self.level_starts
        below = [level[1:] + starts[t + 1] for t, level in enumerate(self.offsets)]
        return np.concatenate([[0, self.sizes[0]], *below])

    @cached_property
    def block_panels(self) -> Offsets:
        """Where the panels of each of these blocks begin and end (kernels/blocks.py)."""
        return panel_starts(self.block_offsets)

    @cached_property
    def node_parents(self) -> Ids:
        """In that numbering: the node above each node, -1 for the root."""
        blocks = np.arange(-1, len(self.block_offsets) - 2, dtype=np.int32)
        return np.repeat(blocks, np.diff(self.block_offsets))

    def children(self, level: int, cluster: int) -> range:
        """The places of a cluster's children in the level below."""
        return range(int(self.offsets[level][cluster]), int(self.offsets[level][cluster + 1]))

    def below(self, level: int, node: int) -> range:
        """The positions of the labels below a node of any level; of a label, its own.

        >>> tree = LabelTree(np.arange(4), (np.array([0, 2]), np.array([0, 3, 4])))
        >>> tree.below(0, 0), tree.below(1, 1), tree.below(2, 2)
        (range(0, 4), range(3, 4), range(2, 3))
        """
        first, last = node, node + 1
        for bounds in self.offsets[level:]:
            first, last = int(bounds[first]), int(bounds[last])
        return range(first, last)

    def path(self, label: int) -> list[int]:
        """The nodes on the way to a label, by id: one of each level, the label's position last.

        >>> LabelTree(np.array([2, 0, 1]), (np.array([0, 2, 3]),)).path(1)
        [1, 2]
        """
        nodes = [int(self.positions[label])]
        for parents in reversed(self.parents):
            nodes.insert(0, int(parents[nodes[0]]))
        return nodes

    def refine(self, level: int, clusters: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """All children of these clusters, cluster by cluster (the papers' downward map).

        >>> LabelTree(np.arange(5), (np.array([0, 2, 3, 5]),)).refine(0, [2, 0]).tolist()
        [3, 4, 0, 1]
        """
        ids = np.asarray(clusters, np.int64)
        starts, sizes = self.offsets[level][ids], np.diff(self.offsets[level])[ids]
        before = np.cumsum(sizes) - sizes
        return np.asarray(np.arange(sizes.sum()) + np.repeat(starts - before, sizes))

    def cover(self, level: int, places: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The clusters of a level that have any of these children, each once (the papers' upward map).

        >>> LabelTree(np.arange(5), (np.array([0, 2, 3, 5]),)).cover(0, [4, 0, 3]).tolist()
        [0, 2]
        """
        return np.unique(self.parents[level][np.asarray(places, np.int64)]).astype(np.int64)

    @property
    def label_offsets(self) -> Offsets:
        """Where the labels of each cluster of the last level begin and end; without clusters, all of them.

        >>> LabelTree.flat(3).label_offsets.tolist()
        [0, 3]
        """
        return self.offsets[-1] if self.offsets else np.array([0, self.n_labels])

    def relevance(self, labels: Any) -> list[Any]:
        """For each level the relevance of its clusters to each document, from label sets over label ids.

        One CSR matrix a level, documents x clusters, indices sorted: the sum of the weights of the document's
        labels below the cluster (XR-Transformer, eq. 6). Where it is not zero is Y of that level (eq. 5).

        >>> tree = LabelTree(np.array([2, 0, 1]), (np.array([0, 2, 3]),))
        >>> [level.toarray().tolist() for level in tree.relevance(sp.csr_matrix([[1.0, 0.0, 1.0]]))]
        [[[2.0, 0.0]], [[1.0, 1.0, 0.0]]]
        """
        last = sp.csr_matrix(
            (labels.data, self.positions[labels.indices], labels.indptr), shape=labels.shape, copy=True
        )
        last.sort_indices()
        levels = [last]
        for t in range(len(self.offsets) - 1, -1, -1):
            child = levels[0]
            upper = sp.csr_matrix(
                (child.data, self.parents[t][child.indices], child.indptr),
                shape=(child.shape[0], self.sizes[t]),
                copy=True,
            )
            upper.sum_duplicates()  # children of a cluster are neighbours, so rows stay sorted
            levels.insert(0, upper)
        return levels

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays to store in a model folder."""
        return {
            "tree.order": self.order,
            **{f"tree.offsets.{t}": level for t, level in enumerate(self.offsets)},
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> LabelTree:
        """The opposite of `to_arrays`; checks the tree."""
        levels = sum(name.startswith("tree.offsets.") for name in arrays)
        return cls(
            np.asarray(arrays["tree.order"]),
            tuple(np.asarray(arrays[f"tree.offsets.{t}"]) for t in range(levels)),
        )

    def summary(self) -> str:
        """The tree in a line a level.

        >>> print(LabelTree(np.arange(5), (np.array([0, 2, 3, 5]),)).summary())
        level 0: 3 clusters, 1 to 2 children each (mean 1.7)
        level 1: 5 labels
        """
        lines = []
        for t, level in enumerate(self.offsets):
            sizes = np.diff(level)
            lines.append(
                f"level {t}: {len(sizes):,} clusters, {sizes.min():,} to {sizes.max():,} children each "
                f"(mean {sizes.mean():.1f})"
            )
        return "\n".join([*lines, f"level {len(self.offsets)}: {self.n_labels:,} labels"])

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """No clusters: the labels in the order of their ids."""
        return cls(np.arange(n_labels, dtype=np.int32), ())

    def grown(self, clusters: npt.ArrayLike) -> tuple[LabelTree, list[Offsets]]:
        """With a new label at the end of each of these clusters of the last level (0 where there are none).

        And for each level the node of this tree that each node is; new labels count on from the last one.

        >>> tree, sources = LabelTree(np.array([2, 0, 1]), (np.array([0, 2, 3]),)).grown([0])
        >>> tree.order.tolist(), tree.offsets[0].tolist(), sources[-1].tolist()
        ([2, 0, 3, 1], [0, 3, 4], [0, 1, 3, 2])
        """
        homes, bounds = np.asarray(clusters, np.int64), self.label_offsets
        parents = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        places = np.argsort(np.concatenate([parents, homes]), kind="stable")
        new = np.arange(self.n_labels, self.n_labels + len(homes), dtype=np.int32)
        more = np.concatenate([[0], np.cumsum(np.bincount(homes, minlength=len(bounds) - 1))])
        offsets = (*self.offsets[:-1], bounds + more) if self.offsets else ()
        tree = LabelTree(np.concatenate([self.order, new])[places], offsets)
        return tree, [*(np.arange(size) for size in self.sizes[:-1]), places]

    def pruned(self, labels: npt.ArrayLike) -> tuple[LabelTree, list[Offsets]]:
        """With only these labels, which become 0, 1, ... in the order of their ids, and clusters with any.

        And for each level the node of this tree that each node is.

        >>> tree, sources = LabelTree(np.array([2, 0, 1]), (np.array([0, 2, 3]),)).pruned([0, 2])
        >>> tree.order.tolist(), tree.offsets[0].tolist(), sources[0].tolist()
        ([1, 0], [0, 2], [0])
        """
        kept = np.zeros(self.n_labels, np.bool_)
        kept[np.asarray(labels, np.int64)] = True
        sources, offsets = [np.flatnonzero(kept[self.order])], list[Offsets]()
        for parents, size in zip(reversed(self.parents), reversed(self.sizes[:-1]), strict=True):
            counts = np.bincount(parents[sources[0]], minlength=size)
            sources.insert(0, np.flatnonzero(counts))
            offsets.insert(0, np.concatenate([[0], np.cumsum(counts[sources[0]])]))
        order = (np.cumsum(kept) - 1)[self.order[sources[-1]]]
        return LabelTree(order.astype(np.int32), tuple(offsets)), sources

    def picked(self, levels: Sequence[int]) -> LabelTree:
        """The same tree with only these levels of clusters (coarsest first); the labels always stay.

        >>> LabelTree(np.arange(4), (np.array([0, 2]), np.array([0, 2, 4]))).picked([0]).sizes
        [1, 4]
        """
        offsets = []
        for i, t in enumerate(levels):
            bounds = self.offsets[t]
            stop = levels[i + 1] if i + 1 < len(levels) else len(self.offsets)
            for below in range(t + 1, stop):
                bounds = self.offsets[below][bounds]
            offsets.append(bounds)
        return LabelTree(self.order, tuple(offsets))
