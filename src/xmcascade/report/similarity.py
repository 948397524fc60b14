"""How alike two sets of features are, whatever linear map lies between them: PWCCA (Morcos et al., 2018).

Directions in which the two agree are found by canonical correlation, and each counts by how much of the first
set it carries. With few documents any two sets agree somewhere, so features are brought to few directions
first, and what unrelated features would score is told beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import DataError

__all__ = ["Similarity", "pwcca", "similarity_of_levels"]

Floats = npt.NDArray[np.float64]
VARIANCE = 0.99  # kept of the features
DOCS_A_DIRECTION = 10


@dataclass(frozen=True, eq=False)
class Similarity:
    """Of each level's features to each other's, 0 to 1."""

    values: Floats
    """[levels, levels]"""
    chance: float
    """What features of other documents would have, on average over the levels."""
    directions: tuple[int, ...]
    """Directions that are compared, of each level."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = self.values.round(4).tolist()
        return {"values": values, "chance": round(self.chance, 4), "directions": list(self.directions)}


def pwcca(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Similarity of two matrices with a row for each document, 0 to 1; the directions count by x.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((400, 5))
    >>> round(pwcca(x, x @ rng.standard_normal((5, 5)) + 3), 6)
    1.0
    >>> pwcca(x, rng.standard_normal((400, 5))) < 0.25
    True
    """
    first, second = (np.asarray(own, np.float64) for own in (x, y))
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second) or len(first) < 2:
        what = f"features of the shapes {first.shape} and {second.shape}"
        raise DataError(what, remedy="give two matrices with a row for each of the same documents, 2 or more")
    first = first - first.mean(axis=0)
    bases = _basis(first), _basis(second - second.mean(axis=0))
    if not bases[0].shape[1] or not bases[1].shape[1]:
        return 0.0  # all documents look the same
    turned, correlations, _ = np.linalg.svd(bases[0].T @ bases[1], full_matrices=False)
    weights = np.abs((bases[0] @ turned).T @ first).sum(axis=1)
    return float(np.clip(weights @ correlations / weights.sum(), 0, 1))


def similarity_of_levels(xs: Sequence[npt.NDArray[Any]], seed: int = 0) -> Similarity:
    """PWCCA between what the levels read of the same documents, as the mean of both directions.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((200, 3))
    >>> found = similarity_of_levels([x, 2 * x, rng.standard_normal((200, 3))])
    >>> (found.values > 0.3).tolist()[0]
    [True, True, False]
    """
    few = [_reduced(np.asarray(x, np.float64)) for x in xs]
    values = np.eye(len(few))
    for i in range(len(few)):
        for j in range(i):
            values[i, j] = values[j, i] = (pwcca(few[i], few[j]) + pwcca(few[j], few[i])) / 2
    order = np.random.default_rng(seed).permutation(len(few[0]))
    chance = float(np.mean([pwcca(x, x[order]) for x in few]))
    return Similarity(values, chance, tuple(x.shape[1] for x in few))


def _basis(x: Floats) -> Floats:
    """Orthonormal columns that span those of x."""
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    return np.asarray(left[:, sizes > sizes.max(initial=0) * 1e-9])


def _reduced(x: Floats) -> Floats:
    """The documents in the strongest directions: most of the variance, and few enough for the documents."""
    left, sizes, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    kept = np.cumsum(sizes**2) < VARIANCE * float((sizes**2).sum())
    n = min(int(kept.sum()) + 1, max(1, len(x) // DOCS_A_DIRECTION), len(sizes))
    return np.asarray(left[:, :n] * sizes[:n])
