"""A ranking is three arrays of one shape; judging it against the true labels is one sorted search.

Shapes: d = document, k = rank, the best first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError

__all__ = ["Judged", "Ranking", "hits", "judge"]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The labels predicted for each document, the best first.

    >>> ranking = Ranking(labels=[[4, 2], [1, -1]], scores=[[3.0, 1.0], [0.5, 0.0]],
    ...                   probabilities=[[0.9, 0.3], [0.6, 0.0]])
    >>> ranking.n_docs, ranking.k, ranking.top(1).labels.tolist()
    (2, 2, [[4], [1]])
    """

    labels: npt.NDArray[np.int32]
    """Label ids [n_docs, k]; -1 where there is no prediction at that rank."""
    scores: npt.NDArray[np.float32]
    """What the labels were ranked by [n_docs, k]; meaningless where the label id is -1."""
    probabilities: npt.NDArray[np.float32]
    """In [0, 1] [n_docs, k]; meaningless where the label id is -1."""

    @classmethod
    def join(cls, parts: Sequence[Ranking]) -> Ranking:
        """Rankings of several documents after one another, all of one width."""
        names = ("labels", "scores", "probabilities")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 2 or labels.shape[1] < 1 or labels.dtype.kind not in "iu":
            raise DataError(
                f"the ranking's labels have shape {labels.shape} and type {labels.dtype}",
                remedy="give whole numbers, one row for each document and one column for each rank",
            )
        if labels.size and (labels.min() < -1 or labels.max() > np.iinfo(np.int32).max):
            raise DataError(
                "a ranked label id is out of range", remedy="use ids from 0 up, or -1 for no prediction"
            )
        object.__setattr__(self, "labels", labels.astype(np.int32, copy=False))
        for name in ("scores", "probabilities"):
            values = np.asarray(getattr(self, name), dtype=np.float32)
            if values.shape != labels.shape:
                raise DataError(
                    f"the ranking's {name} have shape {values.shape}, its labels {labels.shape}",
                    remedy="give one for each label",
                )
            object.__setattr__(self, name, values)
        in_range = (self.probabilities >= 0) & (self.probabilities <= 1)
        if not in_range[labels >= 0].all():
            raise DataError(
                "a probability is outside 0..1 or not a number", remedy="give uncalibrated numbers as scores"
            )

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        return int(self.labels.shape[0])

    @property
    def k(self) -> int:
        """Number of ranks."""
        return int(self.labels.shape[1])

    def top(self, k: int) -> Ranking:
        """The first k ranks; all of them where there are fewer."""
        if k < 1:
            raise SettingError(f"k is {k}", remedy="use a number from 1 up")
        return Ranking(self.labels[:, :k], self.scores[:, :k], self.probabilities[:, :k])


@dataclass(frozen=True, eq=False)
class Judged:
    """A ranking of the documents that have a true label, held against the truth; make one with `judge`."""

    docs: npt.NDArray[np.int64]
    """The evaluated documents' positions in the truth [n_docs]; the arrays below have only these."""
    truth: Any
    """scipy CSR matrix, n_docs x n_labels, bool, indices sorted, only true labels stored."""
    labels: npt.NDArray[np.int32]
    hits: npt.NDArray[np.bool_]
    """Whether the label at that rank is a true one [n_docs, k]."""
    n_true: npt.NDArray[np.int64]
    """True labels of each document [n_docs], all at least 1."""
    n_unlabelled: int
    """Documents left out because they have no true label."""

    @property
    def n_docs(self) -> int:
        """Number of evaluated documents."""
        return len(self.docs)

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without documents."""
        return int(self.truth.shape[1])


def hits(truth: Any, labels: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each ranked label is a true one [n_docs, k]; -1, no prediction, never is.

    The truth is a scipy sparse matrix, documents x labels: a label is true where a positive value is stored.

    >>> truth = sp.csr_matrix([[1, 0, 2], [0, 1, 0]])
    >>> hits(truth, [[2, 1], [0, -1]]).tolist()
    [[True, False], [False, False]]
    """
    relevant = _only_true(truth)
    return _search(relevant, _checked(labels, relevant.shape))


def judge(truth: Any, labels: npt.ArrayLike) -> Judged:
    """Hold ranked label ids [n_docs, k] against the truth, leaving out documents without a true label.

    >>> judged = judge(sp.csr_matrix([[1, 0, 2], [0, 0, 0]]), [[2, 1], [0, 1]])
    >>> judged.n_docs, judged.n_unlabelled, judged.hits.tolist()
    (1, 1, [[True, False]])
    """
    relevant = _only_true(truth)
    labels_dk = _checked(labels, relevant.shape)
    docs = np.flatnonzero(np.diff(relevant.indptr))
    if not len(docs):
        raise DataError(
            f"none of the {relevant.shape[0]:,} documents has a true label, so there is nothing to evaluate",
            remedy="give at least one document with a label",
        )
    n_unlabelled = relevant.shape[0] - len(docs)
    if n_unlabelled:
        relevant, labels_dk = relevant[docs], labels_dk[docs]
    n_true = np.diff(relevant.indptr).astype(np.int64)
    return Judged(docs, relevant, labels_dk, _search(relevant, labels_dk), n_true, n_unlabelled)


def _only_true(truth: Any) -> Any:
    """A copy with the positive stored values only, sorted and without repetitions."""
    if not sp.issparse(truth) or truth.ndim != 2:
        raise DataError(
            f"the truth is a {type(truth).__name__}",
            remedy="give a scipy sparse matrix with one row for each document and one column for each label",
        )
    truth = truth.tocsr()
    relevant = sp.csr_matrix((truth.data > 0, truth.indices, truth.indptr), shape=truth.shape, copy=True)
    relevant.sum_duplicates()
    relevant.eliminate_zeros()
    return relevant


def _checked(labels: npt.ArrayLike, shape: tuple[int, int]) -> npt.NDArray[np.int32]:
    labels_dk = np.asarray(labels)
    n_docs, n_labels = shape
    if labels_dk.ndim != 2 or labels_dk.shape[0] != n_docs or labels_dk.dtype.kind not in "iu":
        raise DataError(
            f"ranked labels of shape {labels_dk.shape} and type {labels_dk.dtype} for {n_docs:,} documents",
            remedy="give whole numbers, one row for each document of the truth",
        )
    outside = (labels_dk < -1) | (labels_dk >= n_labels)
    if outside.any():
        doc, rank = np.argwhere(outside)[0]
        raise DataError(
            f"label id {labels_dk[doc, rank]} where the truth has {n_labels:,} labels",
            where=f"document {doc}, rank {rank + 1}",
            remedy="rank label ids of the truth's columns, or -1 for no prediction",
        )
    in_order = np.sort(labels_dk, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)
    if twice.any():
        doc, rank = np.argwhere(twice)[0]
        raise DataError(
            f"label id {in_order[doc, rank]} is ranked twice",
            where=f"document {doc}",
            remedy="rank each label once in a document",
        )
    return labels_dk.astype(np.int32, copy=False)


def _search(relevant: Any, labels_dk: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    n_docs, n_labels = relevant.shape
    if not relevant.nnz:
        return np.zeros(labels_dk.shape, dtype=np.bool_)
    # One number for each true (document, label), sorted; a ranked label is a hit if its number is among them.
    first = np.arange(n_docs, dtype=np.int64) * n_labels
    true_keys = np.repeat(first, np.diff(relevant.indptr)) + relevant.indices
    keys = first[:, None] + labels_dk
    at = np.minimum(np.searchsorted(true_keys, keys), len(true_keys) - 1)
    found: npt.NDArray[np.bool_] = (true_keys[at] == keys) & (labels_dk >= 0)
    return found
