"""One level of a tree to learn on, with candidates made beforehand: a step of XR-Transformer.

Each document has clusters of the level above, those that were found for it and those that are true; their
children are its candidates. The loss is the squared hinge, weighted by how relevant a true child is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.kernels import heads as kernels
from xmcascade.kernels import parallel
from xmcascade.neural.cascade import LevelLoss, Truth
from xmcascade.neural.heads import Floats, Head, Ints, Shortlist

__all__ = ["Stage"]

BATCH = 256


class Candidates:
    """What each document may have at a level: the children of clusters above that were found or are true."""

    reached: Any
    """CSR, documents x clusters above, columns ascending."""
    offsets: Ints
    """The nodes below each of these clusters."""

    @cached_property
    def _parents(self) -> npt.NDArray[np.int32]:
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))

    def shortlist(self, docs: Ints) -> Shortlist:
        """The candidates of documents."""
        part = self.reached[docs]
        return Shortlist(part.indptr.astype(np.int64), part.indices.astype(np.int64), self.offsets)


@dataclass(eq=False)
class Stage(Candidates):
    """A head for the nodes of one level.

    >>> head = Head(np.array([[1.0], [-1.0]], np.float32), np.zeros(2, np.float32))
    >>> stage = Stage(head, sp.csr_matrix(np.ones((1, 1), np.float32)), np.array([0, 2]))
    >>> stage.found([np.array([[2.0]], np.float32)], keep=1).toarray().tolist()
    [[1.0, 0.0]]
    """

    head: Head
    reached: Any
    """CSR, documents x clusters above, columns ascending."""
    offsets: Ints
    """The nodes below each of these clusters."""
    alpha: float = 1.0
    """Weight of a candidate that is not true."""

    def __post_init__(self) -> None:
        """As training wants it."""
        self.heads = [self.head]

    def forward(
        self, xs: Sequence[Floats], truths: Sequence[Truth], docs: Ints, n_docs: int
    ) -> list[LevelLoss]:
        """The loss of some documents of a batch of n_docs, and its slopes; truths count by their values."""
        (x,), (truth,), short = xs, truths, self.shortlist(docs)
        logits = self.head.logits(x, short)
        y, slopes = np.zeros(short.n_entries, np.float32), np.empty(short.n_entries, np.float32)
        found = short.pairs, short.doc_pairs, short.offsets
        kernels.targets(*found, self._parents, truth.rows, truth.nodes, truth.values, y)
        loss = kernels.squared_hinge(logits, y, 1.0 / n_docs, self.alpha, slopes)
        return [LevelLoss(short, x, slopes, loss, len(truth.nodes), 0, 0)]

    def backward(
        self, levels: Sequence[LevelLoss], rate: float, seed: int, hold: bool = False
    ) -> list[Floats]:
        """Update the head; returns the loss's derivatives by the features."""
        (level,) = levels
        return [self.head.step(level.x, level.short, level.slopes, rate, seed, hold)]

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document needs at most for scores, targets and slopes."""
        return 3 * len(self.head.rows)

    def found(self, xs: Sequence[Any], keep: int) -> Any:
        """The best nodes of each document among its candidates: CSR, documents x nodes."""
        parts = []
        for low, high in parallel.blocks(len(xs[0]), BATCH):
            short = self.shortlist(np.arange(low, high))
            logits = self.head.logits(np.ascontiguousarray(xs[0][low:high], np.float32), short)
            none, ends = Truth.none(high - low), np.empty(high - low + 1, np.int64)
            chosen = np.empty(min(short.n_entries, keep * (high - low)), np.int64)
            kernels.choose(
                short.pairs, short.doc_pairs, short.offsets, logits, keep, none.rows, none.nodes, chosen, ends
            )
            marks = np.ones(ends[-1], np.float32)
            shape = high - low, int(self.offsets[-1])
            parts.append(sp.csr_matrix((marks, chosen[: ends[-1]], ends), shape))
        return sp.vstack(parts, format="csr")
