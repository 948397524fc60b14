"""Walking down the tree: at every level the best clusters go on; the score is the product along the path.

A node's own score v becomes a number in (0, 1]: exp(-max(0, 1 - v)^p) for the hinges, 1 / (1 + exp(-v)) for
the sigmoid. Products are sums of logarithms, so nothing underflows; "log-..." gives these sums themselves.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xmcascade.features import MixedRows
from xmcascade.kernels import blocks, parallel
from xmcascade.linear.machine import BlockWeights
from xmcascade.tree import LabelTree

__all__ = ["Combine", "node_probability", "probability", "score_labels", "score_paths", "search"]

Combine = Literal[
    "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid",
    "log-l1-hinge", "log-l2-hinge", "log-l3-hinge", "log-l4-hinge", "log-sigmoid",
]  # fmt: skip
BATCH = 256  # documents searched together: enough to share blocks, few enough for the cache


def _power(combine: Combine) -> int:
    name = combine.removeprefix("log-")
    return 0 if name == "sigmoid" else int(name[1])


def _finished(logs: npt.NDArray[np.float32], combine: Combine) -> npt.NDArray[np.float32]:
    return logs if combine.startswith("log-") else np.exp(logs)


def probability(scores: npt.NDArray[np.float32], combine: Combine) -> npt.NDArray[np.float32]:
    """The product along the path, of scores made with this combination.

    >>> probability(np.array([0.0], np.float32), "log-sigmoid").tolist()
    [1.0]
    """
    return np.exp(scores) if combine.startswith("log-") else scores


def node_probability(score: float, combine: Combine) -> float:
    """What a node's own score becomes in the product along the path.

    >>> node_probability(1.5, "l3-hinge"), node_probability(0.0, "log-sigmoid")
    (1.0, 0.5)
    """
    power = _power(combine)
    return float(np.exp(-(max(0.0, 1 - score) ** power) if power else -np.logaddexp(0, -score)))


def search(
    queries: Any,
    tree: LabelTree,
    weights: BlockWeights,
    *,
    beam: int,
    k: int,
    combine: Combine,
    threads: int | None = None,
    n_levels: int | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The k best labels of each query (MixedRows, or what becomes them), best first; -1 where there are none.

    Returns label ids and scores. At least k clusters go on at every level, so that k labels are found where
    there are so many. With n_levels below the tree's own, the search ends there and returns that level's
    clusters; the weights need not go further.

    >>> import scipy.sparse as sp
    >>> from xmcascade.linear import LinearSettings, train_level
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> search(one, LabelTree.flat(2), level, beam=1, k=1, combine="l3-hinge")[0].tolist()
    [[0], [1]]
    """
    rows = MixedRows.of(queries)
    depth = tree.n_levels if n_levels is None else n_levels
    starts = tree.level_starts[: depth + 1]
    whole = depth == tree.n_levels
    ranks = tree.order if whole else np.arange(tree.sizes[depth - 1], dtype=np.int32)
    shape = parallel.read_only(tree.block_offsets, tree.block_panels, starts)
    arrays, (ranks,) = weights.arrays(), parallel.read_only(ranks)
    best = np.empty((len(rows), min(k, tree.sizes[depth - 1])), np.int64)
    values = np.empty(best.shape, np.float32)

    def batch(bounds: tuple[int, int]) -> None:
        here = slice(*bounds)
        blocks.walk(
            rows[here].arrays(), *shape, arrays, weights.directory, _table(rows, bounds), _power(combine),
            beam, ranks, best[here], values[here],
        )  # fmt: skip

    for _ in parallel.run(batch, parallel.blocks(len(rows), BATCH), threads):
        pass
    best[best >= 0] -= starts[-2]
    found = np.where(best >= 0, tree.order[best], -1) if whole else best
    return found.astype(np.int32), _finished(values, combine)


def _table(rows: MixedRows, bounds: tuple[int, int]) -> npt.NDArray[np.int32]:
    return np.full(rows.n_sparse if bounds[1] - bounds[0] >= blocks.MANY else 0, -1, np.int32)


def score_paths(
    queries: Any,
    tree: LabelTree,
    weights: BlockWeights,
    candidates: Any,
    combine: Combine,
    threads: int | None = None,
) -> npt.NDArray[np.float32]:
    """The scores of given labels (CSR, queries x labels): one a stored entry, as `search` would give them.

    >>> import scipy.sparse as sp
    >>> from xmcascade.linear import LinearSettings, train_level
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> scores = score_paths(one, LabelTree.flat(2), level, sp.csr_matrix(np.ones((2, 2))), "l3-hinge")
    >>> (scores[0] > scores[1]).item(), (scores[2] < scores[3]).item()
    (True, True)
    """
    wanted = tree.level_starts[-2] + tree.positions[candidates.indices]
    shape = tree.block_offsets, tree.block_panels, tree.node_parents
    return _scored(queries, shape, tree.n_levels, weights, candidates.indptr, wanted, combine, threads)


def score_labels(
    queries: Any,
    tree: LabelTree,
    weights: BlockWeights,
    candidates: Any,
    combine: Combine,
    threads: int | None = None,
) -> npt.NDArray[np.float32]:
    """The scores of given labels by weights of the last level alone: one a stored entry of `candidates`.

    >>> import scipy.sparse as sp
    >>> from xmcascade.linear import LinearSettings, train_level
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> scores = score_labels(one, LabelTree.flat(2), level, sp.csr_matrix(np.eye(2)), "l3-hinge")
    >>> (scores > 0.5).tolist()
    [True, True]
    """
    offsets = tree.label_offsets
    parents = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    # The clusters are the blocks from 1 on; block 0, the root's, is empty.
    shape = np.concatenate([[0], offsets]), np.concatenate([[0], blocks.panel_starts(offsets)]), parents
    wanted = tree.positions[candidates.indices]
    return _scored(queries, shape, 1, weights, candidates.indptr, wanted, combine, threads)


def _scored(
    queries: Any,
    shape: tuple[Any, ...],
    depth: int,
    weights: BlockWeights,
    wanted_rows: Any,
    wanted: Any,
    combine: Combine,
    threads: int | None,
) -> npt.NDArray[np.float32]:
    rows, shape = MixedRows.of(queries), parallel.read_only(*shape)
    wanted_rows = wanted_rows.astype(np.int64)
    arrays = weights.arrays()
    out = np.empty(len(wanted), np.float32)

    def batch(bounds: tuple[int, int]) -> None:
        low, high = wanted_rows[bounds[0]], wanted_rows[bounds[1]]
        blocks.score_paths(
            rows[slice(*bounds)].arrays(), wanted_rows[bounds[0] : bounds[1] + 1] - low, wanted[low:high],
            *shape, depth, arrays, weights.directory, _table(rows, bounds), _power(combine), out[low:high],
        )  # fmt: skip

    for _ in parallel.run(batch, parallel.blocks(len(rows), BATCH), threads):
        pass
    return _finished(out, combine)
