"""Where a model goes wrong: labels it takes for one another, and documents it is most wrong about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.evaluate import Ranking, hits, judge, ndcg
from xmcascade.report.names import shortened

__all__ = ["Confusion", "WrongDocument", "confusions", "worst_documents"]

EXCERPT = 280  # characters
EACH = 3  # labels, at most, that one label is told in place of


@dataclass(frozen=True)
class Confusion:
    """A label that is true, and another that is predicted in its place."""

    true: str
    predicted: str
    documents: int
    """In so many documents the one was missed and the other told."""
    the_other_way: int
    """And in so many it was the other way round."""
    missed: int
    """Documents in which the true label was missed."""


@dataclass(frozen=True)
class WrongDocument:
    """A document, its labels, and what was said instead."""

    id: str
    excerpt: str
    true: tuple[str, ...]
    predicted: tuple[tuple[str, float, bool], ...]
    """Name, probability, whether it is right."""
    ndcg: float
    """In percent."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def confusions(truth: Any, ranking: Ranking, names: Any, n: int = 20) -> list[Confusion]:
    """The pairs of labels that are most often taken for one another (truth: CSR, documents x labels).

    Of a document with m labels, the first m predictions count: what is wrong among them took somebody's
    place. Pairs that meet only because both are frequent come late; a label is listed with the one that takes
    its place most.

    >>> truth = sp.csr_matrix(np.repeat([[1, 0, 0], [0, 0, 1]], 3, axis=0))
    >>> told = np.array([[1]] * 3 + [[2]] * 3)
    >>> [found] = confusions(truth, Ranking(told, told + 0.5, told * 0 + 0.5), ["cat", "lynx", "dog"])
    >>> found.true, found.predicted, found.documents
    ('cat', 'lynx', 3)
    """
    n_true = np.diff(truth.indptr)
    right = hits(truth, ranking.labels)
    within = (np.arange(ranking.k) < n_true[:, None]) & (ranking.labels >= 0)
    wrong = _marked(ranking.labels, within & ~right, truth.shape)
    found = _marked(ranking.labels, within & right, truth.shape)
    missed = (truth > 0).astype(np.int32) - found
    missed.eliminate_zeros()
    pairs = (missed.T @ wrong).tocoo()
    of_true, of_wrong = (np.asarray(own.sum(axis=0)).ravel() for own in (missed, wrong))
    often = pairs.data >= 2
    a, b, count = pairs.row[often], pairs.col[often], pairs.data[often]
    strength = count**2 / np.sqrt(of_true[a] * of_wrong[b].astype(np.float64))
    back = {(int(x), int(y)): int(c) for x, y, c in zip(pairs.row, pairs.col, pairs.data, strict=True)}
    listed: list[Confusion] = []
    partners: dict[int, int] = {}
    for i in np.lexsort((b, a, -strength)):
        x, y = int(a[i]), int(b[i])
        crowded = sum(other == y for other in partners.values()) >= EACH
        if x in partners or partners.get(y) == x or crowded:
            continue
        partners[x] = y
        listed.append(Confusion(names[x], names[y], int(count[i]), back.get((y, x), 0), int(of_true[x])))
        if len(listed) == n:
            break
    return listed


def worst_documents(corpus: Corpus, ranking: Ranking, n: int = 10) -> list[WrongDocument]:
    """Documents whose labels it missed, those first where it was surest of others.

    >>> corpus = Corpus.from_lists(["a cat", "a dog"], [["cat"], ["dog"]])
    >>> told = Ranking([[0], [0]], [[1.0], [1.0]], [[0.9], [0.8]])
    >>> [(wrong.excerpt, wrong.ndcg) for wrong in worst_documents(corpus, told)]
    [('a dog', 0.0)]
    """
    judged = judge(corpus.labels, ranking.labels)
    quality = ndcg(judged, ranking.k)
    told = (ranking.labels >= 0)[judged.docs] & ~judged.hits
    sure = np.where(told, ranking.probabilities[judged.docs], 0).max(axis=1)
    order = np.lexsort((np.arange(judged.n_docs), -sure, quality.round(6)))
    wrong = [i for i in order[:n] if quality[i] < 1]
    return [
        _document(corpus, ranking, int(judged.docs[i]), 100 * float(quality[i]), judged.hits[i])
        for i in wrong
    ]


def _document(
    corpus: Corpus, ranking: Ranking, doc: int, quality: float, right: npt.NDArray[np.bool_]
) -> WrongDocument:
    names = corpus.label_names
    row = zip(ranking.labels[doc].tolist(), ranking.probabilities[doc].tolist(), right.tolist(), strict=True)
    predicted = tuple((names[label], chance, hit) for label, chance, hit in row if label >= 0)
    text = "" if corpus.texts is None else shortened(corpus.texts[doc], EXCERPT)
    return WrongDocument(str(corpus.doc_id(doc)), text, tuple(corpus.label_set(doc)), predicted, quality)


def _marked(labels: npt.NDArray[np.int32], where: npt.NDArray[np.bool_], shape: tuple[int, int]) -> Any:
    rows, places = np.nonzero(where)
    marks = np.ones(len(rows), np.int32)
    return sp.csr_matrix((marks, (rows, labels[rows, places])), shape)
