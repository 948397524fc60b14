"""All methods as one scikit-learn classifier, for Pipeline, GridSearchCV and all that takes an estimator.

Its answers have the form of the y it was given: one label each, label lists, or a matrix, sparse or dense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import MissingExtraError, SettingError
from xmcascade.evaluate import Ranking, judge, precision
from xmcascade.models import MODELS, Model, load
from xmcascade.models.inputs import as_documents
from xmcascade.models.ranker import best_of
from xmcascade.settings import Settings
from xmcascade.store import Strings

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as missing:
    raise MissingExtraError(
        "scikit-learn 1.6 or newer is not installed", remedy="pip install 'xmcascade[sklearn]'"
    ) from missing

__all__ = ["XMCClassifier", "precision_at"]

Form = Literal["single", "lists", "sparse", "dense"]
LEAST_CHANCE = 1e-30  # in place of 0, where a logarithm is taken


class XMCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any method of this package as a scikit-learn classifier.

    X is a list, Series or array of texts, or a matrix of features, sparse or dense. y is a list of label
    lists (or sets), a matrix of 0 and 1 (sparse or dense, a column a label), or one label for each document.

    | y | `predict` | `predict_proba`, `decision_function` |
    |---|---|---|
    | label lists | label lists, the best first | CSR, a column for each of `classes_`: the best k stored |
    | sparse matrix | CSR of 0 and 1 | CSR: the best k stored |
    | dense matrix | array of 0 and 1 | array: all labels scored |
    | one label each | array of labels | array: all labels scored, probabilities that add up to 1 |

    With several labels, `predict` gives the best k; with a threshold, those of them that are at least so
    probable. `score` is P@1, which for one label each is the accuracy.

    Settings are a dict (or the method's own settings object), and each has a name for searches: with
    GridSearchCV, {"settings__beam": [10, 20]} or {"settings__linear__cost": [0.5, 1.0]}.

    >>> tagger = XMCClassifier(k=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> tagger.predict(["a green apple"])
    [['fruit']]
    >>> tagger.set_params(settings__beam=5).settings
    {'beam': 5}
    """

    def __init__(
        self,
        method: str = "xr-linear",
        settings: Mapping[str, Any] | Settings | None = None,
        threads: int | None = None,
        k: int = 5,
        threshold: float | None = None,
    ) -> None:
        self.method = method
        self.settings = settings
        self.threads = threads
        self.k = k
        self.threshold = threshold

    # Parameters -------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; deep: also every setting of the method, as settings__name."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            with suppress(SettingError):  # wrong ones are refused by fit
                params.update(_flat("settings", self._settings().to_dict()))
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, or single settings as settings__name."""
        single = {name: params.pop(name) for name in list(params) if name.startswith("settings__")}
        super().set_params(**params)
        for name, value in single.items():
            for part in reversed(name.split("__")[1:]):
                value = {part: value}
            self.settings = _merged(self.settings, value)
        if single:
            self._settings()  # a misspelt setting is refused here, not after hours of a search
        return self

    def _settings(self) -> Settings:
        if not isinstance(self.method, str) or self.method not in MODELS:
            raise SettingError(f"method is {self.method!r:.60}", remedy=f"allowed: {', '.join(MODELS)}")
        default = MODELS[self.method].settings_type()
        if self.settings is None or isinstance(self.settings, Mapping):
            return default.with_values(self.settings or {})
        if not isinstance(self.settings, type(default)):
            allowed = f"a dict, or {type(default).__name__}(...)"
            raise SettingError(f"settings is {self.settings!r:.60}", remedy=f"allowed: {allowed}")
        return self.settings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.string = True
        tags.classifier_tags.multi_label = True
        return tags

    # Learning and answering -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from documents and their labels."""
        if y is None:
            what = "XMCClassifier requires y to be passed, but the target y is None"
            raise SettingError(what, remedy="give the labels of each document")
        settings = self._settings()
        self._check_choice()
        documents = self._documents(X, reset=True)
        targets = _read(y)
        check_consistent_length(X, y)
        names = Strings.of(map(str, targets.classes))
        corpus = replace(documents, labels=targets.labels, label_names=names)
        self.model_: Model[Any, Any] = MODELS[self.method](settings, threads=self.threads).fit(corpus)
        self.classes_ = targets.classes
        self._form: Form = targets.form
        return self

    def predict(self, X: Any) -> Any:
        """The labels of each document, in the form of the y that was given to fit."""
        documents = self._checked(X)
        if self._form == "single":
            return self.classes_[self.model_.rank(documents, 1).labels[:, 0]]
        ranking = self.model_.rank(documents, self.k)
        kept = ranking.labels >= 0
        if self.threshold is not None:
            kept &= ranking.probabilities >= self.threshold
        if self._form == "lists":
            rows = zip(ranking.labels, kept, strict=True)
            return [self.classes_[labels[own]].tolist() for labels, own in rows]
        marks = _matrix(ranking, np.ones(kept.shape, np.int64), kept, len(self.classes_))
        return marks.toarray() if self._form == "dense" else marks

    def predict_proba(self, X: Any) -> Any:
        """How likely each label is right, documents x `classes_`; where y was sparse, of the best k only.

        Where every document has one label, the probabilities of all labels are made to add up to 1.
        """
        chances = self._values(X, "probabilities")
        if self._form != "single":
            return chances
        total = chances.sum(axis=1, keepdims=True)
        nothing = np.full_like(chances, 1 / chances.shape[1])
        return np.divide(chances, total, out=nothing, where=total > 0)

    def decision_function(self, X: Any) -> Any:
        """Numbers that only rank, documents x `classes_`; where y was sparse, of the best k only.

        Where there are two labels, of which every document has one: the second one's log-odds.
        """
        check_is_fitted(self, "model_")
        if self._form == "single" and len(self.classes_) == 2:
            logs = np.log(np.maximum(self.predict_proba(X), LEAST_CHANCE))
            return logs[:, 1] - logs[:, 0]
        return self._values(X, "scores")

    def score(self, X: Any, y: Any) -> float:
        """P@1: of the documents that have a label, the share whose best label is right."""
        ranking = self.model_.rank(self._checked(X), 1)
        return float(precision(judge(_truth(y, self.classes_), ranking.labels), 1).mean())

    def _check_choice(self) -> None:
        _at_least_1(self.k)
        given = self.threshold
        if given is not None and not (isinstance(given, (int, float, np.number)) and 0 <= given <= 1):
            raise SettingError(f"threshold is {given!r:.60}", remedy="use a number from 0 to 1, or None")

    def _checked(self, X: Any) -> Corpus:
        check_is_fitted(self, "model_")
        self._check_choice()
        return self._documents(X, reset=False)

    def _documents(self, X: Any, reset: bool) -> Corpus:
        if _are_texts(X):
            if reset:  # what an earlier fit on features left
                self.__dict__.pop("n_features_in_", None)
                self.__dict__.pop("feature_names_in_", None)
            return as_documents(X)
        features = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)
        return as_documents(sp.csr_matrix(features))

    def _values(self, X: Any, kind: str) -> Any:
        documents, n_labels = self._checked(X), len(self.classes_)
        if self._form in ("lists", "sparse"):
            ranking = self.model_.rank(documents, self.k)
            return _matrix(ranking, getattr(ranking, kind), ranking.labels >= 0, n_labels)
        ranking = self.model_.rank(documents, n_labels, allowed_labels=list(self.model_.label_names))
        every = np.zeros((documents.n_docs, n_labels))
        np.put_along_axis(every, ranking.labels, getattr(ranking, kind), axis=1)
        return every

    # Pickles hold the model folder's bytes: they do not depend on how this package names its parts, and the
    # model inside is checked as any other.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            with TemporaryDirectory() as folder:
                state["model_"].save(Path(folder, "model"))
                state["model_"] = {path.name: path.read_bytes() for path in Path(folder, "model").iterdir()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "model_" in state:
            # A file that is mapped into memory outlives its name.
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                for name, content in state["model_"].items():
                    Path(folder, name).write_bytes(content)
                state["model_"] = load(folder, threads=state["threads"])
        super().__setstate__(state)


def precision_at(k: int) -> Callable[[Any, Any, Any], float]:
    """P@k, to be given as `scoring`: of the k best labels, the share that is right.

    It ranks by `predict_proba` (else by `decision_function`), so it judges any classifier; y may have any
    form that XMCClassifier takes. Documents without a label do not count.

    >>> tagger = XMCClassifier().fit(["red apple", "blue sky"], [["fruit", "red"], ["weather"]])
    >>> precision_at(2)(tagger, ["red apple"], [["fruit", "red"]])
    1.0
    """
    return partial(_precision_at, k=_at_least_1(k))


def _at_least_1(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise SettingError(f"k is {k!r:.60}", remedy="use a whole number from 1 up")
    return int(k)


def _precision_at(estimator: Any, X: Any, y: Any, *, k: int) -> float:
    values = getattr(estimator, "predict_proba", None) or estimator.decision_function
    found = values(X)
    if sp.issparse(found):
        told = int(np.diff(found.indptr).max(initial=0))
        if told < min(k, found.shape[1]):
            what = f"P@{k} needs the {k} best labels, the classifier tells {told}"
            raise SettingError(what, remedy=f"use XMCClassifier(k={k})")
        best = best_of(found, found.data, min(k, found.shape[1]))[0]
    else:
        if found.ndim == 1:  # of two labels, the second one's
            found = np.column_stack([-found, found])
        best = np.argsort(-found, axis=1, kind="stable")[:, :k].astype(np.int32)
    return float(precision(judge(_truth(y, estimator.classes_), best), k).mean())


class _Targets(NamedTuple):
    labels: Any  # CSR, documents x labels, float32
    classes: npt.NDArray[Any]  # what the columns are called
    form: Form


def _read(y: Any) -> _Targets:
    """What a y says, in whatever form."""
    if sp.issparse(y):
        return _Targets(_positive(y), np.arange(y.shape[1]), "sparse")
    if _are_label_lists(y):
        told = Corpus.from_lists([""] * len(y), list(y), empty_text="keep")
        return _Targets(told.labels, np.array(list(told.label_names), dtype=object), "lists")
    check_classification_targets(y)
    if type_of_target(y) == "multilabel-indicator":
        marks = _positive(np.asarray(y))
        return _Targets(marks, np.arange(marks.shape[1]), "dense")
    values, places = np.unique(column_or_1d(y, warn=True), return_inverse=True)
    marks = (np.ones(len(places), np.float32), places, np.arange(len(places) + 1))
    return _Targets(sp.csr_matrix(marks, shape=(len(places), len(values))), values, "single")


def _positive(matrix: Any) -> Any:
    """The labels of each document, from a matrix: a label is true where a value is positive."""
    labels = sp.csr_matrix(matrix > 0, dtype=np.float32)
    labels.sum_duplicates()
    return labels


def _truth(y: Any, classes: Any) -> Any:
    """What y says over these labels; others come after, and are missed by all."""
    labels, own, form = _read(y)
    if form in ("sparse", "dense"):
        if labels.shape[1] != len(classes):
            what = f"y has {labels.shape[1]:,} columns for {len(classes):,} labels"
            raise SettingError(what, remedy="give one for each label that fit was given")
        return labels
    known = {label: i for i, label in enumerate(classes)}
    places = np.array([known.setdefault(label, len(known)) for label in own], np.int32)
    rows = (labels.data, places[labels.indices], labels.indptr)
    return sp.csr_matrix(rows, shape=(labels.shape[0], len(known)))


def _are_texts(X: Any) -> bool:
    if sp.issparse(X) or getattr(X, "ndim", 1) != 1 or not hasattr(X, "__iter__"):
        return False
    return isinstance(next(iter(X), 0), (str, type(None)))


def _are_label_lists(y: Any) -> bool:
    """Whether y holds lists of strings; lists of numbers are the rows of a matrix."""
    if getattr(y, "ndim", 1) != 1 or not hasattr(y, "__len__"):
        return False
    for row in y:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            return False
        for label in row:
            return isinstance(label, str)
    return len(y) > 0


def _matrix(ranking: Ranking, values: Any, kept: npt.NDArray[np.bool_], n_labels: int) -> Any:
    """The ranks that are kept as a CSR matrix, documents x labels."""
    rows = (values[kept], ranking.labels[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))]))
    matrix = sp.csr_matrix(rows, shape=(len(kept), n_labels))
    matrix.sort_indices()
    return matrix


def _flat(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for part, value in values.items():
        own = f"{name}__{part}"
        flat.update(_flat(own, value) if isinstance(value, Mapping) else {own: value})
    return flat


def _merged(old: Any, new: Any) -> Any:
    """A copy of old settings with new values."""
    if not isinstance(new, Mapping):
        return new
    if isinstance(old, Settings):
        return old.with_values(new)
    own = old if isinstance(old, Mapping) else {}
    return {**own, **{name: _merged(own.get(name), value) for name, value in new.items()}}
