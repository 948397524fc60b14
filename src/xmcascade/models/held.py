"""Documents to choose on: a few that learning does not see."""

from __future__ import annotations

from typing import Any

import numpy as np

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError
from xmcascade.models.fitting import FitRun

__all__ = ["held_out"]

HELD_SHARE, MOST_HELD, FEW_DOCS = 0.03, 2000, 200


def held_out(corpus: Corpus, seed: int, run: FitRun) -> tuple[Any, Any]:
    """Documents to learn from, and documents to choose on; none where there are few.

    >>> from xmcascade import make_synthetic
    >>> docs, held = held_out(make_synthetic(400, 20, seed=0), 0, FitRun(np.random.default_rng(0), 1))
    >>> len(docs) + len(held), len(set(docs) & set(held))
    (400, 0)
    """
    every, n_docs = np.arange(corpus.n_docs), corpus.n_docs - run.n_extra
    if n_docs < FEW_DOCS:
        return every, every[:0]
    share = min(HELD_SHARE, MOST_HELD / n_docs)
    held = np.zeros(corpus.n_docs, np.bool_)
    try:
        held[:n_docs] = (corpus.take(every[:n_docs]) if run.n_extra else corpus).split_mask(share, seed=seed)
    except DataError:  # nearly all documents are alike
        return every, every[:0]
    run.derive("held_out", int(held.sum()), "documents to choose on")
    return every[~held], every[held]
