"""Slow, obvious twins of xmcascade.evaluate: sets, lists and loops over documents."""

from __future__ import annotations

from math import log, log2


def labelled(truth, ranked):
    """The documents that have a true label, each as (set of true label ids, list of ranked label ids)."""
    return [(true, labels) for true, labels in zip(truth, ranked, strict=True) if true]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def hit_ranks(true, labels, k):
    """The ranks, from 1, that hold a true label."""
    return [rank for rank, label in enumerate(labels[:k], start=1) if label in true]


def precision(docs, k):
    return mean(len(hit_ranks(true, labels, k)) / k for true, labels in docs)


def recall(docs, k):
    return mean(len(hit_ranks(true, labels, k)) / len(true) for true, labels in docs)


def r_precision(docs, k):
    return mean(len(hit_ranks(true, labels, k)) / min(k, len(true)) for true, labels in docs)


def ideal_dcg(true, k):
    return sum(1 / log2(rank + 1) for rank in range(1, min(k, len(true)) + 1))


def ndcg(docs, k):
    return mean(
        sum(1 / log2(rank + 1) for rank in hit_ranks(true, labels, k)) / ideal_dcg(true, k)
        for true, labels in docs
    )


def coverage(docs, k):
    found = {label for true, labels in docs for label in labels[:k] if label in true}
    return len(found) / len({label for true, _ in docs for label in true})


def f1(docs, predicted):
    """(micro, macro); predicted has one list of label ids for each document."""
    tp, fp, fn = {}, {}, {}
    for (true, _), chosen in zip(docs, predicted, strict=True):
        for label in true | set(chosen):
            table = tp if label in true and label in chosen else fn if label in true else fp
            table[label] = table.get(label, 0) + 1
    labels = tp.keys() | fp.keys() | fn.keys()
    per_label = [2 * tp.get(i, 0) / (2 * tp.get(i, 0) + fp.get(i, 0) + fn.get(i, 0)) for i in labels]
    n_tp, n_fp, n_fn = (sum(table.values()) for table in (tp, fp, fn))
    return 2 * n_tp / (2 * n_tp + n_fp + n_fn), mean(per_label)


def inverse_propensity(count, n_train_docs, a, b):
    c = (log(n_train_docs) - 1) * (b + 1) ** a
    return 1 + max(0.0, c) * (count + b) ** -a


def psp_gain(true, labels, inverse, k):
    return sum(inverse[labels[rank - 1]] for rank in hit_ranks(true, labels, k)) / k


def psndcg_gain(true, labels, inverse, k):
    gain = sum(inverse[labels[rank - 1]] / log2(rank + 1) for rank in hit_ranks(true, labels, k))
    return gain / ideal_dcg(true, k)


def propensity_scored(docs, gain, inverse, k, normalisation):
    """The gain is psp_gain or psndcg_gain."""
    gains = [gain(true, labels, inverse, k) for true, labels in docs]
    bests = [gain(true, sorted(true, key=lambda i: -inverse[i]), inverse, k) for true, _ in docs]
    if normalisation == "repository":
        return sum(gains) / sum(bests)
    if normalisation == "document":
        return mean(g / b for g, b in zip(gains, bests, strict=True))
    return mean(gains)


def slice_of_labels(counts):
    """0, 1 or 2 for each label: the third of the line of assignments where the label's first one stands."""
    line = [
        label
        for label in sorted(range(len(counts)), key=lambda i: (-counts[i], i))
        for _ in range(counts[label])
    ]
    return [3 * line.index(i) // len(line) if i in line else 2 for i in range(len(counts))]


def slice_recall(docs, slices, which, k):
    true = sum(slices[label] == which for labels, _ in docs for label in labels)
    hit = sum(
        slices[labels[r - 1]] == which for true_set, labels in docs for r in hit_ranks(true_set, labels, k)
    )
    return hit / true if true else None
