"""A corpus: documents and their label sets, checked once and immutable from then on.

Texts are packed (see Strings), label sets are one sparse matrix whose values are the relevance weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus.splits import near_duplicate_key, part_of_groups
from xmcascade.errors import DataError, SettingError
from xmcascade.store import Strings

__all__ = ["Corpus", "LeftOut", "near_duplicate_key"]

SplitKey = str | Iterable[object] | Callable[[str], object] | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something reading with on_error="skip" left out: why, how often, and where and what first."""

    reason: str
    count: int
    first: str
    what: str = ""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents with their labels.

    Make one with `Corpus.from_lists`, `Corpus.from_table`, `read_corpus` or `load_corpus`.

    >>> corpus = Corpus.from_lists(["red apple", "green pear"], [["fruit", "red"], ["fruit"]])
    >>> corpus.n_docs, corpus.n_labels, corpus.label_set(0)
    (2, 2, ['fruit', 'red'])
    """

    labels: Any
    """scipy CSR matrix, documents x labels, float32; a stored value is a relevance weight, 1 by default."""
    label_names: Strings
    texts: Strings | None = None
    """The documents' texts; None when the corpus came as a feature matrix."""
    features: Any = None
    """scipy CSR matrix, documents x features, float32, for corpora that come without text; else None."""
    label_texts: Strings | None = None
    ids: Strings | None = None
    left_out: tuple[LeftOut, ...] = ()

    def __post_init__(self) -> None:
        n_docs, n_labels = self.labels.shape
        if self.texts is None and self.features is None:
            raise DataError("a corpus needs texts or features", remedy="give one of the two")
        sizes = {
            "texts": (self.texts, n_docs, "documents"),
            "ids": (self.ids, n_docs, "documents"),
            "label names": (self.label_names, n_labels, "labels"),
            "label texts": (self.label_texts, n_labels, "labels"),
        }
        for name, (value, expected, of) in sizes.items():
            if value is not None and len(value) != expected:
                raise DataError(f"{len(value):,} {name} for {expected:,} {of}", remedy="give one for each")
        if self.features is not None and self.features.shape[0] != n_docs:
            raise DataError(
                f"the features have {self.features.shape[0]:,} rows for {n_docs:,} documents",
                remedy="give one row for each document",
            )

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        return int(self.labels.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without documents."""
        return int(self.labels.shape[1])

    def __len__(self) -> int:
        return self.n_docs

    @cached_property
    def label_ids(self) -> dict[str, int]:
        """Label name -> label id."""
        return {name: i for i, name in enumerate(self.label_names)}

    def label_set(self, doc: int) -> list[str]:
        """The names of one document's labels."""
        row = self.labels.indices[self.labels.indptr[doc] : self.labels.indptr[doc + 1]]
        return [self.label_names[i] for i in row.tolist()]

    def doc_id(self, doc: int) -> str | int:
        """A document's id, or its position from 0 where the corpus has no ids."""
        return doc if self.ids is None else self.ids[doc]

    def label_counts(self) -> npt.NDArray[np.int64]:
        """For each label, how many documents have it."""
        return np.bincount(self.labels.indices, minlength=self.n_labels)

    @property
    def has_weights(self) -> bool:
        """Whether any relevance weight differs from 1."""
        return bool((self.labels.data != 1).any())

    def arrays(self) -> list[npt.NDArray[Any]]:
        """All a model can learn from, as arrays: equal for equal corpora.

        >>> corpus = Corpus.from_lists(["a", "b"], [["x"], ["y"]])
        >>> len(corpus.arrays()), bytes(corpus.take([1]).arrays()[4])
        (7, b'b')
        """
        arrays = [self.labels.indptr, self.labels.indices, self.labels.data]
        for strings in (self.texts, self.label_names, self.label_texts):
            if strings is not None:
                bounds = strings.offsets
                arrays += [bounds - bounds[0], strings.data[bounds[0] : bounds[-1]]]
        if self.features is not None:
            arrays += [self.features.indptr, self.features.indices, self.features.data]
            arrays += [np.array(self.features.shape)]
        return arrays

    def take(self, docs: npt.ArrayLike) -> Corpus:
        """The documents at these positions, in this order, or under a mask, over the same labels.

        >>> corpus = Corpus.from_lists(["a", "b", "c"], [["x"], ["y"], ["z"]])
        >>> list(corpus.take([2, 0]).texts), list(corpus.take([False, True, False]).texts)
        (['c', 'a'], ['b'])
        """
        rows = np.asarray(docs)
        if rows.dtype == bool:
            if rows.shape != (self.n_docs,):
                what = f"a mask of {rows.size:,} for {self.n_docs:,} documents"
                raise SettingError(what, remedy="give one for each")
            rows = np.flatnonzero(rows)
        rows = rows.astype(np.int64, casting="same_kind" if rows.size else "unsafe")  # [] is of floats
        return replace(
            self,
            labels=self.labels[rows],
            texts=None if self.texts is None else self.texts.take(rows),
            features=None if self.features is None else self.features[rows],
            ids=None if self.ids is None else self.ids.take(rows),
            left_out=(),
        )

    def split(
        self,
        fraction: float = 0.1,
        *,
        key: SplitKey = None,
        seed: int = 0,
    ) -> tuple[Corpus, Corpus]:
        """Cut into (rest, part), the part holding about this fraction of the documents.

        Documents with the same key stay on one side. By default the key is the text without case, digits and
        punctuation, so that near-duplicates stay together. It may be a function of the text, one value for
        each document, "id", or "none" for every document by itself. The same documents, key and seed give the
        same parts, whatever the order of the documents (only "none" goes by their position).

        >>> corpus = Corpus.from_lists([f"text {c}" for c in "abcdefghij"], [["x"]] * 10)
        >>> [part.n_docs for part in corpus.split(0.2)]
        [8, 2]
        """
        in_part = self.split_mask(fraction, key=key, seed=seed)
        return self.take(~in_part), self.take(in_part)

    def split_mask(
        self,
        fraction: float,
        *,
        key: SplitKey = None,
        seed: int = 0,
    ) -> npt.NDArray[np.bool_]:
        """Which documents `split` puts into the part.

        >>> corpus = Corpus.from_lists([f"text {c}" for c in "abcdefghij"], [["x"]] * 10)
        >>> int(corpus.split_mask(0.3).sum())
        3
        """
        return part_of_groups(self._split_keys(key), self.n_docs, fraction, seed)

    def _split_keys(self, key: SplitKey) -> Iterable[object]:
        if key is None:
            key = "none" if self.texts is None else near_duplicate_key
        if callable(key):
            if self.texts is None:
                raise SettingError("a function as key needs texts", remedy="give one key for each document")
            return map(key, self.texts)
        if isinstance(key, str):
            if key == "none":
                return range(self.n_docs)
            if key != "id":
                remedy = 'use "id", "none", a function or a list of keys'
                raise SettingError(f"key is {key!r}", remedy=remedy)
            if self.ids is None:
                raise SettingError('key is "id" but the documents have no ids', remedy="use another key")
            return self.ids
        keys = list(key)
        if len(keys) != self.n_docs:
            raise SettingError(
                f"{len(keys):,} keys for {self.n_docs:,} documents", remedy="give one for each"
            )
        return keys

    def with_label_texts(self, told: Corpus) -> Corpus:
        """The same documents, with texts of labels: those of another corpus whose documents tell of labels.

        A label with several such documents has their texts, line by line. Labels that no document has come in
        with their texts too.

        >>> corpus = Corpus.from_lists(["an apple"], [["f"]])
        >>> told = Corpus.from_lists(["fruit of a tree", "it rains"], [["f"], ["w"]])
        >>> list(corpus.with_label_texts(told).label_texts)
        ['fruit of a tree', 'it rains']
        """
        if told.texts is None:
            raise DataError("the labels' texts are features", remedy="give texts")
        names = Strings.of(sorted({*self.label_names, *told.label_names}))
        texts = list(told.texts)
        by_label = told.over_labels(names).labels.tocsc()
        rows = (by_label.indices[a:b].tolist() for a, b in pairwise(by_label.indptr.tolist()))
        joined = Strings.of("\n".join(texts[i] for i in sorted(row)) for row in rows)
        return replace(self.over_labels(names), label_texts=joined)

    def with_label_documents(self) -> Corpus:
        """The labels' texts as further documents, each with its label, after the others.

        >>> corpus = Corpus.from_lists(["an apple"], [["f"]], label_texts={"f": "fruit of a tree"})
        >>> list(corpus.with_label_documents().texts)
        ['an apple', 'fruit of a tree']
        """
        if self.texts is None or self.label_texts is None:
            missing = "documents" if self.texts is None else "labels"
            raise DataError(f"the {missing} have no texts", remedy="give texts of documents and of labels")
        told = np.array([i for i, text in enumerate(self.label_texts) if text.strip()], np.int32)
        own = (np.ones(len(told), np.float32), told, np.arange(len(told) + 1))
        labels = sp.csr_matrix(own, shape=(len(told), self.n_labels))
        ids = None if self.ids is None else Strings.of([*self.ids, *self.label_names.take(told)])
        return replace(
            self,
            labels=sp.vstack([self.labels, labels], format="csr"),
            texts=Strings.of([*self.texts, *self.label_texts.take(told)]),
            features=None,
            ids=ids,
        )

    def over_labels(self, names: Strings) -> Corpus:
        """The same documents over these labels first; labels of its own that are not among them come after.

        >>> corpus = Corpus.from_lists(["a", "b"], [["x"], ["y"]])
        >>> list(corpus.over_labels(Strings.of(["y", "z"])).label_names)
        ['y', 'z', 'x']
        """
        known = {name: i for i, name in enumerate(names)}
        own = list(self.label_names)
        new = [name for name in own if name not in known]
        known.update({name: len(known) + i for i, name in enumerate(new)})
        mapped = np.array([known[name] for name in own], dtype=np.int32)
        rows = (self.labels.data, mapped[self.labels.indices], self.labels.indptr)
        labels = sp.csr_matrix(rows, shape=(self.n_docs, len(known)), copy=True)  # sorting moves the weights
        labels.sort_indices()
        return replace(self, labels=labels, label_names=Strings.of(known), label_texts=None)

    def stats(self) -> dict[str, float]:
        """Counts that tell what kind of problem this is."""
        per_doc = np.diff(self.labels.indptr)
        per_label = self.label_counts()
        used = per_label[per_label > 0]
        stats: dict[str, float] = {
            "documents": self.n_docs,
            "labels": self.n_labels,
            "documents without labels": int((per_doc == 0).sum()),
            "labels without documents": int((per_label == 0).sum()),
            "labels with one document": int((per_label == 1).sum()),
            "labels per document, mean": float(per_doc.mean()) if self.n_docs else 0.0,
            "labels per document, most": int(per_doc.max(initial=0)),
            "documents per label, mean": float(used.mean()) if len(used) else 0.0,
            "documents per label, median": float(np.median(used)) if len(used) else 0.0,
            "documents per label, most": int(per_label.max(initial=0)),
        }
        if self.texts is not None:
            words = [len(raw.split()) for raw in self.texts.iter_bytes()]
            stats["text bytes"] = self.texts.n_bytes
            stats["documents with empty text"] = words.count(0)
            stats["words per document, mean"] = float(np.mean(words)) if words else 0.0
            stats["words per document, most"] = max(words, default=0)
        if self.features is not None:
            stats["features"] = int(self.features.shape[1])
            stats["features per document, mean"] = self.features.nnz / max(1, self.n_docs)
        return stats

    @classmethod
    def from_lists(
        cls,
        texts: Iterable[str],
        labels: Iterable[Iterable[str]] | None = None,
        *,
        ids: Iterable[str] | None = None,
        weights: Iterable[Iterable[float]] | None = None,
        label_texts: Mapping[str, str] | None = None,
        empty_text: str = "error",
        on_error: str = "raise",
    ) -> Corpus:
        """Check and pack Python lists, or whatever else can be iterated over.

        >>> Corpus.from_lists(["a text"], ["label"])
        Traceback (most recent call last):
        ...
        xmcascade.errors.DataError: the lists, document 1, field 'labels': 'label' is a string, not a list \
of labels. Remedy: write ['label']
        """
        from xmcascade.corpus.builder import CorpusBuilder

        given = {"texts": texts, "labels": labels, "ids": ids, "weights": weights}
        if isinstance(texts, str):
            raise DataError(f"texts is a string ({texts!r:.40})", remedy="give a list of texts")
        columns = {name: list(column) for name, column in given.items() if column is not None}
        n_docs = len(columns["texts"])
        for name, column in columns.items():
            if len(column) != n_docs:
                raise DataError(f"{n_docs:,} texts but {len(column):,} {name}", remedy="give one for each")
        builder = CorpusBuilder(on_error=on_error, empty_text=empty_text, source="the lists", unit="document")
        rows = zip(*(columns.get(name, repeat(None, n_docs)) for name in given), strict=True)
        for i, (text, own, doc_id, own_weights) in enumerate(rows, 1):
            builder.add(text, [] if labels is None else own, doc_id=doc_id, weights=own_weights, line=i)
        return builder.build(label_texts=label_texts)

    @classmethod
    def from_table(cls, table: Any, **options: Any) -> Corpus:
        """A pandas, polars or Arrow table, a `datasets` data set or a dict of columns, by `ReadSettings`.

        >>> Corpus.from_table({"text": ["a text"], "labels": [["x", "y"]]}).n_labels
        2
        """
        from xmcascade.corpus.tables import read_table

        return read_table(table, **options)
