"""XR-Linear, and Parabel, Bonsai and DiSMEC as settings of it: linear models at every level of a label tree.

Trained from the top, searched with a beam; several trees are averaged.
The strongest cheap method, and the linear stage of the neural ones (PECOS; XR-Transformer, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.features import Tfidf, TfidfSettings
from xmcascade.linear import Combine, LinearSettings
from xmcascade.models.background import Background
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.ranker import Ranker, RankerModel, RankerSettings, RankerState
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
class XRLinearSettings(RankerSettings):
    """Settings of XRLinear."""

    features: TfidfSettings = TfidfSettings(min_df=2)  # noqa: RUF009 - it is frozen
    """With fewer than 1,000 documents, min_df is not applied."""


class XRLinear(RankerModel[XRLinearSettings, RankerState]):
    """Linear models on a label tree.

    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> model.predict(["the sky"], k=1)[0][0].label
    'weather'
    """

    name: ClassVar[str] = "xr-linear"
    settings_type: ClassVar[type[ModelSettings]] = XRLinearSettings
    quick: ClassVar[bool] = True

    def _fit(self, corpus: Corpus, run: FitRun) -> RankerState:
        s = self.settings
        tfidf, documents = None, corpus.features
        if corpus.texts is not None:
            features = s.features
            if corpus.n_docs < SMALL_CORPUS and features == XRLinearSettings.features:
                reason = f"fewer than {SMALL_CORPUS:,} documents: every word counts"
                features = features.with_values({"min_df": run.derive("features.min_df", 1, reason)})
            tfidf = Tfidf(features, threads=run.threads)
            documents = tfidf.fit_transform(corpus.texts)
        tree_of = partial(self._tree, corpus, documents, tfidf, run)
        ranker = Ranker.learn(s, documents, corpus.labels, tree_of, run, self.name)
        most = s.background if tfidf is not None else 0  # labels can be added where there are texts
        background = Background.of(documents, None, most, s.seed)
        return RankerState(tfidf=tfidf, ranker=ranker, background=background)

    def _tree(self, corpus: Corpus, documents: Any, tfidf: Tfidf | None, run: FitRun, seed: int) -> LabelTree:
        s = self.settings
        how: dict[str, Any] = {"kind": s.label_features, "smoothing": s.smoothing}
        return learnt_tree(corpus, documents, tfidf, s.tree, **how, seed=seed, threads=run.threads)

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        return tree_arrays(corpus, self.settings.tree)

    def _queries(self, state: RankerState, documents: Corpus) -> Any:
        if state.tfidf is None:
            return documents.features
        assert documents.texts is not None  # the contract has checked
        return state.tfidf.transform(documents.texts)

    def _pack(self, state: RankerState) -> Packed:
        arrays, strings = state.to_arrays(), dict[str, Strings]()
        if state.tfidf is not None:
            learnt, strings = state.tfidf.state()
            arrays.update(learnt)
        return Packed(arrays, strings, {})

    def _unpack(self, packed: Packed, n_labels: int) -> RankerState:
        tfidf = None
        if "terms" in packed.strings:
            tfidf = Tfidf.restore(self.settings.features, packed.arrays, packed.strings, self.threads)
        n_features = int(packed.values["n_features"]) if tfidf is None else tfidf.n_features
        ranker = Ranker.from_arrays(self.settings, packed.arrays, n_labels, n_features)
        background = Background.from_arrays(packed.arrays, n_features, 0)
        return RankerState(tfidf=tfidf, ranker=ranker, background=background)


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

    def _tree(self, corpus: Corpus, documents: Any, tfidf: Tfidf | None, run: FitRun, seed: int) -> LabelTree:
        return LabelTree.flat(corpus.n_labels)
