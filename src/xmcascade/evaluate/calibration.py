"""Whether probabilities mean what they say: of all labels told with 0.8, are 80% right?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError

__all__ = ["Reliability", "reliability"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Probabilities in bins of equal width; NaN in empty ones."""

    counts: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    """Mean probability of each bin."""
    accuracy: npt.NDArray[np.float64]
    """Share of each bin that is right."""
    error: float
    """Expected calibration error, 0 to 1: how far the two are apart, on average over all probabilities."""


def reliability(probabilities: npt.ArrayLike, right: npt.ArrayLike, bins: int = 15) -> Reliability:
    """Hold probabilities against what was right; both of any one shape.

    >>> found = reliability([0.9, 0.9, 0.9, 0.9], [True, True, True, False], bins=10)
    >>> round(found.error, 3), found.counts.tolist()[-2:]
    (0.15, [0, 4])
    """
    p, y = np.asarray(probabilities, np.float64).ravel(), np.asarray(right, np.float64).ravel()
    if bins < 1 or len(p) != len(y):
        what = f"{len(p):,} probabilities, {len(y):,} judgements, {bins} bins"
        raise SettingError(what, remedy="give one judgement a probability, and one bin or more")
    at = np.clip((p * bins).astype(np.int64), 0, bins - 1)
    counts = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (np.bincount(at, values, bins) / counts for values in (p, y))
    gaps = np.abs(confidence - accuracy)[counts > 0]
    error = float((counts[counts > 0] * gaps).sum() / max(len(p), 1))
    return Reliability(counts, confidence, accuracy, error)
