"""A head: the rows and biases of one level, scored and trained on shortlists (kernels/heads.py).

It is no torch parameter: its step updates the rows at once, so there is no gradient as large as the head. The
work is cut into a fixed number of shards at block borders, and what they give is added in order: threads
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from xmcascade.kernels import bfloat, heads, parallel
from xmcascade.neural.extra import torch

__all__ = ["Head", "RowOptimizer", "Shortlist", "row_bytes"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
RowOptimizer = Literal["sgd", "adagrad", "row-adam", "adam"]

SHARDS = 8
DENSE_GAIN = 8  # how many times more scores a second one matrix product gives than blocks do
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
METHODS = dict(
    zip(get_args(RowOptimizer), (heads.SGD, heads.ADAGRAD, heads.ROW_ADAM, heads.ADAM), strict=True)
)


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The clusters whose children are scored, for each document of a batch; entries are these children.

    >>> short = Shortlist(np.array([0, 1, 3]), np.array([1, 0, 1]), np.array([0, 2, 5]))
    >>> short.docs.tolist(), short.starts.tolist(), short.rows.tolist()
    ([0, 1, 1], [0, 3, 5, 8], [2, 3, 4, 0, 1, 2, 3, 4])
    """

    doc_pairs: Ints
    """Where each document's clusters begin and end."""
    clusters: Ints
    """Ascending for each document."""
    offsets: Ints
    """The children of each cluster."""

    @classmethod
    def root(cls, n_docs: int, n_rows: int) -> Shortlist:
        """All rows for every document."""
        return cls(np.arange(n_docs + 1), np.zeros(n_docs, np.int64), np.array([0, n_rows]))

    @classmethod
    def join(cls, parts: Sequence[Shortlist]) -> Shortlist:
        """Several batches as one."""
        sizes = np.concatenate([np.diff(part.doc_pairs) for part in parts])
        clusters = np.concatenate([part.clusters for part in parts])
        return cls(np.concatenate([[0], np.cumsum(sizes)]), clusters, parts[0].offsets)

    @property
    def n_docs(self) -> int:
        """Documents of the batch."""
        return len(self.doc_pairs) - 1

    @property
    def n_entries(self) -> int:
        """Scores to compute."""
        return int(self.starts[-1])

    @cached_property
    def docs(self) -> Ints:
        """The document of each pair."""
        return np.repeat(np.arange(self.n_docs), np.diff(self.doc_pairs))

    @cached_property
    def starts(self) -> Ints:
        """Where the entries of each pair begin, and the end."""
        return np.concatenate([[0], np.cumsum(np.diff(self.offsets)[self.clusters])])

    @property
    def entry_bounds(self) -> Ints:
        """Where the entries of each document begin, and the end."""
        return self.starts[self.doc_pairs]

    @cached_property
    def order(self) -> Ints:
        """The pairs by cluster."""
        return np.argsort(self.clusters, kind="stable")

    @property
    def pairs(self) -> tuple[Ints, Ints, Ints]:
        """As the kernels take them."""
        return self.docs, self.clusters, self.starts

    @cached_property
    def rows(self) -> Ints:
        """The row of each entry."""
        before = np.repeat(self.offsets[self.clusters] - self.starts[:-1], np.diff(self.starts))
        return np.arange(self.n_entries) + before

    @cached_property
    def shards(self) -> list[tuple[int, int]]:
        """Ranges of `order` with about equal work that do not cut a block."""
        if not len(self.clusters):
            return []
        ordered = self.clusters[self.order]
        work = np.cumsum(np.diff(self.starts)[self.order])
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        wanted = np.searchsorted(work, np.arange(1, SHARDS) * (work[-1] / SHARDS))
        cuts = np.append(begins, len(ordered))[np.searchsorted(begins, wanted)]
        bounds = np.unique(np.concatenate([[0], cuts, [len(ordered)]]))
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


@dataclass(eq=False)
class Head:
    """Rows of one level on the CPU.

    >>> head = Head.random(4, 2, np.random.default_rng(0), optimizer="sgd")
    >>> short = Shortlist.root(1, 4)
    >>> x = np.ones((1, 2), np.float32)
    >>> before = head.logits(x, short)
    >>> back = head.step(x, short, np.ones(4, np.float32), rate=0.1)
    >>> np.allclose(before - head.logits(x, short), 0.1 * 3)  # each row by 0.1 * (1, 1), each bias by 0.1
    True
    """

    rows: npt.NDArray[Any]
    """[K, D] float32, or bfloat16 in uint16."""
    biases: Floats
    optimizer: RowOptimizer = "adagrad"
    decay: float = 0.0
    """AdamW's, of touched rows."""
    threads: int | None = None
    state: tuple[npt.NDArray[Any], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.state:
            n_rows, width = self.rows.shape
            adam = self.optimizer == "adam"
            moments = (n_rows, width + 1) if adam else (0, 0)
            self.state = (
                np.zeros(0 if adam or self.optimizer == "sgd" else n_rows, np.float32),
                np.zeros(n_rows if adam else 0, np.int32),
                np.zeros(moments, np.float32),
                np.zeros(moments, np.float32),
            )

    @classmethod
    def random(
        cls,
        n_rows: int,
        width: int,
        rng: np.random.Generator,
        *,
        optimizer: RowOptimizer = "adagrad",
        precision: Literal["float32", "bfloat16"] = "float32",
        scale: float = 0.02,
        **how: Any,
    ) -> Head:
        """Small random rows, biases 0."""
        rows = np.empty((n_rows, width), np.float32 if precision == "float32" else np.uint16)
        for low, high in parallel.blocks(n_rows, 65536):
            part = scale * rng.standard_normal((high - low, width), np.float32)
            rows[low:high] = part if precision == "float32" else bfloat.narrowed(part)
        return cls(rows, np.zeros(n_rows, np.float32), optimizer, **how)

    def is_dense(self, short: Shortlist) -> bool:
        """Whether one product of matrices is faster than blocks: many of the rows are wanted by most."""
        return short.n_docs * len(self.rows) <= DENSE_GAIN * short.n_entries

    def logits(self, x: Floats, short: Shortlist) -> Floats:
        """The scores of the entries."""
        out = np.empty(short.n_entries, np.float32)
        if self.is_dense(short):
            every = torch().from_numpy(x) @ self._wide().T + _tensor(self.biases)
            heads.gather(every.numpy(), short.offsets, short.pairs, out)
            return out

        def shard(bounds: tuple[int, int]) -> None:
            heads.forward(x, self.rows, self.biases, short.offsets, short.pairs, short.order, *bounds, out)

        self._run(shard, short.shards)
        return out

    def step(
        self, x: Floats, short: Shortlist, slopes: Floats, rate: float, seed: int = 0, hold: bool = False
    ) -> Floats:
        """Update the rows by the loss's slopes [E]; returns its derivatives by x, with the rows as they were.

        With `hold` nothing is updated. `seed` is of the random rounding of this step.
        """
        method = heads.HOLD if hold else METHODS[self.optimizer]
        how = method, rate, self.decay, BETA1, BETA2, EPSILON
        noise = np.uint64(seed)
        if self.is_dense(short):
            return self._dense_step(x, short, slopes, how, noise)

        def shard(bounds: tuple[int, int]) -> Floats:
            back = np.zeros_like(x)
            heads.step(
                x, self.rows, self.biases, self.state, short.offsets, short.pairs, short.order, *bounds,
                slopes, how, noise, back,
            )  # fmt: skip
            return back

        total = np.zeros_like(x)
        for back in parallel.run(shard, short.shards, self.threads):
            total += back
        return total

    def update(self, ids: Ints, gradients: Floats, of_biases: Floats, rate: float, seed: int = 0) -> None:
        """A step of some rows (ids, each once), by given gradients."""
        how = METHODS[self.optimizer], rate, self.decay, BETA1, BETA2, EPSILON
        mine = self.rows, self.biases, *self.state
        rows, biases, *state = (own[ids] if len(own) else own for own in mine)
        touched = np.ones(len(ids), np.bool_)
        what = rows, biases, tuple(state), gradients, of_biases, touched, 0, len(ids)
        heads.apply(*what, how, np.uint64(seed))
        for own, new in zip(mine, (rows, biases, *state), strict=True):
            if len(own):
                own[ids] = new

    def _dense_step(self, x: Floats, short: Shortlist, slopes: Floats, how: Any, noise: Any) -> Floats:
        every = np.zeros((short.n_docs, len(self.rows)), np.float32)
        touched = np.zeros(len(self.rows), np.bool_)
        heads.scatter(slopes, short.offsets, short.pairs, every, touched)
        wide = torch().from_numpy(every)
        back: Floats = (wide @ self._wide()).numpy()
        if how[0] != heads.HOLD:
            gradients, of_biases = (wide.T @ torch().from_numpy(x)).numpy(), every.sum(axis=0)

            def shard(bounds: tuple[int, int]) -> None:
                heads.apply(
                    self.rows, self.biases, self.state, gradients, of_biases, touched, *bounds, how, noise
                )

            self._run(shard, parallel.blocks(len(self.rows), -(-len(self.rows) // SHARDS)))
        return back

    def _wide(self) -> Any:
        if self.rows.dtype == np.float32:
            return _tensor(self.rows)
        return _tensor(self.rows.view(np.int16)).view(torch().bfloat16).float()

    def _run(self, work: Any, items: Any) -> None:
        for _ in parallel.run(work, items, self.threads):
            pass

    def to_arrays(self, whole: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Rows and biases; with `whole` what the optimizer remembers too."""
        arrays = {"rows": self.rows, "biases": self.biases}
        names = ("squares", "steps", "firsts", "seconds")
        return {**arrays, **dict(zip(names, self.state, strict=True))} if whole else arrays

    def written(self) -> None:
        """To be called after rows or biases were written to by hand."""

    def take(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Become what to_arrays gave, of a head of the same shape."""
        for name, own in self.to_arrays("steps" in arrays).items():
            own[...] = arrays[name]


def _tensor(array: npt.NDArray[Any]) -> Any:
    """Without a copy, unless the array is mapped from a model folder: torch knows no arrays to read only."""
    return torch().from_numpy(array if array.flags.writeable else array.copy())


def row_bytes(width: int, optimizer: RowOptimizer, precision: str) -> int:
    """What a row takes in training, its bias and the optimizer's memory included.

    >>> row_bytes(384, "adagrad", "float32"), row_bytes(384, "adam", "bfloat16")
    (1544, 3856)
    """
    weights = width * (4 if precision == "float32" else 2) + 4
    return weights + {"sgd": 0, "adagrad": 4, "row-adam": 4, "adam": 8 * (width + 1) + 4}[optimizer]
