"""All metrics of a ranking at once, with how sure they are; and two rankings compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.evaluate import metrics
from xmcascade.evaluate.calibration import reliability
from xmcascade.evaluate.metrics import Floats
from xmcascade.evaluate.propensity import PerDocument, Propensity, PropensityScored
from xmcascade.evaluate.ranking import Judged, Ranking, judge
from xmcascade.evaluate.resampling import bootstrap, interval, sign_flip_p_values
from xmcascade.evaluate.slices import slice_recalls

__all__ = ["Difference", "Evaluation", "compare_rankings", "evaluate_ranking"]

_MEANS: dict[str, Callable[[Judged, int], Floats]] = {
    "P": metrics.precision,
    "R": metrics.recall,
    "RP": metrics.r_precision,
    "nDCG": metrics.ndcg,
}


@dataclass(frozen=True)
class Evaluation:
    """How good a ranking is; all metrics, intervals and shares are in percent."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    """95% bootstrap interval of each metric that is a mean or a ratio of sums over documents."""
    slices: dict[str, dict[str, float]]
    """For "head", "torso" and "tail": labels, share and R@k (see slices.py); empty without label_counts."""
    n_docs: int
    """Documents evaluated."""
    n_unlabelled: int
    """Documents not counted because they have no true label."""
    unseen_share: float
    """Percent of the true label occurrences whose label was never seen in training; they count as missed."""

    def with_unlabelled(self, n_unlabelled: int) -> Evaluation:
        """The same, when documents without a label were set aside before ranking."""
        return replace(self, n_unlabelled=n_unlabelled)

    def to_dict(self) -> dict[str, Any]:
        """The metrics by name, then the rest, ready for JSON (None where a slice has no recall).

        >>> Evaluation({"P@1": 50.0}, {"P@1": (0.0, 100.0)}, {}, 2, 0, 0.0).to_dict()
        {'P@1': 50.0, 'intervals': {'P@1': [0.0, 100.0]}, 'slices': {}, 'n_docs': 2, 'n_unlabelled': 0, \
'unseen_share': 0.0}
        """
        slices = {
            name: {key: None if math.isnan(value) else value for key, value in values.items()}
            for name, values in self.slices.items()
        }
        rest = {name: value for name, value in asdict(self).items() if name != "metrics"}
        rest |= {
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "slices": slices,
        }
        return {**self.metrics, **rest}


@dataclass(frozen=True)
class Difference:
    """One metric of two rankings of the same documents, in percent (the difference in percent points)."""

    first: float
    second: float
    difference: float
    """first - second."""
    low: float
    high: float
    """95% interval of the difference, by bootstrap over documents, the same documents for both."""
    p_value: float
    """Two-sided, by random sign flips of the documents' differences."""

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def evaluate_ranking(
    truth: Any,
    ranking: Ranking,
    *,
    ks: Sequence[int] = (1, 3, 5),
    label_counts: npt.ArrayLike | None = None,
    n_train_docs: int | None = None,
    propensity: str | Propensity = "default",
    normalisation: str = "repository",
    threshold: float = 0.5,
    replicates: int = 1000,
    seed: int = 0,
    n_known_labels: int | None = None,
) -> Evaluation:
    """Evaluate a ranking against the truth, a scipy sparse matrix, documents x labels.

    The rules (what is not counted, what is a miss) are at the top of metrics.py.

    label_counts: for each label id its number of training documents; enables PSP, PSnDCG (which also need
        n_train_docs) and the slices.
    propensity, normalisation: how rare labels are weighted, and how that is normalised; see propensity.py.
    threshold: for F1, ranked labels with at least this probability are predicted.
    replicates: of the bootstrap; 0 for no intervals.
    n_known_labels: label ids from here up were not there in training.

    >>> import scipy.sparse as sp
    >>> truth = sp.csr_matrix([[1, 0, 1], [0, 1, 0]])
    >>> ranking = Ranking([[0, 1], [0, 1]], [[2, 1], [2, 1]], [[0.9, 0.2], [0.6, 0.4]])
    >>> evaluation = evaluate_ranking(truth, ranking, ks=(1, 2))
    >>> evaluation.metrics["P@1"], evaluation.metrics["R@2"], evaluation.metrics["micro-F1"]
    (50.0, 75.0, 40.0)
    """
    if not 0 <= threshold <= 1:
        raise SettingError(f"threshold is {threshold}", remedy="use a probability, 0 to 1")
    ks = _checked_ks(ks)
    judged = judge(truth, ranking.labels)
    parts = _per_document(judged, ks, label_counts, n_train_docs, propensity, normalisation)
    values = {name: 100.0 * part.value for name, part in parts.items()}
    values |= {f"coverage@{k}": 100.0 * metrics.coverage(judged, k) for k in ks}
    micro, macro = metrics.f1(judged, ranking.probabilities[judged.docs] >= np.float32(threshold))
    values |= {"micro-F1": 100.0 * micro, "macro-F1": 100.0 * macro}
    first = (judged.labels >= 0) & (np.arange(judged.labels.shape[1]) < max(ks))
    chances = ranking.probabilities[judged.docs][first]
    values[f"ECE@{max(ks)}"] = 100.0 * reliability(chances, judged.hits[first]).error
    intervals = {}
    if replicates:
        drawn = bootstrap(*_columns(parts), replicates=replicates, seed=seed)
        low, high = 100.0 * interval(drawn)
        intervals = dict(zip(parts, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    unseen = 0.0 if n_known_labels is None else 100.0 * float((judged.truth.indices >= n_known_labels).mean())
    return Evaluation(
        metrics=values,
        intervals=intervals,
        slices={} if label_counts is None else slice_recalls(judged, label_counts, max(ks)),
        n_docs=judged.n_docs,
        n_unlabelled=judged.n_unlabelled,
        unseen_share=unseen,
    )


def compare_rankings(
    truth: Any,
    first: Ranking,
    second: Ranking,
    *,
    ks: Sequence[int] = (1, 3, 5),
    label_counts: npt.ArrayLike | None = None,
    n_train_docs: int | None = None,
    propensity: str | Propensity = "default",
    normalisation: str = "repository",
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Compare two rankings of the same documents, metric by metric; options as `evaluate_ranking`.

    Coverage and F1 are not sums over documents and are left out.

    >>> import scipy.sparse as sp
    >>> truth = sp.csr_matrix(np.tile([1, 0], (50, 1)))
    >>> right, wrong = (Ranking(np.full((50, 1), i), np.ones((50, 1)), np.ones((50, 1))) for i in (0, 1))
    >>> p_at_1 = compare_rankings(truth, right, wrong, ks=[1])["P@1"]
    >>> p_at_1.difference, p_at_1.low, p_at_1.significant
    (100.0, 100.0, True)
    """
    ks = _checked_ks(ks)
    options = (ks, label_counts, n_train_docs, propensity, normalisation)
    of_first, of_second = (_per_document(judge(truth, each.labels), *options) for each in (first, second))
    # The bases depend on the truth alone, so a difference of two metrics is itself a ratio of sums.
    gains_first, bases = _columns(of_first)
    gains = gains_first - _columns(of_second)[0]
    low, high = 100.0 * interval(bootstrap(gains, bases, replicates=replicates, seed=seed))
    p_values = sign_flip_p_values(gains, replicates=replicates, seed=seed)
    differences = {}
    for i, name in enumerate(of_first):
        a, b = 100.0 * of_first[name].value, 100.0 * of_second[name].value
        differences[name] = Difference(a, b, a - b, float(low[i]), float(high[i]), float(p_values[i]))
    return differences


def _checked_ks(ks: Sequence[int]) -> list[int]:
    if not len(ks):
        raise SettingError("ks is empty", remedy="give at least one k")
    return sorted({metrics.at_least_1(int(k)) for k in ks})


def _per_document(
    judged: Judged,
    ks: Sequence[int],
    label_counts: npt.ArrayLike | None,
    n_train_docs: int | None,
    propensity: str | Propensity,
    normalisation: str,
) -> dict[str, PerDocument]:
    ones = np.ones(judged.n_docs)
    parts = {
        f"{name}@{k}": PerDocument(metric(judged, k), ones) for name, metric in _MEANS.items() for k in ks
    }
    if label_counts is None:
        return parts
    if n_train_docs is None:
        raise SettingError(
            "label_counts without n_train_docs", remedy="give the number of training documents too"
        )
    chosen = Propensity.named(propensity) if isinstance(propensity, str) else propensity
    scored = PropensityScored(judged, chosen.inverse(label_counts, n_train_docs), max(ks))
    parts |= {f"PSP@{k}": scored.precision(k, normalisation) for k in ks}
    parts |= {f"PSnDCG@{k}": scored.ndcg(k, normalisation) for k in ks}
    return parts


def _columns(parts: dict[str, PerDocument]) -> tuple[Floats, Floats]:
    gains = np.column_stack([part.gain for part in parts.values()])
    return gains, np.column_stack([part.base for part in parts.values()])
