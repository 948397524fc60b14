"""The linear machine's inner loop: squared hinge by dual coordinate descent, eight labels at a time.

Labels of one block share their documents. These are copied once into compact rows with the features numbered
anew, so that the weights of a block stay in the cache and no work depends on the number of all features. A
document is left aside (shrunk) while none of the eight labels can learn from it.

    min over w:  |w|^2 / 2 + sum over documents i of cost_i * max(0, 1 - y_i (w . x_i + b * bias))^2

Names: N documents of the block, M sparse features that occur in them, D dense ones, 8 lanes (labels).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.bfloat import wide
from xmcascade.kernels.cluster import select
from xmcascade.kernels.lanes import LANES, add_rows, dot_rows, dual_step
from xmcascade.kernels.newton import newton_lanes

__all__ = ["compact_rows", "solve_lanes", "train_labels"]


@njit(nogil=True, cache=True)
def compact_rows(documents: Any, docs: Any, number_of: Any, features: Any) -> Any:
    """The rows of these documents with features numbered anew: dense ones first, then as they come.

    documents: CSR arrays and dense rows [., D]. number_of must be all -1, and is again on return; features is
    scratch, as long. Returns row ranges [N+1], numbers, values, squared lengths [N], and the M sparse
    features met: feature i has the number D + i.
    """
    indptr, columns, values, dense = documents
    n, n_dense = len(docs), dense.shape[1]
    rows = np.zeros(n + 1, np.int64)
    for i in range(n):
        rows[i + 1] = rows[i] + n_dense + indptr[docs[i] + 1] - indptr[docs[i]]
    numbers = np.empty(rows[n], np.int32)
    kept = np.empty(rows[n], np.float32)
    squares = np.zeros(n, np.float32)
    m = 0
    at = 0
    for i in range(n):
        for f in range(n_dense):
            numbers[at] = f
            kept[at] = dense[docs[i], f]
            at += 1
        for j in range(indptr[docs[i]], indptr[docs[i] + 1]):
            number = number_of[columns[j]]
            if number < 0:
                number = n_dense + m
                number_of[columns[j]] = number
                features[m] = columns[j]
                m += 1
            numbers[at] = number
            kept[at] = values[j]
            at += 1
        for j in range(rows[i], rows[i + 1]):
            squares[i] += kept[j] * kept[j]
    for f in features[:m]:
        number_of[f] = -1
    return rows, numbers, kept, squares, features[:m].copy()


@njit(nogil=True, cache=True, inline="always")
def _shuffled(index: Any, n: Any, state: Any) -> Any:
    for i in range(n - 1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = i + np.int64(((state >> np.uint64(32)) * np.uint64(n - i)) >> np.uint64(32))
        index[i], index[j] = index[j], index[i]
    return state


@njit(nogil=True, cache=True)
def _dual_start(rows: Any, numbers: Any, values: Any, y: Any, half: Any, bias: Any, w: Any) -> Any:
    """Duals that belong to weights w, if w is a solution: 2 cost times what a margin lacks.

    Rewrites w as the weights that belong to the duals. Lanes that are all 0 have no solution yet and stay so.
    """
    n, m = len(y), len(w) - 1
    alpha = np.zeros((n, LANES), np.float32)
    given = np.zeros(LANES, np.bool_)
    for number in range(m + 1):
        for lane in range(LANES):
            given[lane] |= w[number, lane] != 0.0
    if not given.any():
        return alpha
    score = np.zeros(LANES, np.float32)
    for i in range(n):
        for lane in range(LANES):
            score[lane] = w[m, lane] * bias
        dot_rows(w, numbers, values, rows[i], rows[i + 1], score)
        for lane in range(LANES):
            if given[lane]:
                lacks = np.float32(1.0) - y[i, lane] * score[lane]
                alpha[i, lane] = max(lacks, np.float32(0.0)) / half[i, lane]
    w[:] = 0.0
    for i in range(n):
        for lane in range(LANES):
            score[lane] = alpha[i, lane] * y[i, lane]
            w[m, lane] += score[lane] * bias
        add_rows(w, numbers, values, rows[i], rows[i + 1], score)
    return alpha


@njit(nogil=True, cache=True)
def solve_lanes(
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
    """Solve eight labels over the same rows; w [M+1, 8] is the start and receives the weights, the bias last.

    y [N, 8] is +1 or -1; half [N, 8] is 1 / (2 cost); lanes marked in unused [8] are left at 0. A lane is
    done when the largest violation in a sweep is within the tolerance, LIBLINEAR's rule. Returns the sweeps.
    """
    n = len(squares)
    m = len(w) - 1
    own = np.empty((n, 3 * LANES), np.float32)  # duals, y and half of a document side by side
    own[:, :LANES] = _dual_start(rows, numbers, values, y, half, bias, w)
    own[:, LANES : 2 * LANES] = y
    own[:, 2 * LANES :] = half
    index = np.arange(n).astype(np.int32)
    state = seed
    active = n
    limit = np.full(LANES, np.inf, np.float32)  # gradients above are shrunk
    high, low = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    done = unused.astype(np.float32)
    step, score = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
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
            what = dual_step(own[i], score, limit, done, squares[i] + bias * bias, high, low, step)
            if what == 0:  # no lane can learn from it
                active -= 1
                index[s] = index[active]
                index[active] = i
                continue
            if what & 2:
                add_rows(w, numbers, values, rows[i], rows[i + 1], step)
                for lane in range(LANES):
                    w[m, lane] += step[lane] * bias
            s += 1
        sweep += 1
        n_done = 0
        for lane in range(LANES):
            if done[lane] == 0.0:
                if high[lane] - low[lane] <= tolerance:
                    done[lane] = 1.0
                else:
                    limit[lane] = high[lane] if high[lane] > 0.0 else np.float32(np.inf)
            n_done += done[lane] > 0.0
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
    return select(sizes, len(sizes) - max_kept - 1)


@njit(nogil=True, cache=True)
def _targets(
    docs: Any, labels: Any, start: int, last: int, costs: Any, y: Any, cost: Any, unused: Any
) -> None:
    """What the labels start.. (up to eight, before last) want of each document, and at what cost."""
    label_rows, label_docs, label_weights = labels
    y[:] = -1.0
    cost[:] = np.float32(costs[1])
    for lane in range(LANES):
        unused[lane] = start + lane >= last
        if unused[lane]:
            continue
        i = 0
        for j in range(label_rows[start + lane], label_rows[start + lane + 1]):
            while docs[i] < label_docs[j]:
                i += 1
            y[i, lane] = 1.0
            cost[i, lane] = costs[0] * label_weights[j]


@njit(nogil=True, cache=True)
def _earlier(weights: Any, panel: int, child: int, node: int, features: Any, by_feature: Any, w: Any) -> None:
    """w [., 8]: the weights that the children child.. of an earlier panel have, `node` being the first's."""
    panel_rows, panel_entries, row_features, row_ends, children, entries, biases, dense = weights
    n_dense = dense.shape[1]
    lanes = min(LANES, len(biases) - node)
    for lane in range(lanes):
        w[len(w) - 1, lane] = biases[node + lane]  # times the bias; undone by the caller
        for f in range(n_dense):
            w[f, lane] = wide(dense[node + lane, f])
    at = 0
    start = np.int64(0)
    for r in range(panel_rows[panel], panel_rows[panel + 1]):
        end = np.int64(row_ends[r])
        while at < len(by_feature) and features[by_feature[at]] < row_features[r]:
            at += 1
        if at < len(by_feature) and features[by_feature[at]] == row_features[r]:
            for e in range(panel_entries[panel] + start, panel_entries[panel] + end):
                number = np.int64(children[e]) - child
                if 0 <= number < lanes:
                    w[n_dense + by_feature[at], number] = wide(entries[e])
        start = end


@njit(nogil=True, cache=True)
def train_labels(
    compact: Any,
    docs: Any,
    labels: Any,
    first: int,
    last: int,
    child: int,
    costs: Any,
    bias: float,
    tolerance: float,
    max_sweeps: int,
    method: Any,
    threshold: float,
    max_kept: int,
    seed: Any,
    earlier: Any,
    panel: int,
) -> Any:
    """Train the labels first..last over these documents (ascending); keep the weights above the threshold.

    compact: as `compact_rows` returns it. labels: positive documents of label c, all among docs and
    ascending, label_docs[label_rows[c]:label_rows[c+1]], each weighing label_weights. child: the number of
    the first label in its panel. costs: of documents with the label, and without. method: None for the dual,
    or a loss of kernels.newton, which is only compiled when it is asked for. earlier: weights as
    kernels.blocks has them, to start from, with the panel there; -1: start from 0.

    Returns the weights feature by feature: features [R] ascending, ends [R], children [E], weights [E]; the
    biases [last-first] and the dense weights [last-first, D].
    """
    rows, numbers, values, squares, features = compact
    n, m = len(docs), len(features)
    n_dense = earlier[7].shape[1]
    y, cost = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    w = np.zeros((n_dense + m + 1, LANES), np.float32)
    unused = np.zeros(LANES, np.bool_)
    biases, dense = np.zeros(last - first, np.float32), np.zeros((last - first, n_dense), np.float32)
    by_feature = np.argsort(features)
    cap = 1 << 10
    found_number, found_child = np.empty(cap, np.int32), np.empty(cap, np.uint8)
    found_weight = np.empty(cap, np.float32)
    per_number = np.zeros(m, np.int64)
    k = 0
    for start in range(first, last, LANES):
        _targets(docs, labels, start, last, costs, y, cost, unused)
        if panel >= 0:
            _earlier(earlier, panel, child + start - first, start, features, by_feature, w)
            if bias > 0.0:
                w[n_dense + m] /= np.float32(bias)
        if method is None:
            mixed = np.uint64(seed) ^ (np.uint64(start + 1) * np.uint64(0x9E3779B97F4A7C15))
            for i in range(n):
                for lane in range(LANES):
                    cost[i, lane] = np.float32(0.5) / cost[i, lane]
            solve_lanes(
                rows, numbers, values, squares, y, cost, np.float32(bias), np.float32(tolerance),
                max_sweeps, unused, mixed, w,
            )  # fmt: skip
        else:
            newton_lanes(
                rows, numbers, values, y, cost, np.float32(bias), method, tolerance, max_sweeps, unused, w
            )
        for lane in range(min(LANES, last - start)):
            own = start - first + lane
            biases[own] = w[n_dense + m, lane] * np.float32(bias)
            dense[own] = w[:n_dense, lane]
            limit = _smallest_kept(w[n_dense : n_dense + m, lane], threshold, max_kept)
            for number in range(m):
                weight = w[n_dense + number, lane]
                if abs(weight) > limit:
                    if k == cap:
                        found_number = np.concatenate((found_number, np.empty(cap, np.int32)))
                        found_child = np.concatenate((found_child, np.empty(cap, np.uint8)))
                        found_weight = np.concatenate((found_weight, np.empty(cap, np.float32)))
                        cap *= 2
                    found_number[k] = number
                    found_child[k] = child + own
                    found_weight[k] = weight
                    per_number[number] += 1
                    k += 1
        w[:] = 0.0
    # By feature, features ascending; a feature's labels are ascending already.
    start_of = np.empty(m, np.int64)
    row_features, row_ends = np.empty(m, np.int32), np.zeros(m, np.uint32)
    r = 0
    at = 0
    for number in by_feature:
        if per_number[number]:
            start_of[number] = at
            at += per_number[number]
            row_features[r] = features[number]
            row_ends[r] = at
            r += 1
    children, weights = np.empty(k, np.uint8), np.empty(k, np.float32)
    for e in range(k):
        place = start_of[found_number[e]]
        start_of[found_number[e]] += 1
        children[place] = found_child[e]
        weights[place] = found_weight[e]
    return row_features[:r].copy(), row_ends[:r].copy(), children, weights, biases, dense
