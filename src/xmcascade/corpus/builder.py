"""The one door into a Corpus: every document of every reader passes `CorpusBuilder.add`, which checks it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.corpus.checks import (
    Refused,
    check_unicode,
    checked_id,
    checked_label,
    checked_weights,
    is_missing,
    kind,
    listed_labels,
)
from xmcascade.corpus.corpus import Corpus, LeftOut
from xmcascade.errors import DataError, Place, SettingError
from xmcascade.store import Strings, StringsBuilder

__all__ = ["CorpusBuilder", "unlabelled"]

ON_ERROR = ("raise", "skip")
EMPTY_TEXT = ("error", "keep")


class CorpusBuilder:
    """Collects documents in packed form; memory is that of the corpus it will be.

    on_error="raise" stops at the first problem; "skip" leaves the document out (a duplicate label alone,
    where that is all that is wrong) and counts it. empty_text="keep" accepts documents without any word.
    Messages name the source, the line (or other unit) and the field, as `fields` calls the four of them.
    """

    def __init__(
        self,
        *,
        on_error: str = "raise",
        empty_text: str = "error",
        label_names: Sequence[str] | None = None,
        source: str = "the documents",
        unit: str = "line",
        fields: tuple[str, str, str, str] = ("text", "labels", "id", "weights"),
    ) -> None:
        choices = {"on_error": (on_error, ON_ERROR), "empty_text": (empty_text, EMPTY_TEXT)}
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                raise SettingError(f"{name} is {value!r}", remedy=f"use one of {', '.join(allowed)}")
        self.on_error, self.empty_text = on_error, empty_text
        self.source, self.unit, self.fields = source, unit, fields
        self._fixed_labels = label_names is not None
        self._label_ids = _numbered(label_names or (), source)
        self._texts = StringsBuilder()
        self._ids = StringsBuilder()
        self._indices = array("i")
        self._indptr = array("q", [0])
        self._weights = array("f")
        self._has_weights = False
        self._left_out: dict[str, tuple[int, str, str]] = {}

    @property
    def n_docs(self) -> int:
        """Documents accepted so far."""
        return len(self._texts)

    @property
    def n_problems(self) -> int:
        """Problems counted so far."""
        return sum(count for count, *_ in self._left_out.values())

    def at(self, line: int, field: str = "") -> Place:
        """Where in the input; made only once something is wrong there."""
        return Place(self.source, line, field, self.unit)

    def problem(self, reason: str, what: str, place: Place, remedy: str) -> None:
        """Raise, or count the problem and go on, as on_error says."""
        if self.on_error == "raise":
            raise DataError(what, where=str(place), remedy=remedy)
        count, *first = self._left_out.get(reason) or (0, str(place), what)
        self._left_out[reason] = (count + 1, first[0], first[1])

    def add(self, text: Any, labels: Any, *, doc_id: Any = None, weights: Any = None, line: int = 0) -> bool:
        """Check one document and keep it; False when it was left out."""
        text_field, labels_field, id_field, weights_field = self.fields
        n_known = len(self._label_ids)
        try:
            self._check_text(text, text_field)
            if labels.__class__ is not list:
                labels = listed_labels(labels, labels_field)
            ids, repeated = self._checked_labels(labels, labels_field)
            values = None if weights is None else checked_weights(weights, ids, len(labels), weights_field)
            name = None if doc_id is None else checked_id(doc_id, id_field)
        except Refused as refused:
            while len(self._label_ids) > n_known:  # what only this document has is no label
                self._label_ids.popitem()
            self.problem(refused.reason, refused.what, self.at(line, refused.field), refused.remedy)
            return False
        for label in repeated:
            what = f"the label {label!r:.60} occurs twice"
            self.problem("label repeated", what, self.at(line, labels_field), "write each label once")
        if name is not None or self._ids:
            while len(self._ids) < self.n_docs:  # a document without an id among others goes by its number
                self._ids.append(str(len(self._ids)))
            self._ids.append(str(self.n_docs) if name is None else name)
        self._texts.append(text)
        self._indices.extend(ids)
        self._indptr.append(len(self._indices))
        if values is not None and not self._has_weights:  # all labels before this one weigh 1
            self._has_weights = True
            self._weights.extend([1.0] * (len(self._indices) - len(ids)))
        if self._has_weights:
            self._weights.extend([1.0] * len(ids) if values is None else values)
        return True

    def _check_text(self, text: Any, field: str) -> None:
        if text.__class__ is not str and not isinstance(text, str):
            if is_missing(text):
                raise Refused("text missing", "the text is missing", field, "give every document a text")
            raise Refused("text not a string", f"the text is {kind(text)}", field, "write it as a string")
        if not text or text.isspace():
            if self.empty_text == "error":
                remedy = "write a text, or skip such documents with on_error='skip' (--on-error skip)"
                raise Refused("text empty", "the text is empty", field, remedy)
        elif not text.isascii():
            check_unicode(text, "text", field)

    def _checked_labels(self, labels: list[Any], field: str) -> tuple[dict[int, int], list[str]]:
        """Label ids with the place of each among the given labels, and the labels that occur again."""
        known = self._label_ids
        ids: dict[int, int] = {}
        repeated = []
        for i, label in enumerate(labels):
            if label.__class__ is not str:
                label = checked_label(label, i, field)
            found = known.get(label)
            if found is None:
                found = self._new_label(label, i, field)
            if found in ids:
                repeated.append(label)
            else:
                ids[found] = i
        return ids, repeated

    def _new_label(self, label: str, i: int, field: str) -> int:
        if self._fixed_labels:
            what = f"the label {label!r:.60} is not among the {len(self._label_ids):,} label names"
            raise Refused("label unknown", what, field, "add it to the label names, or correct it")
        if not label.strip():
            remedy = "write a name, or remove the label"
            raise Refused("label empty", f"label {i + 1} is empty", field, remedy)
        check_unicode(label, "label", field)
        found = self._label_ids[label] = len(self._label_ids)
        return found

    def build(self, *, label_texts: Mapping[str, str] | None = None) -> Corpus:
        """The corpus, once. Labels found in documents are ordered by name; given ones stay as given."""
        labels, names = self._labels()
        return Corpus(
            labels=labels,
            label_names=Strings.of(names),
            texts=self._texts.build(),
            ids=self._ids.build() if self._ids else None,
            label_texts=None if label_texts is None else Strings.of(self._texts_of(names, label_texts)),
            left_out=tuple(LeftOut(reason, *found) for reason, found in self._left_out.items()),
        )

    def _labels(self) -> tuple[Any, list[str]]:
        n_docs, names = self.n_docs, list(self._label_ids)
        if not names:
            return unlabelled(n_docs), names
        indices = np.frombuffer(self._indices, np.int32) if self._indices else np.zeros(0, np.int32)
        if not self._fixed_labels:
            order = sorted(range(len(names)), key=names.__getitem__)
            rank = np.empty(len(names), np.int32)
            rank[order] = np.arange(len(names), dtype=np.int32)
            indices, names = rank[indices], [names[i] for i in order]
        indptr = np.frombuffer(self._indptr, np.int64)
        data = np.ones(len(indices), np.float32)
        if self._weights:
            data = np.frombuffer(self._weights, np.float32)
        labels = sp.csr_matrix((data, indices, indptr), shape=(n_docs, len(names)), copy=self._has_weights)
        labels.sort_indices()
        return labels, names

    def _texts_of(self, names: list[str], label_texts: Mapping[str, str]) -> list[str]:
        texts = [label_texts.get(name, "") for name in names]
        for name, text in zip(names, texts, strict=True):
            try:
                if not isinstance(text, str):
                    raise Refused("", f"the label text is {kind(text)}", "", "write it as a string")
                check_unicode(text, "label text", "")
            except Refused as refused:
                where = f"{self.source}, label {name!r:.60}"
                raise DataError(refused.what, where=where, remedy=refused.remedy) from None
        return texts


@lru_cache(maxsize=8)
def unlabelled(n_docs: int) -> Any:
    """The label sets of documents without labels; to make them takes longer than to check a text."""
    return sp.csr_matrix((n_docs, 0), dtype=np.float32)


def _numbered(names: Sequence[str], source: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, name in enumerate(names):
        try:
            if not name.strip():
                raise Refused("", "it is empty", "", "write a name")
            check_unicode(name, "name", "")
        except Refused as refused:
            where = f"{source}, label name {i + 1:,}"
            raise DataError(refused.what, where=where, remedy=refused.remedy) from None
        if found.setdefault(name, i) != i:
            what = f"the label name {name!r:.60} occurs twice, as number {found[name]:,} and {i:,}"
            raise DataError(what, where=source, remedy="give each label its own name")
    return found
