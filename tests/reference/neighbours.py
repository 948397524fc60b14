"""Slow, obvious twins of kernels.neighbours: dense rows, full sorts, dictionaries."""

import numpy as np


def nearest(queries, documents, k):
    """For each query its k nearest documents as (document, similarity): only those above 0, equals by id."""
    similar = np.zeros((len(queries), len(documents)), np.float32)
    for feature in range(
        documents.shape[1]
    ):  # in the kernel's order, so that sums are the same to the last bit
        similar += np.outer(queries[:, feature], documents[:, feature])
    found = []
    for row in similar.tolist():
        order = sorted((doc for doc in range(len(row)) if row[doc] > 0), key=lambda doc: (-row[doc], doc))
        found.append([(doc, row[doc]) for doc in order[:k]])
    return found


def votes(neighbours, label_sets, prior):
    """All labels' votes, and the sum of weights; neighbours is a list of (document, weight)."""
    cast = [0.0] * len(prior)
    for doc, weight in neighbours:
        for label in label_sets[doc]:
            cast[label] += weight
    return [vote + share for vote, share in zip(cast, prior, strict=True)], sum(w for _, w in neighbours)


def top(all_votes, k):
    """The k labels with most votes, equals by id."""
    return sorted(range(len(all_votes)), key=lambda label: (-all_votes[label], label))[:k]
