"""The one linear machine: rows of weights for every level of a tree, trained block by block.

A block is a cluster and its children; its documents are those that reach the cluster. The same machine is
one-vs-all (one block, all documents) and a tree of any shape.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.kernels import parallel, solver
from xmcascade.progress import tracker
from xmcascade.settings import Settings

__all__ = ["BlockWeights", "LinearSettings", "train_level"]

JOB_LABELS = 64  # labels of a block that are trained in one go; a multiple of the lanes


@dataclass(frozen=True, kw_only=True)
class LinearSettings(Settings):
    """How the rows of weights are trained; names and defaults are LIBLINEAR's and PECOS's."""

    cost: float = 1.0
    """Weight of a document's loss against the weights' length."""
    negative_cost: float | None = None
    """The same for documents without the label; None: as `cost`."""
    bias: float = 1.0
    tolerance: float = 0.1
    max_sweeps: int = 100
    threshold: float = 0.1
    """Smaller weights are dropped."""
    max_weights: int = 0
    """Most weights a label keeps; 0: all above the threshold."""

    def check(self) -> None:
        """Refuse values out of range."""
        self.require(0 < self.cost < 1e6, "cost", "above 0, below 1e6")
        negative = self.negative_cost
        self.require(negative is None or 0 < negative < 1e6, "negative_cost", "above 0, below 1e6, or null")
        self.require(0 <= self.bias < 1e3, "bias", "0 to 1000")
        self.require(0 < self.tolerance < 10, "tolerance", "above 0, below 10")
        self.require(self.max_sweeps >= 1, "max_sweeps", "from 1 up")
        self.require(0 <= self.threshold < 1e3, "threshold", "0 to 1000")
        self.require(self.max_weights >= 0, "max_weights", "0 or more")


@dataclass(frozen=True)
class BlockWeights:
    """The weights of one level, block by block (shapes in kernels/blocks.py)."""

    block_rows: npt.NDArray[np.int64]
    row_features: npt.NDArray[np.int32]
    row_ends: npt.NDArray[np.int64]
    children: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    biases: npt.NDArray[np.float32]

    @classmethod
    def join(cls, blocks: list[tuple[Any, ...]]) -> BlockWeights:
        """Put blocks, as `kernels.solver.train_block` returns them, one after another."""
        entries = np.cumsum([0, *(len(block[3]) for block in blocks)])
        ends = [block[1][1:] + start for block, start in zip(blocks, entries[:-1], strict=True)]
        return cls(
            np.cumsum([0, *(len(block[0]) for block in blocks)]),
            np.concatenate([block[0] for block in blocks]),
            np.concatenate([np.zeros(1, np.int64), *ends]),
            np.concatenate([block[2] for block in blocks]),
            np.concatenate([block[3] for block in blocks]),
            np.concatenate([block[4] for block in blocks]),
        )

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays in the order the kernels take them."""
        return self.block_rows, self.row_features, self.row_ends, self.children, self.weights, self.biases

    def check(self, offsets: npt.NDArray[np.int64], n_features: int) -> None:
        """Raise ValueError unless the kernels can trust these arrays."""
        n_rows, n_entries = len(self.row_features), len(self.children)
        fits = (
            len(self.block_rows) == len(offsets)
            and len(self.biases) == offsets[-1]
            and len(self.row_ends) == n_rows + 1
            and len(self.weights) == n_entries
            and self.block_rows[0] == self.row_ends[0] == 0
            and self.block_rows[-1] == n_rows
            and self.row_ends[-1] == n_entries
            and (np.diff(self.block_rows) >= 0).all()
            and (np.diff(self.row_ends) >= 0).all()
        )
        if not fits:
            raise ValueError("the blocks of weights do not fit the tree")
        if n_rows and not 0 <= self.row_features.min() <= self.row_features.max() < n_features:
            raise ValueError("a weight belongs to a feature that is not there")
        if n_entries:
            entries = np.diff(self.row_ends[self.block_rows])
            widths = np.repeat(np.diff(offsets), entries)
            if self.children.min() < 0 or (self.children >= widths).any():
                raise ValueError("a weight belongs to a child that is not there")


def train_level(
    documents: Any,
    reached: Any,
    targets: Any,
    offsets: npt.NDArray[np.int64],
    settings: LinearSettings,
    *,
    seed: int = 0,
    threads: int | None = None,
    title: str = "training",
) -> BlockWeights:
    """Train all blocks of a level.

    documents: CSR, N x D. reached: CSC, N x B, the documents of each block. targets: CSC, N x children, the
    positive documents of each child with their weights; every one must be among its block's documents.

    >>> import scipy.sparse as sp
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> level.row_features.tolist(), level.children.tolist(), (level.weights > 0).tolist()
    ([0, 1], [0, 1, 0, 1], [True, False, False, True])
    """
    n_features = documents.shape[1]
    scratch: deque[tuple[Any, Any]] = deque()
    indptr = documents.indptr.astype(np.int64, copy=False)
    target_rows = targets.indptr.astype(np.int64, copy=False)
    negative = settings.cost if settings.negative_cost is None else settings.negative_cost

    def train(job: tuple[int, int, int]) -> tuple[Any, ...]:
        block, first, last = job
        docs = reached.indices[reached.indptr[block] : reached.indptr[block + 1]]
        try:
            number_of, features = scratch.pop()
        except IndexError:
            number_of, features = np.full(n_features, -1, np.int32), np.empty(n_features, np.int32)
        made = solver.train_block(
            indptr,
            documents.indices,
            documents.data,
            docs,
            target_rows,
            targets.indices,
            targets.data,
            first,
            last,
            settings.cost,
            negative,
            settings.bias,
            settings.tolerance,
            settings.max_sweeps,
            settings.threshold,
            settings.max_weights,
            np.uint64(seed),
            number_of,
            features,
        )
        scratch.append((number_of, features))
        return tuple(made)

    jobs = [
        (block, first, min(first + JOB_LABELS, int(end)))
        for block, (start, end) in enumerate(pairwise(offsets))
        for first in range(int(start), int(end), JOB_LABELS)
    ]
    done: list[list[tuple[Any, ...]]] = [[] for _ in offsets[1:]]
    with tracker(title, int(offsets[-1]), "labels") as seen:
        for (block, first, last), made in zip(jobs, parallel.run(train, jobs, threads), strict=True):
            done[block].append(made)
            seen.advance(last - first)
    return BlockWeights.join([_merged(parts) for parts in done])


def _merged(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """One block out of parts that hold JOB_LABELS of its labels each."""
    if len(parts) == 1:
        return parts[0]
    features = np.concatenate([np.repeat(part[0], np.diff(part[1])) for part in parts])
    children = np.concatenate([part[2] + np.int32(i * JOB_LABELS) for i, part in enumerate(parts)])
    weights = np.concatenate([part[3] for part in parts])
    order = np.argsort(features, kind="stable")  # parts are in the order of their labels, and so stay
    found, starts = np.unique(features[order], return_index=True)
    ends = np.append(starts, len(features)).astype(np.int64)
    return found, ends, children[order], weights[order], np.concatenate([part[4] for part in parts])
