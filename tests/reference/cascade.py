"""Slow, obvious twins of kernels.cascade: one document and one node at a time, scores in dicts; and trees."""

import numpy as np


def random_offsets(rng, depth, most=5):
    """For each level the children of each cluster of the level above, uneven; at level 0 of the root."""
    offsets, size = [], 1
    for _ in range(depth):
        offsets.append(np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, size))]))
        size = int(offsets[-1][-1])
    return offsets


def parents_of(offsets):
    """For each level the cluster above each node."""
    return [np.repeat(np.arange(len(level) - 1, dtype=np.int32), np.diff(level)) for level in offsets]


def walk(logits, offsets, allowed, keeps, powers, ranks, k, log_sigmoid):
    """[(position, score)] of the k best labels, best first; logits[t][node] and allowed[t][node] are given.

    log_sigmoid is the kernel's own, and sums are float32, so that scores are the same to the bit.
    """
    paths = {0: np.float32(0)}
    for t, scores in enumerate(logits):
        sums = {}
        for cluster, path in paths.items():
            for child in range(offsets[t][cluster], offsets[t][cluster + 1]):
                if allowed[t][child]:
                    own = powers[t] * log_sigmoid(scores[child]) if powers[t] else np.float32(0)
                    sums[child] = path + np.float32(own)
        if t < len(logits) - 1:
            best = sorted(sums, key=lambda node: (-scores[node], node))[: max(1, keeps[t])]
            paths = {node: sums[node] for node in best}
    return sorted(sums.items(), key=lambda item: (-item[1], ranks[item[0]]))[:k]


def score(logits, parents, powers, label, log_sigmoid):
    """The score of one label, by position."""
    nodes = [label]
    for above in reversed(parents[1:]):
        nodes.insert(0, above[nodes[0]])
    total = np.float32(0)
    for own, node, power in zip(logits, nodes, powers, strict=True):
        if power:
            total += power * log_sigmoid(own[node])
    return total
