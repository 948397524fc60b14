"""Propensity-scored metrics (Jain, Prabhu and Varma, KDD 2016): a hit on a rare label counts for more.

The rarer a label, the more often it is missing from the truth; a hit counts 1 / (the chance of being noted).

How a gain becomes a metric is named, because published numbers differ by it. For one document and one k, the
*gain* of PSP is the sum of the hits' inverse propensities, divided by k. The gain of PSnDCG is the same sum
discounted by rank, 1 / log2(rank + 1), divided by the plain ideal DCG of min(k, true labels) hits. The *best*
is the gain of ranking the document's true labels by falling inverse propensity. Then

- "repository": sum of the gains / sum of the bests, over documents. What pyxclib (the Extreme Classification
  Repository's tools) and napkinxc compute, and nearly every paper reports.
- "document": mean over documents of gain / best (the plain ideal DCG cancels).
- "none": mean of the gains; it may exceed 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from xmcascade.errors import DataError, SettingError
from xmcascade.evaluate.metrics import Floats, at_least_1, discounts, ideal_dcg
from xmcascade.evaluate.ranking import Judged

__all__ = ["NORMALISATIONS", "PROPENSITIES", "PerDocument", "Propensity", "PropensityScored"]

NORMALISATIONS = ("repository", "document", "none")


class PerDocument(NamedTuple):
    """A metric as a ratio of two sums over documents; a mean where the base is 1 everywhere.

    >>> PerDocument(np.array([1.0, 0.0]), np.array([2.0, 2.0])).value
    0.25
    """

    gain: Floats
    base: Floats

    @property
    def value(self) -> float:
        """Sum of the gains / sum of the bases."""
        return float(self.gain.sum() / self.base.sum())


@dataclass(frozen=True)
class Propensity:
    """The chance that a true label was noted, 1 / (1 + C (N_l + b)^-a) with C = (ln N - 1)(b + 1)^a.

    N is the number of training documents, N_l how many of them have the label.

    >>> Propensity.named("amazon")
    Propensity(a=0.6, b=2.6)
    """

    a: float = 0.55
    b: float = 1.5

    def __post_init__(self) -> None:
        for name, value, lowest in (("a", self.a, self.a >= 0), ("b", self.b, self.b > 0)):
            if not (np.isfinite(value) and lowest):
                raise SettingError(
                    f"propensity setting {name} is {value}", remedy="use a from 0 up and b above 0"
                )

    @classmethod
    def named(cls, name: str) -> Propensity:
        """The settings that the repository uses: "default", "wikipedia" or "amazon"."""
        if name not in PROPENSITIES:
            raise SettingError(
                f"propensity is {name!r}", remedy=f"use one of {', '.join(PROPENSITIES)}, or a Propensity"
            )
        return PROPENSITIES[name]

    def inverse(self, label_counts: npt.ArrayLike, n_train_docs: int) -> Floats:
        """1 / propensity of each label, never below 1.

        Below 3 training documents the formula's C is negative; 0 is used there, so that every label counts 1.

        >>> Propensity().inverse([0, 1, 1000], n_train_docs=1000).round(3).tolist()
        [8.824, 6.908, 1.219]
        """
        counts = np.asarray(label_counts)
        if n_train_docs < 1:
            raise SettingError(
                f"n_train_docs is {n_train_docs}", remedy="give the number of training documents"
            )
        if counts.ndim != 1 or counts.dtype.kind not in "iuf":
            raise DataError(
                f"label_counts has shape {counts.shape} and type {counts.dtype}",
                remedy="give one number for each label",
            )
        if not ((counts >= 0) & (counts <= n_train_docs)).all():
            raise DataError(
                f"label_counts has a value outside 0..{n_train_docs:,}, the number of training documents",
                remedy="give for each label the number of training documents that have it",
            )
        c = max(0.0, (np.log(n_train_docs) - 1.0) * (self.b + 1.0) ** self.a)
        inverse: Floats = 1.0 + c * (counts + self.b) ** -self.a
        return inverse


PROPENSITIES = {
    "default": Propensity(0.55, 1.5),
    "wikipedia": Propensity(0.5, 0.4),
    "amazon": Propensity(0.6, 2.6),
}


class PropensityScored:
    """PSP@k and PSnDCG@k of one ranking, for every k up to `k_max`.

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> judged = judge(sp.csr_matrix([[1, 1, 0]]), [[0, 2]])
    >>> scored = PropensityScored(judged, np.array([1.0, 3.0, 2.0]), k_max=2)
    >>> scored.precision(1).value, scored.precision(2).value   # 1 of 3; 1 of 1 + 3
    (0.3333333333333333, 0.25)
    """

    def __init__(self, judged: Judged, inverse: Floats, k_max: int) -> None:
        if len(inverse) != judged.n_labels:
            raise DataError(
                f"{len(inverse):,} inverse propensities for {judged.n_labels:,} labels",
                remedy="give one for each",
            )
        self._judged, self._k_max = judged, k_max
        self._gain_dk = np.where(judged.hits, inverse[judged.labels], 0.0)[:, : at_least_1(k_max)]
        self._best_dk = _best_gains(judged, inverse, k_max)

    def precision(self, k: int, normalisation: str = "repository") -> PerDocument:
        """PSP@k; see the top of this file."""
        self._check(k)
        return _normalised(
            self._gain_dk[:, :k].sum(axis=1) / k, self._best_dk[:, :k].sum(axis=1) / k, normalisation
        )

    def ndcg(self, k: int, normalisation: str = "repository") -> PerDocument:
        """PSnDCG@k; see the top of this file."""
        self._check(k)
        ideal = ideal_dcg(self._judged, k)
        gain, best = (
            gains_dk[:, :k] @ discounts(min(k, gains_dk.shape[1])) / ideal
            for gains_dk in (self._gain_dk, self._best_dk)
        )
        return _normalised(gain, best, normalisation)

    def _check(self, k: int) -> None:
        if not 1 <= k <= self._k_max:
            raise SettingError(f"k is {k}", remedy=f"use 1..{self._k_max}, or a larger k_max")


def _best_gains(judged: Judged, inverse: Floats, k: int) -> Floats:
    """The k largest inverse propensities among each document's true labels, falling; 0 where it has fewer.

    No wider than the document with the most labels needs, however large k is.
    """
    docs = np.repeat(np.arange(judged.n_docs), judged.n_true)
    gains = inverse[judged.truth.indices]
    order = np.lexsort((-gains, docs))  # by document, then falling gain; docs[order] is docs, which is sorted
    ranks = np.arange(len(docs)) - judged.truth.indptr[:-1].astype(np.int64)[docs]
    kept = ranks < k
    best_dk = np.zeros((judged.n_docs, min(k, int(judged.n_true.max()))))
    best_dk[docs[kept], ranks[kept]] = gains[order][kept]
    return best_dk


def _normalised(gain: Floats, best: Floats, normalisation: str) -> PerDocument:
    if normalisation == "repository":
        return PerDocument(gain, best)
    if normalisation == "document":
        return PerDocument(gain / best, np.ones(len(gain)))
    if normalisation == "none":
        return PerDocument(gain, np.ones(len(gain)))
    raise SettingError(
        f"normalisation is {normalisation!r}", remedy=f"use one of {', '.join(NORMALISATIONS)}"
    )
