"""Where a ranking is good: on frequent or on rare labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xmcascade.errors import DataError
from xmcascade.evaluate.ranking import Judged

__all__ = ["SLICES", "slice_of_labels", "slice_recalls"]

SLICES = ("head", "torso", "tail")


def slice_of_labels(label_counts: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """For each label 0 (head), 1 (torso) or 2 (tail), by its training documents.

    Labels are lined up by falling count, ties by label id, and the line of their training assignments
    (document, label) is cut in thirds. A label belongs to the third in which its first assignment falls. So
    each slice holds about a third of the assignments; labels without a training document are tail.

    >>> slice_of_labels([1, 6, 0, 2, 3]).tolist()   # the line is 6 3 2 1 0, cut at 4 and 8
    [2, 0, 2, 2, 1]
    """
    counts = np.asarray(label_counts).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    total = counts.sum()
    slices = np.empty(len(counts), dtype=np.int8)
    slices[order] = (3 * before >= total).astype(np.int8) + (3 * before >= 2 * total)
    return slices


def slice_recalls(judged: Judged, label_counts: npt.ArrayLike, k: int) -> dict[str, dict[str, float]]:
    """For each slice its number of labels, its share of the true label occurrences, and R@k, both in percent.

    R@k here is hits in the first k on the slice's labels / true occurrences of the slice's labels; not a
    number where the evaluated documents have no true label of the slice.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> judged = judge(sp.csr_matrix([[1, 0, 0], [1, 0, 1]]), [[0], [0]])
    >>> slice_recalls(judged, [5, 4, 1], k=1)["head"]
    {'labels': 1, 'share': 66.66666666666667, 'R@1': 100.0}
    """
    of_label = slice_of_labels(label_counts)
    if len(of_label) != judged.n_labels:
        raise DataError(
            f"{len(of_label):,} label_counts for {judged.n_labels:,} labels", remedy="give one for each"
        )
    n_labels = np.bincount(of_label, minlength=3).tolist()
    true = np.bincount(of_label[judged.truth.indices], minlength=3).tolist()
    hit = np.bincount(of_label[judged.labels[:, :k][judged.hits[:, :k]]], minlength=3).tolist()
    return {
        name: {
            "labels": n_labels[i],
            "share": 100.0 * true[i] / sum(true),
            f"R@{k}": 100.0 * hit[i] / true[i] if true[i] else float("nan"),
        }
        for i, name in enumerate(SLICES)
    }
