"""How sure a metric is: the bootstrap and the sign-flip test, both over documents.

A replicate is a weight for each document, so that a block of replicates is a matrix product with what each
document contributes to each metric. Blocks bound the memory, whatever the number of replicates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.evaluate.metrics import Floats

__all__ = ["bootstrap", "holm", "sign_flip_p_values"]

_WEIGHTS_AT_ONCE = 1 << 22  # 32 MB
_REPLICATES_AT_ONCE = 32
_DOCS_AT_ONCE = 128


def bootstrap(gains: Floats, bases: Floats, *, replicates: int, seed: int) -> Floats:
    """Sum of gains / sum of bases over documents drawn anew with replacement [replicates, n_metrics].

    Gains and bases are [n_docs, n_metrics].

    >>> values = bootstrap(np.array([[0.0], [1.0]]), np.ones((2, 1)), replicates=100, seed=0)
    >>> values.shape, np.unique(values).tolist()
    ((100, 1), [0.0, 0.5, 1.0])
    """
    n_docs, n_metrics = gains.shape
    rng = _generator(replicates, seed)
    sums = _weighted_sums(
        np.hstack([gains, bases]),
        replicates,
        lambda: np.bincount(rng.integers(0, n_docs, n_docs), minlength=n_docs),
    )
    return sums[:, :n_metrics] / sums[:, n_metrics:]


def sign_flip_p_values(differences: Floats, *, replicates: int, seed: int) -> Floats:
    """Two-sided p of "the sum of the differences is 0" for each column of [n_docs, n_metrics].

    If two rankings are equally good, each document's difference may as well have had the other sign. p is the
    share of random signs (with the actual ones among them) whose sum is at least as far from 0 as the actual.

    >>> sign_flip_p_values(np.ones((20, 1)), replicates=999, seed=0).tolist()
    [0.001]
    """
    rng = _generator(replicates, seed)
    differences = differences[differences.any(axis=1)]  # a document without a difference has no sign to flip
    n_docs, total = len(differences), differences.sum(axis=0)
    kept = _weighted_sums(differences, replicates, lambda: rng.integers(0, 2, n_docs, dtype=np.int8))
    flipped = 2.0 * kept - total  # the kept minus the rest
    # Sums that are equal in exact arithmetic may differ in the last digits.
    as_far = np.abs(total) - 1e-9 * np.abs(differences).sum(axis=0)
    p_values: Floats = ((np.abs(flipped) >= as_far).sum(axis=0) + 1) / (replicates + 1)
    return p_values


def holm(p_values: npt.ArrayLike) -> Floats:
    """p-values of several tests, made larger so that with all of them together one in 20 errs at 0.05 (Holm).

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)))
    return adjusted


def interval(values: Floats) -> npt.NDArray[np.float64]:
    """The middle 95% of each column: [2, n_metrics], low and high."""
    bounds: Floats = np.quantile(values, (0.025, 0.975), axis=0)
    return bounds


def _generator(replicates: int, seed: int) -> np.random.Generator:
    if replicates < 1:
        raise SettingError(f"replicates is {replicates}", remedy="use a number from 1 up")
    if seed < 0:
        raise SettingError(f"seed is {seed}", remedy="use a number from 0 up")
    return np.random.default_rng(seed)


def _weighted_sums(columns: Floats, replicates: int, draw: Callable[[], npt.NDArray[Any]]) -> Floats:
    """Each replicate draws a weight for each document; the weighted sums [replicates, n_columns]."""
    n_docs, n_columns = columns.shape
    sums = np.empty((replicates, n_columns))
    size = min(_REPLICATES_AT_ONCE, max(1, _WEIGHTS_AT_ONCE // max(1, n_docs)))
    for first in range(0, replicates, size):
        weights = np.empty((min(size, replicates - first), n_docs))
        for weight in weights:
            weight[:] = draw()
        sums[first : first + size] = _product(weights, columns)
    return sums


def _product(weights: Floats, columns: Floats) -> Floats:
    """[replicates, n_docs] @ [n_docs, n_columns], as many small products.

    BLAS spreads a large product over threads that spin while they wait for one another: on a machine whose
    cores are busy that took 15 times as long. A small one stays on one thread, whatever their number.
    """
    n_replicates, n_docs = weights.shape
    whole = n_docs - n_docs % _DOCS_AT_ONCE
    stacked = weights[:, :whole].reshape(n_replicates, -1, _DOCS_AT_ONCE).swapaxes(0, 1)
    products = stacked @ columns[:whole].reshape(-1, _DOCS_AT_ONCE, columns.shape[1])
    total: Floats = products.sum(axis=0) + weights[:, whole:] @ columns[whole:]
    return total
