"""Slow, obvious twins of kernels.heads: dense rows, one document and one row at a time."""

import numpy as np


def entries(doc_pairs, clusters, offsets):
    """(document, child) of every entry, in order."""
    return [
        (doc, child)
        for doc in range(len(doc_pairs) - 1)
        for cluster in clusters[doc_pairs[doc] : doc_pairs[doc + 1]]
        for child in range(offsets[cluster], offsets[cluster + 1])
    ]


def logits(x, rows, biases, places):
    """The score of every entry."""
    return np.array([x[doc] @ rows[child] + biases[child] for doc, child in places])


def gradients(x, rows, places, slopes):
    """The loss's derivatives by x, by the rows and by the biases."""
    of_x, of_rows, of_biases = np.zeros_like(x), np.zeros_like(rows), np.zeros(len(rows))
    for (doc, child), slope in zip(places, slopes, strict=True):
        of_x[doc] += slope * rows[child]
        of_rows[child] += slope * x[doc]
        of_biases[child] += slope
    return of_x, of_rows, of_biases


def updated(method, rows, biases, state, of_rows, of_biases, touched, how):
    """Rows and biases after one step of the method on the touched rows; changes the state."""
    rate, decay, beta1, beta2, epsilon = how
    rows, biases = rows.copy(), biases.copy()
    for row in touched:
        g = np.append(of_rows[row], of_biases[row])
        if method == "adam":
            state["steps"][row] += 1
            n = state["steps"][row]
            state["first"][row] = beta1 * state["first"][row] + (1 - beta1) * g
            state["second"][row] = beta2 * state["second"][row] + (1 - beta2) * g**2
            mean, square = state["first"][row] / (1 - beta1**n), state["second"][row] / (1 - beta2**n)
            move = rate * mean / (np.sqrt(square) + epsilon)
        else:
            if method == "adagrad":
                state["one"][row] += (g**2).mean()
            elif method == "row-adam":
                old = state["one"][row]
                state["one"][row] = (g**2).mean() if old == 0 else beta2 * old + (1 - beta2) * (g**2).mean()
            move = rate * g / (1 if method == "sgd" else np.sqrt(state["one"][row]) + epsilon)
        rows[row] = rows[row] * (1 - rate * decay) - move[:-1]
        biases[row] -= move[-1]
    return rows, biases


def chosen(scores, k, true):
    """The k best of {child: score}, equals by child, and all true; ascending. And how many true were best."""
    best = sorted(scores, key=lambda child: (-scores[child], child))[:k]
    return sorted({*best, *true}), len({*best} & {*true})
