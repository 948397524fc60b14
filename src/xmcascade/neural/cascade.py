"""The cascade: a head at every level of the tree; what one level finds likely, the next one looks at closely.

Training scores a level's shortlist, adds the true clusters to the k best ones (a union: none is displaced)
and refines them to the next level's shortlist. Prediction is one compiled walk down the tree
(kernels/cascade.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.kernels import cascade as kernel
from xmcascade.kernels import heads as kernels
from xmcascade.kernels import parallel
from xmcascade.kernels.bfloat import narrowed
from xmcascade.neural.heads import Floats, Head, Ints, Shortlist
from xmcascade.tree import LabelTree

__all__ = ["Cascade", "LevelLoss", "Truth"]

BATCH = 64  # documents one thread walks down with
ONE = np.zeros(0, np.float32)  # every true node counts 1


@dataclass(frozen=True, eq=False)
class Truth:
    """The true nodes of some documents at one level, ascending for each."""

    rows: Ints
    nodes: npt.NDArray[np.int32]
    values: Floats
    """How much each of them counts, for those who ask."""

    @classmethod
    def of(cls, relevance: Any, docs: Any) -> Truth:
        """From a level of LabelTree.relevance."""
        part = relevance[docs]
        return cls(part.indptr.astype(np.int64), part.indices, part.data)

    @classmethod
    def none(cls, n_docs: int) -> Truth:
        """Of documents of which nothing is known."""
        return cls(np.zeros(n_docs + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(frozen=True, eq=False)
class LevelLoss:
    """What a forward pass leaves for a level: all that its backward pass needs, and what to log."""

    short: Shortlist
    x: Floats
    slopes: Floats
    loss: float
    """Binary cross entropy, as it enters the sum over levels."""
    n_true: int
    n_found: int
    """True nodes that are among the k best."""
    n_crowded: int
    """Documents with more than k true nodes."""


@dataclass(eq=False)
class Cascade:
    """Heads over a tree."""

    tree: LabelTree
    heads: list[Head]
    keeps: tuple[int, ...]
    """Clusters of each level that go on; one fewer than levels."""
    rescale: bool = True
    """Whether levels weigh by the size of their shortlists: alpha = |S_t| / min |S|."""
    threads: int | None = None
    weights: Floats | None = None
    """How much each label counts where it is true, in tree order; None: all 1."""

    @cached_property
    def offsets(self) -> tuple[Ints, ...]:
        """For each level the rows below each cluster of the level above."""
        return np.array([0, self.tree.sizes[0]]), *self.tree.offsets

    @cached_property
    def parents(self) -> tuple[npt.NDArray[np.int32], ...]:
        """For each level the cluster above each row."""
        return np.zeros(self.tree.sizes[0], np.int32), *self.tree.parents

    def forward(
        self,
        xs: Sequence[Floats],
        truths: Sequence[Truth],
        docs: Ints | None = None,
        n_docs: int | None = None,
    ) -> list[LevelLoss]:
        """Loss and slopes at every level, from its features of a batch of documents.

        The loss is the mean over documents; with n_docs, of a batch of so many of which these are a part.
        Which documents they are (docs) makes no difference here.
        """
        short = Shortlist.root(len(xs[0]), self.tree.sizes[0])
        shorts, scores, marks, counts = [], [], [], []
        for t, (x, truth, head) in enumerate(zip(xs, truths, self.heads, strict=True)):
            logits = head.logits(x, short)
            y = np.zeros(short.n_entries, np.float32)
            where = short.pairs, short.doc_pairs, short.offsets, self.parents[t], truth.rows, truth.nodes
            weights = self.weights if t == len(self.keeps) else None
            kernels.targets(*where, ONE if weights is None else weights[truth.nodes], y)
            shorts.append(short)
            scores.append(logits)
            marks.append(y)
            found, crowded = 0, 0
            if t < len(self.keeps):
                short, found, crowded = self.refined(t, short, logits, self.keeps[t], truth)
            counts.append((len(truth.nodes), found, crowded))
        sizes = np.array([np.diff(short.entry_bounds) for short in shorts])
        # A document's loss is the mean over its own candidates, alpha its own too: batches change nothing.
        scales = (
            1.0 / (len(xs[0]) if n_docs is None else n_docs) / (sizes.min(axis=0) if self.rescale else sizes)
        )
        scales = np.broadcast_to(scales, sizes.shape)
        levels = []
        for x, short, logits, y, scale, count in zip(xs, shorts, scores, marks, scales, counts, strict=True):
            slopes = np.empty_like(y)
            loss = kernels.cross_entropy(logits, y, short.entry_bounds, scale.copy(), slopes)
            levels.append(LevelLoss(short, x, slopes, loss, *count))
        return levels

    def refined(
        self, t: int, short: Shortlist, logits: Floats, keep: int, truth: Truth | None = None
    ) -> tuple[Shortlist, int, int]:
        """The next level's shortlist: the best clusters and all true ones.

        And how many of the true were among the best, and how many documents have more of them than go on.
        """
        truth = truth or Truth.none(short.n_docs)
        chosen = np.empty(min(short.n_entries, keep * short.n_docs + len(truth.nodes)), np.int64)
        ends = np.empty(short.n_docs + 1, np.int64)
        found, crowded = kernels.choose(
            short.pairs, short.doc_pairs, short.offsets, logits, keep, truth.rows, truth.nodes, chosen, ends
        )
        return Shortlist(ends, chosen[: ends[-1]], self.offsets[t + 1]), found, crowded

    def backward(
        self, levels: Sequence[LevelLoss], rate: float, seed: int, hold: bool = False
    ) -> list[Floats]:
        """Update every head; returns the loss's derivatives by the features."""
        return [
            head.step(level.x, level.short, level.slopes, rate, seed + t, hold)
            for t, (head, level) in enumerate(zip(self.heads, levels, strict=True))
        ]

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document needs at most for scores, targets and slopes."""
        return 3 * max(self.tree.sizes)

    def opened(self, xs: Sequence[Any], keeps: Sequence[int] | None = None) -> list[Any]:
        """For each level of clusters, those that go on for each document: CSR, documents x clusters, int8."""
        keeps = self.keeps if keeps is None else keeps
        found: list[list[Any]] = [[] for _ in keeps]
        for low, high in parallel.blocks(len(xs[0]), BATCH):
            short = Shortlist.root(high - low, self.tree.sizes[0])
            for t, keep in enumerate(keeps):
                x = np.ascontiguousarray(xs[t][low:high], np.float32)
                short = self.refined(t, short, self.heads[t].logits(x, short), keep)[0]
                marks = np.ones(len(short.clusters), np.int8)  # these are many: five bytes each
                shape = high - low, self.tree.sizes[t]
                found[t].append(
                    sp.csr_matrix((marks, short.clusters.astype(np.int32), short.doc_pairs), shape)
                )
        return [sp.vstack(parts, format="csr") for parts in found]

    def recall(self, xs: Sequence[Any], truths: Sequence[Truth]) -> list[float]:
        """For each level of clusters, the share of true clusters that a prediction would reach."""
        shares = []
        for opened, truth in zip(self.opened(xs), truths, strict=False):
            true = sp.csr_matrix(
                (np.ones(len(truth.nodes), np.float32), truth.nodes, truth.rows), opened.shape
            )
            shares.append(float(opened.multiply(true).nnz / max(true.nnz, 1)))
        return shares

    def find(
        self, xs: Sequence[Floats], powers: Sequence[float], k: int, allowed: Sequence[Any] | None = None
    ) -> tuple[npt.NDArray[np.int32], Floats]:
        """The k best labels of each document and their scores; -1 where there are none."""
        best = np.empty((len(xs[0]), min(k, self.tree.n_labels)), np.int64)
        values = np.empty(best.shape, np.float32)
        nowhere = np.zeros(0, np.bool_)
        masks = tuple(allowed) if allowed is not None else (nowhere,) * len(self.heads)
        keeps = np.array([*(max(keep, k) for keep in self.keeps), 0])
        weights = np.array(powers, np.float32)
        fixed = self._fixed(self.offsets)

        def part(bounds: tuple[int, int]) -> None:
            here = slice(*bounds)
            own = parallel.read_only(*(x[here] for x in xs))
            kernel.walk(own, *fixed, masks, keeps, weights, self._ranks, best[here], values[here])

        for _ in parallel.run(part, parallel.blocks(len(best), BATCH), self.threads):
            pass
        found = np.where(best >= 0, self.tree.order[best], -1)
        return found.astype(np.int32), values

    def score(self, xs: Sequence[Floats], powers: Sequence[float], candidates: Any) -> Floats:
        """The scores of given labels (CSR, documents x labels): one a stored entry."""
        wanted_rows = candidates.indptr.astype(np.int64)
        wanted = self.tree.positions[candidates.indices]
        out = np.empty(len(wanted), np.float32)
        weights = np.array(powers, np.float32)
        fixed = self._fixed(self.parents)

        def part(bounds: tuple[int, int]) -> None:
            low, high = wanted_rows[bounds[0]], wanted_rows[bounds[1]]
            own = parallel.read_only(*(x[slice(*bounds)] for x in xs))
            rows = wanted_rows[bounds[0] : bounds[1] + 1] - low
            kernel.score_labels(own, *fixed, weights, rows, wanted[low:high], out[low:high])

        for _ in parallel.run(part, parallel.blocks(len(xs[0]), BATCH), self.threads):
            pass
        return out

    def clusters(self) -> Cascade:
        """The same without the labels: it finds clusters of the last level."""
        tree = LabelTree(np.arange(self.tree.sizes[-2], dtype=np.int32), self.tree.offsets[:-1])
        return Cascade(tree, self.heads[:-1], self.keeps[:-1], threads=self.threads)

    def rearranged(
        self, tree: LabelTree, sources: Sequence[Ints], rows: Floats | None = None, biases: Floats = ONE
    ) -> Cascade:
        """For another tree, whose nodes are these of each level's; new labels' rows come after the old."""
        heads = []
        for t, (head, own) in enumerate(zip(self.heads, sources, strict=True)):
            known = head.to_arrays()
            old, old_biases = known["rows"], known["biases"]
            if rows is not None and t == len(self.keeps):
                more = rows if old.dtype == np.float32 else narrowed(rows)
                old, old_biases = np.concatenate([old, more]), np.concatenate([old_biases, biases])
            heads.append(Head(old[own], old_biases[own], "sgd", threads=self.threads))
        return Cascade(tree, heads, self.keeps, threads=self.threads)

    def to_arrays(self, narrow: bool = False) -> dict[str, npt.NDArray[Any]]:
        """The tree and all rows and biases, to store; with `narrow`, rows as bfloat16."""
        arrays = self.tree.to_arrays()
        for t, head in enumerate(self.heads):
            own = head.to_arrays()
            if narrow and own["rows"].dtype == np.float32:
                own["rows"] = narrowed(own["rows"])
            arrays.update({f"head.{t}.{name}": array for name, array in own.items()})
        return arrays

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, npt.NDArray[Any]],
        widths: Sequence[int],
        keeps: Sequence[int],
        threads: int | None = None,
    ) -> Cascade:
        """The opposite, for levels of these widths; raises ValueError when the parts do not fit."""
        tree = LabelTree.from_arrays(dict(arrays))
        if (
            len(widths) != tree.n_levels
            or len(keeps) != tree.n_levels - 1
            or not all(1 <= k < 2**62 for k in keeps)
        ):
            raise ValueError(f"{len(widths)} widths and shortlists {keeps} for {tree.n_levels} levels")
        heads = []
        for t, shape in enumerate(zip(tree.sizes, widths, strict=True)):
            rows, biases = arrays[f"head.{t}.rows"], arrays[f"head.{t}.biases"]
            if rows.shape != shape or biases.shape != shape[:1]:
                raise ValueError(f"a head of {rows.shape} and {biases.shape} for {shape}")
            if rows.dtype not in (np.float32, np.uint16) or biases.dtype != np.float32:
                raise ValueError(f"a head of {rows.dtype} and {biases.dtype}")
            heads.append(Head(rows, biases, "sgd", threads=threads))
        return cls(tree, heads, tuple(keeps), threads=threads)

    def masks(self, labels: Ints) -> list[npt.NDArray[np.bool_]]:
        """For each level the nodes that have any of these labels below them."""
        mask = np.zeros(self.tree.n_labels, np.bool_)
        mask[self.tree.positions[labels]] = True
        levels = [mask]
        for parents, size in zip(reversed(self.tree.parents), reversed(self.tree.sizes[:-1]), strict=True):
            mask = np.zeros(size, np.bool_)
            mask[parents[levels[0]]] = True
            levels.insert(0, mask)
        return levels

    @cached_property
    def _ranks(self) -> Any:
        return parallel.read_only(self.tree.order)[0]

    def _fixed(self, shape: Sequence[npt.NDArray[Any]]) -> tuple[Any, Any, Any]:
        arrays = [head.to_arrays() for head in self.heads]
        rows, biases = (parallel.read_only(*(own[name] for own in arrays)) for name in ("rows", "biases"))
        return rows, biases, parallel.read_only(*shape)
