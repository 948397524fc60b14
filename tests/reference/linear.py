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
