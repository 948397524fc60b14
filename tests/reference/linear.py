"""The linear machine, said plainly: dense numpy, one label and one document at a time."""

import numpy as np


def objective(rows, y, cost, w, bias_weight, bias=1.0):
    """|w|^2 / 2 + sum of cost * squared hinge, the bias counted among the weights."""
    margins = y * (rows @ w + bias_weight * bias)
    return (w @ w + bias_weight**2) / 2 + float((cost * np.maximum(0, 1 - margins) ** 2).sum())


def as_float(numbers):
    """Stored weights, float32 or bfloat16 in a uint16, as float64."""
    if numbers.dtype == np.uint16:
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float64)


def dense_weights(weights, offsets, n_features, panel=256):
    """Blocks of weights as one matrix, features (dense ones last) x children."""
    dense = np.zeros((n_features, int(offsets[-1])))
    values = as_float(weights.weights)
    p = 0
    for block in range(len(offsets) - 1):
        for first in range(offsets[block], offsets[block + 1], panel):
            start = 0
            for row in range(weights.panel_rows[p], weights.panel_rows[p + 1]):
                for entry in range(start, int(weights.row_ends[row])):
                    at = weights.panel_entries[p] + entry
                    dense[weights.row_features[row], first + int(weights.children[at])] = values[at]
                start = int(weights.row_ends[row])
            p += 1
    return np.vstack([dense, as_float(weights.dense).T])


def path_scores(query, tree, weights, combine, n_dense=0):
    """The score of every label id of one query (sparse features, then dense): the product over its path."""
    power = None if "sigmoid" in combine else int(combine.removeprefix("log-")[1])
    own = query @ dense_weights(weights, tree.block_offsets, len(query) - n_dense) + weights.biases
    own = -np.logaddexp(0, -own) if power is None else -(np.maximum(1 - own, 0) ** power)
    scores = np.empty(tree.n_labels)
    for label in range(tree.n_labels):
        place, total = int(tree.positions[label]), 0.0
        for t in range(tree.n_levels - 1, -1, -1):
            total += own[sum(tree.sizes[:t]) + place]
            place = int(tree.parents[t - 1][place]) if t else 0
        scores[label] = total
    return scores if combine.startswith("log-") else np.exp(scores)


def logistic_objective(rows, y, cost, w, bias_weight, bias=1.0):
    """|w|^2 / 2 + sum of cost * logistic loss, the bias counted among the weights."""
    margins = y * (rows @ w + bias_weight * bias)
    return (w @ w + bias_weight**2) / 2 + float((cost * np.logaddexp(0, -margins)).sum())


def tron(rows, y, cost, logistic, bias=1.0, steps=300, start=None):
    """LIBLINEAR's trust region Newton method, with so many steps, refused ones included; the bias last."""
    wide = np.hstack([rows, np.full((len(rows), 1), bias)])
    w = np.zeros(wide.shape[1]) if start is None else start

    def look(w):
        """Objective, gradient and Hessian."""
        margins = y * (wide @ w)
        if logistic:
            p = np.exp(-np.logaddexp(0, margins))
            loss, slope, curve = np.logaddexp(0, -margins), -p, p * (1 - p)
        else:
            short = np.maximum(0, 1 - margins)
            loss, slope, curve = short**2, -2 * short, 2.0 * (short > 0)
        hessian = np.eye(len(w)) + (wide.T * (cost * curve)) @ wide
        return w @ w / 2 + cost @ loss, w + wide.T @ (y * cost * slope), hessian

    value, gradient, hessian = look(w)
    radius = np.linalg.norm(gradient)
    for number in range(steps):
        step, residual, at_border = _inside(radius, gradient, hessian)
        expected = -(gradient @ step - step @ residual) / 2
        if expected <= 1e-14 * value:
            break
        length = np.linalg.norm(step)
        radius = min(radius, length) if number == 0 else radius
        new = look(w + step)
        actual = value - new[0]
        excess = -actual - gradient @ step
        aim = length * (4 if excess <= 0 else max(0.25, -(gradient @ step) / excess / 2))
        if actual < 1e-4 * expected:
            radius = min(aim, radius / 2)
        elif actual < 0.25 * expected:
            radius = max(radius / 4, min(aim, radius / 2))
        elif actual < 0.75 * expected:
            radius = max(radius / 4, min(aim, 4 * radius))
        else:
            radius = 4 * radius if at_border else max(radius, min(aim, 4 * radius))
        if actual > 1e-4 * expected:
            w, (value, gradient, hessian) = w + step, new
    return w


def _inside(radius, gradient, hessian):
    """Conjugate gradients up to the radius: the step, what is left of the gradient, and if it ends there."""
    step, residual, direction = np.zeros_like(gradient), -gradient, -gradient
    while np.linalg.norm(residual) > 0.1 * np.linalg.norm(gradient):
        alpha = residual @ residual / (direction @ hessian @ direction)
        at_border = np.linalg.norm(step + alpha * direction) > radius
        if at_border:
            ahead = direction @ direction, 2 * step @ direction, step @ step - radius**2
            alpha = max(np.roots(ahead).real)
        step = step + alpha * direction
        left = residual - alpha * hessian @ direction
        if at_border:
            return step, left, True
        direction = left + (left @ left) / (residual @ residual) * direction
        residual = left
    return step, residual, False
