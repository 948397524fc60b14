"""Heads by block: scores, gradients and row updates for the shortlisted children of clusters.

A head's rows lie in tree order, so the children of a cluster are consecutive. A shortlist is a list of
(document, cluster) pairs; sorted by cluster, each block of rows is read once for all documents that want it.
The backward pass reads a row, gives the documents their share of the gradient, and updates the row at once:
no gradient as large as the head ever exists, and rows that nobody asked for are not touched.

Names: B documents, K rows, D features of a document, P pairs, E entries (children of all pairs, one after
another). pairs = (docs [P], clusters [P], starts [P+1]): the entries of pair p are starts[p]:starts[p+1].
order [P] sorts the pairs by cluster. Rows are float32, or bfloat16 in a uint16 rounded at random.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.bfloat import SUMS, dot_wide, stored, wide
from xmcascade.kernels.cluster import select

__all__ = [
    "ADAGRAD", "ADAM", "HOLD", "ROW_ADAM", "SGD",
    "apply", "choose", "cross_entropy", "forward", "gather", "scatter", "score_block",
    "squared_hinge", "step", "targets",
]  # fmt: skip

HOLD, SGD, ADAGRAD, ROW_ADAM, ADAM = -1, 0, 1, 2, 3  # HOLD: nothing is updated yet


@njit(nogil=True, cache=True, fastmath=SUMS)
def _dot_four(x: Any, rows: Any, row: int, out: Any) -> None:
    """out[:4]: the products with four rows; x is read once."""
    a, b, c, e = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for d in range(len(x)):
        a += x[d] * wide(rows[row, d])
        b += x[d] * wide(rows[row + 1, d])
        c += x[d] * wide(rows[row + 2, d])
        e += x[d] * wide(rows[row + 3, d])
    out[0], out[1], out[2], out[3] = a, b, c, e


@njit(nogil=True, cache=True)
def score_block(x: Any, rows: Any, biases: Any, begin: int, end: int, out: Any) -> None:
    """out: one document's scores of the rows begin:end."""
    four = np.empty(4, np.float32)
    row = begin
    while row + 4 <= end:
        _dot_four(x, rows, row, four)
        for i in range(4):
            out[row - begin + i] = four[i] + biases[row + i]
        row += 4
    while row < end:
        out[row - begin] = dot_wide(x, rows, row) + biases[row]
        row += 1


@njit(nogil=True, cache=True)
def forward(
    x: Any, rows: Any, biases: Any, offsets: Any, pairs: Any, order: Any, first: int, last: int, logits: Any
) -> None:
    """logits [E] of the pairs order[first:last]."""
    docs, clusters, starts = pairs
    for p in order[first:last]:
        begin, end = offsets[clusters[p]], offsets[clusters[p] + 1]
        score_block(x[docs[p]], rows, biases, begin, end, logits[starts[p] : starts[p + 1]])


@njit(nogil=True, cache=True)
def step(
    x: Any,
    rows: Any,
    biases: Any,
    state: Any,
    offsets: Any,
    pairs: Any,
    order: Any,
    first: int,
    last: int,
    slopes: Any,
    how: Any,
    seed: Any,
    back: Any,
) -> None:
    """Backward and update in one: the pairs order[first:last] must be whole blocks.

    slopes [E]: the loss's derivative by each logit. back [B, D] receives what it is by x, with the rows as
    they were. state: what the method needs of the rows, (one [K], steps [K], first moments, second moments
    [K, D]), empty where it needs none. how = (method, rate, decay, beta1, beta2, epsilon): decay is
    AdamW's, of touched rows only. seed: of the rounding of bfloat16 rows in this step.
    """
    docs, clusters, starts = pairs
    width = x.shape[1]
    gradient, row_now = np.empty(width, np.float32), np.empty(width, np.float32)
    squares, long = np.empty(len(x), np.float32), np.float32(width + 1)
    for doc in range(len(x)):
        squares[doc] = _sum_of_squares(x[doc], np.float32(1.0))
    p = first
    while p < last:
        cluster, end = clusters[order[p]], p
        while end < last and clusters[order[end]] == cluster:
            end += 1
        alone = end == p + 1 and how[0] != HOLD and how[0] != ADAM
        for row in range(offsets[cluster], offsets[cluster + 1]):
            child = row - offsets[cluster]
            if alone:  # the row's gradient is a multiple of one document's features: once over both is enough
                slope, doc = slopes[starts[order[p]] + child], docs[order[p]]
                keep, scale = _scale(state[0], row, slope * slope * squares[doc] / long, how)
                _share_and_move(rows, row, x[doc], slope, keep, scale, _noise(seed, row), back[doc])
                biases[row] -= scale * slope
                continue
            for d in range(width):
                row_now[d] = wide(rows[row, d])
                gradient[d] = 0.0
            of_bias = np.float32(0.0)
            for q in range(p, end):
                slope = slopes[starts[order[q]] + child]
                doc = docs[order[q]]
                _share(slope, x[doc], row_now, gradient, back[doc])
                of_bias += slope
            if how[0] != HOLD:
                _update(rows, biases, state, row, row_now, gradient, of_bias, how, seed)
        p = end


@njit(nogil=True, cache=True)
def apply(
    rows: Any, biases: Any, state: Any, gradients: Any, of_biases: Any, touched: Any, first: int, last: int,
    how: Any, seed: Any,
) -> None:  # fmt: skip
    """Update the touched rows among first:last, given all their gradients [K, D]."""
    row_now = np.empty(rows.shape[1], np.float32)
    for row in range(first, last):
        if touched[row]:
            for d in range(len(row_now)):
                row_now[d] = wide(rows[row, d])
            _update(rows, biases, state, row, row_now, gradients[row], of_biases[row], how, seed)


@njit(nogil=True, cache=True)
def gather(dense: Any, offsets: Any, pairs: Any, entries: Any) -> None:
    """entries [E]: what a matrix documents x rows holds at the entries' places."""
    docs, clusters, starts = pairs
    for p in range(len(docs)):
        begin = offsets[clusters[p]]
        for e in range(starts[p], starts[p + 1]):
            entries[e] = dense[docs[p], begin + e - starts[p]]


@njit(nogil=True, cache=True)
def scatter(entries: Any, offsets: Any, pairs: Any, dense: Any, touched: Any) -> None:
    """The opposite, into a matrix of zeros; touched [K] is set for rows that have an entry."""
    docs, clusters, starts = pairs
    for p in range(len(docs)):
        begin = offsets[clusters[p]]
        for e in range(starts[p], starts[p + 1]):
            dense[docs[p], begin + e - starts[p]] = entries[e]
            touched[begin + e - starts[p]] = True


@njit(nogil=True, cache=True)
def _share(slope: Any, x: Any, row: Any, gradient: Any, back: Any) -> None:
    for d in range(len(x)):
        back[d] += slope * row[d]
        gradient[d] += slope * x[d]


@njit(nogil=True, cache=True, fastmath=SUMS)
def _sum_of_squares(numbers: Any, bias: Any) -> Any:
    total = bias * bias
    for d in range(len(numbers)):
        total += numbers[d] * numbers[d]
    return total


@njit(nogil=True, cache=True)
def _update(
    rows: Any, biases: Any, state: Any, row: Any, now: Any, gradient: Any, of_bias: Any, how: Any, seed: Any
) -> None:
    """One row: now holds it as float32, and is written back."""
    method, rate, decay, beta1, beta2, epsilon = how
    one, steps, firsts, seconds = state
    if method == ADAM:
        rate, keep = np.float32(rate), np.float32(1.0) - np.float32(rate) * np.float32(decay)
        steps[row] += 1
        mend1 = np.float32(1.0 / (1.0 - beta1 ** steps[row]))
        mend2 = np.float32(1.0 / (1.0 - beta2 ** steps[row]))
        b1, b2, tiny = np.float32(beta1), np.float32(beta2), np.float32(epsilon)
        last = len(now)
        for d in range(last + 1):  # the bias is the last
            g = gradient[d] if d < last else of_bias
            m = b1 * firsts[row, d] + (1 - b1) * g
            v = b2 * seconds[row, d] + (1 - b2) * g * g
            firsts[row, d], seconds[row, d] = m, v
            move = rate * m * mend1 / (np.sqrt(v * mend2) + tiny)
            if d < last:
                gradient[d] = move
            else:
                biases[row] -= move
        scale = np.float32(1.0)
    else:
        keep, scale = _scale(one, row, _sum_of_squares(gradient, of_bias) / np.float32(len(now) + 1), how)
        biases[row] -= scale * of_bias
    _move(rows, row, now, gradient, keep, scale, _noise(seed, row))


@njit(nogil=True, cache=True)
def _scale(one: Any, row: Any, square: Any, how: Any) -> Any:
    """What a row is multiplied by, and what of its gradient is subtracted; not for ADAM."""
    method, rate, decay, _, beta2, epsilon = how
    rate = np.float32(rate)
    keep = np.float32(1.0) - rate * np.float32(decay)
    if method == ADAGRAD:
        one[row] += square
        return keep, rate / (np.sqrt(one[row]) + np.float32(epsilon))
    if method == ROW_ADAM:
        # A row's first gradient is its whole history: no correction for a start at 0 is needed.
        b2 = np.float32(beta2) if one[row] > 0.0 else np.float32(0.0)
        one[row] = b2 * one[row] + (1 - b2) * square
        return keep, rate / (np.sqrt(one[row]) + np.float32(epsilon))
    return keep, rate


@njit(nogil=True, cache=True)
def _move(rows: Any, row: Any, now: Any, gradient: Any, keep: Any, scale: Any, noise: Any) -> None:
    for d in range(len(now)):
        rows[row, d] = stored(now[d] * keep - scale * gradient[d], _noise_of(noise, d), rows)


@njit(nogil=True, cache=True)
def _share_and_move(
    rows: Any, row: Any, x: Any, slope: Any, keep: Any, scale: Any, noise: Any, back: Any
) -> None:
    """_share and _move of a row that one document asks for, to the bit."""
    for d in range(len(x)):
        now = wide(rows[row, d])
        back[d] += slope * now
        rows[row, d] = stored(now * keep - scale * (slope * x[d]), _noise_of(noise, d), rows)


@njit(nogil=True, cache=True)
def _noise(seed: Any, row: Any) -> Any:
    """The start of a row's random numbers in this step."""
    start = (np.uint64(seed) << np.uint64(32)) ^ (np.uint64(row) * np.uint64(0x9E3779B97F4A7C15))
    start = (start ^ (start >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.uint32(start >> np.uint64(32))


@njit(nogil=True, cache=True, inline="always")
def _noise_of(first: Any, d: Any) -> Any:
    """16 random bits of its own for each number, by a hash of 32 bits: eight are made side by side."""
    noise = np.uint32(first + np.uint32(d) * np.uint32(0x9E3779B9))
    noise = np.uint32((noise ^ (noise >> np.uint32(15))) * np.uint32(0x85EBCA6B))
    return noise >> np.uint32(16)


@njit(nogil=True, cache=True)
def targets(
    pairs: Any, doc_pairs: Any, offsets: Any, parents: Any, truth_rows: Any, truth: Any, values: Any, y: Any
) -> int:
    """y [E] becomes 1 where an entry is true for its document; returns how many true ones have no entry.

    doc_pairs [B+1]: the pairs of each document, its clusters ascending. The true children of document i are
    truth[truth_rows[i]:truth_rows[i+1]], parents [K] their clusters. values: what y becomes in place of 1 for
    each of the true ones, or empty.
    """
    _, clusters, starts = pairs
    missed = 0
    for doc in range(len(truth_rows) - 1):
        low, high = doc_pairs[doc], doc_pairs[doc + 1]
        for i in range(truth_rows[doc], truth_rows[doc + 1]):
            cluster = parents[truth[i]]
            p = low + np.searchsorted(clusters[low:high], cluster)
            if p == high or clusters[p] != cluster:
                missed += 1
            else:
                y[starts[p] + truth[i] - offsets[cluster]] = values[i] if len(values) else np.float32(1.0)
    return missed


@njit(nogil=True, cache=True)
def cross_entropy(logits: Any, y: Any, bounds: Any, scales: Any, slopes: Any) -> float:
    """The sum over documents of their scale times the sum of their entries' binary cross entropies.

    The entries of document i are bounds[i]:bounds[i+1]. y: the weight of a true entry, 0 for the others,
    whose weight is 1. slopes [E]: the derivatives of that sum.
    """
    total = 0.0
    for doc in range(len(scales)):
        own = 0.0
        for e in range(bounds[doc], bounds[doc + 1]):
            z = logits[e]
            small = math.exp(-abs(z))
            chance = 1.0 / (1.0 + small) if z >= 0.0 else small / (1.0 + small)
            if y[e] > 0.0:
                own += y[e] * (math.log1p(small) + max(-z, np.float32(0.0)))
                slopes[e] = scales[doc] * y[e] * (chance - 1.0)
            else:
                own += math.log1p(small) + max(z, np.float32(0.0))
                slopes[e] = scales[doc] * chance
        total += scales[doc] * own
    return total


@njit(nogil=True, cache=True)
def squared_hinge(logits: Any, y: Any, scale: float, alpha: float, slopes: Any) -> float:
    """The sum over entries of scale times weight times max(0, 1 -+ logit)^2; slopes [E]: its derivatives.

    y: the weight of a true entry, 0 for the others, whose weight is alpha.
    """
    total = 0.0
    for e in range(len(y)):
        sign = 1.0 if y[e] > 0.0 else -1.0
        weight = scale * (y[e] if y[e] > 0.0 else alpha)
        gap = max(0.0, 1.0 - sign * logits[e])
        total += weight * gap * gap
        slopes[e] = -2.0 * weight * sign * gap
    return total


@njit(nogil=True, cache=True)
def choose(
    pairs: Any, doc_pairs: Any, offsets: Any, logits: Any, k: int, truth_rows: Any, truth: Any, chosen: Any,
    ends: Any,
) -> Any:  # fmt: skip
    """The k best children of each document and, beside them, all true ones; ascending.

    Those of document i are written to chosen from ends[i] on; ends [B+1] receives where they end. Equal
    scores: the lower child first. truth may be empty (truth_rows all 0). Returns how many of the true ones
    were among the k best, and how many documents have more than k true ones.
    """
    _, clusters, starts = pairs
    n = len(doc_pairs) - 1
    hit, crowded, at = 0, 0, 0
    ends[0] = 0
    most = 0
    for doc in range(n):
        most = max(most, starts[doc_pairs[doc + 1]] - starts[doc_pairs[doc]])
    work = np.empty(most, np.float32)
    for doc in range(n):
        low, high = doc_pairs[doc], doc_pairs[doc + 1]
        first, size = starts[low], starts[high] - starts[low]
        cut, room = np.float32(-np.inf), size
        if size > k:
            for i in range(size):
                z = -logits[first + i]
                work[i] = z if z == z else np.float32(np.inf)  # NaN is the last: it has no place in an order
            cut = -select(work[:size], k - 1)
            room = k
            for e in range(first, first + size):
                room -= logits[e] > cut
        t, t_end = truth_rows[doc], truth_rows[doc + 1]
        crowded += t_end - t > k
        for p in range(low, high):
            for child in range(offsets[clusters[p]], offsets[clusters[p] + 1]):
                score = logits[starts[p] + child - offsets[clusters[p]]]
                best = score > cut or size <= k
                if not best and score == cut and room > 0:
                    best = True
                    room -= 1
                true = t < t_end and truth[t] == child
                t += true
                hit += true and best
                if best or true:
                    chosen[at] = child
                    at += 1
        ends[doc + 1] = at
    return hit, crowded
