"""A second opinion: linear rows on tf-idf that score again what a cascade finds (CascadeXML, appendix A.3).

An encoder reads the beginning of a text and knows what words mean; tf-idf has every word of all of it, and
the rare ones. A label's row learns from the documents for which the cascade opens the label's cluster, so
there is no second tree, and the weights are pruned as each label finishes.

The paper puts the encoder's output beside tf-idf in these rows (`embedding` is its length there, tf-idf's
is 1). By default they have words alone, and the two scores are mixed afterwards: the encoder has already
learnt from the labels of the documents that rows learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.evaluate import WORTH, judge, worth
from xmcascade.features import MixedRows, Tfidf, TfidfSettings
from xmcascade.linear import BlockWeights, Combine, LinearSettings, score_labels, train_level
from xmcascade.models.fitting import FitRun
from xmcascade.models.ranker import best_of, by_column, rarity
from xmcascade.models.reading import WORDS, few
from xmcascade.neural import Powers
from xmcascade.store import Strings, within
from xmcascade.tree import LabelTree

__all__ = ["RESCORED", "LinearStage", "beside", "suited"]

RESCORED = 256  # labels of a document that are scored again, at least
SHARES = tuple(i / 10 for i in range(11))
HINGES: tuple[Combine, ...] = ("log-l1-hinge", "log-l2-hinge", "log-l3-hinge")
BEGIN = "linear."
LONG = 1500  # bytes of a document, in the mean, from which on pairs of words are told apart too
PAIRS: dict[str, Any] = {"ngrams": (1, 2), "min_df": 5}
FIRMER: dict[str, Any] = {"cost": 4.0, "threshold": 0.05}  # many features share a row's length


def suited(
    corpus: Corpus, features: TfidfSettings, linear: LinearSettings, run: FitRun
) -> tuple[TfidfSettings, LinearSettings]:
    """What rows read of documents and how they learn, where the settings leave both as they are.

    >>> run = FitRun(np.random.default_rng(0), 1, aloud=False)
    >>> texts = [" ".join(f"word{i}" for i in range(500)), "short"]
    >>> usual = WORDS, LinearSettings()
    >>> [suited(Corpus.from_lists([text], [["x"]]), *usual, run)[0].ngrams for text in texts]
    [(1, 2), (1, 1)]
    """
    assert corpus.texts is not None
    length = corpus.texts.n_bytes / max(corpus.n_docs, 1)
    if length < LONG or (features, linear) != (WORDS, LinearSettings()):
        return features, linear
    reason = f"documents have {length:,.0f} bytes in the mean"
    pairs = PAIRS | ({"min_df": 1} if few(corpus) else {})
    run.derive("linear_features", pairs, f"pairs of words: {reason}")
    run.derive("linear", FIRMER, reason)
    return features.with_values(pairs), linear.with_values(FIRMER)


@dataclass(frozen=True, eq=False)
class LinearStage:
    """Rows for the labels of a tree, and how much they count."""

    tfidf: Tfidf
    tree: LabelTree
    weights: BlockWeights
    linear: LinearSettings
    """How the rows learnt."""
    embedding: float
    """Length of the encoder's output beside tf-idf; 0: it is not there."""
    hinge: Combine = "log-l2-hinge"
    share: float = 0.5
    """Of these rows in a label's score; the cascade has the rest."""
    powers: Powers = ()
    """How the cascade combines its levels for that."""

    @classmethod
    def learn(
        cls,
        tfidf: Tfidf,
        documents: MixedRows,
        labels: Any,
        tree: LabelTree,
        opened: Any,
        settings: LinearSettings,
        embedding: float,
        run: FitRun,
        title: str,
        propensity: bool = False,
    ) -> Self:
        """From documents (`features` of them) and the clusters that the cascade opens for each (CSR)."""
        relevance = tree.relevance(labels)
        reached = opened
        if tree.n_levels > 1:
            reached = opened.astype(np.int8) + (relevance[-2] > 0).astype(np.int8)
        targets = relevance[-1].copy()
        targets.data[:] = rarity(labels)[tree.order][targets.indices] if propensity else 1
        weights = train_level(
            documents,
            by_column(reached),
            by_column(targets),
            tree.label_offsets,
            settings,
            threads=run.threads,
            title=f"{title}: linear rows",
            checkpoint=run.checkpoint,
        )
        # A label without documents says no to all, even where its whole cluster has none.
        unknown = np.bincount(targets.indices, minlength=tree.n_labels) == 0
        weights.biases[unknown] = np.minimum(weights.biases[unknown], -1)
        return cls(tfidf, tree, weights, settings, embedding)

    def features(self, texts: Strings, x: npt.NDArray[np.float32]) -> MixedRows:
        """What the rows read of documents: their words, and perhaps the encoder's output."""
        return beside(self.tfidf.transform(texts), x, self.embedding)

    def mixed(
        self, documents: MixedRows, candidates: Any, scores: npt.NDArray[np.float32], threads: int | None
    ) -> npt.NDArray[np.float32]:
        """The scores of candidates (CSR, documents x labels) that the cascade has scored so."""
        own = score_labels(documents, self.tree, self.weights, candidates, self.hinge, threads)
        return np.asarray((1 - self.share) * scores + self.share * own, np.float32)

    def chosen(
        self,
        documents: MixedRows,
        found: Mapping[Powers, tuple[Any, npt.NDArray[np.float32]]],
        labels: Any,
        inverse: npt.NDArray[np.float64],
        run: FitRun,
    ) -> Self:
        """With the hinge, share and powers that are best on held-out documents with these labels.

        found: for each way to combine levels, the candidates that the cascade finds, and its scores of them.
        inverse: the labels' inverse propensities.
        """
        best, value, alone = self, -1.0, -1.0
        for powers, (candidates, scores) in found.items():
            for hinge in HINGES:
                own = score_labels(documents, self.tree, self.weights, candidates, hinge, run.threads)
                for share in SHARES:
                    mixed = (1 - share) * scores + share * own
                    top, _ = best_of(candidates, mixed, min(5, self.tree.n_labels))
                    now = worth(judge(labels, top), inverse)
                    if now > value:
                        best, value = replace(self, hinge=hinge, share=share, powers=powers), now
                    alone = max(alone, now if not share else -1.0)
        worths = f"{100 * value:.1f} on held-out documents, of the cascade alone {100 * alone:.1f}"
        run.derive("linear_share", best.share, f"{WORTH} {worths}, {best.hinge}")
        run.derive("linear_powers", list(best.powers), "of the cascade's levels, beside the linear rows")
        return best

    def rearranged(self, tree: LabelTree, sources: Sequence[Any], new: BlockWeights | None = None) -> Self:
        """For another tree, whose labels are these of its own; new ones come after them."""
        offsets, weights = self.tree.label_offsets, self.weights
        if new is not None:
            offsets = np.append(offsets, offsets[-1] + len(new.biases))
            weights = BlockWeights.join([weights, new])
        weights = weights.rearranged(offsets, sources[-1], tree.label_offsets)
        return replace(self, tree=tree, weights=weights)

    def to_parts(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Strings], dict[str, Any]]:
        """Arrays, strings and values, to store; the tree is the cascade's."""
        arrays, strings = self.tfidf.state()
        arrays = {BEGIN + name: array for name, array in arrays.items()}
        arrays.update({BEGIN + part.name: getattr(self.weights, part.name) for part in fields(BlockWeights)})
        named = {BEGIN + name: own for name, own in strings.items()}
        values: dict[str, Any] = {"hinge": self.hinge, "share": self.share, "powers": self.powers}
        values |= {"features": self.tfidf.settings.to_dict(), "linear": self.linear.to_dict()}
        return arrays, named, values

    @classmethod
    def from_parts(
        cls,
        tree: LabelTree,
        embedding: float,
        width: int,
        threads: int | None,
        arrays: Mapping[str, npt.NDArray[Any]],
        strings: Mapping[str, Strings],
        values: Mapping[str, Any],
    ) -> Self:
        """The opposite, for an encoder of this width; raises ValueError when the parts do not fit."""
        own = within(arrays, BEGIN)
        features, linear = (
            TfidfSettings.from_dict(values["features"]),
            LinearSettings.from_dict(values["linear"]),
        )
        tfidf = Tfidf.restore(features, own, within(strings, BEGIN), threads)
        weights = BlockWeights(*(own[part.name] for part in fields(BlockWeights)))
        weights.check(tree.label_offsets, tfidf.n_features, width if embedding else 0)
        hinge, share = values["hinge"], float(values["share"])
        powers = tuple(map(float, values["powers"]))
        if hinge not in HINGES or not 0 <= share <= 1 or len(powers) != tree.n_levels or min(powers) < 0:
            raise ValueError(f"a linear stage with {hinge!r:.40}, {share} and {powers}")
        return cls(tfidf, tree, weights, linear, embedding, hinge, share, powers)


def beside(words: Any, x: npt.NDArray[np.float32], embedding: float) -> MixedRows:
    """tf-idf and, at this length, the encoder's output.

    >>> import scipy.sparse as sp
    >>> beside(sp.csr_matrix([[1.0]]), np.array([[3.0, 4.0]]), 0.5).dense.tolist()
    [[0.30000001192092896, 0.4000000059604645]]
    """
    if not embedding:
        return MixedRows.of(words)
    x = np.asarray(x, np.float32)
    lengths = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.float32(1e-12))
    return MixedRows.of(words, x * (np.float32(embedding) / lengths))
