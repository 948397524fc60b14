"""Documents that a model keeps, so that labels added later can be told apart from what it has seen.

Their features only: what the linear rows and the last level's head read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import SettingError
from xmcascade.features import MixedRows
from xmcascade.linear import BlockWeights, LinearSettings, train_level
from xmcascade.models.fitting import FitRun
from xmcascade.store import within

__all__ = ["Background", "home_clusters"]

log = logging.getLogger("xmcascade")

BEGIN = "background."


@dataclass(frozen=True, eq=False)
class Background:
    """Some of the documents that a model has seen.

    >>> kept = Background.of(sp.csr_matrix(np.eye(5, dtype=np.float32)), None, most=3, seed=0)
    >>> len(kept.rows), Background.from_arrays(kept.to_arrays(), 5, 0).rows.n_sparse
    (3, 5)
    """

    rows: MixedRows

    @classmethod
    def of(cls, words: Any, dense: npt.NDArray[Any] | None, most: int, seed: int) -> Self:
        """Of documents with these features, `most` at most."""
        some = np.sort(np.random.default_rng(seed).permutation(words.shape[0])[:most])
        # In two bytes, as it is stored: what is learnt from it is the same before and after.
        x = np.zeros((len(some), 0)) if dense is None else np.asarray(dense[some], np.float16)
        return cls(MixedRows.of(words[some], x))

    def checked(self) -> Self:
        """Raises when no document was kept."""
        if not len(self.rows):
            what = "the model has kept no documents to tell new labels apart from"
            raise SettingError(what, remedy="fit it with background=2000, or again with the new labels")
        return self

    def learn(
        self, documents: MixedRows, labels: Any, settings: LinearSettings, run: FitRun, title: str
    ) -> BlockWeights:
        """Weights of new labels, one block, from documents that have them (labels: CSR) and from these."""
        sparse = sp.vstack([documents.sparse, self.rows.sparse], format="csr")
        rows = MixedRows.of(sparse, np.concatenate([documents.dense, self.rows.dense]))
        none = sp.csr_matrix((len(self.rows), labels.shape[1]), dtype=np.float32)
        targets = sp.vstack([(labels > 0).astype(np.float32), none], format="csc")
        every = sp.csc_matrix(np.ones((len(rows), 1), np.float32))
        offsets = np.array([0, labels.shape[1]])
        how: dict[str, Any] = {"threads": run.threads, "title": f"{title}: new labels"}
        weights = train_level(rows, every, targets, offsets, settings, **how)
        told = np.diff(documents.sparse.indptr) + (documents.dense != 0).sum(axis=1) > 0
        mute = np.asarray(targets[: len(documents)].T @ told.astype(np.float32)).ravel() == 0
        if mute.any():  # nothing is known of them: they say no to all
            log.warning("%s: of %s new labels no word is known", title, f"{mute.sum():,}")
            weights.biases[mute] = -1
        return weights

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """To store."""
        sparse = self.rows.sparse
        parts = {"indptr": sparse.indptr, "indices": sparse.indices, "data": sparse.data}
        parts["dense"] = self.rows.dense.astype(np.float16)
        return {BEGIN + name: array for name, array in parts.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], n_sparse: int, n_dense: int) -> Self:
        """The opposite; raises ValueError when the parts do not fit."""
        own = within(arrays, BEGIN)
        dense = own["dense"]
        if dense.ndim != 2 or dense.shape[1] != n_dense:
            raise ValueError(f"kept documents of {dense.shape}, not {n_dense} wide")
        parts = own["data"], own["indices"], own["indptr"]
        sparse = sp.csr_matrix(parts, shape=(len(dense), n_sparse), copy=False)
        sparse.check_format(full_check=True)
        return cls(MixedRows.of(sparse, dense))


def home_clusters(found: npt.NDArray[np.int32], chances: npt.NDArray[Any], labels: Any) -> npt.NDArray[Any]:
    """For each label the cluster that its documents (labels: CSR) are most likely in.

    found, chances: clusters found for each document, -1 for none, and how likely each is.

    >>> labels = sp.csr_matrix([[1.0, 0.0], [1.0, 1.0]])
    >>> home_clusters(np.array([[0, 4], [4, 0]]), np.array([[0.6, 0.5], [0.9, 0.1]]), labels).tolist()
    [4, 4]
    """
    real = found >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    likely = sp.csr_matrix((chances[real], found[real], ends), shape=(len(found), int(found.max()) + 1))
    votes = ((labels > 0).astype(np.float64).T @ likely).tocsr()
    return np.asarray(votes.argmax(axis=1)).ravel()
