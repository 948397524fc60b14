"""The contract of every model: public methods check, seed, time and log once; a model fills in hooks.

A hook never sees a label name: labels are ids here, names at the door. What `_fit` returns is the model's
whole learnt state. It is put in place only when it is complete: a failed or interrupted fit leaves the model
as it was.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, NotFittedError, SettingError
from xmcascade.evaluate import Evaluation, Ranking, evaluate_ranking
from xmcascade.kernels.parallel import blocks, thread_count
from xmcascade.models.answers import Prediction, as_predictions, asked_for, best_among, in_batches
from xmcascade.models.calibration import RANKS, Calibration
from xmcascade.models.canary import canary_of
from xmcascade.models.fitting import FitRun, Fitted, ModelSettings, Packed, parts_of
from xmcascade.models.held import held_out
from xmcascade.models.inputs import (
    allowed_ids,
    as_candidates,
    as_corpus,
    as_new_labels,
    as_ranks,
    check_minutes,
    checked_documents,
    wanted_labels,
    with_labels,
)
from xmcascade.models.runtimes import Runtime, choose_runtime, readers_of
from xmcascade.store import Checkpoint, Derived, Manifest, Strings, fingerprint, load_folder, save_folder

__all__ = ["Model", "Prediction"]

log = logging.getLogger("xmcascade")

SCORES_AT_ONCE = 1 << 22  # of allowed labels
Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

S = TypeVar("S", bound=ModelSettings)
T = TypeVar("T")


class Model(ABC, Generic[S, T]):
    """Base of all models; S is the type of its settings, T of its learnt state.

    >>> from xmcascade.models import MODELS
    >>> all(issubclass(model, Model) for model in MODELS.values())
    True
    """

    name: ClassVar[str]
    """On the command line, and the kind of its folders."""
    settings_type: ClassVar[type[ModelSettings]]
    presets: ClassVar[Mapping[str, ModelSettings]] = {}
    """Settings by name."""
    quick: ClassVar[bool] = False
    """Whether it learns so fast that it may do so twice: first without the documents to calibrate on."""

    def __init__(self, settings: S | None = None, *, threads: int | None = None, **values: Any) -> None:
        """Store the settings; values replace single ones. Threads change neither what it learns nor says."""
        if settings is not None and not isinstance(settings, self.settings_type):
            allowed = f"{self.settings_type.__name__}(...), or single settings by name"
            raise SettingError(f"settings is {settings!r:.60}", remedy=f"allowed: {allowed}")
        if threads is not None:
            thread_count(threads)
        self.settings: S = (settings or self.settings_type()).with_values(values)  # type: ignore[assignment]
        self.threads = threads
        self._learnt: Fitted | None = None
        self._kept: Checkpoint | None = None  # what the last fit kept, until the model is saved

    # What a model fills in --------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, corpus: Corpus, run: FitRun) -> T:
        """Learn from documents that each have a label, but not from those of `run.held`."""

    @abstractmethod
    def _rank(self, state: T, documents: Corpus, k: int) -> Ranking:
        """The best k labels of each document, k at most the number of labels; equal scores by label id."""

    @abstractmethod
    def _score(self, state: T, documents: Corpus, candidates: Any) -> tuple[Floats, Floats]:
        """Scores and probabilities of the candidates, a CSR matrix documents x labels: one a stored entry.

        An entry may be stored twice, and entries are in any order.
        """

    def _rank_among(self, state: T, documents: Corpus, k: int, allowed: Ids) -> Ranking:
        """As `_rank`, of these labels only (ascending ids, at least k): here by scoring all of them."""
        most = max(1, SCORES_AT_ONCE // len(allowed))
        if documents.n_docs > most:
            parts = [
                self._rank_among(state, documents.take(np.arange(lo, hi)), k, allowed)
                for lo, hi in blocks(documents.n_docs, most)
            ]
            return Ranking.join(parts)
        shape = documents.n_docs, len(self._fitted().label_names)
        return best_among(allowed, k, shape, lambda wanted: self._score(state, documents, wanted))

    @abstractmethod
    def _pack(self, state: T) -> Packed:
        """The state as arrays, strings and JSON values."""

    @abstractmethod
    def _unpack(self, packed: Packed, n_labels: int) -> T:
        """The opposite; raises when the parts do not fit one another."""

    def _views(self, state: T) -> list[Any]:
        """What of it people can look into: each opinion that its answers are made of (models/views.py)."""
        return []

    def _add(self, state: T, examples: Corpus, n_docs: int, run: FitRun) -> T:
        """With the labels of these documents after its own; it has learnt from n_docs others."""
        raise SettingError(f"{self.name} cannot learn labels later", remedy="fit it again, with the new ones")

    def _remove(self, state: T, kept: Ids) -> T:
        """With only these labels, ids ascending."""
        raise SettingError(f"{self.name} cannot forget labels", remedy="fit it again, without them")

    def _plan(self, corpus: Corpus, run: FitRun) -> None:
        """Note what `_fit` would choose, as far as it can be known before."""

    @property
    def _chooses(self) -> bool:
        """Whether `_fit` itself chooses something on the documents of `run.held`."""
        return False

    # The contract -----------------------------------------------------------------------------------------

    def fit(
        self,
        documents: Any,
        labels: Sequence[Sequence[str]] | None = None,
        *,
        checkpoint: str | Path | None = None,
        minutes: float | None = None,
    ) -> Self:
        """Learn from texts and their labels, or from a Corpus.

        Documents without labels teach nothing and are left out, with a count in the log. With a checkpoint, a
        folder, long work is kept there as it goes: the same call goes on where a killed one stopped, to the
        same model. The folder is deleted when the model is saved. With minutes, models with an encoder train
        about so long, where their settings do not say how far: what they learn then depends on the machine.

        >>> from xmcascade import NearestNeighbours
        >>> model = NearestNeighbours().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> model.predict(["a green apple"], k=1)[0][0].label
        'fruit'
        """
        start = time.monotonic()
        check_minutes(minutes)
        corpus = with_labels(as_corpus(documents, labels), aloud=True)
        kept = None if checkpoint is None else Checkpoint(checkpoint, self._fingerprint(corpus))
        run = replace(self._run(kept), minutes=minutes)
        sizes = f"{corpus.n_docs:,} documents, {corpus.n_labels:,} labels"
        log.info("%s: learning from %s", self.name, sizes)
        self._learnt = Fitted.of(corpus, *self._fit_on(corpus, run, self.settings.calibrate), run)
        self._kept = kept
        log.info("%s: learnt in %.1f s", self.name, time.monotonic() - start)
        return self

    def plan(
        self, documents: Any, labels: Sequence[Sequence[str]] | None = None, *, minutes: float | None = None
    ) -> dict[str, Derived]:
        """What `fit` would choose and what it would take, each with the reason; nothing is learnt.

        >>> from xmcascade import XRLinear
        >>> XRLinear().plan(["red apple", "blue sky"], [["fruit"], ["weather"]])["documents"]["value"]
        2
        """
        check_minutes(minutes)
        corpus = with_labels(as_corpus(documents, labels))
        run = replace(self._run(), aloud=False, minutes=minutes)
        run.derive("documents", corpus.n_docs, "with a label")
        run.derive("labels", corpus.n_labels, f"{corpus.labels.nnz / corpus.n_docs:.1f} for a document")
        self._plan(corpus, run)
        return run.derived

    def _run(self, kept: Checkpoint | None = None) -> FitRun:
        return FitRun(np.random.default_rng(self.settings.seed), thread_count(self.threads), kept)

    def _fit_on(self, corpus: Corpus, run: FitRun, calibrate: bool = False) -> tuple[T, Calibration | None]:
        """Learn from documents that each have a label, and from labels' texts if the settings say so."""
        if self.settings.label_documents:
            whole = corpus.with_label_documents()
            run = replace(run, n_extra=run.n_extra + whole.n_docs - corpus.n_docs)
            corpus = whole
        if not (self._chooses or calibrate):
            return self._fit(corpus, run), None
        docs, held = held_out(corpus, self.settings.seed, run)
        if not (calibrate and len(held)):
            return self._fit(corpus, replace(run, held=held)), None
        if self.quick:
            log.info("%s: first without the documents to calibrate on", self.name)
            state = self._fit(corpus.take(docs), self._run(run.checkpoint and run.checkpoint.part("first")))
        else:
            state = self._fit(corpus, replace(run, held=held))
        calibration = self._calibration(state, corpus.take(held), run)
        return (self._fit(corpus, run) if self.quick else state), calibration

    def _calibration(self, state: T, held: Corpus, run: FitRun) -> Calibration | None:
        return Calibration.of(self._rank(state, held, min(RANKS, held.n_labels)), held.labels, run)

    def _fingerprint(self, corpus: Corpus) -> str:
        arrays = [*corpus.arrays(), *self._files(corpus)]
        return fingerprint({"model": self.name, "settings": self.settings.to_dict()}, arrays)

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        """What is in the files that the settings name: with the corpus and the settings, all a fit sees."""
        return []

    def predict(
        self,
        documents: Any,
        k: int | None = None,
        *,
        threshold: float | Literal["auto"] | None = None,
        allowed_labels: Sequence[str] | None = None,
    ) -> list[list[Prediction]]:
        """The best k labels of each document (5 unless told), best first; fewer where there are fewer labels.

        With a threshold, labels of at least this probability only: perhaps none, and without a k up to 100.
        "auto" is the one from which on F1 was highest on held-out documents. With allowed_labels, only these
        are considered.

        >>> from xmcascade import NearestNeighbours
        >>> model = NearestNeighbours().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> [prediction.label for prediction in model.predict(["apple"], k=9)[0]]
        ['fruit', 'weather']
        >>> [prediction.label for prediction in model.predict(["apple"], threshold=0.9)[0]]
        ['fruit']
        """
        learnt = self._fitted()
        k, least = asked_for(k, threshold, learnt.calibration)
        return as_predictions(self._ranked(learnt, documents, k, allowed_labels), learnt.label_names, least)

    def rank(self, documents: Any, k: int = 5, *, allowed_labels: Sequence[str] | None = None) -> Ranking:
        """As `predict`, as arrays of label ids, scores and probabilities.

        >>> from xmcascade import NearestNeighbours
        >>> model = NearestNeighbours().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> model.rank(["apple", "sky"], k=1).labels.tolist()
        [[0], [1]]
        """
        return self._ranked(self._fitted(), documents, k, allowed_labels)

    def _ranked(
        self, learnt: Fitted, documents: Any, k: int, allowed: Sequence[str] | None = None
    ) -> Ranking:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise SettingError(f"k is {k!r}", remedy="use a whole number from 1 up")
        corpus = checked_documents(documents, learnt.n_features)
        title, state = f"{self.name}: predicting", learnt.state
        if allowed is None:
            width = min(int(k), len(learnt.label_names))
            parts = [self._rank(state, batch, width) for batch in in_batches(corpus, title)]
        else:
            ids = allowed_ids(learnt.label_ids, allowed)
            width = min(int(k), len(ids))
            parts = [self._rank_among(state, batch, width, ids) for batch in in_batches(corpus, title)]
        if not parts:
            nothing = np.zeros((0, width), np.float32)
            return Ranking(nothing.astype(np.int32), nothing, nothing)
        found = parts[0] if len(parts) == 1 else Ranking.join(parts)
        return learnt.calibration.ranking(found) if learnt.calibration else found

    def score(
        self, documents: Any, candidates: Sequence[str] | Sequence[Sequence[str]]
    ) -> list[list[Prediction]]:
        """Score only these labels: one list for all documents, or one for each; the answers keep its order.

        >>> from xmcascade import NearestNeighbours
        >>> model = NearestNeighbours().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> [p.label for p in model.score(["apple"], candidates=["weather", "fruit"])[0]]
        ['weather', 'fruit']
        """
        learnt = self._fitted()
        corpus = checked_documents(documents, learnt.n_features)
        asked = as_candidates(candidates, corpus.n_docs)
        wanted = wanted_labels(asked, learnt.label_ids)
        scores, chances, at = [], [], 0
        for batch in in_batches(corpus, f"{self.name}: scoring"):
            own, chance = self._score(learnt.state, batch, wanted[at : at + batch.n_docs])
            scores += own.tolist()
            chances += (learnt.calibration(chance) if learnt.calibration else chance).tolist()
            at += batch.n_docs
        found = map(Prediction, chain(*asked), scores, chances)
        return [list(islice(found, len(row))) for row in asked]

    def evaluate(
        self, corpus: Any, ks: int | Sequence[int] = (1, 3, 5), ranking: Ranking | None = None, **options: Any
    ) -> Evaluation:
        """Rank a Corpus or table and compare with its labels; options as `evaluate.evaluate_ranking`.

        Every document with a label counts. Labels never seen in training count as missed. ranking: what
        `rank` said of the documents with a label, where that is known.

        >>> from xmcascade import Corpus, NearestNeighbours
        >>> corpus = Corpus.from_lists(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> NearestNeighbours().fit(corpus).evaluate(corpus, ks=[1]).metrics["P@1"]
        100.0
        """
        learnt, ks = self._fitted(), as_ranks(ks)
        corpus = as_corpus(corpus, empty_text="keep")
        truth = corpus.over_labels(learnt.label_names)
        # Documents without labels are not counted, so they need no ranking either.
        kept = with_labels(truth)
        counts = np.zeros(truth.n_labels, np.int64)
        counts[: len(learnt.label_counts)] = learnt.label_counts
        if learnt.calibration is not None:
            options = {"threshold": learnt.calibration.threshold, **options}
        evaluation = evaluate_ranking(
            kept.labels,
            self._ranked(learnt, kept, max(ks)) if ranking is None else ranking.top(max(ks)),
            ks=ks,
            label_counts=counts,
            n_train_docs=learnt.n_docs,
            n_known_labels=len(learnt.label_names),
            **options,
        )
        return evaluation.with_unlabelled(corpus.n_docs - kept.n_docs)

    def add_labels(
        self,
        names: Sequence[str],
        *,
        texts: Sequence[str] | Mapping[str, str] | None = None,
        examples: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
    ) -> Self:
        """Learn new labels without training again; what is said of the others does not change.

        Each needs examples (texts of documents that have it), a text of its own, or both: as lists in the
        order of the names, or by name.

        >>> from xmcascade import XRLinear
        >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> model.add_labels(["colours"], examples=[["blue and red", "red or blue"]]).n_labels
        3
        >>> model.predict(["red and blue"], k=1)[0][0].label
        'colours'
        """
        learnt, start = self._fitted(), time.monotonic()
        if learnt.n_features is not None:
            raise DataError("the model reads features, not texts", remedy="fit it again, with the new labels")
        new, run = as_new_labels(names, texts, examples, learnt.label_ids), self._run()
        self._learnt = learnt.grown(new, self._add(learnt.state, new, learnt.n_docs, run))
        log.info("%s: %s labels added in %.1f s", self.name, f"{new.n_labels:,}", time.monotonic() - start)
        return self

    def remove_labels(self, names: Sequence[str]) -> Self:
        """Forget labels; what is said of the others does not change.

        >>> from xmcascade import XRLinear
        >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> list(model.remove_labels(["fruit"]).label_names)
        ['weather']
        """
        learnt = self._fitted()
        gone = allowed_ids(learnt.label_ids, names)
        kept = np.setdiff1d(np.arange(len(learnt.label_names), dtype=np.int32), gone)
        if not len(kept):
            raise DataError("all labels would go", remedy="keep at least one")
        self._learnt = learnt.pruned(kept, self._remove(learnt.state, kept))
        return self

    def save(self, folder: str | Path) -> Manifest:
        """Write the model as a folder, in one step: a reader sees the old model or the new one."""
        learnt = self._fitted()
        packed = self._pack(learnt.state)
        saved = save_folder(
            folder,
            kind=self.name,
            settings=self.settings.to_dict(),
            n_labels=len(learnt.label_names),
            arrays=packed.arrays | learnt.to_arrays(),
            strings={**packed.strings, "label_names": learnt.label_names},
            values={**packed.values, **learnt.facts(), "canary": learnt.canary or canary_of(self)},
            derived=learnt.derived,
        )
        if self._kept is not None:
            self._kept.remove()
            self._kept = None
        return saved

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        threads: int | None = None,
        verify: bool = True,
        runtime: Runtime | None = None,
    ) -> Self:
        """As `load` of all models, of this kind only; large arrays stay on disk until they are used."""
        return cls._restored(folder, threads, runtime, *load_folder(folder, kind=cls.name, verify=verify))

    @classmethod
    def _restored(
        cls, folder: str | Path, threads: int | None, runtime: Runtime | None, manifest: Manifest, *parts: Any
    ) -> Self:
        with parts_of(folder):
            model = cls(cls.settings_type.from_dict(manifest.settings), threads=threads)  # type: ignore[arg-type]
            model._learnt = Fitted.restored(model._unpack, manifest, *parts)
        choose_runtime(model, runtime, folder)
        return model

    @property
    def label_names(self) -> Strings:
        """The names of the labels the model knows; a label's id is its place here."""
        return self._fitted().label_names

    @property
    def n_labels(self) -> int:
        """How many labels the model knows."""
        return len(self.label_names)

    @property
    def runtime(self) -> str | None:
        """What runs its encoder: "torch", "onnx" or "onnx-int8"; None where there is no choice."""
        return ", ".join(sorted({reader.runtime for reader in readers_of(self)})) or None

    @property
    def derived(self) -> dict[str, Derived]:
        """The values the library chose in fit, each with its reason."""
        return self._fitted().derived

    def __repr__(self) -> str:
        learnt = "not fitted" if self._learnt is None else f"{self.n_labels:,} labels"
        return f"{type(self).__name__}({learnt})"

    def _fitted(self) -> Fitted:
        if self._learnt is None:
            remedy = "call fit(texts, labels) first, or load a model"
            raise NotFittedError(f"this {type(self).__name__} has not learnt anything yet", remedy=remedy)
        return self._learnt
