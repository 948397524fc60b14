"""Walking down the tree: at every level the best clusters go on; the score is the product along the path.

A level's own score v becomes a number in (0, 1]: exp(-max(0, 1 - v)^p) for the hinges, 1 / (1 + exp(-v)) for
the sigmoid.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xmcascade.kernels import blocks, parallel
from xmcascade.linear.machine import BlockWeights
from xmcascade.tree import LabelTree

__all__ = ["Combine", "block_offsets", "score_paths", "search", "squash"]

Combine = Literal["l3-hinge", "l2-hinge", "l1-hinge", "sigmoid"]
BATCH = 256  # documents searched together: enough to share blocks, few enough for the cache

ROOT = np.zeros(1, np.int64)


def squash(values: npt.NDArray[np.float32], combine: Combine) -> npt.NDArray[np.float32]:
    """A level's scores as numbers in (0, 1].

    >>> squash(np.array([2.0, 0.0], np.float32), "l3-hinge").round(3).tolist()
    [1.0, 0.36800000071525574]
    """
    if combine == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-values)), np.float32)
    power = {"l1-hinge": 1, "l2-hinge": 2, "l3-hinge": 3}[combine]
    return np.asarray(np.exp(-(np.maximum(1 - values, 0) ** power)), np.float32)


def search(
    queries: Any,
    tree: LabelTree,
    levels: list[BlockWeights],
    *,
    beam: int,
    k: int,
    combine: Combine,
    threads: int | None = None,
    n_levels: int | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The k best labels of each query (CSR row): label ids and scores, best first; -1 where there are none.

    At least k clusters go on at every level, so that k labels are found where there are so many. With
    n_levels below the tree's own, the search ends there and returns that level's clusters.

    >>> import scipy.sparse as sp
    >>> from xmcascade.linear import LinearSettings, train_level
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> search(one, LabelTree.flat(2), [level], beam=1, k=1, combine="l3-hinge")[0].tolist()
    [[0], [1]]
    """
    depth = len(levels) if n_levels is None else n_levels

    def batch(bounds: tuple[int, int]) -> tuple[Any, Any]:
        part = queries[bounds[0] : bounds[1]]
        n = part.shape[0]
        found, values = np.zeros((n, 1), np.int64), np.ones((n, 1), np.float32)
        for t in range(depth):
            last = t == depth - 1
            width = min(k if last else max(beam, k), tree.sizes[t])
            rank = tree.order if t == tree.n_levels - 1 else np.arange(tree.sizes[t], dtype=np.int32)
            offsets = block_offsets(tree, t)
            real = found >= 0
            pair_rows = np.concatenate([ROOT, np.cumsum(real.sum(axis=1))])
            docs, clusters = np.repeat(np.arange(n), np.diff(pair_rows)), found[real]
            starts, scores = expand(part, docs, clusters, values[real], offsets, levels[t], combine)
            found, values = np.empty((n, width), np.int64), np.zeros((n, width), np.float32)
            blocks.best_children(pair_rows, clusters, starts, offsets, scores, rank, width, found, values)
        return found, values

    parts = list(parallel.run(batch, parallel.blocks(queries.shape[0], BATCH), threads))
    width = min(k, tree.sizes[depth - 1])
    if not parts:
        return np.zeros((0, width), np.int32), np.zeros((0, width), np.float32)
    found = np.concatenate([part[0] for part in parts])
    if depth == tree.n_levels:
        found = np.where(found >= 0, tree.order[found], -1)
    return found.astype(np.int32), np.concatenate([part[1] for part in parts])


def block_offsets(tree: LabelTree, level: int) -> npt.NDArray[np.int64]:
    """Where the blocks of a level begin and end: children of the level above, or all of level 0 in one.

    >>> block_offsets(LabelTree.flat(3), 0).tolist()
    [0, 3]
    """
    return tree.offsets[level - 1] if level else np.array([0, tree.sizes[0]])


def score_paths(
    queries: Any, tree: LabelTree, levels: list[BlockWeights], candidates: Any, combine: Combine
) -> npt.NDArray[np.float32]:
    """The scores of given labels (CSR, queries x labels): one a stored entry, as `search` would give them.

    >>> import scipy.sparse as sp
    >>> from xmcascade.linear import LinearSettings, train_level
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> scores = score_paths(one, LabelTree.flat(2), [level], sp.csr_matrix(np.ones((2, 2))), "l3-hinge")
    >>> (scores[0] > scores[1]).item(), (scores[2] < scores[3]).item()
    (True, True)
    """
    docs = np.repeat(np.arange(queries.shape[0]), np.diff(candidates.indptr))
    nodes = [tree.positions[candidates.indices].astype(np.int64)]
    for parents in reversed(tree.parents):
        nodes.insert(0, parents[nodes[0]].astype(np.int64))
    above, values = np.zeros(len(docs), np.int64), np.ones(len(docs), np.float32)
    for t, level in enumerate(levels):
        offsets = block_offsets(tree, t)
        # Each cluster once for each document, however many candidates are below it.
        _, first, place = np.unique(docs * (len(offsets) - 1) + above, return_index=True, return_inverse=True)
        pairs = docs[first], above[first], values[first]
        starts, scores = expand(queries, *pairs, offsets, level, combine)
        values = scores[starts[place] + nodes[t] - offsets[above]]
        above = nodes[t]
    return values


def expand(
    queries: Any,
    docs: npt.NDArray[np.int64],
    clusters: npt.NDArray[np.int64],
    values: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    level: BlockWeights,
    combine: Combine,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Score all children of (document, cluster) pairs that have these path scores.

    Returns where each pair's children start, and the children's path scores.
    """
    sizes = np.diff(offsets)[clusters]
    starts = np.cumsum(sizes) - sizes
    by_cluster = np.argsort(clusters, kind="stable")
    scores = np.empty(int(sizes.sum()), np.float32)
    blocks.score_blocks(
        queries.indptr,
        queries.indices,
        queries.data,
        docs[by_cluster],
        clusters[by_cluster],
        starts[by_cluster],
        offsets,
        *level.arrays(),
        np.full(queries.shape[1], -1, np.int32),
        scores,
    )
    return starts, squash(scores, combine) * np.repeat(values, sizes)
