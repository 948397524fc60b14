"""The one linear machine: rows of weights for every level of a tree, trained block by block.

A block is a cluster and its children; its documents are those that reach the cluster. The same machine is
one-vs-all (one block, all documents) and a tree of any shape. A label's weights are pruned as it finishes;
what exists beside the pruned weights is eight labels' of the block at hand.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xmcascade.features import MixedRows
from xmcascade.kernels import bfloat, newton, parallel, solver
from xmcascade.kernels.blocks import PANEL, directory_of, panel_starts
from xmcascade.kernels.lanes import LANES
from xmcascade.progress import tracker
from xmcascade.settings import Settings
from xmcascade.store import Checkpoint

__all__ = ["BlockWeights", "LinearSettings", "train_level"]

log = logging.getLogger("xmcascade")

KEEP_SECONDS = 60.0  # with a checkpoint, finished panels are kept this often


@dataclass(frozen=True, kw_only=True)
class LinearSettings(Settings):
    """How the rows of weights are trained; names and defaults are LIBLINEAR's and PECOS's."""

    loss: Literal["squared-hinge", "logistic"] = "squared-hinge"
    solver: Literal["dual", "newton"] | None = None
    """Dual coordinate descent, or the trust region Newton method; None: dual where it can (squared hinge)."""
    cost: float = 1.0
    """Weight of a document's loss against the weights' length."""
    negative_cost: float | None = None
    """The same for documents without the label; None: as `cost`."""
    bias: float = 1.0
    tolerance: float = 0.1
    """Where the dual solver stops, as LIBLINEAR's -e; Newton stops where it is about as exact."""
    max_sweeps: int = 100
    """Most sweeps over the documents, or Newton steps."""
    threshold: float = 0.1
    """Smaller weights are dropped. Weights of dense features never are."""
    max_weights: int = 0
    """Most weights a label keeps; 0: all above the threshold."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """How weights are kept: in 4 bytes or 2. Computing is in float32."""

    def check(self) -> None:
        """Refuse values out of range."""
        possible = self.loss != "logistic" or self.solver != "dual"
        self.require(possible, "solver", "'newton' or null when the loss is logistic")
        self.require(0 < self.cost < 1e6, "cost", "above 0, below 1e6")
        negative = self.negative_cost
        self.require(negative is None or 0 < negative < 1e6, "negative_cost", "above 0, below 1e6, or null")
        self.require(0 <= self.bias < 1e3, "bias", "0 to 1000")
        self.require(0 < self.tolerance < 10, "tolerance", "above 0, below 10")
        self.require(self.max_sweeps >= 1, "max_sweeps", "from 1 up")
        self.require(0 <= self.threshold < 1e3, "threshold", "0 to 1000")
        self.require(self.max_weights >= 0, "max_weights", "0 or more")

    def how(self) -> tuple[Any, ...]:
        """The costs, bias, stopping rule, method and pruning, as the kernel takes them.

        Numbers are floats even where 2 was written for 2.0: a kernel is compiled for either, for seconds.
        """
        cost, bias, threshold = float(self.cost), float(self.bias), float(self.threshold)
        negative = cost if self.negative_cost is None else float(self.negative_cost)
        method, tolerance = None, float(self.tolerance)
        if self.loss == "logistic" or self.solver == "newton":
            method = newton.LOGISTIC if self.loss == "logistic" else newton.SQUARED_HINGE
            tolerance /= 10 if self.loss == "logistic" else 100  # as exact, measured
        rule = (bias, tolerance, self.max_sweeps, method, threshold, self.max_weights)
        return (cost, negative), *rule


@dataclass(frozen=True)
class BlockWeights:
    """The weights of blocks, panel by panel (shapes in kernels/blocks.py): of a level, or of a whole tree."""

    panel_rows: npt.NDArray[np.int64]
    panel_entries: npt.NDArray[np.int64]
    row_features: npt.NDArray[np.int32]
    row_ends: npt.NDArray[np.uint32]
    children: npt.NDArray[np.uint8]
    weights: npt.NDArray[Any]
    biases: npt.NDArray[np.float32]
    dense: npt.NDArray[Any]

    @classmethod
    def empty(cls, n_dense: int) -> BlockWeights:
        """No panels."""
        start, floats = np.zeros(1, np.int64), np.zeros(0, np.float32)
        numbers = np.zeros(0, np.int32), np.zeros(0, np.uint32), np.zeros(0, np.uint8)
        return cls(start, start, *numbers, floats, floats, np.zeros((0, n_dense), np.float32))

    @classmethod
    def join(cls, parts: list[BlockWeights]) -> BlockWeights:
        """Put the panels of several after one another."""
        columns = [[getattr(part, field.name) for part in parts] for field in fields(cls)]
        columns[0], columns[1] = _chained(columns[0]), _chained(columns[1])
        return cls(*(np.concatenate(columns.pop(0)) for _ in fields(cls)))

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays in the order the kernels take them."""
        return parallel.read_only(*(getattr(self, field.name) for field in fields(self)))

    @cached_property
    def directory(self) -> tuple[npt.NDArray[Any], int]:
        """Where to look for a feature in each panel (kernels/blocks.py); made when first asked for."""
        parts, shift = directory_of(self.panel_rows, self.row_features)
        return parallel.read_only(parts)[0], shift

    def rearranged(
        self,
        offsets: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int64],
        new_offsets: npt.NDArray[np.int64],
    ) -> BlockWeights:
        """Some of the nodes in other blocks: the i-th of the new ones is nodes[i] of these."""
        sizes, entries = self._row_sizes(), np.diff(self.panel_entries)
        first = np.concatenate([[0], np.cumsum(_panel_widths(offsets))])[:-1]
        now = np.full(int(offsets[-1]), -1)
        now[nodes] = np.arange(len(nodes))
        now = now[np.repeat(first, entries) + self.children]
        kept = now >= 0
        features, now = np.repeat(self.row_features, sizes)[kept], now[kept]
        block = np.searchsorted(new_offsets, now, side="right") - 1
        panel_of_block, place = panel_starts(new_offsets), now - new_offsets[block]
        panel = panel_of_block[block] + place // PANEL
        order = np.lexsort((place, features, panel))
        panel, features = panel[order], features[order]
        begins = np.concatenate([[True], (np.diff(panel) != 0) | (np.diff(features) != 0)])[: len(panel)]
        rows, n_panels = np.flatnonzero(begins), int(panel_of_block[-1])
        ends = np.append(rows, len(panel))[1:]
        panel_entries = np.searchsorted(panel, np.arange(n_panels + 1))
        return BlockWeights(
            np.searchsorted(panel[rows], np.arange(n_panels + 1)),
            panel_entries,
            features[rows],
            (ends - panel_entries[panel[rows]]).astype(np.uint32),
            (place % PANEL).astype(np.uint8)[order],
            self.weights[kept][order],
            self.biases[nodes],
            self.dense[nodes],
        )

    def of_node(
        self, offsets: npt.NDArray[np.int64], node: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """The features, ascending, that one node of blocks at these offsets has weights for, and these."""
        block = int(np.searchsorted(offsets, node, side="right")) - 1
        place = node - int(offsets[block])
        panel = int(panel_starts(offsets)[block]) + place // PANEL
        rows = slice(self.panel_rows[panel], self.panel_rows[panel + 1])
        entries = slice(self.panel_entries[panel], self.panel_entries[panel + 1])
        own = np.flatnonzero(self.children[entries] == place % PANEL)
        row = np.searchsorted(self.row_ends[rows], own, side="right")
        return self.row_features[rows][row], bfloat.widened(self.weights[entries][own])

    def _row_sizes(self) -> Any:
        """Entries of each row."""
        sizes: Any = np.diff(self.row_ends.astype(np.int64), prepend=0)
        first = self.panel_rows[:-1][np.diff(self.panel_rows) > 0]
        sizes[first] = self.row_ends[first]
        return sizes

    def check(self, offsets: npt.NDArray[np.int64], n_features: int, n_dense: int = 0) -> None:
        """Raise ValueError unless the kernels can trust these arrays."""
        kinds = "int64", "int64", "int32", "uint32", "uint8", "float32 uint16", "float32", "float32 uint16"
        for field, kind in zip(fields(self), kinds, strict=True):
            array = getattr(self, field.name)
            if array.dtype.name not in kind.split() or array.ndim != 1 + (field.name == "dense"):
                raise ValueError(f"{field.name} are {array.ndim}-dimensional {array.dtype}, not {kind}")
        n_rows, n_entries, n_panels = len(self.row_features), len(self.children), len(self.panel_rows) - 1
        fits = (
            n_panels == panel_starts(offsets)[-1]
            and len(self.panel_entries) == n_panels + 1
            and len(self.biases) == offsets[-1]
            and self.dense.shape == (offsets[-1], n_dense)
            and len(self.row_ends) == n_rows
            and len(self.weights) == n_entries
            and self.panel_rows[0] == self.panel_entries[0] == 0
            and self.panel_rows[-1] == n_rows
            and self.panel_entries[-1] == n_entries
            and (np.diff(self.panel_rows) >= 0).all()
            and (np.diff(self.panel_entries) >= 0).all()
        )
        if not fits:
            raise ValueError("the blocks of weights do not fit the tree")
        sizes, filled = self._row_sizes(), np.flatnonzero(np.diff(self.panel_rows))
        last = self.panel_rows[1:][filled] - 1
        entries = np.diff(self.panel_entries)
        if (
            (sizes < 0).any()
            or (self.row_ends[last] != entries[filled]).any()
            or entries.sum() != sizes.sum()
        ):
            raise ValueError("the rows of a panel do not fit its entries")
        if n_rows and not 0 <= self.row_features.min() <= self.row_features.max() < n_features:
            raise ValueError("a weight belongs to a feature that is not there")
        if (self.children >= np.repeat(_panel_widths(offsets), entries)).any():
            raise ValueError("a weight belongs to a child that is not there")


def _chained(parts: list[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Ranges that each start at 0, as pieces of one list of ranges."""
    starts = np.cumsum([0, *(part[-1] for part in parts)])
    return [np.zeros(1, np.int64), *(part[1:] + start for part, start in zip(parts, starts, strict=False))]


def _panel_widths(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The children in each panel."""
    starts = panel_starts(offsets)
    widths = np.full(starts[-1], PANEL)
    widths[starts[1:] - 1] = np.diff(offsets) - PANEL * (np.diff(starts) - 1)
    return widths


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
    earlier: BlockWeights | None = None,
    checkpoint: Checkpoint | None = None,
) -> BlockWeights:
    """Train all blocks of a level.

    documents: N rows, MixedRows or what becomes them. reached: CSC, N x B, the documents of each block.
    targets: CSC, N x children, the positive documents of each child with their weights; every one must be
    among its block's documents. earlier: weights of a level of the same shape to start from. checkpoint:
    finished panels are kept there under the title's name, and those found there are not trained again.

    >>> import scipy.sparse as sp
    >>> one = sp.csr_matrix(np.eye(2, dtype=np.float32))
    >>> every = sp.csc_matrix(np.ones((2, 1), np.float32))
    >>> level = train_level(one, every, one.tocsc(), np.array([0, 2]), LinearSettings(), threads=1)
    >>> level.row_features.tolist(), level.children.tolist(), (level.weights > 0).tolist()
    ([0, 1], [0, 1, 0, 1], [True, False, False, True])
    """
    rows = MixedRows.of(documents)
    labels = targets.indptr.astype(np.int64, copy=False), targets.indices, targets.data
    compact = _Compact(rows, reached)
    before = BlockWeights.empty(rows.n_dense) if earlier is None else earlier
    how = settings.how()
    keeper = _Keeper(checkpoint, re.sub(r"\W+", "-", title))
    finished, n_finished = keeper.n_panels, keeper.n_labels
    if finished:
        log.info("%s: %s of %s labels were kept", title, f"{n_finished:,}", f"{offsets[-1]:,}")

    def train(job: tuple[int, int, int, int, int, bool]) -> BlockWeights:
        block, panel, child, first, last, shared = job
        docs, block_rows = compact.of(block, shared)
        start = -1 if earlier is None else panel
        features, ends, children, weights, biases, dense = solver.train_labels(
            block_rows, docs, labels, first, last, child, *how, np.uint64(seed), before.arrays(), start
        )
        starts = np.array([0, len(features)]), np.array([0, len(children)])
        return BlockWeights(*starts, features, ends, children, weights, biases, dense)

    jobs = [job for job in _jobs(offsets, parallel.thread_count(threads)) if job[1] >= finished]
    pending: list[BlockWeights] = []
    with tracker(title, int(offsets[-1]), "labels") as seen:
        seen.advance(n_finished)
        for i, made in enumerate(parallel.run(train, jobs, threads)):
            pending.append(made)
            seen.advance(len(made.biases))
            if i + 1 == len(jobs) or jobs[i + 1][1] != jobs[i][1]:
                keeper.add(_stored(_one_panel(pending), settings))
                pending = []
    return keeper.all()


def _stored(weights: BlockWeights, settings: LinearSettings) -> BlockWeights:
    if settings.precision == "float32":
        return weights
    return replace(weights, weights=bfloat.narrowed(weights.weights), dense=bfloat.narrowed(weights.dense))


def _jobs(offsets: npt.NDArray[np.int64], threads: int) -> list[tuple[int, int, int, int, int, bool]]:
    """Panels, or parts of panels where these are few: block, panel, child, first and last label, and whether
    the block has other jobs. Parts begin at whole lanes, so that they change nothing."""
    widths = np.diff(offsets)
    size = PANEL if len(widths) >= 4 * threads else max(LANES, PANEL // (4 * threads) // LANES * LANES)
    jobs, panel = [], 0
    for block, (start, end) in enumerate(pairwise(offsets.tolist())):
        for of_panel in range(start, end, PANEL):
            stop = min(of_panel + PANEL, end)
            for first in range(of_panel, stop, size):
                last = min(first + size, stop)
                jobs.append((block, panel, first - of_panel, first, last, end - start > size))
            panel += 1
    return jobs


class _Compact:
    """The rows of a block's documents; those of a block that has many jobs are made once for all of them."""

    def __init__(self, rows: MixedRows, reached: Any) -> None:
        self.rows, self.reached, self.arrays = rows, reached, rows.arrays()
        self.scratch: deque[tuple[Any, Any]] = deque()
        self.lock = threading.Lock()
        self.last: tuple[int, Any] = (-1, None)

    def of(self, block: int, shared: bool) -> tuple[Any, Any]:
        """The block's documents and compact rows."""
        if not shared:
            return self._made(block)
        with self.lock:
            if self.last[0] != block:
                self.last = block, self._made(block)
            made: tuple[Any, Any] = self.last[1]
            return made

    def _made(self, block: int) -> tuple[Any, Any]:
        docs = self.reached.indices[self.reached.indptr[block] : self.reached.indptr[block + 1]]
        try:
            number_of, features = self.scratch.pop()
        except IndexError:
            number_of = np.full(self.rows.n_sparse, -1, np.int32)
            features = np.empty(self.rows.n_sparse, np.int32)
        made = solver.compact_rows(self.arrays, docs, number_of, features)
        self.scratch.append((number_of, features))
        return docs, made


def _one_panel(parts: list[BlockWeights]) -> BlockWeights:
    """One panel out of parts that hold some of its labels each, in order."""
    if len(parts) == 1:
        return parts[0]
    sizes: list[Any] = [np.diff(part.row_ends.astype(np.int64), prepend=0) for part in parts]
    rows = np.concatenate([np.repeat(p.row_features, size) for p, size in zip(parts, sizes, strict=True)])
    order = np.argsort(rows, kind="stable")  # parts are in the order of their labels, and so stay
    features, starts = np.unique(rows[order], return_index=True)
    ends = np.append(starts, len(rows))[1:].astype(np.uint32)
    whole = BlockWeights.join(parts)
    return BlockWeights(
        np.array([0, len(features)]),
        np.array([0, len(rows)]),
        features,
        ends,
        whole.children[order],
        whole.weights[order],
        whole.biases,
        whole.dense,
    )


class _Keeper:
    """Finished panels in order: in memory, and now and then on disk."""

    def __init__(self, checkpoint: Checkpoint | None, name: str) -> None:
        self.checkpoint, self.name = checkpoint, name
        self.kept: list[BlockWeights] = []
        self.fresh: list[BlockWeights] = []
        self.saved = time.monotonic()
        self.n_panels, self.n_labels = 0, 0  # kept
        while self._load():
            pass

    def _next(self) -> str:
        return f"{self.name}-{len(self.kept)}"

    def _load(self) -> bool:
        """Take the next piece if it is there, mapped, and goes on where the last one ends."""
        piece = self.checkpoint.load(self._next()) if self.checkpoint else None
        if piece is None or piece[1].get("first") != self.n_panels:
            return False
        panels = BlockWeights(**piece[0])
        self.kept.append(panels)
        self.n_panels += len(panels.panel_rows) - 1
        self.n_labels += len(panels.biases)
        return True

    def add(self, panel: BlockWeights) -> None:
        """Take a panel."""
        self.fresh.append(panel)
        if self.checkpoint and time.monotonic() - self.saved > KEEP_SECONDS:
            self._keep()

    def _keep(self) -> None:
        assert self.checkpoint is not None
        piece = BlockWeights.join(self.fresh)
        arrays = {field.name: getattr(piece, field.name) for field in fields(piece)}
        self.checkpoint.save(self._next(), arrays, {"first": self.n_panels})
        loaded = self._load()  # on disk, no longer in memory
        assert loaded
        self.fresh, self.saved = [], time.monotonic()

    def all(self) -> BlockWeights:
        """All panels; with a checkpoint the last ones are kept too."""
        if self.checkpoint and self.fresh:
            self._keep()
        parts, self.kept, self.fresh = [*self.kept, *self.fresh], [], []
        return BlockWeights.join(parts)
