"""A fitted model, looked at from all sides: what it is good and bad at, where it looks, why it says it.

Numbers are taken from a bounded number of documents, chosen by seed, so that it takes a minute or two. Each
kind of model shows what it has: levels, attention, words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import SettingError, XmcError
from xmcascade.evaluate import Evaluation, Ranking, hits, judge, ndcg
from xmcascade.evaluate.calibration import Reliability, reliability
from xmcascade.models import Model
from xmcascade.models.inputs import as_corpus, with_labels
from xmcascade.models.views import Inside, View, look_inside
from xmcascade.neural import Encoder, TokenStore
from xmcascade.report.attention import Attention, attention_of, label_attention, pretrained_reader
from xmcascade.report.explain import Explanation, explain
from xmcascade.report.mistakes import Confusion, WrongDocument, confusions, worst_documents
from xmcascade.report.plots import figure
from xmcascade.report.similarity import Similarity, similarity_of_levels

__all__ = [
    "Example",
    "Inspection",
    "Looking",
    "ShortlistRecall",
    "WinningWords",
    "inspect_model",
    "inspected",
]

KS = (1, 3, 5)
RANKED = 20  # labels of each document
CALIBRATED = 5  # of these, probabilities are held against the truth
WINNERS, WORDS = 20, 6  # labels whose words are told, and how many


@dataclass(frozen=True)
class ShortlistRecall:
    """What of the truth survives a level of clusters (CascadeXML, Table 11); shares in percent."""

    opinion: str
    level: int
    clusters: int
    """That the level has."""
    going_on: float
    """Clusters of a document that go on, on average."""
    recall: float
    """Of the true clusters, those that go on."""
    labels: float
    """Of the true labels, those whose clusters go on."""


@dataclass(frozen=True, eq=False)
class Looking:
    """Where an opinion looks, by level."""

    opinion: str
    reads: tuple[tuple[int, ...], ...]
    """Encoder layers of each level; none where nodes attend to tokens themselves."""
    pooling: str
    attention: Attention | None
    before: Attention | None
    """Of the encoder before it was trained."""
    entropy: npt.NDArray[np.float64] | None
    """[documents, levels]"""
    similarity: Similarity | None
    similarity_before: Similarity | None
    n_docs: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        parts = ("attention", "before", "similarity", "similarity_before")
        found = {name: own and own.to_dict() for name in parts for own in (getattr(self, name),)}
        by_level = None if self.entropy is None else self.entropy.mean(axis=0).round(4).tolist()
        facts = {
            "opinion": self.opinion,
            "reads": self.reads,
            "pooling": self.pooling,
            "documents": self.n_docs,
        }
        return {**facts, "entropy_by_level": by_level, **found}


@dataclass(frozen=True)
class WinningWords:
    """The words that made a label win, on average over the documents in which it was first."""

    opinion: str
    label: str
    documents: int
    right: int
    words: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Example:
    """A text, and why it got its labels."""

    what: str
    """Of what it is an example."""
    explanation: Explanation
    true: tuple[str, ...] = ()
    """Its labels, where they are known."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"what": self.what, "true": list(self.true), **self.explanation.to_dict()}


@dataclass(frozen=True, eq=False)
class Inspection:
    """All that was found."""

    model: str
    n_labels: int
    n_trained_on: int
    n_docs: int
    """Documents it was asked about."""
    n_given: int
    """Documents with labels that there were to choose from."""
    seed: int
    evaluation: Evaluation
    reliability: Reliability
    confusions: list[Confusion]
    worst: list[WrongDocument]
    recalls: list[ShortlistRecall]
    looking: list[Looking]
    words: list[WinningWords]
    examples: list[Example]
    notes: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        bins = {
            name: getattr(self.reliability, name).tolist() for name in ("counts", "confidence", "accuracy")
        }
        bins = {name: [value if value == value else None for value in own] for name, own in bins.items()}
        names = ("model", "n_labels", "n_trained_on", "n_docs", "n_given", "seed", "notes")
        return {
            **{name: getattr(self, name) for name in names},
            "evaluation": self.evaluation.to_dict(),
            "calibration": {"error": self.reliability.error, **bins},
            "confusions": [asdict(own) for own in self.confusions],
            "worst_documents": [own.to_dict() for own in self.worst],
            "shortlist_recall": [asdict(own) for own in self.recalls],
            "looking": [own.to_dict() for own in self.looking],
            "winning_words": [asdict(own) for own in self.words],
            "examples": [own.to_dict() for own in self.examples],
        }


def inspect_model(
    model: Model[Any, Any],
    corpus: Any,
    folder: str | Path,
    *,
    text: str | None = None,
    documents: int = 2000,
    looked_at: int = 500,
    seed: int = 0,
) -> Inspection:
    """Ask a fitted model about a Corpus or table with labels, look inside it, and write a folder of it all.

    It has a page (index.html) that needs nothing else, its plots as PNG and SVG, and all numbers as JSON
    (inspection.json). The folder appears whole, and replaces an earlier inspection.

    text: a text to explain, in place of documents of the corpus. documents: at most so many are asked about.
    looked_at: of these, so many are used where the encoder's inside is looked at.

    >>> from tempfile import TemporaryDirectory
    >>> from xmcascade import XRLinear
    >>> corpus = Corpus.from_lists(["red apple", "blue sky"] * 5, [["fruit"], ["weather"]] * 5)
    >>> with TemporaryDirectory() as folder:
    ...     found = inspect_model(XRLinear().fit(corpus), corpus, f"{folder}/report")
    ...     Path(folder, "report", "index.html").is_file(), found.evaluation.metrics["P@1"]
    (True, 100.0)
    """
    from xmcascade.report.inspectpage import check_folder, write_folder

    check_folder(folder)
    with figure():
        pass  # whether plots can be drawn is known before the work
    found = inspected(model, corpus, text=text, documents=documents, looked_at=looked_at, seed=seed)
    write_folder(found, look_inside(model), folder)
    return found


def inspected(
    model: Model[Any, Any],
    corpus: Any,
    *,
    text: str | None = None,
    documents: int = 2000,
    looked_at: int = 500,
    seed: int = 0,
) -> Inspection:
    """The same without a folder.

    >>> from xmcascade import XRLinear
    >>> corpus = Corpus.from_lists(["red apple", "blue sky"] * 5, [["fruit"], ["weather"]] * 5)
    >>> inspected(XRLinear().fit(corpus), corpus).words[0].words[0][0] in ("apple", "red")
    True
    """
    for name, number, least in (("documents", documents, 1), ("looked_at", looked_at, 1), ("seed", seed, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise SettingError(f"{name} is {number!r}", remedy=f"use a whole number from {least} up")
    inside, corpus = look_inside(model), as_corpus(corpus, empty_text="keep")
    given = [] if text is None else [Example("your text", explain(model, text))]
    labelled = with_labels(corpus)
    asked = labelled.take(_some(labelled, documents, seed)).over_labels(model.label_names)
    ranking = model.rank(asked, RANKED)
    chosen = _some(asked, looked_at, seed)
    few, first = asked.take(chosen), ranking.labels[chosen, 0]
    notes: list[str] = []
    top = ranking.top(CALIBRATED)
    told = top.labels >= 0
    right = hits(asked.labels, top.labels)
    return Inspection(
        model=model.name,
        n_labels=model.n_labels,
        n_trained_on=inside.n_docs,
        n_docs=asked.n_docs,
        n_given=labelled.n_docs,
        seed=seed,
        evaluation=model.evaluate(asked, KS, ranking=ranking),
        reliability=reliability(top.probabilities[told], right[told]),
        confusions=confusions(asked.labels, ranking, asked.label_names),
        worst=worst_documents(asked, top),
        recalls=_recalls(inside.views, few, few.labels[:, : model.n_labels]),
        looking=_looked(inside.views, few, first, notes),
        words=_winning_words(inside, few, first),
        examples=given or _examples(model, asked, top),
        notes=notes,
    )


def _some(corpus: Corpus, most: int, seed: int) -> npt.NDArray[Any]:
    """Documents of it, this many at most."""
    if corpus.n_docs <= most:
        return np.arange(corpus.n_docs)
    return np.sort(np.random.default_rng(seed).choice(corpus.n_docs, most, replace=False))


def _recalls(views: Sequence[View], documents: Corpus, labels: Any) -> list[ShortlistRecall]:
    """Of each level of clusters, in each opinion that has some; labels: those that the model knows, CSR."""
    found = []
    plain = labels.copy()
    plain.data[:] = 1
    for view in views:
        if view.tree is None or not labels.nnz:
            continue
        relevance = view.tree.relevance(plain)
        for t, opened in enumerate(view.opened(documents)):
            mark = opened.astype(bool).astype(np.float32)
            reached = relevance[t].multiply(mark)
            found.append(
                ShortlistRecall(
                    view.name, t, view.tree.sizes[t], float(np.diff(opened.indptr).mean()),
                    100 * reached.nnz / relevance[t].nnz, float(100 * reached.sum() / relevance[t].sum()),
                )
            )  # fmt: skip
    return found


def _looked(
    views: Sequence[View], documents: Corpus, first: npt.NDArray[np.int32], notes: list[str]
) -> list[Looking]:
    """At each encoder once, and at networks whose nodes attend to tokens."""
    found, seen = [], set[int]()
    for view in views:
        if view.text is None:
            if view.how == "attention":
                shares = label_attention(view, documents, first)
                found.append(Looking(view.name, (), "", None, None, shares, None, None, documents.n_docs))
            continue
        if id(view.text) in seen or not isinstance(view.text.reader.encoder, Encoder):
            continue
        seen.add(id(view.text))
        found.append(_encoder(view, documents, notes))
    return found


def _encoder(view: View, documents: Corpus, notes: list[str]) -> Looking:
    assert view.text is not None and documents.texts is not None
    reader, text = view.text.reader, view.text
    tokens = TokenStore.of(documents.texts, text.tokenizer, text.max_tokens)
    several = len(reader.reads) > 1
    own, xs = attention_of(reader, tokens, "looking at the encoder")
    if own is None:
        notes.append(f"Encoders of this family do not tell their attention ({view.name}).")
    before, old = None, None
    try:
        base = pretrained_reader(view.encoder, reader)
        before, earlier = attention_of(base, tokens, "looking at it before training")
        old = similarity_of_levels(earlier) if several else None
    except XmcError as error:
        notes.append(f"There is no comparison with the encoder before training: {error.what}.")
    new = similarity_of_levels(xs) if several else None
    levels = own.levels if own is not None and several else None
    facts = view.name, reader.reads, reader.pooling
    return Looking(*facts, own, before, levels, new, old, documents.n_docs)


def _winning_words(inside: Inside, documents: Corpus, first: npt.NDArray[np.int32]) -> list[WinningWords]:
    """For the labels that are first most often, in the first opinion that reads words."""
    each = ((view, view.words(documents, first)) for view in inside.views)
    view, found = next(((view, found) for view, found in each if found), (None, []))
    if view is None:
        return []
    right = hits(documents.labels, first[:, None])[:, 0]
    listed = []
    for label, n in Counter(first.tolist()).most_common(WINNERS):
        own, sums = np.flatnonzero(first == label), Counter[str]()
        for i in own:
            sums.update(dict(found[i]))
        best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:WORDS]
        words = tuple((word, part / n) for word, part in best if part > 0)
        name = inside.label_names[label]
        listed.append(WinningWords(view.name, name, n, int(right[own].sum()), words))
    return listed


def _examples(model: Model[Any, Any], documents: Corpus, top: Ranking) -> list[Example]:
    """The document that it gets best, and the one that it gets worst."""
    if documents.texts is None:
        return []
    judged = judge(documents.labels, top.labels)
    quality, right = ndcg(judged, top.k), judged.hits.sum(axis=1)
    sure = np.where(judged.hits, 0, top.probabilities).max(axis=1)
    best, worst = int(np.lexsort((-right, -quality))[0]), int(np.lexsort((-sure, quality.round(6)))[0])
    chosen = {"a document that it gets right": best, "the document that it is most wrong about": worst}
    return [
        Example(what, explain(model, documents.texts[doc]), tuple(documents.label_set(doc)))
        for what, doc in chosen.items()
        if (quality[doc] > 0) == (doc == best)
    ]
