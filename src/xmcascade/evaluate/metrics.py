"""The metrics of a ranking: one number for each document, or one for the whole.

The rules at the edges, the same for every metric:

- Documents without a true label are not counted, whatever is predicted for them; their number is reported.
  When no document is left, that is an error.
- A label is true for a document where the truth stores a positive value; stored zeros are not.
- Ranks beyond the ranking's width, and ranks that hold -1, are misses. Precision divides by k all the same.
- True labels that the model never saw in training count as missed.
- The order given is the order judged. Ties are the model's business (it breaks them by label id).
- Everything here is a share in [0, 1]; `evaluate_ranking` reports percent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.evaluate.ranking import Judged

__all__ = ["coverage", "discounts", "f1", "ndcg", "precision", "r_precision", "recall"]

Floats = npt.NDArray[np.float64]


def precision(judged: Judged, k: int) -> Floats:
    """P@k: hits among the first k, divided by k.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> precision(judge(sp.csr_matrix([[1, 1, 0]]), [[2, 0]]), k=2).tolist()
    [0.5]
    """
    return _hit_counts(judged, k) / k


def recall(judged: Judged, k: int) -> Floats:
    """R@k: hits among the first k, divided by the number of true labels.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> recall(judge(sp.csr_matrix([[1, 1, 0]]), [[2, 0]]), k=1).tolist()
    [0.0]
    """
    return _hit_counts(judged, k) / judged.n_true


def r_precision(judged: Judged, k: int) -> Floats:
    """RP@k: hits among the first k, divided by the most there could be, min(k, true labels).

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> r_precision(judge(sp.csr_matrix([[1, 0, 0]]), [[2, 0]]), k=2).tolist()
    [1.0]
    """
    return _hit_counts(judged, k) / np.minimum(judged.n_true, k)


def ndcg(judged: Judged, k: int) -> Floats:
    """nDCG@k: hits among the first k, discounted by rank, divided by the best there could be.

    A hit at rank r counts 1 / log2(r + 1). The best has min(k, true labels) hits at the first ranks.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> ndcg(judge(sp.csr_matrix([[1, 0, 0]]), [[2, 0]]), k=2).round(4).tolist()
    [0.6309]
    """
    hits_dk = judged.hits[:, : at_least_1(k)]
    gain: Floats = hits_dk @ discounts(hits_dk.shape[1])
    return gain / ideal_dcg(judged, k)


def coverage(judged: Judged, k: int) -> float:
    """Coverage@k: of the labels that are true for some document, the share hit at least once in the first k.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> coverage(judge(sp.csr_matrix([[1, 0, 0], [1, 1, 0]]), [[0], [0]]), k=1)
    0.5
    """
    k = at_least_1(k)
    found, true = np.zeros((2, judged.n_labels), dtype=np.bool_)
    found[judged.labels[:, :k][judged.hits[:, :k]]] = True
    true[judged.truth.indices] = True
    return float(found.sum() / true.sum())


def f1(judged: Judged, predicted: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """(micro F1, macro F1) when the ranked labels at these ranks [n_docs, k] are the predicted ones.

    Labels that are not in the ranking count as not predicted. Macro F1 is the mean over the labels that are
    true or predicted for some evaluated document; other labels have no F1.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> judged = judge(sp.csr_matrix([[1, 1, 0]]), [[0, 2]])
    >>> micro, macro = f1(judged, np.array([[True, True]]))
    >>> micro, round(macro, 4)
    (0.5, 0.3333)
    """
    if predicted.shape != judged.labels.shape:
        raise SettingError(
            f"predicted has shape {predicted.shape}, the ranking {judged.labels.shape}",
            remedy="give one truth value for each rank",
        )
    predicted = predicted & (judged.labels >= 0)
    n = judged.n_labels
    hit_l = np.bincount(judged.labels[predicted & judged.hits], minlength=n)
    all_l = np.bincount(judged.labels[predicted], minlength=n) + np.bincount(
        judged.truth.indices, minlength=n
    )
    counted = all_l > 0
    micro = 2 * hit_l.sum() / all_l.sum()
    return float(micro), float((2 * hit_l[counted] / all_l[counted]).mean())


def discounts(k: int) -> Floats:
    """What a hit counts at each of the first k ranks, 1 / log2(rank + 1).

    >>> discounts(3).round(4).tolist()
    [1.0, 0.6309, 0.5]
    """
    return 1.0 / np.log2(np.arange(2, k + 2))


def ideal_dcg(judged: Judged, k: int) -> Floats:
    """The discounted gain of each document's best ranking [n_docs]."""
    most = np.minimum(judged.n_true, k)
    ideal: Floats = np.cumsum(discounts(int(most.max())))[most - 1]
    return ideal


def at_least_1(k: int) -> int:
    """The k, checked."""
    if k < 1:
        raise SettingError(f"k is {k}", remedy="use a number from 1 up")
    return k


def _hit_counts(judged: Judged, k: int) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = judged.hits[:, : at_least_1(k)].sum(axis=1)
    return counts
