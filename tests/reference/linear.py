"""The linear machine, said plainly: dense numpy, one label and one document at a time."""

import numpy as np


def objective(rows, y, cost, w, bias_weight, bias=1.0):
    """|w|^2 / 2 + sum of cost * squared hinge, the bias counted among the weights."""
    margins = y * (rows @ w + bias_weight * bias)
    return (w @ w + bias_weight**2) / 2 + float((cost * np.maximum(0, 1 - margins) ** 2).sum())


def dense_weights(level, offsets, n_features):
    """A level's blocks as one matrix, features x children."""
    dense = np.zeros((n_features, int(offsets[-1])))
    for block in range(len(offsets) - 1):
        for row in range(level.block_rows[block], level.block_rows[block + 1]):
            for entry in range(level.row_ends[row], level.row_ends[row + 1]):
                dense[level.row_features[row], offsets[block] + level.children[entry]] = level.weights[entry]
    return dense


def path_scores(query, tree, levels, offsets_of, combine):
    """The score of every label id of one dense query: the product over its path."""
    power = {"l1-hinge": 1, "l2-hinge": 2, "l3-hinge": 3}.get(combine)
    above = np.ones(1)
    for t, level in enumerate(levels):
        offsets = offsets_of(tree, t)
        own = query @ dense_weights(level, offsets, len(query)) + level.biases
        own = 1 / (1 + np.exp(-own)) if power is None else np.exp(-(np.maximum(1 - own, 0) ** power))
        above = np.array(
            [own[c] * above[b] for b in range(len(offsets) - 1) for c in range(offsets[b], offsets[b + 1])]
        )
    scores = np.empty(tree.n_labels)
    scores[tree.order] = above
    return scores


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
