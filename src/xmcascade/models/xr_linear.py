"""XR-Linear, and Parabel, Bonsai and DiSMEC as settings of it: linear models at every level of a label tree.

Trained from the top, searched with a beam; several trees are averaged.
The strongest cheap method, and the linear stage of the neural ones (PECOS; XR-Transformer, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.evaluate import Ranking
from xmcascade.features import LabelFeatures, Tfidf, TfidfSettings
from xmcascade.linear import (
    BlockWeights,
    Combine,
    LinearSettings,
    probability,
    score_paths,
    search,
    train_level,
)
from xmcascade.models.base import FitRun, Model, ModelSettings, Packed
from xmcascade.models.trees import learnt_tree, tree_arrays
from xmcascade.store import Strings
from xmcascade.tree import LabelTree, TreeSettings

__all__ = [
    "Bonsai",
    "BonsaiSettings",
    "DiSMEC",
    "DiSMECSettings",
    "Parabel",
    "ParabelSettings",
    "XRLinear",
    "XRLinearSettings",
]

SMALL_CORPUS = 1000  # documents; below, every word counts


@dataclass(frozen=True, kw_only=True)
class XRLinearSettings(ModelSettings):
    """Settings of XRLinear."""

    features: TfidfSettings = TfidfSettings(min_df=2)  # noqa: RUF009 - it is frozen
    """With fewer than 1,000 documents, min_df is not applied."""
    tree: TreeSettings = TreeSettings()  # noqa: RUF009
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
        self.require(1 <= self.trees <= 100, "trees", "1 to 100")
        self.require(0 < self.alpha < 1e3, "alpha", "above 0, below 1000")


@dataclass(frozen=True)
class _Member:
    tree: LabelTree
    weights: BlockWeights


@dataclass(frozen=True)
class _State:
    tfidf: Tfidf | None  # None when the corpus came with features
    members: list[_Member]  # one for each tree


class XRLinear(Model[XRLinearSettings, _State]):
    """Linear models on a label tree.

    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> model.predict(["the sky"], k=1)[0][0].label
    'weather'
    """

    name: ClassVar[str] = "xr-linear"
    settings_type: ClassVar[type[ModelSettings]] = XRLinearSettings

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        s = self.settings
        tfidf, documents = None, corpus.features
        if corpus.texts is not None:
            features = s.features
            if corpus.n_docs < SMALL_CORPUS and features == XRLinearSettings.features:
                reason = f"fewer than {SMALL_CORPUS:,} documents: every word counts"
                features = features.with_values({"min_df": run.derive("features.min_df", 1, reason)})
            tfidf = Tfidf(features, threads=run.threads)
            documents = tfidf.fit_transform(corpus.texts)
        members = []
        for i in range(s.trees):
            tree = self._tree(corpus, documents, tfidf, s.seed + i, run)
            members.append(_Member(tree, self._weights(corpus, documents, tree, i, run)))
        sizes = " - ".join(f"{size:,}" for size in members[0].tree.sizes)
        run.derive("levels", members[0].tree.sizes, f"{sizes}: what the tree's settings make of the labels")
        return _State(tfidf, members)

    def _tree(self, corpus: Corpus, documents: Any, tfidf: Tfidf | None, seed: int, run: FitRun) -> LabelTree:
        s = self.settings
        how: dict[str, Any] = {"kind": s.label_features, "smoothing": s.smoothing}
        return learnt_tree(corpus, documents, tfidf, s.tree, **how, seed=seed, threads=run.threads)

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        return tree_arrays(corpus, self.settings.tree)

    def _weights(
        self, corpus: Corpus, documents: Any, tree: LabelTree, number: int, run: FitRun
    ) -> BlockWeights:
        s = self.settings
        relevance = tree.relevance(corpus.labels)
        levels: list[BlockWeights] = []
        which = f"tree {number}, " if s.trees > 1 else ""
        for t, targets in enumerate(relevance):
            reached = sp.csr_matrix(np.ones((corpus.n_docs, 1), np.float32)) if t == 0 else relevance[t - 1]
            if t and "matcher" in s.negatives:
                matched = self._matched(documents, tree, levels, run)
                reached = reached + matched
                if s.negatives == "matcher":
                    reached, targets = matched, _within(targets, matched, tree.parents[t - 1])
            linear, weighed = self._weighed(targets)
            levels.append(
                train_level(
                    documents,
                    _by_column(reached),
                    _by_column(weighed),
                    tree.offsets[t - 1] if t else np.array([0, tree.sizes[0]]),
                    linear,
                    seed=s.seed,
                    threads=run.threads,
                    title=f"{self.name}: {which}level {t}",
                    checkpoint=run.checkpoint,
                )
            )
        return BlockWeights.join(levels)

    def _matched(self, documents: Any, tree: LabelTree, levels: list[BlockWeights], run: FitRun) -> Any:
        """The clusters that the levels trained so far find for each training document."""
        t, beam, combine = len(levels), self.settings.beam, self.settings.combine
        weights = BlockWeights.join(levels)
        found, _ = search(
            documents, tree, weights, beam=beam, k=beam, combine=combine, threads=run.threads, n_levels=t
        )
        return _rows_of(found, tree.sizes[t - 1])

    def _weighed(self, targets: Any) -> tuple[LinearSettings, Any]:
        """The costs of documents with and without a label: all 1, or by relevance."""
        linear, weighed = self.settings.linear, targets.copy()
        if not self.settings.cost_sensitive:
            weighed.data[:] = 1
            return linear, weighed
        sums = np.repeat(np.asarray(targets.sum(axis=1)).ravel(), np.diff(targets.indptr))
        weighed.data /= sums
        return linear.with_values({"negative_cost": linear.cost * self.settings.alpha}), weighed

    def _queries(self, state: _State, documents: Corpus) -> Any:
        if state.tfidf is None:
            return documents.features
        assert documents.texts is not None  # the contract has checked
        return state.tfidf.transform(documents.texts)

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        s, queries = self.settings, self._queries(state, documents)
        how: dict[str, Any] = {"beam": s.beam, "combine": s.combine, "threads": self.threads}
        if len(state.members) == 1:
            labels, scores = search(queries, state.members[0].tree, state.members[0].weights, k=k, **how)
            return Ranking(labels, scores, probability(scores, s.combine))
        # What any tree finds, all trees score: a label that one of them missed is not a label it scored 0.
        n_labels = state.members[0].tree.n_labels
        found = [
            search(queries, member.tree, member.weights, k=min(max(k, s.beam), n_labels), **how)[0]
            for member in state.members
        ]
        union = _rows_of(np.concatenate(found, axis=1), n_labels)
        union.sum_duplicates()
        labels, scores = _best(union, self._mean(state, queries, union), k)
        scores[labels < 0] = -np.inf if s.combine.startswith("log-") else 0
        return Ranking(labels, scores, probability(scores, s.combine))

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        scores = self._mean(state, self._queries(state, documents), candidates)
        return scores, probability(scores, self.settings.combine)

    def _mean(self, state: _State, queries: Any, candidates: Any) -> npt.NDArray[np.float32]:
        how = self.settings.combine, self.threads
        every = [score_paths(queries, m.tree, m.weights, candidates, *how) for m in state.members]
        if not self.settings.combine.startswith("log-"):
            return np.asarray(sum(every) / np.float32(len(every)), np.float32)
        mean = np.logaddexp.reduce(every) - np.float32(np.log(len(every)))  # the same mean, as a logarithm
        return np.asarray(np.minimum(mean, 0), np.float32)

    def _pack(self, state: _State) -> Packed:
        arrays: dict[str, npt.NDArray[Any]] = {}
        for i, member in enumerate(state.members):
            arrays.update({f"{i}.{name}": array for name, array in member.tree.to_arrays().items()})
            arrays.update(
                {f"{i}.{part.name}": getattr(member.weights, part.name) for part in fields(BlockWeights)}
            )
        strings: dict[str, Strings] = {}
        if state.tfidf is not None:
            learnt, strings = state.tfidf.state()
            arrays.update(learnt)
        return Packed(arrays, strings, {})

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        tfidf = None
        if "terms" in packed.strings:
            tfidf = Tfidf.restore(self.settings.features, packed.arrays, packed.strings, self.threads)
        n_features = int(packed.values["n_features"]) if tfidf is None else tfidf.n_features
        members = []
        for i in range(self.settings.trees):
            own = {
                name.removeprefix(f"{i}."): array
                for name, array in packed.arrays.items()
                if name.startswith(f"{i}.")
            }
            tree = LabelTree.from_arrays(own)
            if tree.n_labels != n_labels:
                raise ValueError(f"a tree of {tree.n_labels:,} labels for {n_labels:,}")
            weights = BlockWeights(*(own[part.name] for part in fields(BlockWeights)))
            weights.check(tree.block_offsets, n_features)  # the kernels trust these numbers
            members.append(_Member(tree, weights))
        return _State(tfidf, members)


@dataclass(frozen=True, kw_only=True)
class ParabelSettings(XRLinearSettings):
    """Settings of Parabel: XR-Linear's, with other defaults."""

    tree: TreeSettings = TreeSettings(arity=2, max_leaf=100)  # noqa: RUF009
    trees: int = 3
    beam: int = 10
    combine: Combine = "l2-hinge"


class Parabel(XRLinear):
    """Three balanced binary trees (Prabhu et al., 2018).

    >>> Parabel().settings.tree.arity, Parabel().settings.trees
    (2, 3)
    """

    name: ClassVar[str] = "parabel"
    settings_type = ParabelSettings


@dataclass(frozen=True, kw_only=True)
class BonsaiSettings(XRLinearSettings):
    """Settings of Bonsai: XR-Linear's, with other defaults."""

    tree: TreeSettings = TreeSettings(kind="kmeans", arity=100)  # noqa: RUF009
    trees: int = 3
    beam: int = 10
    combine: Combine = "l2-hinge"


class Bonsai(XRLinear):
    """Three shallow, wide trees of any balance (Khandagale et al., 2020).

    >>> Bonsai().settings.tree.kind, Bonsai().settings.tree.arity
    ('kmeans', 100)
    """

    name: ClassVar[str] = "bonsai"
    settings_type = BonsaiSettings


@dataclass(frozen=True, kw_only=True)
class DiSMECSettings(XRLinearSettings):
    """Settings of DiSMEC: no tree, small weights dropped as in the paper."""

    linear: LinearSettings = LinearSettings(threshold=0.01, tolerance=0.01)  # noqa: RUF009


class DiSMEC(XRLinear):
    """One against all, every document (Babbar and Schölkopf, 2017): no tree, one block.

    >>> model = DiSMEC().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> model.derived["levels"]["value"]
    [2]
    """

    name: ClassVar[str] = "dismec"
    settings_type = DiSMECSettings

    def _tree(self, corpus: Corpus, documents: Any, tfidf: Tfidf | None, seed: int, run: FitRun) -> LabelTree:
        return LabelTree.flat(corpus.n_labels)


def _rows_of(found: npt.NDArray[np.int32], n_columns: int) -> Any:
    """What was found for each document (ids, -1 for nothing) as a CSR matrix of ones."""
    real = found >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    marks = np.ones(int(ends[-1]), np.float32)
    return sp.csr_matrix((marks, found[real], ends), shape=(len(found), n_columns))


def _best(
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


def _by_column(matrix: Any) -> Any:
    """CSC with ascending rows."""
    columns = matrix.tocsc()
    columns.sort_indices()
    return columns
