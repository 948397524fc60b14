"""What users hand to a model, brought into one form: a Corpus, and lists of candidates."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.corpus.builder import unlabelled
from xmcascade.errors import DataError, SettingError
from xmcascade.store import Strings

__all__ = [
    "allowed_ids",
    "as_candidates",
    "as_corpus",
    "as_documents",
    "as_new_labels",
    "as_ranks",
    "check_minutes",
    "checked_documents",
    "wanted_labels",
    "with_labels",
]

log = logging.getLogger("xmcascade")

MOST_RANKS = 2**62


def check_minutes(minutes: float | None) -> None:
    """Refuse a time that is none."""
    if minutes is not None and not (minutes > 0 and np.isfinite(minutes)):
        raise SettingError(f"minutes is {minutes}", remedy="use a number above 0")


def as_ranks(ks: int | Sequence[int]) -> list[int]:
    """The ranks to evaluate at, as a list.

    >>> as_ranks(5), as_ranks((1, 3))
    ([5], [1, 3])
    """
    given = [ks] if isinstance(ks, (int, np.integer)) else list(ks)
    whole = all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) for k in given)
    if not given or not whole or max(given) > MOST_RANKS:
        raise SettingError(f"ks is {given}", remedy=f"give whole numbers from 1 to {MOST_RANKS:,}")
    return [int(k) for k in given]


def as_corpus(documents: Any, labels: Any = None, *, empty_text: str = "error") -> Corpus:
    """What `fit` or `evaluate` was given (texts and labels, a Corpus, or a table) as a Corpus.

    >>> as_corpus(["a text"], [["label"]]).label_set(0)
    ['label']
    """
    if isinstance(documents, Corpus):
        if labels is not None:
            raise SettingError("a Corpus has its labels already", remedy="give the Corpus alone")
        return documents
    if labels is None:
        if _is_table(documents):
            return Corpus.from_table(documents, empty_text=empty_text)
        raise SettingError("labels are missing", remedy="give a Corpus, a table, or texts and labels")
    return Corpus.from_lists(_listed(documents, "texts"), _listed(labels, "labels"))


def with_labels(corpus: Corpus, what: str = "documents", *, aloud: bool = False) -> Corpus:
    """The documents that have a label; there must be some. Aloud: says how many are left out.

    >>> with_labels(Corpus.from_lists(["a text", "another"], [["label"], []])).n_docs
    1
    """
    labelled = np.diff(corpus.labels.indptr) > 0
    if not labelled.any():
        told = f"none of the {corpus.n_docs:,} {what} has a label"
        raise DataError(told, remedy="check the field or column of the labels")
    if labelled.all():
        return corpus
    if aloud:
        log.info("%s %s without labels are left out", f"{(~labelled).sum():,}", what)
    return corpus.take(labelled)


def as_documents(documents: Any) -> Corpus:
    """What `predict` was given (texts, a Corpus, or sparse features) as a Corpus; empty texts will do.

    >>> as_documents(["a text", ""]).n_docs
    2
    """
    if isinstance(documents, Corpus):
        return documents
    if sp.issparse(documents):
        features = documents
        if documents.format != "csr" or documents.dtype != np.float32 or not documents.has_canonical_format:
            features = sp.csr_matrix(documents, dtype=np.float32, copy=True)
            features.sum_duplicates()
        if not np.isfinite(features.data).all():
            raise DataError("a feature is NaN or infinite", remedy="use finite numbers")
        return Corpus(labels=unlabelled(features.shape[0]), label_names=Strings.of(()), features=features)
    return Corpus.from_lists(_listed(documents, "texts"), empty_text="keep")


def as_candidates(candidates: Any, n_docs: int) -> list[list[str]]:
    """What `score` was given, as one list of labels for each document.

    >>> as_candidates(["x", "y"], n_docs=2)
    [['x', 'y'], ['x', 'y']]
    """
    listed = _listed(candidates, "candidates")
    if all(isinstance(label, str) for label in listed):
        return [listed] * n_docs
    if any(isinstance(label, str) for label in listed) or len(listed) != n_docs:
        what = f"{len(listed):,} lists of candidates for {n_docs:,} documents"
        raise DataError(what, remedy="give one list of labels, or one list for each document")
    return [_listed(labels, f"candidates of document {i + 1}") for i, labels in enumerate(listed)]


def as_new_labels(names: Any, texts: Any, examples: Any, known: Mapping[str, int]) -> Corpus:
    """What `add_labels` was given: documents of the new labels, a text that several have once.

    >>> new = as_new_labels(["cat", "dog"], {"dog": "barks"}, [["purrs", "pet"], ["pet"]], {})
    >>> list(new.texts), new.label_set(1)
    (['purrs', 'pet', 'barks'], ['cat', 'dog'])
    """
    names = _listed(names, "names")
    if not names:
        raise DataError("no label is named", remedy="give one name or more")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"a label's name is {name!r:.60}", remedy="give strings that are not empty")
        if name in known:
            raise DataError(f"the model has a label {name!r:.80} already", remedy="remove it first")
    if len(set(names)) < len(names):
        raise DataError("a label is named twice", remedy="name each once")
    labels_of: dict[str, list[str]] = {}
    own, shown = _by_name(texts, names, "texts"), _by_name(examples, names, "examples")
    for name in names:
        given = shown.get(name)
        documents = [] if given is None else list(_listed(given, f"examples of {name!r:.80}"))
        documents += [own[name]] if own.get(name) else []
        for text in documents:
            if not isinstance(text, str):
                what = f"an example of {name!r:.80} is a {type(text).__name__}"
                raise DataError(what, remedy="give texts")
        documents = [text for text in dict.fromkeys(documents) if text.strip()]
        if not documents:
            raise DataError(f"nothing tells what {name!r:.80} is", remedy="give examples or a text of it")
        for text in documents:
            labels_of.setdefault(text, []).append(name)
    corpus = Corpus.from_lists(list(labels_of), list(labels_of.values()))
    return corpus.over_labels(Strings.of(names))


def _by_name(values: Any, names: list[str], what: str) -> Mapping[str, Any]:
    """Values for labels: by name already, or a list in the order of the names."""
    if isinstance(values, Mapping):
        if unknown := values.keys() - set(names):
            raise DataError(
                f"{what} for {min(map(str, unknown))!r:.80}, which is not among the names", remedy="name it"
            )
        return values
    listed = [] if values is None else _listed(values, what)
    if listed and len(listed) != len(names):
        raise DataError(f"{len(listed):,} {what} for {len(names):,} labels", remedy="give one for each")
    return dict(zip(names, listed, strict=False))


def _listed(values: Any, name: str) -> Any:
    """Any iterable as a list: a Series too is read by place, never by its index. Strings stay packed."""
    if isinstance(values, (str, bytes)):
        raise DataError(f"the {name} are one string", remedy="write a list: [...]")
    if isinstance(values, Strings):
        return values
    if hasattr(values, "to_pylist"):  # Arrow's own values are no strings
        values = values.to_pylist()
    try:
        if _is_table(values) or isinstance(values, Set) or sp.issparse(values):  # iterable, but no list
            raise TypeError
        items = iter(values)
    except TypeError:
        remedy = "give a list" + (", for example one column" if _is_table(values) else "")
        raise DataError(f"the {name} are a {type(values).__name__}", remedy=remedy) from None
    return list(items)


def _is_table(values: Any) -> bool:
    return isinstance(values, Mapping) or hasattr(values, "columns") or hasattr(values, "column_names")


def _label_id(label_ids: Mapping[str, int], label: str) -> int:
    """The id of a label the model knows."""
    try:
        return label_ids[label]
    except (KeyError, TypeError):
        what = f"the model has no label {label!r:.80}"
        raise DataError(what, remedy="use labels of the training documents (model.label_names)") from None


def wanted_labels(asked: list[list[str]], label_ids: Mapping[str, int]) -> Any:
    """For each document the ids of the labels asked for, in their order, twice where they are: CSR.

    >>> wanted_labels([["b", "a"], ["b"]], {"a": 0, "b": 1}).indices.tolist()
    [1, 0, 1]
    """
    ids = np.array([_label_id(label_ids, label) for labels in asked for label in labels], np.int32)
    rows = np.cumsum([0, *map(len, asked)])
    return sp.csr_matrix((np.ones(len(ids), np.float32), ids, rows), shape=(len(asked), len(label_ids)))


def allowed_ids(label_ids: Mapping[str, int], allowed: Sequence[str]) -> npt.NDArray[np.int32]:
    """The ids of labels, each once, ascending."""
    if isinstance(allowed, str) or not len(allowed):
        raise DataError(f"allowed_labels is {allowed!r:.60}", remedy="give a list of one label or more")
    return np.unique(np.array([_label_id(label_ids, label) for label in allowed], np.int32))


def checked_documents(documents: Any, n_features: int | None) -> Corpus:
    """Documents with texts, or with as many features as the model was trained on."""
    corpus, expected = as_documents(documents), n_features
    if expected is None and corpus.texts is None:
        raise DataError("the model was trained on texts, the documents have none", remedy="give texts")
    if expected is not None and (corpus.features is None or corpus.features.shape[1] != expected):
        raise DataError(
            f"the model was trained on {expected:,} features in place of texts",
            remedy=f"give a corpus or CSR matrix with {expected:,} features",
        )
    return corpus
