"""Scoring by block: a query is matched once with all children of a cluster; queries are sorted by cluster.

Nodes are the clusters and labels of all levels in one numbering, coarsest first, without the root. Block 0 is
the root's, block v + 1 that of node v; its children are the nodes offsets[b]:offsets[b+1]. A block is kept in
panels of up to 256 children, so that a child's number is one byte.

Weights (P panels, R rows, E entries): panel p has the rows panel_rows[p]:panel_rows[p+1] and its entries from
panel_entries[p] on; row r is the feature row_features[r] (ascending in a panel) and the entries up to
row_ends[r], counted in its panel; an entry is a child (counted in its panel) and a weight,
float32 or bfloat16. Dense features have their weights in dense [nodes, D], unpruned. A query's sums run in
the order of its features whatever is computed beside it, so batches cannot change an answer.

To find a row, a panel has a directory of 512 parts: directory[512 p + i] is its first row with a feature of
i << shift or more.

A node's score v becomes a logarithm: -max(0, 1 - v)^power, or for power 0 that of the sigmoid of v. A path's
score is their sum from the top.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from xmcascade.kernels.bfloat import dot_wide, wide

__all__ = ["PANEL", "directory_of", "panel_starts", "score_paths", "walk"]

PANEL = 256
PARTS = 512  # of a panel's directory
MANY = 8  # queries of a block from which on a table of its features pays


def panel_starts(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the panels of each block begin and end.

    >>> panel_starts(np.array([0, 10, 300])).tolist()
    [0, 1, 3]
    """
    return np.concatenate([[0], np.cumsum(-(-np.diff(offsets) // PANEL))])


def directory_of(
    panel_rows: npt.NDArray[np.int64], row_features: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], int]:
    """The directory of all panels, and its shift.

    >>> parts, shift = directory_of(np.array([0, 2]), np.array([3, 5000], np.int32))
    >>> shift, parts[[0, 1, 313, 512]].tolist()
    (4, [0, 1, 2, 2])
    """
    shift = max(0, int(row_features.max(initial=0)).bit_length() - PARTS.bit_length() + 1)
    n_panels = len(panel_rows) - 1
    parts = np.repeat(np.arange(n_panels) * PARTS, np.diff(panel_rows)) + (row_features >> shift)
    return np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=n_panels * PARTS))]), shift


@njit(nogil=True, cache=True)
def _find(features: Any, low: Any, high: Any, wanted: Any) -> Any:
    """The place of the first of features[low:high] that is not below wanted."""
    while low < high:
        middle = (low + high) >> 1
        if features[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _score_panel(
    query: Any, doc: Any, weights: Any, directory: Any, panel: Any, node: Any, row_of: Any, scores: Any
) -> None:
    """scores: of a panel's children, nodes from `node` on, for one document; row_of: empty or its table."""
    indptr, columns, values, dense_values = query
    panel_rows, panel_entries, row_features, row_ends, children, entries, biases, dense = weights
    for i in range(len(scores)):
        scores[i] = biases[node + i]
    if dense.shape[1]:
        for i in range(len(scores)):
            scores[i] += dot_wide(dense_values[doc], dense, node + i)
    first = panel_rows[panel]
    base = panel_entries[panel]
    parts, shift = directory
    r = first
    for j in range(indptr[doc], indptr[doc + 1]):
        if len(row_of):
            r = np.int64(row_of[columns[j]])
            if r < 0:
                continue
        else:
            part = columns[j] >> shift
            if part >= PARTS:  # beyond all rows
                break
            part += panel * PARTS
            r = _find(row_features, parts[part], parts[part + 1], columns[j])
            if r == parts[part + 1] or row_features[r] != columns[j]:
                continue
        start = base if r == first else base + np.int64(row_ends[r - 1])
        for e in range(start, base + np.int64(row_ends[r])):
            scores[np.int64(children[e])] += values[j] * wide(entries[e])


@njit(nogil=True, cache=True)
def _mark(weights: Any, panel: Any, row_of: Any, on: bool) -> None:
    """Write the rows of a panel into the table, or take them out."""
    for r in range(weights[0][panel], weights[0][panel + 1]):
        row_of[weights[2][r]] = r if on else -1


@njit(nogil=True, cache=True)
def _log(value: Any, power: int) -> Any:
    if power == 0:
        return np.float32(-(math.log1p(math.exp(-abs(value))) + max(-value, np.float32(0.0))))
    gap = np.float32(1.0) - value
    if gap <= 0.0:
        return np.float32(0.0)
    result = gap
    for _ in range(power - 1):
        result *= gap
    return -result


@njit(nogil=True, cache=True)
def _push(node: Any, value: Any, ranks: Any, start: Any, found: Any, best: Any, values: Any) -> Any:
    """Put a node among the best found so far, in order; equals by rank, the lower first. Returns how many."""
    k = len(best)
    if found == k and value < values[k - 1]:
        return found
    at = found
    while at > 0 and (
        values[at - 1] < value
        or (values[at - 1] == value and ranks[best[at - 1] - start] > ranks[node - start])
    ):
        at -= 1
    if at >= k:
        return found
    for j in range(min(found, k - 1), at, -1):
        values[j] = values[j - 1]
        best[j] = best[j - 1]
    values[at] = value
    best[at] = node
    return min(found + 1, k)


@njit(nogil=True, cache=True)
def _pairs(best: Any, counts: Any) -> Any:
    """(document, place) pairs sorted by block: block, document and place of each."""
    n, width = best.shape
    keys = np.empty(counts.sum(), np.int64)
    owner = np.empty(len(keys), np.int64)
    at = 0
    for doc in range(n):
        for place in range(counts[doc]):
            keys[at] = (best[doc, place] + 1) * n + doc
            owner[at] = doc * width + place
            at += 1
    order = np.argsort(keys)
    return keys[order] // n, owner[order] // width, owner[order] % width


@njit(nogil=True, cache=True)
def walk(
    query: Any,
    offsets: Any,
    panels: Any,
    level_starts: Any,
    weights: Any,
    directory: Any,
    row_of: Any,
    power: int,
    beam: int,
    ranks: Any,
    best: Any,
    values: Any,
) -> None:
    """The best nodes of the last level for each document: best and values [N, k], -1 where there are fewer.

    query: CSR arrays and dense rows of N documents. panels [B+1]: the panels of each block. level_starts: the
    first node of each level to walk and the end of the last. At least k and beam nodes go on at every level
    above. ranks: of the last level's nodes, for equals. row_of [D] is all -1, before and after; it may be
    empty when there are fewer than MANY documents.
    """
    n, k = best.shape
    near, above, counts = np.full((n, 1), -1), np.zeros((n, 1), np.float32), np.ones(n, np.int64)
    scores = np.empty(PANEL, np.float32)
    depth = len(level_starts) - 1
    for t in range(depth):
        start, size = level_starts[t], level_starts[t + 1] - level_starts[t]
        width = min(k if t == depth - 1 else max(beam, k), size)
        own_ranks = ranks if t == depth - 1 else np.arange(size).astype(ranks.dtype)
        next_near, next_above = np.empty((n, width), np.int64), np.empty((n, width), np.float32)
        found = np.zeros(n, np.int64)
        blocks, docs, places = _pairs(near, counts)
        p = 0
        while p < len(blocks):
            block, end = blocks[p], p
            while end < len(blocks) and blocks[end] == block:
                end += 1
            table = row_of if end - p >= MANY else row_of[:0]
            node = offsets[block]
            for panel in range(panels[block], panels[block + 1]):
                own = scores[: min(PANEL, offsets[block + 1] - node)]
                if len(table):
                    _mark(weights, panel, row_of, True)
                for q in range(p, end):
                    doc = docs[q]
                    _score_panel(query, doc, weights, directory, panel, node, table, own)
                    for i in range(len(own)):
                        value = above[doc, places[q]] + _log(own[i], power)
                        found[doc] = _push(
                            node + i, value, own_ranks, start, found[doc], next_near[doc], next_above[doc]
                        )
                if len(table):
                    _mark(weights, panel, row_of, False)
                node += PANEL
            p = end
        near, above, counts = next_near, next_above, found
    for doc in range(n):
        best[doc, : counts[doc]] = near[doc, : counts[doc]]
        values[doc, : counts[doc]] = above[doc, : counts[doc]]
        best[doc, counts[doc] :] = -1
        values[doc, counts[doc] :] = -np.inf


@njit(nogil=True, cache=True)
def score_paths(
    query: Any,
    wanted_rows: Any,
    wanted: Any,
    offsets: Any,
    panels: Any,
    parents: Any,
    depth: int,
    weights: Any,
    directory: Any,
    row_of: Any,
    power: int,
    out: Any,
) -> None:
    """out: the path scores of the nodes wanted[wanted_rows[i]:wanted_rows[i+1]] of each document i.

    parents [nodes]: the node above, -1 for the root; all wanted nodes have `depth` levels. Else as `walk`.
    """
    n = len(wanted_rows) - 1
    # Every step of every path, sorted by block: steps of the same document and block lie together.
    keys = np.empty(len(wanted) * depth, np.int64)
    nodes = np.empty(len(keys), np.int64)
    for doc in range(n):
        for i in range(wanted_rows[doc], wanted_rows[doc + 1]):
            node = np.int64(wanted[i])
            for t in range(depth - 1, -1, -1):
                nodes[i * depth + t] = node
                node = np.int64(parents[node])
                keys[i * depth + t] = (node + 1) * n + doc
    order = np.argsort(keys)
    logs = np.empty(len(keys), np.float32)
    scores = np.empty(PANEL, np.float32)
    p = 0
    while p < len(order):
        block, end = keys[order[p]] // n, p
        while end < len(order) and keys[order[end]] // n == block:
            end += 1
        table = row_of if end - p >= MANY else row_of[:0]
        node = offsets[block]
        for panel in range(panels[block], panels[block + 1]):
            own = scores[: min(PANEL, offsets[block + 1] - node)]
            if len(table):
                _mark(weights, panel, row_of, True)
            scored = np.int64(-1)
            for q in range(p, end):
                step = order[q]
                if not node <= nodes[step] < node + len(own):
                    continue
                if keys[step] != scored:
                    scored = keys[step]
                    _score_panel(query, scored % n, weights, directory, panel, node, table, own)
                logs[step] = _log(own[nodes[step] - node], power)
            if len(table):
                _mark(weights, panel, row_of, False)
            node += PANEL
        p = end
    for i in range(len(wanted)):
        total = np.float32(0.0)
        for t in range(depth):
            total += logs[i * depth + t]
        out[i] = total
