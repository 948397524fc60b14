"""Label trees learnt from label features: exact halves again and again, or k-means of any shape.

Labels of which nothing is known (rows of zeros) take no part in the clustering: they are dealt out evenly
afterwards, so they neither pull a centre nor break the balance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError
from xmcascade.features import normalise_rows
from xmcascade.kernels import cluster, parallel
from xmcascade.progress import tracker
from xmcascade.settings import Settings
from xmcascade.tree.label_tree import Ids, LabelTree, Offsets

__all__ = ["TreeSettings", "balanced_tree", "build_tree", "kmeans_tree", "smooth"]

ROWS_AT_ONCE = (
    4096  # labels of a cluster that one thread assigns, or whose co-occurrences are counted, at once
)


# Fewer levels and larger leaves are more exact and cost more. Measured on validation splits of six corpora:
# these cost no more than 0.8 of what PECOS takes with its own defaults (arity 16, leaves of 100).
LEAF, LARGE_LEAF, FEW_LABELS = 100, 256, 8192
ARITY, WIDE, KMEANS_ARITY = 64, 256, 100


@dataclass(frozen=True, kw_only=True)
class TreeSettings(Settings):
    """How to build a label tree.

    >>> TreeSettings(levels=(8, 9))
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: levels is (8, 9). Remedy: allowed: rising powers of 2 from 2 up, or null
    """

    kind: Literal["balanced", "kmeans"] = "balanced"
    """"balanced" halves clusters exactly; "kmeans" makes parts of any size (Bonsai: arity 100)."""
    arity: int | None = None
    """Most children of a cluster that has clusters below it: a power of 2 for balanced, the k of k-means.
    None: 64, or 256 if one level of clusters will do; 100 for k-means."""
    max_leaf: int | None = None
    """Clusters of at most so many labels are not divided. None: 100, or 256 when there are few labels."""
    levels: tuple[int, ...] | None = None
    """Balanced: the number of clusters of each level, coarsest first, in place of arity and max_leaf."""
    depth: int = 2
    """k-means: the most levels of clusters."""
    max_iterations: int = 20
    """Rounds of each k-means, if it does not settle before."""
    file: str | None = None
    """A tree in JSON, as `tree_to_json` writes it, in place of one that is learnt."""

    def check(self) -> None:
        """Raise SettingError when a value is out of range."""
        balanced = self.kind == "balanced"
        arity, max_leaf = self.arity, self.max_leaf
        fine = arity is None or (arity >= 2 and (not balanced or _is_power(arity)))
        self.require(fine, "arity", "2, 4, 8, 16, ... or null" if balanced else "from 2 up, or null")
        self.require(max_leaf is None or max_leaf >= 1, "max_leaf", "from 1 up, or null")
        self.require(1 <= self.depth <= 10, "depth", "1 to 10")
        self.require(self.max_iterations >= 0, "max_iterations", "from 0 up")
        if self.levels is not None:
            self.require(balanced, "levels", "null, unless kind is 'balanced'")
            rising = all(a < b for a, b in zip(self.levels, self.levels[1:], strict=False))
            fine = bool(self.levels) and rising and all(n >= 2 and _is_power(n) for n in self.levels)
            self.require(fine, "levels", "rising powers of 2 from 2 up, or null")


def _is_power(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0


def build_tree(
    settings: TreeSettings, features: Any, *, seed: int = 0, threads: int | None = None
) -> LabelTree:
    """The tree that the settings ask for, over label features (a row a label, CSR or dense).

    >>> features = sp.csr_matrix(np.repeat(np.eye(4, dtype=np.float32), 2, axis=0))
    >>> build_tree(TreeSettings(max_leaf=2), features).sizes
    [4, 8]
    """
    same: dict[str, Any] = {"max_iterations": settings.max_iterations, "seed": seed, "threads": threads}
    if settings.kind == "kmeans":
        return kmeans_tree(
            features, arity=settings.arity, depth=settings.depth, max_leaf=settings.max_leaf, **same
        )
    return balanced_tree(
        features, arity=settings.arity, max_leaf=settings.max_leaf, levels=settings.levels, **same
    )


def balanced_tree(
    features: Any,
    *,
    arity: int | None = None,
    max_leaf: int | None = None,
    levels: Sequence[int] | None = None,
    max_iterations: int = 20,
    seed: int = 0,
    threads: int | None = None,
) -> LabelTree:
    """Halve the labels by spherical 2-means until clusters have at most max_leaf, then keep some levels.

    Kept are the finest level and as few coarser ones as `arity` allows, evenly spaced, or exactly the
    `levels` (numbers of clusters; one with fewer than 2 labels a cluster becomes the largest power of 2 that
    has 2). The sizes of a level's clusters differ by at most 1. The same seed gives the same tree for any
    number of threads.

    >>> features = sp.csr_matrix(np.repeat(np.eye(4, dtype=np.float32), 2, axis=0))
    >>> tree = balanced_tree(features, arity=2, max_leaf=2)
    >>> tree.sizes, sorted(sorted(block) for block in tree.order.reshape(4, 2).tolist())
    ([2, 4, 8], [[0, 1], [2, 3], [4, 5], [6, 7]])
    >>> balanced_tree(features, levels=[2]).sizes
    [2, 8]
    """
    settings = TreeSettings(
        arity=arity,
        max_leaf=max_leaf,
        levels=None if levels is None else tuple(levels),
        max_iterations=max_iterations,
    )
    rows = _Rows(features)
    kept = _kept_depths(settings, rows.n_labels)
    if not kept:
        return LabelTree.flat(rows.n_labels)
    n_threads = parallel.thread_count(threads)
    order = rows.known.copy()  # by id, also within each half: kernels read features almost in sequence
    start, known = _whole(seed), np.array([0, len(order)])
    both = np.array([0, rows.n_labels])  # the same clusters, with the labels of which nothing is known
    bounds = []
    with tracker("building the label tree", kept[-1] * rows.n_labels, "labels") as shown:
        for depth in range(kept[-1]):
            _halve_level(rows, order, known, start, depth, max_iterations, n_threads)
            known, both = _halved(known), _halved(both)
            bounds.append(both)
            shown.advance(rows.n_labels)
    dealt = np.repeat(np.arange(len(both) - 1), np.diff(both - known))
    return _finished(order, known, rows.unknown, dealt, [bounds[depth - 1] for depth in kept])


def _kept_depths(settings: TreeSettings, n_labels: int) -> list[int]:
    """How often the labels were halved at each level that is kept, coarsest first."""
    if settings.levels is not None:
        most = n_labels // 2
        wanted = {min(n.bit_length(), most.bit_length()) - 1 for n in settings.levels}
        return sorted(depth for depth in wanted if depth > 0)
    max_leaf = _max_leaf(settings.max_leaf, n_labels)
    depth = (-(-n_labels // max_leaf) - 1).bit_length()  # ceil(log2(n_labels / max_leaf))
    depth = min(depth, n_labels.bit_length() - 1)  # max_leaf 1 must not make empty clusters
    arity = settings.arity or (WIDE if 2**depth <= WIDE else ARITY)
    n_levels = -(-depth // (arity.bit_length() - 1))
    return [depth * (t + 1) // n_levels for t in range(n_levels)]


def _max_leaf(asked: int | None, n_labels: int) -> int:
    return asked or (LARGE_LEAF if n_labels <= FEW_LABELS else LEAF)


def _halve_level(
    rows: _Rows, order: Ids, bounds: Offsets, seed: np.uint64, level: int, iterations: int, threads: int
) -> None:
    def work(block: tuple[int, int]) -> None:
        cluster.halve_clusters(*rows.arrays, rows.n_features, order, bounds, *block, seed, level, iterations)

    n = len(bounds) - 1
    for _ in parallel.run(work, parallel.blocks(n, -(-n // (4 * threads))), threads):
        pass


def _halved(bounds: Offsets) -> Offsets:
    """The bounds of the halves; where a size is odd the left half has one more."""
    halves = np.empty(2 * len(bounds) - 1, np.int64)
    halves[0::2] = bounds
    halves[1::2] = bounds[:-1] + (np.diff(bounds) + 1) // 2
    return halves


def kmeans_tree(
    features: Any,
    *,
    arity: int | None = None,
    depth: int = 2,
    max_leaf: int | None = None,
    max_iterations: int = 20,
    seed: int = 0,
    threads: int | None = None,
) -> LabelTree:
    """Divide the labels by spherical k-means into up to `arity` clusters, and those again (Bonsai).

    Clusters may have any size. One of at most max_leaf labels is not divided: it is its own only child in the
    levels below. At most `depth` levels of clusters; empty clusters are left out. The same seed gives the
    same tree for any number of threads.

    >>> features = sp.csr_matrix(np.repeat(np.eye(3, dtype=np.float32), [1, 2, 4], axis=0))
    >>> tree = kmeans_tree(features, arity=3, depth=1, max_leaf=4)
    >>> sorted(np.diff(tree.offsets[0]).tolist())
    [1, 2, 4]
    """
    TreeSettings(kind="kmeans", arity=arity, depth=depth, max_leaf=max_leaf, max_iterations=max_iterations)
    rows = _Rows(features)
    k, max_leaf = arity or KMEANS_ARITY, max_leaf or LEAF
    if rows.n_labels <= max_leaf:
        return LabelTree.flat(rows.n_labels)
    if not len(rows.known):
        return balanced_tree(features, max_leaf=max_leaf, threads=threads)
    n_threads = parallel.thread_count(threads)
    order, bounds = rows.known.copy(), np.array([0, len(rows.known)])
    start, levels = _whole(seed), list[Offsets]()
    with tracker("building the label tree", depth * len(order), "labels") as shown:
        for level in range(depth):
            large = np.flatnonzero(np.diff(bounds) > max_leaf) if level else np.array([0])
            inner, outer = (n_threads, 1) if len(large) == 1 else (1, n_threads)

            def work(c: int, *, level: int = level, bounds: Offsets = bounds, inner: int = inner) -> Offsets:
                part = order[bounds[c] : bounds[c + 1]]
                own = np.random.SeedSequence((int(start), level, c)).generate_state(1, np.uint64)[0]
                return np.asarray(bounds[c] + _divide(rows, part, k, max_iterations, own, inner))

            found = [bounds]
            for parts in parallel.run(work, large.tolist(), outer):
                found.append(parts)
                shown.advance(int(parts[-1] - parts[0]))
            finer = np.unique(np.concatenate(found))
            if len(finer) == len(bounds):  # nothing is left to divide
                break
            bounds = finer
            levels.append(bounds)
    if not levels:  # all labels are equal
        return LabelTree.flat(rows.n_labels)
    n_leaves = len(bounds) - 1
    dealt = np.arange(len(rows.unknown)) * n_leaves // max(1, len(rows.unknown))
    before = np.searchsorted(dealt, np.arange(n_leaves + 1))  # unknown labels in the leaves before each
    moved = [level + before[np.searchsorted(bounds, level)] for level in levels]
    return _finished(order, bounds, rows.unknown, dealt, moved)


def _divide(rows: _Rows, order: Ids, k: int, iterations: int, seed: np.uint64, threads: int) -> Offsets:
    """Reorder the labels of one cluster by parts, of 2 labels on average or more; returns their bounds."""
    near, fresh = np.full(len(order), -1, np.int32), np.zeros(len(order), np.int32)
    found = cluster.spread(*rows.arrays, rows.n_features, order, min(k, (len(order) + 1) // 2), seed, fresh)
    sums, scale = np.zeros((rows.n_features, found), np.float32), np.zeros(found, np.float32)

    def work(block: tuple[int, int]) -> None:
        here = slice(*block)
        cluster.assign(*rows.arrays, order[here], sums, scale, fresh[here])

    for _ in range(iterations):
        if not cluster.update(*rows.arrays, order, near, fresh, sums, scale):
            break
        for _ in parallel.run(work, parallel.blocks(len(order), ROWS_AT_ONCE), threads):
            pass
    order[:] = order[np.argsort(fresh, kind="stable")]
    sizes = np.bincount(fresh)
    return np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)


def _finished(
    order: Ids, leaves: Offsets, unknown: Ids, dealt: npt.NDArray[Any], bounds: list[Offsets]
) -> LabelTree:
    """Put unknown labels into the leaves they were dealt to; labels of a leaf by id. Bounds are in labels."""
    leaf = np.concatenate([np.repeat(np.arange(len(leaves) - 1), np.diff(leaves)), dealt])
    order = np.concatenate([order, unknown])
    order = order[np.lexsort((order, leaf))]
    below = [*bounds[1:], np.arange(len(order) + 1)]
    return LabelTree(order, tuple(np.searchsorted(b, level) for level, b in zip(bounds, below, strict=True)))


class _Rows:
    """Label features as the kernels take them: float32, of length 1; not copied when they are so already."""

    def __init__(self, features: Any) -> None:
        if len(features.shape) != 2 or not features.shape[0]:
            what = f"label features have the shape {features.shape}"
            raise DataError(what, remedy="give a matrix with a row for each of one or more labels")
        self.n_labels, self.n_features = features.shape
        sparse = sp.issparse(features)
        if sparse:
            matrix = features.tocsr().astype(np.float32, copy=False)
            if not matrix.has_canonical_format:
                matrix = matrix.copy()
                matrix.sum_duplicates()
            squares = _row_squares(matrix)
        else:
            matrix = np.ascontiguousarray(features, np.float32)
            squares = np.einsum("ld,ld->l", matrix, matrix, dtype=np.float64)
        if not np.isfinite(squares).all():
            bad = int(np.flatnonzero(~np.isfinite(squares))[0])
            raise DataError(f"the features of label {bad} are not finite", remedy="remove NaN and infinity")
        if not _unit(squares):
            lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
            matrix = normalise_rows(matrix.copy()) if sparse else (matrix / lengths[:, None])
        self.arrays: tuple[Any, Any, Any] = (
            (matrix.indptr, matrix.indices, matrix.data)
            if sparse
            else (None, None, matrix.astype(np.float32, copy=False))
        )
        self.known = np.flatnonzero(squares > 0).astype(np.int32)
        self.unknown = np.flatnonzero(squares <= 0).astype(np.int32)


def _row_squares(matrix: Any) -> npt.NDArray[np.float64]:
    squares = np.zeros(matrix.shape[0])
    filled = np.diff(matrix.indptr) > 0  # reduceat takes no empty ranges
    if filled.any():
        squares[filled] = np.add.reduceat(matrix.data.astype(np.float64) ** 2, matrix.indptr[:-1][filled])
    return squares


def _unit(squares: npt.NDArray[np.float64]) -> bool:
    return bool(((squares == 0) | (np.abs(squares - 1) < 1e-4)).all())


def _whole(seed: int) -> np.uint64:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingError(f"seed is {seed!r}", remedy="allowed: a whole number from 0 up")
    return np.uint64(seed % 2**64)


def smooth(features: Any, labels: Any, *, neighbours: int = 10) -> Any:
    """Mix each label's features with those of the labels it occurs with: CSR, rows of length 1.

    A label's weights are its numbers of documents with its `neighbours` most frequent companions (equals: the
    lower label) and with itself, divided by their sum. Rare labels borrow what they lack; a label without
    documents keeps its features. `labels` is documents x labels; its weights do not count.

    >>> labels = sp.csr_matrix([[1.0, 1.0], [1.0, 0.0]])
    >>> smooth(sp.csr_matrix(np.eye(2)), labels).toarray().round(2).tolist()
    [[0.89, 0.45], [0.71, 0.71]]
    """
    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 0:
        raise SettingError(f"neighbours is {neighbours!r}", remedy="allowed: a whole number from 0 up")
    features, labels = sp.csr_matrix(features), sp.csr_matrix(labels)
    if features.shape[0] != labels.shape[1]:
        what = f"{features.shape[0]:,} rows of label features for {labels.shape[1]:,} labels"
        raise DataError(what, remedy="give one row for each label")
    marks = sp.csr_matrix((np.ones(labels.nnz, np.int64), labels.indices, labels.indptr), shape=labels.shape)
    by_label = marks.T.tocsr()
    parts = []
    for low, high in parallel.blocks(labels.shape[1], ROWS_AT_ONCE):
        together = (by_label[low:high] @ marks).tocoo()
        parts.append(_mixing_weights(together, low, neighbours) @ features)
    mixed = normalise_rows(sp.vstack(parts, format="csr"))
    mixed.sort_indices()
    return mixed


def _mixing_weights(together: Any, low: int, neighbours: int) -> Any:
    """Of a block of labels from `low` on: rows with a sum of 1, from numbers of common documents (COO)."""
    own = together.col == together.row + low
    by_count = np.lexsort((together.col, -together.data, ~own, together.row))
    row, column, count = together.row[by_count], together.col[by_count], together.data[by_count]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    keep = rank <= neighbours  # the label itself comes first
    weights = sp.csr_matrix((count[keep].astype(np.float64), (row[keep], column[keep])), shape=together.shape)
    sums = np.asarray(weights.sum(axis=1)).ravel()
    alone = np.flatnonzero(sums == 0)
    weights = weights + sp.csr_matrix((np.ones(len(alone)), (alone, alone + low)), shape=together.shape)
    return sp.diags(1.0 / np.where(sums == 0, 1.0, sums)) @ weights
