"""What users hand to a model, brought into one form: a Corpus, and lists of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.store import Strings

__all__ = ["as_candidates", "as_corpus", "as_documents"]


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
        return Corpus(labels=_no_labels(features.shape[0]), label_names=Strings.of(()), features=features)
    return Corpus.from_lists(_listed(documents, "texts"), empty_text="keep")


@lru_cache(maxsize=8)
def _no_labels(n_docs: int) -> Any:
    return sp.csr_matrix((n_docs, 0), dtype=np.float32)


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
