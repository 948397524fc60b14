"""The one door into a Corpus: every document of every reader passes `CorpusBuilder.add` and is checked there."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.corpus.corpus import Corpus, LeftOut
from xmcascade.errors import DataError, Place, SettingError
from xmcascade.store import Strings, StringsBuilder

__all__ = ["CorpusBuilder", "Place"]

ON_ERROR = ("raise", "skip")
EMPTY_TEXT = ("error", "keep")


class CorpusBuilder:
    """Collects documents in packed form; memory is that of the corpus it will be.

    on_error="raise" stops at the first problem; "skip" leaves the document out (a duplicate label alone, where
    that is all that is wrong) and counts it. empty_text="keep" accepts documents without any word.
    """

    def __init__(
        self, *, on_error: str = "raise", empty_text: str = "error", label_names: Sequence[str] | None = None
    ) -> None:
        for name, value, allowed in (("on_error", on_error, ON_ERROR), ("empty_text", empty_text, EMPTY_TEXT)):
            if value not in allowed:
                raise SettingError(f"{name} is {value!r}", remedy=f"use one of {', '.join(allowed)}")
        self.on_error, self.empty_text = on_error, empty_text
        self._fixed_labels = label_names is not None
        self._label_ids: dict[str, int] = {name: i for i, name in enumerate(label_names or ())}
        if label_names is not None and len(self._label_ids) != len(label_names):
            raise DataError("a label name occurs twice in the list of names", remedy="give each label its own name")
        self._texts = StringsBuilder()
        self._ids = StringsBuilder()
        self._has_ids = False
        self._indices = array("i")
        self._indptr = array("q", [0])
        self._weights = array("f")
        self._has_weights = False
        self._left_out: dict[str, tuple[int, str]] = {}

    @property
    def n_docs(self) -> int:
        """Documents accepted so far."""
        return len(self._texts)

    def problem(self, reason: str, what: str, place: Place | None, remedy: str) -> None:
        """Raise, or count the problem and go on, as on_error says."""
        where = "" if place is None else str(place)
        if self.on_error == "raise":
            raise DataError(what, where=where, remedy=remedy)
        count, first = self._left_out.get(reason, (0, where))
        self._left_out[reason] = (count + 1, first)

    def add(
        self,
        text: Any,
        labels: Any,
        *,
        doc_id: Any = None,
        weights: Any = None,
        place: Place | None = None,
        fields: tuple[str, str, str, str] = ("text", "labels", "id", "weights"),
    ) -> bool:
        """Check one document and keep it; False when it was left out."""
        try:
            text = self._checked_text(text, place, fields[0])
            ids, kept = self._checked_labels(labels, place, fields[1])
            values = self._checked_weights(weights, kept, len(labels), place, fields[3])
            name = self._checked_id(doc_id, place, fields[2])
        except _Refused as refused:
            self.problem(refused.reason, refused.what, refused.place, refused.remedy)
            return False
        self._texts.append(text)
        self._ids.append(name)
        self._indices.extend(ids)
        self._indptr.append(len(self._indices))
        if values is not None and not self._has_weights:  # all labels before this one weigh 1
            self._has_weights = True
            self._weights.extend([1.0] * (len(self._indices) - len(ids)))
        if self._has_weights:
            self._weights.extend([1.0] * len(ids) if values is None else values)
        return True

    def _checked_text(self, text: Any, place: Place | None, field: str) -> str:
        if text.__class__ is not str and not isinstance(text, str):
            at = _at(place, field)
            if text is None or (isinstance(text, float) and math.isnan(text)):
                raise _Refused("text missing", "the text is missing", at, "give every document a text")
            raise _Refused("text not a string", f"the text is {_kind(text)}", at, "write the text as a string")
        if not text or text.isspace():
            if self.empty_text == "error":
                remedy = "write a text, or skip such documents with on_error='skip' (--on-error skip)"
                raise _Refused("text empty", "the text is empty", _at(place, field), remedy)
        elif not text.isascii():
            _check_unicode(text, "text", place, field)
        return text

    def _checked_labels(self, labels: Any, place: Place | None, field: str) -> tuple[list[int], list[int]]:
        """Label ids without repetition, and which of the given labels they are."""
        if isinstance(labels, str):
            at, what = _at(place, field), f"{labels!r:.60} is a string, not a list of labels"
            raise _Refused("labels not a list", what, at, f"write [{labels!r:.60}]")
        if labels is None or isinstance(labels, (int, float, bool, Mapping)):
            at, what = _at(place, field), f"the labels are {_kind(labels)}, not a list"
            raise _Refused("labels not a list", what, at, "write a list of strings, [] for none")
        known = self._label_ids
        ids: list[int] = []
        kept: list[int] = []
        for i, label in enumerate(labels):
            if label.__class__ is not str:
                label = _checked_label(label, i, place, field)
            found = known.get(label)
            if found is None:
                found = self._new_label(label, i, place, field)
            if found in ids:
                remedy = "write each label once"
                self.problem("label repeated", f"the label {label!r:.60} occurs twice", _at(place, field), remedy)
            else:
                ids.append(found)
                kept.append(i)
        return ids, kept

    def _new_label(self, label: str, i: int, place: Place | None, field: str) -> int:
        at = _at(place, field)
        if self._fixed_labels:
            what = f"the label {label!r:.60} is not among the {len(self._label_ids):,} label names"
            raise _Refused("label unknown", what, at, "add it to the label names, or correct it")
        if not label.strip():
            raise _Refused("label empty", f"label {i + 1} is empty", at, "write a name, or remove the label")
        _check_unicode(label, "label", place, field)
        found = self._label_ids[label] = len(self._label_ids)
        return found

    def _checked_weights(
        self, weights: Any, kept: list[int], n_labels: int, place: Place | None, field: str
    ) -> list[float] | None:
        if weights is None:
            return None
        at = _at(place, field)
        if isinstance(weights, (str, Mapping)) or not hasattr(weights, "__len__"):
            raise _Refused("weights not a list", f"the weights are {_kind(weights)}", at, "write a list of numbers")
        if len(weights) != n_labels:
            what = f"{len(weights)} weights for {n_labels} labels"
            raise _Refused("weights do not fit", what, at, "give one weight for each label, in the same order")
        values = []
        for i in kept:
            value = weights[i]
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < 3e38:
                raise _Refused(
                    "weight not a positive number", f"weight {i + 1} is {value!r:.40}", at, "use numbers above 0"
                )
            values.append(float(value))
        return values

    def _checked_id(self, doc_id: Any, place: Place | None, field: str) -> str:
        if doc_id is None:
            return str(self.n_docs)
        if isinstance(doc_id, bool) or not isinstance(doc_id, (str, int, np.integer)):
            at = _at(place, field)
            raise _Refused("id not a string", f"the id is {_kind(doc_id)}", at, "write it as a string or an integer")
        self._has_ids = True
        name = str(doc_id)
        _check_unicode(name, "id", place, field)
        return name

    def build(self, *, label_texts: Mapping[str, str] | None = None) -> Corpus:
        """The corpus. Labels found in the documents come in the order of their names; given ones as given."""
        n_docs, names = self.n_docs, list(self._label_ids)
        indices = np.frombuffer(self._indices, np.int32) if self._indices else np.zeros(0, np.int32)
        if not self._fixed_labels:
            order = sorted(range(len(names)), key=names.__getitem__)
            rank = np.empty(len(names), np.int32)
            rank[order] = np.arange(len(names), dtype=np.int32)
            indices, names = rank[indices], [names[i] for i in order]
        indptr = np.frombuffer(self._indptr, np.int64)
        data = np.frombuffer(self._weights, np.float32) if self._has_weights else np.ones(len(indices), np.float32)
        labels = sp.csr_matrix((data, indices, indptr), shape=(n_docs, len(names)), copy=self._has_weights)
        labels.sort_indices()
        texts_of_labels = None
        if label_texts is not None:
            texts_of_labels = Strings.of(label_texts.get(name, "") for name in names)
        return Corpus(
            labels=labels,
            label_names=Strings.of(names),
            texts=self._texts.build(),
            ids=self._ids.build() if self._has_ids else None,
            label_texts=texts_of_labels,
            left_out=tuple(LeftOut(reason, *found) for reason, found in self._left_out.items()),
        )


class _Refused(Exception):
    """One document cannot be taken; on_error decides what follows."""

    def __init__(self, reason: str, what: str, place: Place | None, remedy: str) -> None:
        self.reason, self.what, self.place, self.remedy = reason, what, place, remedy
        super().__init__(what)


def _at(place: Place | None, field: str) -> Place | None:
    return None if place is None else Place(place.source, place.line, field, place.unit)


def _check_unicode(string: str, what: str, place: Place | None, field: str) -> None:
    try:
        string.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(string[error.start]):04X}"
        remedy = "remove it; half of a surrogate pair is not a character"
        message = f"the {what} holds {code} at character {error.start + 1}"
        raise _Refused(f"{what} not Unicode", message, _at(place, field), remedy) from None


def _checked_label(label: Any, i: int, place: Place | None, field: str) -> str:
    if isinstance(label, str):
        return str(label)
    remedy = f'write "{label}"' if isinstance(label, (int, np.integer)) else "write every label as a string"
    raise _Refused("label not a string", f"label {i + 1} is {_kind(label)}, not a string", _at(place, field), remedy)


def _kind(value: Any) -> str:
    """How a person would name this value."""
    if value is None:
        return "null"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bool):
        return f"a truth value ({value})"
    if isinstance(value, (int, float, np.number)):
        return f"a number ({value!r:.40})"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"a {type(value).__name__}"
