"""What of a fitted model people can look into: each opinion that its answers are made of.

CascadeXML's answer is its cascade's, perhaps mixed with that of linear rows; Parabel has an opinion for each
tree, an ensemble for each member. A view is one of them: its tree, and what spoke for a label. Numbers and
places only; names are put on them in the report room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.features import MixedRows
from xmcascade.kernels.bfloat import widened
from xmcascade.linear import BlockWeights, Combine, node_probability, search
from xmcascade.models.reading import TextReader, Token
from xmcascade.neural import Cascade
from xmcascade.store import Strings
from xmcascade.tree import LabelTree

if TYPE_CHECKING:
    from xmcascade.models.base import Model

__all__ = ["CascadeView", "Inside", "LinearView", "Step", "Told", "View", "look_inside", "term_of"]

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]
Words = tuple[tuple[str, float], ...]
NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class Step:
    """A node on the way to a label, and what spoke for it in one text."""

    level: int
    node: int
    """Its place in its level; a label's is its position."""
    score: float
    """Its own."""
    probability: float
    """What the score becomes, 0 to 1."""
    bias: float
    """What the score has before a word is read."""
    words: Words = ()
    """What each word of the text adds to the score, the strongest first."""
    tokens: Floats = field(default_factory=lambda: NOTHING)
    """For each token of the text what it adds to the score; or where the view says "attention", how much of
    it the node takes (all of them add up to 1)."""


class Told(NamedTuple):
    """What a view says of one text."""

    tokens: tuple[Token, ...]
    """As it reads them; none where it reads words only."""
    paths: list[list[Step]]
    """For each label that was asked for, from the coarsest level to the label."""


@dataclass(frozen=True, eq=False, kw_only=True)
class View(ABC):
    """One opinion."""

    name: str
    """In a word or two, for people."""
    share: float
    """How much it counts in the model's answer."""
    tree: LabelTree | None
    text: TextReader | None = None
    """Its encoder, where it has one."""
    encoder: str = ""
    """The name of the pre-trained encoder that it was."""
    threads: int | None = None

    @property
    def how(self) -> Literal["parts", "attention"]:
        """What is told of tokens: parts of the score, or how much of them is taken."""
        return "attention" if self.text is not None and self.text.pooling == "cls" else "parts"

    @abstractmethod
    def told(self, document: Corpus, labels: Labels) -> Told:
        """Of the only document, for these labels."""

    def opened(self, documents: Corpus) -> list[Any]:
        """For each level of clusters those that go on, CSR, documents x clusters; none where it has none."""
        return []

    def speaking(self, level: int, node: int, n: int) -> list[tuple[str, float]]:
        """The words that speak most for a node in any text, with their weights; none where it reads none."""
        return []

    def words(self, documents: Corpus, labels: Labels) -> list[Words]:
        """What each word of a document adds to the own score of its label (one a document), as in `told`.

        Of no document, where it reads no words.
        """
        return []


@dataclass(frozen=True, eq=False, kw_only=True)
class CascadeView(View):
    """An encoder, or a network in its place, and heads over a tree."""

    tree: LabelTree
    text: TextReader
    cascade: Cascade

    def opened(self, documents: Corpus) -> list[Any]:
        """As `View.opened`."""
        assert documents.texts is not None  # who asks has checked
        return self.cascade.opened(self.text.read(documents.texts, self.threads))

    def told(self, document: Corpus, labels: Labels) -> Told:
        """As `View.told`."""
        assert document.texts is not None
        paths = np.array([self.tree.path(int(label)) for label in labels])  # [E, levels]
        found = zip(self.cascade.heads, paths.T, strict=True)
        rows = [widened(head.rows[nodes]) for head, nodes in found]
        tokens, levels = self.text.parts(document.texts[0], rows, self.threads)
        steps: list[list[Step]] = [[] for _ in labels]
        for t, (products, parts, _) in enumerate(levels):
            biases = self.cascade.heads[t].biases[paths[:, t]]
            for i, own in enumerate(steps):
                score = float(products[i] + biases[i])
                chance = float(np.exp(-np.logaddexp(0, -score)))
                # A network in an encoder's place has biases of its own, deeper in.
                rest = score - float(parts[i].sum()) if self.how == "parts" else float(biases[i])
                own.append(Step(t, int(paths[i, t]), score, chance, rest, tokens=parts[i]))
        return Told(tokens, steps)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearView(View):
    """Rows of weights over words, perhaps with an encoder's output beside them."""

    tree: LabelTree
    weights: BlockWeights
    queries: Callable[[Corpus], Any]
    """The features of documents."""
    terms: Strings | None
    """The words of the sparse features, where they are known."""
    combine: Combine
    beam: int = 0
    """Clusters that go on; 0: there are rows for labels alone."""

    def opened(self, documents: Corpus) -> list[Any]:
        """As `View.opened`."""
        from xmcascade.models.ranker import rows_of

        if not self.beam:
            return []
        queries = MixedRows.of(self.queries(documents))
        how: dict[str, Any] = {"beam": self.beam, "k": self.beam, "combine": self.combine}
        opened = []
        for t in range(self.tree.n_levels - 1):
            found, _ = search(queries, self.tree, self.weights, **how, threads=self.threads, n_levels=t + 1)
            opened.append(rows_of(found, self.tree.sizes[t]))
        return opened

    def told(self, document: Corpus, labels: Labels) -> Told:
        """As `View.told`."""
        query = MixedRows.of(self.queries(document))
        paths = [self.tree.path(int(label)) for label in labels]
        steps = [[(t, node) for t, node in enumerate(path) if self._at(t) >= 0] for path in paths]
        flat = [self._at(t) + node for own in steps for t, node in own]
        tokens, parts = self._dense(document, query, flat)
        read = iter(zip(flat, parts, strict=True))
        return Told(tokens, [[self._step(query, t, n, *next(read)) for t, n in own] for own in steps])

    def speaking(self, level: int, node: int, n: int) -> list[tuple[str, float]]:
        """As `View.speaking`."""
        if self._at(level) < 0:
            return []
        features, weights = self.weights.of_node(self._offsets, self._at(level) + node)
        best = np.argsort(-weights, kind="stable")[:n]
        return [(term_of(self.terms, features[i]), float(weights[i])) for i in best if weights[i] > 0]

    def words(self, documents: Corpus, labels: Labels) -> list[Words]:
        """As `View.words`."""
        sparse = MixedRows.of(self.queries(documents)).sparse
        rows = self._at(self.tree.n_levels - 1) + self.tree.positions[labels]
        return [self._words(sparse[i], int(row)) for i, row in enumerate(rows)] if sparse.shape[1] else []

    @property
    def _offsets(self) -> npt.NDArray[np.int64]:
        return self.tree.block_offsets if self.beam else self.tree.label_offsets

    def _at(self, level: int) -> int:
        """Where the rows of a level begin; -1 where it has none."""
        if self.beam:
            return int(self.tree.level_starts[level])
        return 0 if level == self.tree.n_levels - 1 else -1

    def _dense(
        self, document: Corpus, query: MixedRows, rows: Sequence[int]
    ) -> tuple[tuple[Token, ...], list[Floats]]:
        """The tokens, and what each of them says to these rows."""
        if self.text is None or not query.n_dense:
            return (), [NOTHING] * len(rows)
        assert document.texts is not None
        nobody = [np.zeros((0, width), np.float32) for width in self.text.widths[:-1]]
        asked = [*nobody, widened(self.weights.dense[np.array(rows)])]
        tokens, levels = self.text.parts(document.texts[0], asked, self.threads)
        _, parts, length = levels[-1]
        if self.how == "parts":  # the encoder's output was brought to another length
            parts = parts * np.float32(np.linalg.norm(query.dense[0]) / max(length, 1e-12))
        return tokens, list(parts)

    def _step(self, query: MixedRows, level: int, node: int, row: int, tokens: Floats) -> Step:
        words, bias = self._words(query.sparse, row), float(self.weights.biases[row])
        dense = float(query.dense[0] @ widened(self.weights.dense[row])) if query.n_dense else 0.0
        score = bias + dense + sum(part for _, part in words)
        if self.how == "attention":
            bias += dense
        chance = node_probability(score, self.combine)
        return Step(level, node, score, chance, bias, words, tokens)

    def _words(self, query: Any, row: int) -> Words:
        """What the words of a document, CSR of one row, add to the score of a row."""
        features, weights = self.weights.of_node(self._offsets, row)
        both = np.intersect1d(features, query.indices, assume_unique=True, return_indices=True)
        columns, own, theirs = both
        parts = weights[own] * query.data[theirs]
        order = np.lexsort((columns, -np.abs(parts)))
        return tuple((term_of(self.terms, columns[i]), float(parts[i])) for i in order)


def term_of(terms: Strings | None, feature: Any) -> str:
    """The word of a sparse feature, or its number where words are not known.

    >>> term_of(Strings.of(["cat", "dog"]), 1), term_of(None, 1)
    ('dog', 'feature 1')
    """
    return terms[int(feature)] if terms else f"feature {feature}"


@dataclass(frozen=True, eq=False)
class Inside:
    """A fitted model, opened."""

    label_names: Strings
    label_counts: npt.NDArray[np.int64]
    """Training documents of each label."""
    n_docs: int
    """Documents it learnt from."""
    views: list[View]


def look_inside(model: Model[Any, Any]) -> Inside:
    """Open a fitted model.

    >>> from xmcascade import XRLinear
    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> [view.name for view in look_inside(model).views]
    ['words']
    """
    learnt = model._fitted()
    views = model._views(learnt.state)
    return Inside(learnt.label_names, learnt.label_counts, learnt.n_docs, views)
