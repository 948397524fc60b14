"""Squared hinge and logistic loss by LIBLINEAR's trust region Newton method (TRON), eight labels at a time.

The labels go in lockstep, so that each pass over the rows serves all eight; each has its own trust region,
conjugate gradients and end, and its answer is the same whatever its neighbours are. Weights and scores are
float32, sums over documents or features float64.

    min over w:  |w|^2 / 2 + sum over documents i of cost_i * loss(y_i (w . x_i + b * bias))

Names as in solver.py; data is (rows, numbers, values, bias), task is (y, cost, loss).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.lanes import LANES, add_rows, dot_rows

__all__ = ["LOGISTIC", "SQUARED_HINGE", "newton_lanes"]

SQUARED_HINGE, LOGISTIC = 0, 1

_CG_TOLERANCE = 0.1  # of the gradient's norm, LIBLINEAR's value
_MAX_CG = 500  # a step cut short still descends
_ROUNDING = 1e-7  # of the objective: float32 scores do not show a smaller reduction


@njit(nogil=True, cache=True, inline="always")
def _loss_at(margin: Any, loss: int) -> Any:
    """The loss at a margin and its first two derivatives."""
    if loss == SQUARED_HINGE:
        short = max(0.0, 1.0 - margin)
        return short * short, -2.0 * short, 2.0 if short > 0.0 else 0.0
    e = math.exp(-abs(margin))  # the exponent is never positive: no overflow
    p = 1.0 / (1.0 + e)
    return math.log1p(e) + max(0.0, -margin), -(e * p if margin >= 0.0 else p), e * p * p


@njit(nogil=True, cache=True)
def _products(a: Any, b: Any) -> Any:
    total = np.zeros(LANES)
    for f in range(len(a)):
        for lane in range(LANES):
            total[lane] += np.float64(a[f, lane]) * np.float64(b[f, lane])
    return total


@njit(nogil=True, cache=True)
def _score(data: Any, docs: Any, w: Any, scores: Any) -> None:
    rows, numbers, values, bias = data
    m = len(w) - 1
    for i in docs:
        for lane in range(LANES):
            scores[i, lane] = w[m, lane] * bias
        dot_rows(w, numbers, values, rows[i], rows[i + 1], scores[i])


@njit(nogil=True, cache=True)
def _objective(task: Any, w: Any, scores: Any) -> Any:
    y, cost, loss = task
    value = 0.5 * _products(w, w)
    for i in range(len(scores)):
        for lane in range(LANES):
            value[lane] += cost[i, lane] * _loss_at(np.float64(y[i, lane] * scores[i, lane]), loss)[0]
    return value


@njit(nogil=True, cache=True)
def _differentiate(data: Any, task: Any, w: Any, scores: Any, wanted: Any, curve: Any, gradient: Any) -> Any:
    """The gradient at w and each document's second derivative (curve), of the wanted lanes; returns norms."""
    rows, numbers, values, bias = data
    y, cost, loss = task
    slope = np.zeros(LANES, np.float32)
    on_bias = np.zeros(LANES)  # one feature of all documents: too long a sum for float32
    for f in range(len(w)):
        for lane in range(LANES):
            if wanted[lane]:
                gradient[f, lane] = w[f, lane]
    for i in range(len(scores)):
        moves = False
        for lane in range(LANES):
            if wanted[lane]:
                _, first, second = _loss_at(np.float64(y[i, lane] * scores[i, lane]), loss)
                slope[lane] = y[i, lane] * cost[i, lane] * first
                curve[i, lane] = cost[i, lane] * second
                on_bias[lane] += slope[lane]
                moves |= slope[lane] != 0.0
        if moves:
            add_rows(gradient, numbers, values, rows[i], rows[i + 1], slope)
    gradient[len(w) - 1] += (on_bias * bias).astype(np.float32)
    return np.sqrt(_products(gradient, gradient))


@njit(nogil=True, cache=True)
def _curved(curve: Any, going: Any) -> Any:
    """The documents where the loss of a lane still going bends: the others add nothing to its Hessian."""
    docs = np.empty(len(curve), np.int32)
    k = 0
    for i in range(len(curve)):
        bends = False
        for lane in range(LANES):
            bends |= going[lane] and curve[i, lane] > 0.0
        docs[k] = i
        k += bends
    return docs[:k]


@njit(nogil=True, cache=True)
def _bend(data: Any, docs: Any, curve: Any, scores: Any, alpha: Any, residual: Any) -> None:
    """Take from the residual alpha * the documents' part of the Hessian * the direction of these scores."""
    rows, numbers, values, bias = data
    factor = np.empty(LANES, np.float32)
    on_bias = np.zeros(LANES)
    for i in docs:
        for lane in range(LANES):
            factor[lane] = -alpha[lane] * curve[i, lane] * scores[i, lane]
            on_bias[lane] += factor[lane]
        add_rows(residual, numbers, values, rows[i], rows[i + 1], factor)
    residual[len(residual) - 1] += (on_bias * bias).astype(np.float32)


@njit(nogil=True, cache=True)
def _to_border(ss: Any, sd: Any, dd: Any, radius: Any) -> Any:
    """How far from s along d the length becomes the radius, without cancellation."""
    left = max(0.0, radius * radius - ss)
    root = math.sqrt(sd * sd + dd * left)
    return left / (sd + root) if sd >= 0.0 else (root - sd) / dd


@njit(nogil=True, cache=True)
def _find_step(data: Any, going: Any, curve: Any, norm: Any, radius: Any, scores: Any, room: Any) -> Any:
    """Conjugate gradients inside each lane's radius: lengths, expected reductions, lanes at the border.

    room is (gradient, step, residual, direction). Products of residual (r), step (s) and direction (d) follow
    by recurrence, so the border is seen before it is crossed; and the Hessian needs no array of its own.
    """
    gradient, step, residual, direction = room
    docs = _curved(curve, going)
    active, border = going.copy(), np.zeros(LANES, np.bool_)
    rr, dd, ss, sd = norm * norm, norm * norm, np.zeros(LANES), np.zeros(LANES)
    expected, bent = np.zeros(LANES), np.empty(LANES)
    alpha, beta = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    step[:] = 0.0
    np.negative(gradient, residual)
    direction[:] = residual
    for _ in range(_MAX_CG):
        _score(data, docs, direction, scores)
        bent[:] = dd
        for i in docs:
            for lane in range(LANES):
                bent[lane] += curve[i, lane] * np.float64(scores[i, lane]) ** 2
        for lane in range(LANES):
            a = rr[lane] / bent[lane] if active[lane] else 0.0
            if active[lane] and ss[lane] + a * (2.0 * sd[lane] + a * dd[lane]) > radius[lane] ** 2:
                a = _to_border(ss[lane], sd[lane], dd[lane], radius[lane])
                border[lane] = True
            expected[lane] += a * (rr[lane] - 0.5 * a * bent[lane])
            ss[lane] += a * (2.0 * sd[lane] + a * dd[lane])
            sd[lane] += a * dd[lane]
            alpha[lane] = a
        for f in range(len(step)):
            for lane in range(LANES):
                step[f, lane] += alpha[lane] * direction[f, lane]
                residual[f, lane] -= alpha[lane] * direction[f, lane]
        _bend(data, docs, curve, scores, alpha, residual)
        new = _products(residual, residual)
        active &= ~border & (np.sqrt(new) > _CG_TOLERANCE * norm)
        if not active.any():
            break
        ratio = np.where(active, new / rr, 0.0)  # 0: what waits must not grow, since 0 * inf would spoil it
        beta[:] = ratio
        rr[:] = new
        sd *= ratio
        dd[:] = new + ratio * ratio * dd
        for f in range(len(step)):
            for lane in range(LANES):
                direction[f, lane] = residual[f, lane] + beta[lane] * direction[f, lane]
    return np.sqrt(ss), expected, border


@njit(nogil=True, cache=True)
def _new_radius(radius: Any, length: Any, slope: Any, actual: Any, expected: Any, at_border: Any) -> Any:
    """LIBLINEAR's rule: smaller where the quadratic model misled, larger where it held."""
    excess = -actual - slope
    aim = length * (4.0 if excess <= 0.0 else max(0.25, -0.5 * slope / excess))
    if actual < 1e-4 * expected:
        return min(aim, 0.5 * radius)
    if actual < 0.25 * expected:
        return max(0.25 * radius, min(aim, 0.5 * radius))
    if actual < 0.75 * expected:
        return max(0.25 * radius, min(aim, 4.0 * radius))
    return 4.0 * radius if at_border else max(radius, min(aim, 4.0 * radius))


@njit(nogil=True, cache=True)
def newton_lanes(
    rows: Any,
    numbers: Any,
    values: Any,
    y: Any,
    cost: Any,
    bias: Any,
    loss: int,
    tolerance: Any,
    max_steps: int,
    unused: Any,
    w: Any,
) -> Any:
    """Solve eight labels over the same rows; w [M+1, 8] is the start and receives the weights, the bias last.

    y [N, 8] is +1 or -1; cost [N, 8]; lanes marked in unused [8] are left as they are. A lane is done when
    its gradient is within tolerance * (share of the rarer sign) of that at w = 0, LIBLINEAR's rule, or when
    rounding hides what is left to gain. Returns the Newton steps of the slowest lane, refused ones included.
    """
    n = len(rows) - 1
    data, task = (rows, numbers, values, np.float32(bias)), (y, cost, loss)
    docs = np.arange(n).astype(np.int32)
    scores, curve = np.zeros((n, LANES), np.float32), np.zeros((n, LANES), np.float32)
    gradient, step = np.zeros_like(w), np.zeros_like(w)
    residual, trial = np.empty_like(w), np.empty_like(w)
    going = ~unused
    norm = _differentiate(data, task, step, scores, going, curve, gradient)  # at 0, as the step is yet
    limit = norm * tolerance
    for lane in range(LANES):
        positive = (y[:, lane] > 0.0).sum()
        limit[lane] *= max(min(positive, n - positive), 1) / max(n, 1)
    if w.any():
        _score(data, docs, w, scores)
        norm = _differentiate(data, task, w, scores, going, curve, gradient)
    value = _objective(task, w, scores)
    going &= norm > limit
    radius = norm.copy()
    steps = 0
    while steps < max_steps and going.any():
        # The directions use the room of the trial weights, which do not exist yet.
        room = (gradient, step, residual, trial)
        length, expected, border = _find_step(data, going, curve, norm, radius, scores, room)
        if steps == 0:
            radius = np.minimum(radius, length)
        np.add(w, step, trial)
        _score(data, docs, trial, scores)
        new = _objective(task, trial, scores)
        actual = value - new
        slope = _products(gradient, step)
        accepted = going & (actual > 1e-4 * expected)
        for lane in range(LANES):
            if going[lane]:
                radius[lane] = _new_radius(
                    radius[lane], length[lane], slope[lane], actual[lane], expected[lane], border[lane]
                )
            if accepted[lane]:
                w[:, lane] = trial[:, lane]
                value[lane] = new[lane]
        going &= expected > _ROUNDING * value
        norm = _differentiate(data, task, w, scores, accepted & going, curve, gradient)
        going &= norm > limit
        steps += 1
    return steps
