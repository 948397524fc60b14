"""The linear machine's inner loop: squared hinge by dual coordinate descent, eight labels at a time.

Labels of one block share their documents. These are copied once into compact rows with the features numbered
anew, so that the weights of a block stay in the cache and no work depends on the number of all features. A
document is left aside (shrunk) while none of the eight labels can learn from it.

    min over w:  |w|^2 / 2 + sum over documents i of cost_i * max(0, 1 - y_i (w . x_i + b * bias))^2

Names: N documents of the block, M features that occur in them, 8 lanes (labels).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.lanes import LANES, add_rows, dot_rows

__all__ = ["compact_rows", "solve_lanes", "train_block"]


@njit(nogil=True, cache=True)
def compact_rows(indptr: Any, columns: Any, values: Any, docs: Any, number_of: Any, features: Any) -> Any:
    """The rows of these documents with features numbered as they come.

    number_of [D] must be all -1, and is again on return; features receives the M features met. Returns row
    ranges [N+1], numbers, values, squared lengths [N] and M.
    """
    n = len(docs)
    rows = np.zeros(n + 1, np.int64)
    for i in range(n):
        rows[i + 1] = rows[i] + indptr[docs[i] + 1] - indptr[docs[i]]
    numbers = np.empty(rows[n], np.int32)
    kept = np.empty(rows[n], np.float32)
    squares = np.zeros(n, np.float32)
    m = 0
    at = 0
    for i in range(n):
        for j in range(indptr[docs[i]], indptr[docs[i] + 1]):
            number = number_of[columns[j]]
            if number < 0:
                number = m
                number_of[columns[j]] = m
                features[m] = columns[j]
                m += 1
            numbers[at] = number
            kept[at] = values[j]
            squares[i] += values[j] * values[j]
            at += 1
    for number in range(m):
        number_of[features[number]] = -1
    return rows, numbers, kept, squares, m


@njit(nogil=True, cache=True, inline="always")
def _shuffled(index: Any, n: Any, state: Any) -> Any:
    for i in range(n - 1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = i + np.int64(state % np.uint64(n - i))
        index[i], index[j] = index[j], index[i]
    return state


@njit(nogil=True, cache=True)
def solve_lanes(  # noqa: C901 - one sweep after another, as in the paper
    rows: Any,
    numbers: Any,
    values: Any,
    squares: Any,
    y: Any,
    half: Any,
    bias: Any,
    tolerance: Any,
    max_sweeps: int,
    unused: Any,
    seed: Any,
    w: Any,
) -> Any:
    """Solve eight labels over the same rows; w [M+1, 8] starts at 0 and receives the weights, the bias last.

    y [N, 8] is +1 or -1; half [N, 8] is 1 / (2 cost); lanes marked in unused [8] are left at 0. A lane is
    done when the largest violation in a sweep is within the tolerance, LIBLINEAR's rule. Returns the sweeps.
    """
    n = len(squares)
    m = len(w) - 1
    alpha = np.zeros((n, LANES), np.float32)
    index = np.arange(n).astype(np.int32)
    state = seed
    active = n
    limit = np.full(LANES, np.inf, np.float32)  # gradients above are shrunk
    high = np.empty(LANES, np.float32)
    low = np.empty(LANES, np.float32)
    done = unused.copy()
    step = np.zeros(LANES, np.float32)
    score = np.zeros(LANES, np.float32)
    sweep = 0
    while sweep < max_sweeps:
        high[:] = -np.inf
        low[:] = np.inf
        state = _shuffled(index, active, state)
        s = 0
        while s < active:
            i = index[s]
            for lane in range(LANES):
                score[lane] = w[m, lane] * bias
            dot_rows(w, numbers, values, rows[i], rows[i + 1], score)
            keep = False
            moved = False
            length = squares[i] + bias * bias
            for lane in range(LANES):
                step[lane] = 0.0
                if done[lane]:
                    continue
                a = alpha[i, lane]
                g = y[i, lane] * score[lane] - np.float32(1.0) + a * half[i, lane]
                if a == 0.0 and g > limit[lane]:
                    continue
                keep = True
                violation = g if a > 0.0 else min(g, np.float32(0.0))
                high[lane] = max(high[lane], violation)
                low[lane] = min(low[lane], violation)
                if violation != 0.0:
                    new = max(a - g / (length + half[i, lane]), np.float32(0.0))
                    if new != a:
                        alpha[i, lane] = new
                        step[lane] = (new - a) * y[i, lane]
                        moved = True
            if not keep:
                active -= 1
                index[s] = index[active]
                index[active] = i
                continue
            if moved:
                add_rows(w, numbers, values, rows[i], rows[i + 1], step)
                for lane in range(LANES):
                    w[m, lane] += step[lane] * bias
            s += 1
        sweep += 1
        n_done = 0
        for lane in range(LANES):
            if not done[lane]:
                if high[lane] - low[lane] <= tolerance:
                    done[lane] = True
                else:
                    limit[lane] = high[lane] if high[lane] > 0.0 else np.float32(np.inf)
            n_done += done[lane]
        if n_done == LANES:
            if active == n:
                break
            active = n  # what was shrunk may have come to matter: look at all documents again
            done[:] = unused
            limit[:] = np.inf
    return sweep


@njit(nogil=True, cache=True)
def _smallest_kept(column: Any, threshold: Any, max_kept: int) -> Any:
    """The threshold, raised where needed so that at most max_kept (0: all) of the values exceed it."""
    if max_kept == 0:
        return threshold
    sizes = np.abs(column)
    if (sizes > threshold).sum() <= max_kept:
        return threshold
    return np.partition(sizes, len(sizes) - max_kept - 1)[len(sizes) - max_kept - 1]


@njit(nogil=True, cache=True)
def train_block(
    indptr: Any,
    columns: Any,
    values: Any,
    docs: Any,
    label_rows: Any,
    label_docs: Any,
    label_weights: Any,
    first: int,
    last: int,
    cost_positive: float,
    cost_negative: float,
    bias: float,
    tolerance: float,
    max_sweeps: int,
    threshold: float,
    max_kept: int,
    seed: Any,
    number_of: Any,
    features: Any,
) -> Any:
    """Train the labels first..last over these documents (ascending); keep the weights above the threshold.

    Positive documents of label c, all among docs and ascending: label_docs[label_rows[c]:label_rows[c+1]],
    each weighing label_weights. Returns the block feature by feature: features [R] ascending, ranges [R+1],
    labels counted from first, weights; and the biases [last-first].
    """
    rows, numbers, kept, squares, m = compact_rows(indptr, columns, values, docs, number_of, features)
    n = len(docs)
    y = np.empty((n, LANES), np.float32)
    half = np.empty((n, LANES), np.float32)
    w = np.zeros((m + 1, LANES), np.float32)
    unused = np.zeros(LANES, np.bool_)
    biases = np.zeros(last - first, np.float32)
    cap = 1 << 10
    found_number = np.empty(cap, np.int32)
    found_label = np.empty(cap, np.int32)
    found_weight = np.empty(cap, np.float32)
    per_number = np.zeros(m + 1, np.int64)
    k = 0
    for start in range(first, last, LANES):
        y[:] = -1.0
        half[:] = np.float32(0.5 / cost_negative)
        for lane in range(LANES):
            unused[lane] = start + lane >= last
            if unused[lane]:
                continue
            i = 0
            for j in range(label_rows[start + lane], label_rows[start + lane + 1]):
                while docs[i] < label_docs[j]:
                    i += 1
                y[i, lane] = 1.0
                half[i, lane] = 0.5 / (cost_positive * label_weights[j])
        mixed = np.uint64(seed) ^ (np.uint64(start + 1) * np.uint64(0x9E3779B97F4A7C15))
        solve_lanes(
            rows,
            numbers,
            kept,
            squares,
            y,
            half,
            np.float32(bias),
            np.float32(tolerance),
            max_sweeps,
            unused,
            mixed,
            w,
        )
        for lane in range(min(LANES, last - start)):
            biases[start - first + lane] = w[m, lane] * np.float32(bias)
            limit = _smallest_kept(w[:m, lane], threshold, max_kept)
            for number in range(m):
                weight = w[number, lane]
                if abs(weight) > limit:
                    if k == cap:
                        found_number = np.concatenate((found_number, np.empty(cap, np.int32)))
                        found_label = np.concatenate((found_label, np.empty(cap, np.int32)))
                        found_weight = np.concatenate((found_weight, np.empty(cap, np.float32)))
                        cap *= 2
                    found_number[k] = number
                    found_label[k] = start - first + lane
                    found_weight[k] = weight
                    per_number[number] += 1
                    k += 1
        w[:] = 0.0
    # By feature, features ascending; a feature's labels are ascending already.
    by_feature = np.argsort(features[:m])
    start_of = np.empty(m, np.int64)
    block_features = np.empty(m, np.int32)
    block_rows = np.zeros(m + 1, np.int64)
    r = 0
    at = 0
    for number in by_feature:
        if per_number[number]:
            start_of[number] = at
            at += per_number[number]
            block_features[r] = features[number]
            block_rows[r + 1] = at
            r += 1
    labels = np.empty(k, np.int32)
    weights = np.empty(k, np.float32)
    for e in range(k):
        place = start_of[found_number[e]]
        start_of[found_number[e]] += 1
        labels[place] = found_label[e]
        weights[place] = found_weight[e]
    return block_features[:r].copy(), block_rows[: r + 1].copy(), labels, weights, biases
