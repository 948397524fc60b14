"""Scoring by block: a query is matched once with all children of a cluster; queries are sorted by cluster.

Weights of a level (B blocks, R rows, E entries): block b has the rows block_rows[b]:block_rows[b+1]; row r is
the feature row_features[r] (ascending in a block) and the entries row_ends[r]:row_ends[r+1], each a child
(counted from the block's first) and its weight. A query's sums run in the order of its features whatever is
computed beside it, so batches cannot change an answer.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["best_children", "score_blocks"]

MANY = 8  # queries of a block from which on a table of its features pays


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
def score_blocks(  # noqa: C901 - one loop over pairs, in two ways to find a row
    indptr: Any,
    columns: Any,
    values: Any,
    docs: Any,
    clusters: Any,
    starts: Any,
    offsets: Any,
    block_rows: Any,
    row_features: Any,
    row_ends: Any,
    children: Any,
    weights: Any,
    biases: Any,
    row_of: Any,
    scores: Any,
) -> None:
    """Scores of all children of each (document, cluster) pair; pairs come sorted by cluster.

    Documents are CSR rows. The scores of pair p are written from scores[starts[p]] on. row_of [D] must be all
    -1, and is again on return.
    """
    p = 0
    while p < len(clusters):
        block = clusters[p]
        end = p
        while end < len(clusters) and clusters[end] == block:
            end += 1
        first, last = block_rows[block], block_rows[block + 1]
        table = end - p >= MANY
        if table:
            for r in range(first, last):
                row_of[row_features[r]] = r
        n_children = offsets[block + 1] - offsets[block]
        while p < end:
            at = starts[p]
            for child in range(n_children):
                scores[at + child] = biases[offsets[block] + child]
            r = first
            for j in range(indptr[docs[p]], indptr[docs[p] + 1]):
                column = columns[j]
                if table:
                    r = int(row_of[column])
                    if r < 0:
                        continue
                else:
                    r = _find(row_features, r, last, column)
                    if r == last:
                        break
                    if row_features[r] != column:
                        continue
                for e in range(row_ends[r], row_ends[r + 1]):
                    scores[at + children[e]] += values[j] * weights[e]
            p += 1
        if table:
            for r in range(first, last):
                row_of[row_features[r]] = -1


@njit(nogil=True, cache=True)
def best_children(
    pair_rows: Any,
    clusters: Any,
    starts: Any,
    offsets: Any,
    scores: Any,
    rank: Any,
    k: int,
    best: Any,
    values: Any,
) -> None:
    """The k best children of each document's clusters, best first; equals by rank, the lower first.

    The pairs of document i are pair_rows[i]:pair_rows[i+1], with clusters and starts as in `score_blocks`.
    best and values [N, k] receive children and scores, -1 and 0 where there are fewer.
    """
    for doc in range(len(pair_rows) - 1):
        found = 0
        for p in range(pair_rows[doc], pair_rows[doc + 1]):
            first = offsets[clusters[p]]
            for i in range(offsets[clusters[p] + 1] - first):
                value = scores[starts[p] + i]
                child = first + i
                at = min(found, k)
                while at > 0 and (
                    values[doc, at - 1] < value
                    or (values[doc, at - 1] == value and rank[best[doc, at - 1]] > rank[child])
                ):
                    at -= 1
                if at >= k:
                    continue
                for j in range(min(found, k - 1), at, -1):
                    values[doc, j] = values[doc, j - 1]
                    best[doc, j] = best[doc, j - 1]
                values[doc, at] = value
                best[doc, at] = child
                found = min(found + 1, k)
        for j in range(found, k):
            best[doc, j] = -1
            values[doc, j] = 0.0
