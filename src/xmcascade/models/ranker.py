"""Linear models on label trees: learnt from the top, searched with a beam, averaged over trees.

XR-Linear is this on tf-idf; it is also the last stage of methods that put an encoder's output beside it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.evaluate import Propensity, Ranking
from xmcascade.features import LabelFeatures, MixedRows, Tfidf
from xmcascade.linear import (
    BlockWeights,
    Combine,
    LinearSettings,
    probability,
    score_paths,
    search,
    train_level,
)
from xmcascade.models.background import Background, home_clusters
from xmcascade.models.base import Model
from xmcascade.models.fitting import FitRun, ModelSettings
from xmcascade.models.views import LinearView, View
from xmcascade.store import within
from xmcascade.tree import LabelTree, TreeSettings

__all__ = [
    "Ranker", "RankerModel", "RankerSettings", "RankerState", "best_of", "by_column", "by_relevance",
    "rarity", "rows_of",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RankerSettings(ModelSettings):
    """Settings of linear models on trees."""

    tree: TreeSettings = TreeSettings()  # noqa: RUF009 - it is frozen
    label_features: LabelFeatures = "pifa"
    """What the tree is built from: the labels' documents, their own texts, or both."""
    smoothing: int = 0
    """Companions whose features a label's are mixed with before the tree is built; 0: none."""
    linear: LinearSettings = LinearSettings()  # noqa: RUF009
    negatives: Literal["teacher", "matcher", "teacher+matcher"] = "teacher"
    """Documents a cluster's children learn from: those with a label below it, those that the levels above
    send there, or both."""
    cost_sensitive: bool = False
    """Whether clusters with more of a document's labels weigh more (XR-Transformer, eq. 6)."""
    alpha: float = 0.125
    """Weight of documents without the label when cost-sensitive."""
    propensity: bool = False
    """Whether rare labels weigh more where they are true, by their inverse propensity (PfastreXML)."""
    background: int = 2000
    """Documents whose features are kept, so that labels added later are told apart from them; 0: none."""
    trees: int = 1
    """Trees to train, each from another seed; their products along the path are averaged."""
    beam: int = 20
    combine: Combine = "l3-hinge"
    """How a level's score enters the product along the path; with "log-" the product's logarithm is told."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(self.beam >= 1, "beam", "from 1 up")
        self.require(self.smoothing >= 0, "smoothing", "from 0 up")
        self.require(self.background >= 0, "background", "from 0 up")
        self.require(1 <= self.trees <= 100, "trees", "1 to 100")
        self.require(0 < self.alpha < 1e3, "alpha", "above 0, below 1000")


@dataclass(frozen=True)
class _Member:
    tree: LabelTree
    weights: BlockWeights


@dataclass(frozen=True)
class Ranker:
    """Learnt linear models, one for each tree."""

    settings: RankerSettings
    members: list[_Member]

    @classmethod
    def learn(
        cls,
        settings: RankerSettings,
        documents: Any,
        labels: Any,
        tree_of: Callable[[int], LabelTree],
        run: FitRun,
        title: str,
    ) -> Self:
        """From the documents' features (a matrix or MixedRows) and labels; tree_of: the tree for a seed."""
        members = []
        for i in range(settings.trees):
            tree = tree_of(settings.seed + i)
            which = f"{title}: tree {i}, " if settings.trees > 1 else f"{title}: "
            members.append(_Member(tree, _weights(settings, documents, labels, tree, run, which)))
        sizes = " - ".join(f"{size:,}" for size in members[0].tree.sizes)
        run.derive("levels", members[0].tree.sizes, f"{sizes}: what the tree's settings make of the labels")
        return cls(settings, members)

    def rank(self, queries: Any, k: int, threads: int | None) -> Ranking:
        """The k best labels of each query."""
        s = self.settings
        how: dict[str, Any] = {"beam": s.beam, "combine": s.combine, "threads": threads}
        if len(self.members) == 1:
            labels, scores = search(queries, self.members[0].tree, self.members[0].weights, k=k, **how)
            return Ranking(labels, scores, probability(scores, s.combine))
        # What any tree finds, all trees score: a label that one of them missed is not a label it scored 0.
        n_labels = self.members[0].tree.n_labels
        found = [
            search(queries, member.tree, member.weights, k=min(max(k, s.beam), n_labels), **how)[0]
            for member in self.members
        ]
        union = rows_of(np.concatenate(found, axis=1), n_labels)
        union.sum_duplicates()
        labels, scores = best_of(union, self.score(queries, union, threads)[0], k)
        scores[labels < 0] = -np.inf if s.combine.startswith("log-") else 0
        return Ranking(labels, scores, probability(scores, s.combine))

    def score(self, queries: Any, candidates: Any, threads: int | None) -> tuple[Any, Any]:
        """Scores and probabilities of given labels (CSR), one a stored entry."""
        combine = self.settings.combine
        every = [score_paths(queries, m.tree, m.weights, candidates, combine, threads) for m in self.members]
        if combine.startswith("log-"):
            mean = np.logaddexp.reduce(every) - np.float32(np.log(len(every)))  # the same, as a logarithm
            scores = np.asarray(np.minimum(mean, 0), np.float32)
        else:
            scores = np.asarray(sum(every) / np.float32(len(every)), np.float32)
        return scores, probability(scores, combine)

    def views(self, name: str, **what: Any) -> list[View]:
        """What people can look into: a view for each tree."""
        n, s = len(self.members), self.settings
        return [
            LinearView(
                name=name if n == 1 else f"{name}, tree {i}", share=1 / n, tree=member.tree,
                weights=member.weights, combine=s.combine, beam=s.beam, **what,
            )
            for i, member in enumerate(self.members, 1)
        ]  # fmt: skip

    def grown(self, documents: Any, labels: Any, background: Background, run: FitRun, title: str) -> Self:
        """With new labels, from documents that have them (labels: CSR)."""
        s, rows = self.settings, MixedRows.of(documents)
        new = background.checked().learn(rows, labels, s.linear, run, title)
        members = []
        for member in self.members:
            tree, homes = member.tree, np.zeros(labels.shape[1], np.int64)
            if tree.n_levels > 1:
                how: dict[str, Any] = {"beam": s.beam, "k": s.beam, "combine": s.combine}
                how |= {"threads": run.threads, "n_levels": tree.n_levels - 1}
                found, scores = search(rows, tree, member.weights, **how)
                homes = home_clusters(found, probability(scores, s.combine), labels)
            offsets = np.append(tree.block_offsets, tree.block_offsets[-1] + labels.shape[1])
            members.append(
                _rearranged(tree, *tree.grown(homes), offsets, BlockWeights.join([member.weights, new]))
            )
        return replace(self, members=members)

    def pruned(self, labels: Any) -> Self:
        """With only these labels."""
        members = [
            _rearranged(m.tree, *m.tree.pruned(labels), m.tree.block_offsets, m.weights) for m in self.members
        ]
        return replace(self, members=members)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Trees and weights, to store."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for i, member in enumerate(self.members):
            arrays.update({f"{i}.{name}": array for name, array in member.tree.to_arrays().items()})
            arrays.update(
                {f"{i}.{part.name}": getattr(member.weights, part.name) for part in fields(BlockWeights)}
            )
        return arrays

    @classmethod
    def from_arrays(
        cls,
        settings: RankerSettings,
        arrays: Mapping[str, npt.NDArray[Any]],
        n_labels: int,
        n_features: int,
        n_dense: int = 0,
    ) -> Self:
        """The opposite; raises ValueError when the parts do not fit."""
        members = []
        for i in range(settings.trees):
            own = within(arrays, f"{i}.")
            tree = LabelTree.from_arrays(own)
            if tree.n_labels != n_labels:
                raise ValueError(f"a tree of {tree.n_labels:,} labels for {n_labels:,}")
            weights = BlockWeights(*(own[part.name] for part in fields(BlockWeights)))
            weights.check(tree.block_offsets, n_features, n_dense)  # the kernels trust these numbers
            members.append(_Member(tree, weights))
        return cls(settings, members)


@dataclass(frozen=True, eq=False, kw_only=True)
class RankerState:
    """What all models that end in a ranker have learnt."""

    ranker: Ranker
    background: Background
    tfidf: Tfidf | None
    """None where words are not read, or the corpus came with features."""

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """To store."""
        return self.ranker.to_arrays() | self.background.to_arrays()


S = TypeVar("S", bound=ModelSettings)
R = TypeVar("R", bound=RankerState)


class RankerModel(Model[S, R]):
    """A model whose answers are its ranker's."""

    @abstractmethod
    def _queries(self, state: R, documents: Corpus) -> Any:
        """The documents' features."""

    def _views(self, state: R, name: str = "words", **more: Any) -> list[View]:
        terms = None if state.tfidf is None else state.tfidf.terms
        more |= {"terms": terms, "queries": partial(self._queries, state), "threads": self.threads}
        return state.ranker.views(name, **more)

    def _rank(self, state: R, documents: Corpus, k: int) -> Ranking:
        return state.ranker.rank(self._queries(state, documents), k, self.threads)

    def _score(self, state: R, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        return state.ranker.score(self._queries(state, documents), candidates, self.threads)

    def _add(self, state: R, examples: Corpus, n_docs: int, run: FitRun) -> R:
        queries = self._queries(state, examples)
        ranker = state.ranker.grown(queries, examples.labels, state.background, run, self.name)
        return replace(state, ranker=ranker)

    def _remove(self, state: R, kept: Any) -> R:
        return replace(state, ranker=state.ranker.pruned(kept))


def _rearranged(
    before: LabelTree, tree: LabelTree, sources: list[Any], offsets: Any, weights: BlockWeights
) -> _Member:
    """Weights of blocks at these offsets for a tree whose nodes are these of the tree before."""
    nodes = np.concatenate(
        [own + start for own, start in zip(sources, before.level_starts[:-1], strict=True)]
    )
    return _Member(tree, weights.rearranged(offsets, nodes, tree.block_offsets))


def _weights(
    settings: RankerSettings, documents: Any, labels: Any, tree: LabelTree, run: FitRun, title: str
) -> BlockWeights:
    s, relevance = settings, tree.relevance(labels)
    levels: list[BlockWeights] = []
    for t, targets in enumerate(relevance):
        reached = sp.csr_matrix(np.ones((labels.shape[0], 1), np.float32)) if t == 0 else relevance[t - 1]
        if t and "matcher" in s.negatives:
            weights = BlockWeights.join(levels)
            how: dict[str, Any] = {"beam": s.beam, "k": s.beam, "combine": s.combine}
            found, _ = search(documents, tree, weights, **how, threads=run.threads, n_levels=t)
            matched = rows_of(found, tree.sizes[t - 1])
            reached = reached + matched
            if s.negatives == "matcher":
                reached, targets = matched, _within(targets, matched, tree.parents[t - 1])
        linear, weighed = _weighed(settings, targets)
        if s.propensity and t == tree.n_levels - 1:
            weighed.data *= rarity(labels)[tree.order][weighed.indices]
        levels.append(
            train_level(
                documents,
                by_column(reached),
                by_column(weighed),
                tree.offsets[t - 1] if t else np.array([0, tree.sizes[0]]),
                linear,
                seed=s.seed,
                threads=run.threads,
                title=f"{title}level {t}",
                checkpoint=run.checkpoint,
            )
        )
    return BlockWeights.join(levels)


def _weighed(settings: RankerSettings, targets: Any) -> tuple[LinearSettings, Any]:
    """The costs of documents with and without a label: all 1, or by relevance."""
    linear = settings.linear
    if settings.cost_sensitive:
        return linear.with_values({"negative_cost": linear.cost * settings.alpha}), by_relevance(targets)
    return linear, (targets > 0).astype(np.float32)


def by_relevance(relevance: Any) -> Any:
    """The share of each node in what is relevant to its document (CSR, documents x nodes; eq. 6 and below).

    >>> by_relevance(sp.csr_matrix([[3.0, 1.0]])).toarray().tolist()
    [[0.75, 0.25]]
    """
    shares = relevance.copy()
    shares.data /= np.repeat(np.asarray(relevance.sum(axis=1)).ravel(), np.diff(relevance.indptr))
    return shares


def rarity(labels: Any) -> npt.NDArray[np.float32]:
    """The inverse propensity of each label (CSR, documents x labels), on average 1 over their occurrences.

    >>> (rarity(sp.csr_matrix([[1, 1], [1, 0], [1, 0]])) > 1).tolist()
    [False, True]
    """
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    inverse = Propensity().inverse(counts, labels.shape[0])
    mean = float((inverse * counts).sum() / max(counts.sum(), 1)) or 1.0
    return np.asarray(inverse / mean, np.float32)


def rows_of(found: npt.NDArray[np.int32], n_columns: int) -> Any:
    """What was found for each document (ids, -1 for nothing) as a CSR matrix of ones."""
    real = found >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    marks = np.ones(int(ends[-1]), np.float32)
    return sp.csr_matrix((marks, found[real], ends), shape=(len(found), n_columns))


def best_of(
    candidates: Any, scores: npt.NDArray[np.float32], k: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The k best candidates of each row, equals by label id."""
    docs = np.repeat(np.arange(candidates.shape[0]), np.diff(candidates.indptr))
    order = np.lexsort((candidates.indices, -scores, docs))
    ranks = np.arange(len(docs)) - candidates.indptr[docs]
    kept = ranks < k
    labels = np.full((candidates.shape[0], k), -1, np.int32)
    values = np.zeros((candidates.shape[0], k), np.float32)
    labels[docs[kept], ranks[kept]] = candidates.indices[order][kept]
    values[docs[kept], ranks[kept]] = scores[order][kept]
    return labels, values


def _within(targets: Any, reached: Any, parents: npt.NDArray[np.int32]) -> Any:
    """The targets (documents x children) whose document reaches the child's cluster."""
    entries, pairs = targets.tocoo(), reached.tocoo()
    n_clusters = reached.shape[1]
    wanted = entries.row.astype(np.int64) * n_clusters + parents[entries.col]
    kept = np.isin(wanted, pairs.row.astype(np.int64) * n_clusters + pairs.col)
    where = entries.row[kept], entries.col[kept]
    return sp.csr_matrix((entries.data[kept], where), shape=targets.shape)


def by_column(matrix: Any) -> Any:
    """CSC with ascending rows."""
    columns = matrix.tocsc()
    columns.sort_indices()
    return columns
