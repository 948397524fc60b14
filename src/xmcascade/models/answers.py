"""What users ask of a fitted model and what they get: how many labels, and each with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import SettingError
from xmcascade.evaluate import Ranking
from xmcascade.kernels.parallel import blocks
from xmcascade.models.calibration import Calibration
from xmcascade.progress import tracker

__all__ = ["Prediction", "as_predictions", "asked_for", "best_among", "in_batches"]

BATCH_DOCS = 4096  # documents ranked at a time: bounds memory; no answer depends on it
USUAL, MOST = 5, 100  # labels of a document, without and with a threshold


class Prediction(NamedTuple):
    """One label for one document."""

    label: str
    score: float
    """Only ranks."""
    probability: float
    """How likely the label is right, 0 to 1."""


def asked_for(
    k: int | None, threshold: float | Literal["auto"] | None, calibration: Calibration | None
) -> tuple[int, float]:
    """The most labels of a document, and the least probability.

    >>> asked_for(None, None, None), asked_for(None, 0.5, None)
    ((5, 0.0), (100, 0.5))
    """
    if threshold is None:
        return USUAL if k is None else k, 0.0
    if threshold == "auto":
        if calibration is None:
            what = "the model has no threshold of its own: it learnt without documents to choose one on"
            raise SettingError(what, remedy="give a number from 0 to 1, or train on 200 documents or more")
        threshold = calibration.threshold
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise SettingError(f"threshold is {threshold!r}", remedy='use a probability, 0 to 1, or "auto"')
    return MOST if k is None else k, float(threshold)


def in_batches(corpus: Corpus, title: str) -> Iterator[Corpus]:
    """Its documents, a bounded number at a time, with progress."""
    with tracker(title, corpus.n_docs) as seen:
        for lo, hi in blocks(corpus.n_docs, BATCH_DOCS):
            yield corpus if hi - lo == corpus.n_docs else corpus.take(np.arange(lo, hi))
            seen.advance(hi - lo)


def best_among(
    allowed: npt.NDArray[np.int32],
    k: int,
    shape: tuple[int, int],
    score: Callable[[Any], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]],
) -> Ranking:
    """The k best of some labels (ascending ids), by scoring them all; shape: documents x labels.

    >>> half = np.full(2, 0.5, np.float32)
    >>> best_among(np.array([4, 7], np.int32), 1, (1, 9), lambda wanted: (half, half)).labels.tolist()
    [[4]]
    """
    n_docs, n_allowed = shape[0], len(allowed)
    among = np.ones(n_docs * n_allowed, np.float32), np.tile(allowed, n_docs)
    wanted = sp.csr_matrix((*among, np.arange(n_docs + 1) * n_allowed), shape=shape)
    found = [part.reshape(n_docs, n_allowed) for part in score(wanted)]
    best = np.argsort(-found[0], axis=1, kind="stable")[:, :k]
    scores, chances = (np.take_along_axis(part, best, axis=1) for part in found)
    return Ranking(allowed[best], scores, chances)


def as_predictions(ranking: Ranking, names: Sequence[str], least: float) -> list[list[Prediction]]:
    """Named labels of at least this probability.

    >>> as_predictions(Ranking([[1, 0]], [[2.0, 1.0]], [[0.75, 0.25]]), ["a", "b"], 0.5)
    [[Prediction(label='b', score=2.0, probability=0.75)]]
    """
    columns = ranking.labels.tolist(), ranking.scores.tolist(), ranking.probabilities.tolist()
    return [
        [
            Prediction(names[label], score, chance)
            for label, score, chance in zip(*row, strict=True)
            if label >= 0 and chance >= least
        ]
        for row in zip(*columns, strict=True)
    ]
