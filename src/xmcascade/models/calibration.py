"""Probabilities that mean what they say, and the threshold from which on labels are told.

A model's own probability only ranks: it was never held against documents that the model did not learn from.
Calibration is a rising curve from its log-odds to true ones, chosen on held-out documents: a straight line
(temperature scaling) or free steps (isotonic regression), whichever predicts the others of them better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

from xmcascade.evaluate import Ranking, hits, reliability
from xmcascade.models.fitting import FitRun

__all__ = ["RANKS", "Calibration"]

RANKS = 20  # labels of each held-out document that are learnt from
REPORTED = 5  # of these, the error is told
FOLDS = 5
SURE, UNSURE = 1 - 2**-24, 1e-30  # probabilities as the curve sees them: nothing is certain

Floats = npt.NDArray[np.float64]
Curve = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A rising curve through a few points, and a threshold."""

    knots: Floats
    """Log-odds as the model has them, ascending."""
    values: Floats
    """Log-odds of being right, ascending."""
    threshold: float
    """Probability from which on labels are told; F1 is then highest."""

    def __call__(self, probabilities: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """A model's own probabilities, calibrated.

        >>> twice = Calibration(np.array([-1.0, 1.0]), np.array([-2.0, 2.0]), 0.5)
        >>> twice(np.array([0.5, 0.6])).round(2).tolist()
        [0.5, 0.6899999976158142]
        """
        right = expit(np.interp(_log_odds(probabilities), self.knots, self.values))
        return np.asarray(right, np.float32)

    def ranking(self, found: Ranking) -> Ranking:
        """With its probabilities calibrated."""
        return replace(found, probabilities=self(found.probabilities))

    @classmethod
    def of(cls, found: Ranking, labels: Any, run: FitRun) -> Self | None:
        """Chosen on what a model says of held-out documents with these labels (CSR); None if it is little."""
        right, told = hits(labels, found.labels), found.labels >= 0
        if len(right) < FOLDS or not right.any() or right[told].all():
            return None
        x = _log_odds(found.probabilities)
        folds = np.arange(len(x)) % FOLDS
        tried: dict[str, npt.NDArray[np.float32]] = {}
        for name, fit in FITS.items():
            tried[name] = np.zeros(x.shape, np.float32)
            for fold in range(FOLDS):
                own = folds == fold
                curve = fit(x[~own][told[~own]], right[~own][told[~own]])
                tried[name][own] = expit(np.interp(x[own], *curve))
        best = min(tried, key=lambda name: _surprise(tried[name][told], right[told]))
        knots, values = FITS[best](x[told], right[told])
        own = cls(knots, values, 0.5)
        own = replace(own, threshold=_threshold(own(found.probabilities)[told], right[told], labels.nnz))
        first = told & (np.arange(x.shape[1]) < REPORTED)
        before, after = (
            100 * reliability(p[first], right[first]).error for p in (found.probabilities, tried[best])
        )
        reason = f"expected calibration error {after:.1f}% on held-out documents, {before:.1f}% without it"
        run.derive("calibration", best, reason)
        run.derive("threshold", round(own.threshold, 4), "probability from which on F1 is highest there")
        return own

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """To store."""
        return {"calibration": np.array([self.knots, self.values]), "threshold": np.array([self.threshold])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self | None:
        """The opposite; None where there is none; raises ValueError when it is no rising curve."""
        if "calibration" not in arrays:
            return None
        (knots, values), (threshold,) = arrays["calibration"], arrays["threshold"]
        rising = len(knots) >= 1 and bool((np.diff(knots) > 0).all() and (np.diff(values) >= 0).all())
        if not rising or not np.isfinite([*knots, *values]).all() or not 0 <= threshold <= 1:
            raise ValueError("a calibration that does not rise")
        return cls(np.array(knots), np.array(values), float(threshold))


def _log_odds(p: npt.NDArray[Any]) -> Floats:
    p = np.clip(np.asarray(p, np.float64), UNSURE, SURE)
    return np.asarray(np.log(p) - np.log1p(-p))


def _surprise(p: npt.NDArray[Any], right: npt.NDArray[np.bool_]) -> float:
    """Mean logarithmic loss."""
    p = np.clip(np.asarray(p, np.float64), 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(right, p, 1 - p)).mean())


def _line(x: Floats, right: npt.NDArray[np.bool_]) -> Curve:
    """Temperature scaling: a slope and an offset, near 1 and 0 where little is known."""

    def loss(w: Floats) -> tuple[float, Floats]:
        z = w[0] * x + w[1]
        away, gaps = w - [1.0, 0.0], expit(z) - right
        value = np.logaddexp(0, np.where(right, -z, z)).sum() + away @ away / 2
        return float(value), np.array([gaps @ x, gaps.sum()]) + away

    w = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(1e-3, None), (None, None)]).x
    ends = _log_odds(np.array([0.0, 1.0]))
    return ends, w[0] * ends + w[1]


def _steps(x: Floats, right: npt.NDArray[np.bool_]) -> Curve:
    """Isotonic regression: neighbours share a value wherever rising would not fit; lines between them."""
    order = np.argsort(x, kind="stable")
    found = isotonic_regression(right[order].astype(np.float64))
    starts, sizes = found.blocks[:-1], np.diff(found.blocks)
    knots = np.add.reduceat(x[order], starts) / sizes
    values = (np.add.reduceat(right[order].astype(np.float64), starts) + 0.5) / (sizes + 1)
    kept = np.append(True, np.diff(knots) > 0)  # equal numbers in two blocks
    return knots[kept], np.maximum.accumulate(_log_odds(values))[kept]


FITS: dict[str, Callable[[Floats, npt.NDArray[np.bool_]], Curve]] = {"isotonic": _steps, "temperature": _line}


def _threshold(p: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int) -> float:
    """The probability from which on F1 is highest, between two that were seen."""
    order = np.argsort(-p, kind="stable")
    f1 = 2 * np.cumsum(right[order]) / (np.arange(1, len(p) + 1) + n_true)
    ends = np.append(np.diff(p[order]) < 0, True)  # equals are told together
    at = int(np.argmax(np.where(ends, f1, -1)))
    below = p[order][at + 1] if at + 1 < len(p) else 0.0
    return float((p[order][at] + below) / 2)
