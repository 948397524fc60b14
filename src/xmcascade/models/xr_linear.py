"""XR-Linear: a linear model at every level of a label tree, trained from the top, searched with a beam.

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
from xmcascade.features import Tfidf, TfidfSettings, label_features
from xmcascade.linear import (
    BlockWeights,
    Combine,
    LinearSettings,
    block_offsets,
    score_paths,
    search,
    train_level,
)
from xmcascade.models.base import FitRun, Model, ModelSettings, Packed
from xmcascade.store import Strings
from xmcascade.tree import LabelTree, TreeSettings, build_tree

__all__ = ["XRLinear", "XRLinearSettings"]

SMALL_CORPUS = 1000  # documents; below, every word counts


@dataclass(frozen=True, kw_only=True)
class XRLinearSettings(ModelSettings):
    """Settings of XRLinear."""

    features: TfidfSettings = TfidfSettings(min_df=2)  # noqa: RUF009 - it is frozen
    """With fewer than 1,000 documents, min_df is not applied."""
    tree: TreeSettings = TreeSettings()  # noqa: RUF009
    linear: LinearSettings = LinearSettings()  # noqa: RUF009
    negatives: Literal["teacher", "teacher+matcher"] = "teacher"
    """Documents a cluster's children learn from: those with a label below it, and with "matcher" also those
    that the levels above send there."""
    cost_sensitive: bool = False
    """Whether clusters with more of a document's labels weigh more (XR-Transformer, eq. 6)."""
    alpha: float = 0.125
    """Weight of documents without the label when cost-sensitive."""
    beam: int = 20
    combine: Combine = "l3-hinge"
    """How a level's score enters the product along the path."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(self.beam >= 1, "beam", "from 1 up")
        self.require(0 < self.alpha < 1e3, "alpha", "above 0, below 1000")


@dataclass(frozen=True)
class _State:
    tfidf: Tfidf | None  # None when the corpus came with features
    tree: LabelTree
    levels: list[BlockWeights]
    n_features: int


class XRLinear(Model[XRLinearSettings, _State]):
    """Linear models on a label tree.

    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> model.predict(["the sky"], k=1)[0][0].label
    'weather'
    """

    name: ClassVar[str] = "xr-linear"
    settings_type = XRLinearSettings

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        s = self.settings
        tfidf, documents = None, corpus.features
        if corpus.texts is not None:
            small = corpus.n_docs < SMALL_CORPUS
            tfidf = Tfidf(s.features.with_values({"min_df": 1}) if small else s.features, threads=run.threads)
            documents = tfidf.fit_transform(corpus.texts)
        of_labels = label_features("pifa", documents=documents, labels=corpus.labels)
        tree = build_tree(s.tree, of_labels, seed=s.seed, threads=run.threads)
        run.derive(
            "levels", tree.sizes, f"{corpus.n_labels:,} labels, {s.tree.max_leaf} at most in a cluster"
        )
        relevance = tree.relevance(corpus.labels)
        levels: list[BlockWeights] = []
        for t, targets in enumerate(relevance):
            reached = sp.csr_matrix(np.ones((corpus.n_docs, 1), np.float32)) if t == 0 else relevance[t - 1]
            if t and "matcher" in s.negatives:
                reached = reached + self._matched(documents, tree, levels, run)
            title = f"{self.name}: level {t}"
            linear, weighed = self._weighed(targets)
            blocks = block_offsets(tree, t)
            levels.append(
                train_level(
                    documents,
                    _by_column(reached),
                    _by_column(weighed),
                    blocks,
                    linear,
                    seed=s.seed,
                    threads=run.threads,
                    title=title,
                )
            )
        return _State(tfidf, tree, levels, documents.shape[1])

    def _matched(self, documents: Any, tree: LabelTree, levels: list[BlockWeights], run: FitRun) -> Any:
        """The clusters that the levels trained so far find for each training document."""
        t, s = len(levels), self.settings
        found, _ = search(
            documents, tree, levels, beam=s.beam, k=s.beam, combine=s.combine, threads=run.threads, n_levels=t
        )
        rows, ends = found[found >= 0], np.cumsum([0, *(found >= 0).sum(axis=1)])
        marks = np.ones(len(rows), np.float32)
        return sp.csr_matrix((marks, rows, ends), shape=(documents.shape[0], tree.sizes[t - 1]))

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
        s = self.settings
        labels, scores = search(
            self._queries(state, documents),
            state.tree,
            state.levels,
            beam=s.beam,
            k=k,
            combine=s.combine,
            threads=self.threads,
        )
        return Ranking(labels, scores, scores)

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        queries = self._queries(state, documents)
        scores = score_paths(queries, state.tree, state.levels, candidates, self.settings.combine)
        return scores, scores

    def _pack(self, state: _State) -> Packed:
        arrays: dict[str, npt.NDArray[Any]] = dict(state.tree.to_arrays())
        for t, level in enumerate(state.levels):
            arrays.update({f"level.{t}.{part.name}": getattr(level, part.name) for part in fields(level)})
        strings: dict[str, Strings] = {}
        if state.tfidf is not None:
            learnt, strings = state.tfidf.state()
            arrays.update(learnt)
        return Packed(arrays, strings, {})

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        arrays = packed.arrays
        tree = LabelTree.from_arrays(arrays)
        if tree.n_labels != n_labels:
            raise ValueError(f"a tree of {tree.n_labels:,} labels for {n_labels:,}")
        tfidf = None
        if "terms" in packed.strings:
            tfidf = Tfidf.restore(self.settings.features, arrays, packed.strings, self.threads)
        n_features = int(packed.values["n_features"]) if tfidf is None else tfidf.n_features
        levels = []
        for t in range(tree.n_levels):
            level = BlockWeights(*(arrays[f"level.{t}.{part.name}"] for part in fields(BlockWeights)))
            level.check(block_offsets(tree, t), n_features)
            levels.append(level)
        return _State(tfidf, tree, levels, n_features)


def _by_column(matrix: Any) -> Any:
    """CSC with ascending rows."""
    columns = matrix.tocsc()
    columns.sort_indices()
    return columns
