"""Prediction with heads: the whole way down the tree for each document, in one call.

What a document gets depends on nothing but its own features: no answer changes with the batch or the threads.
Sum over the levels of powers[t] * log sigmoid(own score on the path at level t): that is a label's score.

Names: xs[t] [B, D_t] features of the documents for level t, rows[t] [K_t, D_t] and biases[t] [K_t] its head,
offsets[t]: the rows of level t that are children of each cluster of level t - 1; of level 0, [0, K_0].
All levels' arrays come as tuples of arrays of one type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.bfloat import dot_wide
from xmcascade.kernels.cluster import select
from xmcascade.kernels.heads import score_block

__all__ = ["score_labels", "walk"]


@njit(nogil=True, cache=True)
def _log_sigmoid(z: Any) -> Any:
    return np.float32(min(z, np.float32(0.0)) - math.log1p(math.exp(-abs(z))))


@njit(nogil=True, cache=True)
def _best(scores: Any, k: int, ranks: Any, ids: Any) -> Any:
    """Places of the k best scores, in the order they have; equal ones: the lower rank first."""
    n = len(scores)
    for i in range(n):
        if scores[i] != scores[i]:  # NaN has no place in an order
            scores[i] = -np.inf
    if n <= k:
        return np.arange(n)
    cut = -select(-scores, k - 1)
    room = k
    tied = 0
    for score in scores:
        room -= score > cut
        tied += score == cut
    limit = np.int64(2**62)
    if tied > room:  # rare: which of the equal ones go on
        equal = np.empty(tied, np.int64)
        at = 0
        for i in range(n):
            if scores[i] == cut:
                equal[at] = ids[i] if len(ranks) == 0 else ranks[ids[i]]
                at += 1
        limit = np.sort(equal)[room - 1]
    chosen = np.empty(k, np.int64)
    at = 0
    for i in range(n):
        rank = ids[i] if len(ranks) == 0 else np.int64(ranks[ids[i]])
        if scores[i] > cut or (scores[i] == cut and rank <= limit):
            chosen[at] = i
            at += 1
    return chosen


@njit(nogil=True, cache=True)
def walk(
    xs: Any, rows: Any, biases: Any, offsets: Any, allowed: Any, keeps: Any, powers: Any, ranks: Any,
    best: Any, values: Any,
) -> None:  # fmt: skip
    """best [B, k]: positions of the k best labels of each document, best first, -1 for none; values: scores.

    At level t the keeps[t] best clusters go on. Only nodes with allowed[t] can be chosen (empty: all).
    ranks [K]: of equal labels, the one with the lower rank is first.
    """
    n_levels, k = len(rows), best.shape[1]
    none = np.zeros(0, ranks.dtype)
    for doc in range(len(best)):
        clusters, paths = np.zeros(1, np.int64), np.zeros(1, np.float32)
        for t in range(n_levels):
            bounds = offsets[t]
            size = 0
            for cluster in clusters:
                size += bounds[cluster + 1] - bounds[cluster]
            logits, children, sums = (
                np.empty(size, np.float32),
                np.empty(size, np.int64),
                np.empty(size, np.float32),
            )
            at = 0
            for i, cluster in enumerate(clusters):
                begin, end = bounds[cluster], bounds[cluster + 1]
                score_block(xs[t][doc], rows[t], biases[t], begin, end, logits[at : at + end - begin])
                for child in range(begin, end):
                    children[at] = child
                    sums[at] = paths[i]
                    at += 1
            if len(allowed[t]):
                fine = allowed[t][children]
                logits, children, sums = logits[fine], children[fine], sums[fine]
            if powers[t] != 0.0:
                for i in range(len(logits)):
                    sums[i] += powers[t] * _log_sigmoid(logits[i])
            if t < n_levels - 1:
                chosen = _best(logits, max(keeps[t], 1), none, children)
                clusters, paths = children[chosen], sums[chosen]
            else:
                chosen = _best(sums, k, ranks, children)
                chosen = chosen[np.argsort(ranks[children[chosen]], kind="mergesort")]
                chosen = chosen[np.argsort(-sums[chosen], kind="mergesort")]
                found = len(chosen)
                best[doc, :found], values[doc, :found] = children[chosen], sums[chosen]
                best[doc, found:], values[doc, found:] = -1, -np.inf


@njit(nogil=True, cache=True)
def score_labels(
    xs: Any, rows: Any, biases: Any, parents: Any, powers: Any, wanted_rows: Any, wanted: Any, out: Any
) -> None:
    """out: the scores of given positions, those of document i in wanted[wanted_rows[i]:wanted_rows[i+1]].

    parents[t] [K_t]: the cluster of level t - 1 above each node of level t; of level 0 nobody reads it.
    """
    for doc in range(len(wanted_rows) - 1):
        for i in range(wanted_rows[doc], wanted_rows[doc + 1]):
            node, total = np.int64(wanted[i]), np.float32(0.0)
            nodes = np.empty(len(rows), np.int64)
            for t in range(len(rows) - 1, -1, -1):
                nodes[t] = node
                node = np.int64(parents[t][node])
            for t in range(len(rows)):  # from the top, as in a walk: the sums round alike
                if powers[t] != 0.0:
                    score = dot_wide(xs[t][doc], rows[t], nodes[t]) + biases[t][nodes[t]]
                    total += powers[t] * _log_sigmoid(score)
            out[i] = total
