"""Nearest neighbours: the labels of the most similar training documents, by cosine of tf-idf.

No training to speak of and nothing to tune, which makes it the baseline that every other model has to beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError
from xmcascade.evaluate import Ranking, judge, ndcg
from xmcascade.features import Tfidf, TfidfSettings, normalise_rows
from xmcascade.kernels import neighbours as kernels
from xmcascade.kernels import parallel
from xmcascade.models.base import Model
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.views import Step, Told, View, term_of
from xmcascade.progress import tracker
from xmcascade.store import Strings

__all__ = ["NearestNeighbours", "NearestSettings"]

BLOCK_DOCS = 64  # queries a thread takes at a time
SMALL_CORPUS = 1000  # documents; below, rare and common words are all kept
CROWD = 10  # neighbours of a training document that tell how crowded its place is
CROWD_DOCS = 50_000  # training documents, at most, among which these are searched
MAX_TRIAL_DOCS = 2000  # held back to choose the sharpness: P@k to about one point
SHARPNESS = (1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, kw_only=True)
class NearestSettings(ModelSettings):
    """Settings of NearestNeighbours."""

    neighbours: int = 20
    """How many training documents vote."""
    sharpness: float | None = None
    """Neighbours vote with their similarity, relative to the nearest one's, to this power; None: chosen on
    documents held back from the training documents."""
    crowding: float = 0.5
    """Documents that are similar to many others are near to everything; their similarities are divided by how
    crowded their place is, to this power. 0: plain cosine."""
    prior: float = 0.01
    """Weight of a label's share of all documents beside the nearest neighbour's 1; decides where neighbours
    do not."""
    features: TfidfSettings = TfidfSettings(ngrams=(1, 2), min_df=2, max_df=0.1)  # noqa: RUF009 - it is frozen
    """The default keeps all words with fewer than 1,000 documents; crowding then is not applied either."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(self.neighbours >= 1, "neighbours", "from 1 up")
        self.require(self.sharpness is None or 0 <= self.sharpness <= 100, "sharpness", "0 to 100, or null")
        self.require(0 <= self.crowding <= 1, "crowding", "0 to 1")
        self.require(1e-9 <= self.prior <= 1e9, "prior", "1e-9 to 1e9")


@dataclass(frozen=True)
class _State:
    tfidf: Tfidf | None  # None when the corpus came with features
    documents: Any  # CSC, documents x features, rows of length 1 divided by how crowded their place is
    label_rows: npt.NDArray[np.int64]  # labels of document i: labels[label_rows[i]:label_rows[i + 1]]
    labels: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float64]  # of all documents, those with the label
    by_share: npt.NDArray[np.int32]  # labels, most frequent first
    sharpness: float


class NearestNeighbours(Model[NearestSettings, _State]):
    """Labels of the nearest training documents, each voting by its similarity.

    A label's score is its votes plus a little of its frequency; its probability is its share of all votes. A
    text that shares no word with the training documents gets the most frequent labels.

    >>> model = NearestNeighbours(neighbours=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> model.predict(["the sky"], k=1)[0][0].label
    'weather'
    """

    name: ClassVar[str] = "nearest"
    settings_type = NearestSettings
    quick: ClassVar[bool] = True

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        tfidf = None
        if corpus.texts is not None:
            features = self.settings.features
            if corpus.n_docs < SMALL_CORPUS and features == NearestSettings.features:
                keep_all = {"min_df": 1, "max_df": 1.0}
                reason = f"fewer than {SMALL_CORPUS:,} documents: every word counts"
                features = features.with_values(run.derive("features", keep_all, reason))
            tfidf = Tfidf(features, threads=run.threads)
            matrix = tfidf.fit_transform(corpus.texts)
        else:
            matrix = corpus.features.copy()
        queries = normalise_rows(matrix)
        documents = queries
        if self.settings.crowding and corpus.n_docs >= SMALL_CORPUS:
            documents = sp.diags_array(self._elbow_room(queries, run)) @ queries
        sharpness = self.settings.sharpness
        if sharpness is None:
            sharpness = run.derive("sharpness", *self._best_sharpness(corpus, queries, documents))
        return _state(tfidf, documents.tocsc(), corpus.labels, sharpness)

    def _elbow_room(self, queries: Any, run: FitRun) -> npt.NDArray[np.float32]:
        """What each training document's similarities are multiplied with: less where others are near."""
        n_docs = queries.shape[0]
        among = np.arange(n_docs)
        if n_docs > CROWD_DOCS:
            among = np.sort(run.rng.choice(n_docs, CROWD_DOCS, replace=False))
        ids, similar = self._nearest(queries[among].tocsc(), queries, CROWD + 1, "measuring crowds")
        others = np.where((ids >= 0) & (among[ids] != np.arange(n_docs)[:, None]), similar, 0)
        crowd = -np.sort(-others, axis=1)[:, :CROWD].mean(axis=1)
        return np.asarray(np.maximum(crowd, 0.01) ** -self.settings.crowding, np.float32)

    def _best_sharpness(self, corpus: Corpus, queries: Any, documents: Any) -> tuple[float, str]:
        """Try the candidates on documents held back, near-duplicates of which are held back too."""
        if corpus.n_docs < SMALL_CORPUS:
            return 4.0, f"fewer than {SMALL_CORPUS:,} documents are too few to choose on"
        try:
            held = corpus.split_mask(min(0.1, MAX_TRIAL_DOCS / corpus.n_docs), seed=self.settings.seed)
        except DataError:
            return 4.0, "nearly all documents are alike: none can be held back to choose on"
        rest = _state(None, documents[~held].tocsc(), corpus.labels[~held], 1.0)
        judged_by = corpus.labels[held]
        found = self._neighbours(rest, queries[held])
        quality = {}
        for sharpness in SHARPNESS:
            top, _, _ = self._votes(replace(rest, sharpness=sharpness), found, k=min(5, corpus.n_labels))
            quality[sharpness] = float(ndcg(judge(judged_by, top), 5).mean())
        best = max(SHARPNESS, key=quality.__getitem__)
        tried = f"the best of {len(SHARPNESS)} on {held.sum():,} documents held back"
        return best, f"nDCG@5 {100 * quality[best]:.1f} is {tried}"

    def _neighbours(self, state: _State, queries: Any) -> tuple[Any, Any]:
        """Ids and similarities of each query's nearest documents."""
        return self._nearest(state.documents, queries, self.settings.neighbours)

    def _nearest(self, documents: Any, queries: Any, k: int, title: str = "searching") -> tuple[Any, Any]:
        n_docs = documents.shape[0]
        k = min(k, n_docs)

        def find(block: tuple[int, int]) -> tuple[Any, Any]:
            rows = queries[block[0] : block[1]]
            by_feature = documents.indptr, documents.indices, documents.data
            ids, similar = kernels.nearest(rows.indptr, rows.indices, rows.data, *by_feature, n_docs, k)
            return ids, similar

        ids, similar = np.zeros((queries.shape[0], k), np.int32), np.zeros((queries.shape[0], k), np.float32)
        parts = parallel.blocks(queries.shape[0], BLOCK_DOCS)
        with tracker(f"{self.name}: {title}", queries.shape[0]) as seen:
            for (lo, hi), found in zip(parts, parallel.run(find, parts, self.threads), strict=True):
                ids[lo:hi], similar[lo:hi] = found
                seen.advance(hi - lo)
        return ids, similar

    def _votes(self, state: _State, found: tuple[Any, Any], k: int) -> tuple[Any, Any, Any]:
        weights = _weights(found[1], state.sharpness)
        prior = self.settings.prior * state.shares
        top, votes, total = kernels.votes_top(
            found[0], weights, state.label_rows, state.labels, prior, state.by_share, k
        )
        return top, votes, total

    def _queries(self, state: _State, documents: Corpus) -> Any:
        if state.tfidf is None:
            return normalise_rows(documents.features.copy())
        assert documents.texts is not None  # the contract has checked
        return normalise_rows(state.tfidf.transform(documents.texts))

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        top, votes, total = self._votes(state, self._neighbours(state, self._queries(state, documents)), k)
        return Ranking(top, votes, votes / (total + self.settings.prior)[:, None])

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        ids, similar = self._neighbours(state, self._queries(state, documents))
        weights, prior = _weights(similar, state.sharpness), self.settings.prior * state.shares
        asked = candidates.indptr, candidates.indices
        votes, total = kernels.votes_for(ids, weights, state.label_rows, state.labels, prior, *asked)
        every = np.repeat(total, np.diff(candidates.indptr)) + self.settings.prior
        return votes.astype(np.float32), (votes / every).astype(np.float32)

    def _views(self, state: _State) -> list[View]:
        return [_Votes(name="words of neighbours", share=1.0, tree=None, voted=partial(self._told, state))]

    def _told(self, state: _State, document: Corpus, labels: Any) -> Told:
        """A neighbour's vote, shared among the words by what each has of the similarity."""
        query, prior = self._queries(state, document), self.settings.prior
        ids, similar = self._neighbours(state, query)
        weights, real = _weights(similar, state.sharpness)[0], similar[0] > 0
        near, scale = ids[0][real], weights[real] / similar[0][real]
        votes = state.documents[:, query.indices].tocsr()[near].toarray() * query.data * scale[:, None]
        have = [set(state.labels[state.label_rows[i] : state.label_rows[i + 1]].tolist()) for i in near]
        terms = None if state.tfidf is None else state.tfidf.terms
        paths = []
        for label in labels.tolist():
            parts = votes[[label in own for own in have]].sum(axis=0)
            order = [i for i in np.argsort(-parts, kind="stable") if parts[i]]
            words = tuple((term_of(terms, query.indices[i]), float(parts[i])) for i in order)
            bias = prior * float(state.shares[label])
            score = bias + float(parts.sum())
            paths.append([Step(0, label, score, score / (float(weights.sum()) + prior), bias, words)])
        return Told((), paths)

    def _pack(self, state: _State) -> Packed:
        arrays = {
            "documents.indptr": state.documents.indptr,
            "documents.indices": state.documents.indices,
            "documents.data": state.documents.data,
            "label_rows": state.label_rows,
            "labels": state.labels,
        }
        strings: dict[str, Strings] = {}
        if state.tfidf is not None:
            learnt, strings = state.tfidf.state()
            arrays.update(learnt)
        return Packed(arrays, strings, {"shape": list(state.documents.shape), "sharpness": state.sharpness})

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        arrays = packed.arrays
        columns = tuple(arrays[f"documents.{part}"] for part in ("data", "indices", "indptr"))
        if columns[0].dtype != np.float32:
            raise ValueError(f"documents of {columns[0].dtype}, not float32")
        documents = sp.csc_matrix(columns, shape=tuple(packed.values["shape"]), copy=False)
        documents.check_format(full_check=True)
        label_rows, ids = arrays["label_rows"], arrays["labels"]
        marks = np.ones(len(ids), np.float32)
        labels = sp.csr_matrix((marks, ids, label_rows), shape=(documents.shape[0], n_labels), copy=False)
        labels.check_format(full_check=True)
        tfidf = None
        if "terms" in packed.strings:
            tfidf = Tfidf.restore(self.settings.features, arrays, packed.strings, self.threads)
        # The kernels trust these numbers.
        n_features = packed.values["n_features"] if tfidf is None else tfidf.n_features
        if documents.shape[1] != n_features or (tfidf is None) == (packed.values["n_features"] is None):
            raise ValueError(f"documents of {documents.shape[1]:,} features, not {n_features}")
        return _state(tfidf, documents, labels, float(packed.values["sharpness"]))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Votes(View):
    voted: Callable[[Corpus, Any], Told]

    def told(self, document: Corpus, labels: Any) -> Told:
        return self.voted(document, labels)

    def words(self, documents: Corpus, labels: Any) -> list[Any]:
        each = (self.voted(documents.take([i]), labels[i : i + 1]) for i in range(documents.n_docs))
        return [told.paths[0][0].words for told in each]


def _state(tfidf: Tfidf | None, documents: Any, labels: Any, sharpness: float) -> _State:
    shares = np.bincount(labels.indices, minlength=labels.shape[1]) / labels.shape[0]
    by_share = np.argsort(-shares, kind="stable").astype(np.int32)
    rows, ids = np.asarray(labels.indptr, np.int64), np.asarray(labels.indices, np.int32)
    return _State(tfidf, documents, rows, ids, shares, by_share, sharpness)


def _weights(similar: Any, sharpness: float) -> npt.NDArray[np.float64]:
    """What each neighbour's vote weighs: 1 for the nearest, less for others, nothing where there is none."""
    nearest = np.maximum(similar[:, :1], np.float32(1e-30))
    return np.where(similar > 0, (similar / nearest).astype(np.float64) ** sharpness, 0.0)
