"""Several models as one: each names its best labels, and all of them score what any of them named.

A label that a model did not name is not a label that it scored 0. How scores are averaged, and how much each
model counts, is chosen on documents that none of them learnt from.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import SettingError
from xmcascade.evaluate import WORTH, Propensity, Ranking, judge, worth
from xmcascade.models.base import Model
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.ranker import best_of, rows_of
from xmcascade.models.views import View
from xmcascade.store import Derived, Strings, within

__all__ = ["Average", "Ensemble", "EnsembleSettings"]

log = logging.getLogger("xmcascade")

Average = Literal["probability", "geometric", "rank"]
Floats = npt.NDArray[Any]
LEAST_CHANCE = 1e-6  # a smaller probability tells no more: no model can forbid a label
FACTORS = 0.0, 0.5, 0.8, 1.25, 2.0  # by which a model's weight is tried to change
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(ModelSettings):
    """Settings of Ensemble."""

    members: tuple[str, ...] = tuple(f"cascadexml-tfidf seed={seed}" for seed in range(3))
    """Each a model's name, perhaps with settings: "xr-linear beam=30 linear.cost=2"."""
    average: Average | None = None
    """Of probabilities, of their logarithms, or of places in the members' lists; None: chosen."""
    weights: tuple[float, ...] | None = None
    """How much each member counts; None: chosen."""
    candidates: int = 50
    """Labels that each member names, at least."""
    processes: int = 1
    """Members that are trained at the same time, each in a process."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(len(self.members) > 0, "members", "one or more")
        weights = self.weights
        fine = weights is None or (
            len(weights) == len(self.members) and min(weights) >= 0 and 0 < sum(weights) < 1e6
        )
        self.require(fine, "weights", "one for each member, from 0 up and not all 0, or null")
        self.require(1 <= self.candidates <= 10_000, "candidates", "1 to 10000")
        self.require(1 <= self.processes <= 64, "processes", "1 to 64")


@dataclass(frozen=True, eq=False)
class _State:
    models: list[Model[Any, Any]]
    states: list[Any]
    average: Average
    weights: tuple[float, ...]  # their sum is 1
    n_labels: int


class Ensemble(Model[EnsembleSettings, _State]):
    """Models that answer together.

    >>> model = Ensemble(members=("xr-linear", "nearest"))
    >>> model.fit(["red apple", "blue sky"], [["fruit"], ["weather"]]).predict(["the sky"], k=1)[0][0].label
    'weather'
    """

    name: ClassVar[str] = "ensemble"
    settings_type: ClassVar[type[ModelSettings]] = EnsembleSettings

    @classmethod
    def of_seeds(cls, member: str, n: int = 3, **values: Any) -> Self:
        """The same model from several seeds.

        >>> Ensemble.of_seeds("xr-linear beam=30", 2).settings.members
        ('xr-linear beam=30 seed=0', 'xr-linear beam=30 seed=1')
        """
        return cls(members=tuple(f"{member} seed={seed}" for seed in range(n)), **values)

    @classmethod
    def of_encoders(cls, member: str, encoders: Sequence[str], **values: Any) -> Self:
        """The same model with several encoders.

        >>> Ensemble.of_encoders("cascadexml", ["bert-base-uncased", "roberta-base"]).settings.members
        ('cascadexml encoder=bert-base-uncased', 'cascadexml encoder=roberta-base')
        """
        return cls(members=tuple(f"{member} encoder={shlex.quote(name)}" for name in encoders), **values)

    @classmethod
    def of(cls, models: Sequence[Model[Any, Any]], choose_on: Corpus | None = None, **values: Any) -> Self:
        """Of models that have learnt already, all from the same labels.

        With choose_on, documents that none of them has seen, weights are chosen; else all count alike.

        >>> from xmcascade import NearestNeighbours, XRLinear
        >>> corpus = Corpus.from_lists(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> both = Ensemble.of([XRLinear().fit(corpus), NearestNeighbours().fit(corpus)])
        >>> both.predict(["apple"], k=1)[0][0].label
        'fruit'
        """
        if not models:
            raise SettingError("an ensemble of no models", remedy="give one or more")
        learnt = [model._fitted() for model in models]
        for model, own in zip(models, learnt, strict=True):
            if list(own.label_names) != list(learnt[0].label_names):
                what = f"{model!r} and {models[0]!r} know other labels, or in another order"
                raise SettingError(what, remedy="train them on the same corpus")
        members = tuple(map(_told, models))
        ensemble = cls(members=members, threads=models[0].threads, **values)
        run = FitRun(np.random.default_rng(0), models[0].threads or 1)
        state = ensemble._even(list(models), [own.state for own in learnt], models[0].n_labels)
        calibration = None
        if choose_on is not None:
            truth = choose_on.over_labels(learnt[0].label_names)
            held = truth.take(np.diff(truth.labels.indptr) > 0)
            inverse = Propensity().inverse(learnt[0].label_counts, learnt[0].n_docs)
            state = ensemble._chosen(state, held, inverse, run)
            calibration = ensemble._calibration(state, held, run)
        ensemble._learnt = replace(learnt[0], state=state, derived=run.derived, calibration=calibration)
        return ensemble

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        s, models = self.settings, [_member(member, self.threads) for member in self.settings.members]
        part = run.taught(corpus)
        processes = min(s.processes, len(models))
        runs = _runs_of(models, run, processes)
        if processes > 1:
            states = self._learnt_apart(models, part, runs)
        else:
            states = []
            for i, (model, own) in enumerate(zip(models, runs, strict=True)):
                log.info("%s: member %s of %s, %s", self.name, i + 1, len(models), s.members[i])
                states.append(model._fit_on(part, own)[0])
        for i, own in enumerate(runs):
            run.derived.update({f"{i}.{name}": fact for name, fact in own.derived.items()})
        state = self._even(models, states, corpus.n_labels)
        if not len(run.held) or not self._chooses:
            return state
        inverse = Propensity().inverse(part.label_counts(), part.n_docs)
        return self._chosen(state, corpus.take(run.held), inverse, run)

    @property
    def _chooses(self) -> bool:
        return len(self.settings.members) > 1 and None in (self.settings.average, self.settings.weights)

    def _learnt_apart(self, models: list[Model[Any, Any]], corpus: Corpus, runs: list[FitRun]) -> list[Any]:
        """Members trained in processes of their own."""
        states, n_features = [], None if corpus.texts is not None else corpus.features.shape[1]
        with ProcessPoolExecutor(self.settings.processes, mp_context=get_context("spawn")) as pool:
            found = pool.map(_trained, models, repeat(corpus), runs)
            for model, run, (packed, derived) in zip(models, runs, found, strict=True):
                packed.values["n_features"] = n_features
                states.append(model._unpack(packed, corpus.n_labels))
                run.derived.update(derived)
        return states

    def _even(self, models: list[Model[Any, Any]], states: list[Any], n_labels: int) -> _State:
        given = self.settings.weights or (1.0,) * len(models)
        weights = tuple(weight / sum(given) for weight in given)
        return _State(models, states, self.settings.average or "geometric", weights, n_labels)

    def _chosen(self, state: _State, held: Corpus, inverse: Floats, run: FitRun) -> _State:
        """With the average and weights that are best on these documents; inverse: labels' propensities."""
        s, k = self.settings, min(5, held.n_labels)
        every = replace(state, weights=(1.0,) * len(state.models))  # a weight of 0 may be given, or tried
        union = self._union(every, held, k)
        best, quality = state, -1.0
        for average in get_args(Average) if s.average is None else (s.average,):
            parts = self._parts(replace(every, average=average), held, union)

            def value_of(weights: Floats, parts: Floats = parts, average: Average = average) -> float:
                found, _ = best_of(union, _averaged(parts, weights, average), k)
                return worth(judge(held.labels, found), inverse)

            weights, value = np.array(state.weights), value_of(np.array(state.weights))
            if s.weights is None:
                weights, value = _climbed(value_of, weights)
            if value > quality:
                best, quality = replace(state, average=average, weights=tuple(weights.tolist())), value
        reason = f"{WORTH} {100 * quality:.1f} on held-out documents"
        run.derive("average", best.average, reason)
        run.derive("weights", [round(weight, 4) for weight in best.weights], reason)
        return best

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        models = [_member(member, None) for member in self.settings.members]
        return [array for model in models for array in model._files(corpus)]

    # Answers ----------------------------------------------------------------------------------------------

    def _union(self, state: _State, documents: Corpus, k: int) -> Any:
        """The labels that members name, CSR."""
        n_labels = state.n_labels
        most = min(max(k, self.settings.candidates), n_labels)
        found = [model._rank(own, documents, most).labels for model, own, _ in _counting(state)]
        union = rows_of(np.concatenate(found, axis=1), n_labels)
        union.sum_duplicates()
        return union

    def _parts(self, state: _State, documents: Corpus, wanted: Any) -> Floats:
        """Of each member that counts, probabilities of the wanted labels, or their places in its list."""
        if state.average != "rank":
            return np.array([model._score(own, documents, wanted)[1] for model, own, _ in _counting(state)])
        n, docs = min(self.settings.candidates, state.n_labels), np.arange(documents.n_docs)
        places = []
        for model, own, _ in _counting(state):
            found = model._rank(own, documents, n).labels
            keys = docs[:, None] * state.n_labels + found
            order = np.argsort(keys, axis=None)
            asked = np.repeat(docs, np.diff(wanted.indptr)) * state.n_labels + wanted.indices
            at = np.minimum(np.searchsorted(keys.ravel()[order], asked), keys.size - 1)
            known = keys.ravel()[order][at] == asked
            places.append(np.where(known, order[at] % n + 1, n + 1).astype(np.float32))
        return np.array(places)

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        union = self._union(state, documents, k)
        labels, scores = best_of(union, self._score(state, documents, union)[0], k)
        return Ranking(labels, scores, scores)

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Floats, Floats]:
        weights = np.array([weight for _, _, weight in _counting(state)])
        scores = _averaged(self._parts(state, documents, candidates), weights, state.average)
        return scores, scores

    def _views(self, state: _State) -> list[View]:
        return [
            replace(view, name=f"{i}. {model.name}: {view.name}", share=weight * view.share)
            for i, (model, own, weight) in enumerate(_counting(state), 1)
            for view in model._views(own)
        ]

    def _add(self, state: _State, examples: Corpus, n_docs: int, run: FitRun) -> _State:
        every = zip(state.models, state.states, strict=True)
        states = [model._add(own, examples, n_docs, run) for model, own in every]
        return replace(state, states=states, n_labels=state.n_labels + examples.n_labels)

    def _remove(self, state: _State, kept: Any) -> _State:
        every = zip(state.models, state.states, strict=True)
        states = [model._remove(own, kept) for model, own in every]
        return replace(state, states=states, n_labels=len(kept))

    # Keeping ----------------------------------------------------------------------------------------------

    def _pack(self, state: _State) -> Packed:
        arrays: dict[str, npt.NDArray[Any]] = {}
        strings: dict[str, Strings] = {}
        members = []
        for i, (model, own) in enumerate(zip(state.models, state.states, strict=True)):
            packed = model._pack(own)
            arrays.update({f"{i}.{name}": array for name, array in packed.arrays.items()})
            strings.update({f"{i}.{name}": texts for name, texts in packed.strings.items()})
            settings = model.settings.to_dict()
            members.append({"kind": model.name, "settings": settings, "values": packed.values})
        values = {"members": members, "average": state.average, "weights": state.weights}
        return Packed(arrays, strings, values)

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        from xmcascade.models import MODELS

        values, models, states = packed.values, list[Model[Any, Any]](), []
        for i, member in enumerate(values["members"]):
            kind, begin = MODELS[member["kind"]], f"{i}."
            model = kind(kind.settings_type.from_dict(member["settings"]), threads=self.threads)
            own = {**member["values"], "n_features": packed.values["n_features"]}
            parts = Packed(within(packed.arrays, begin), within(packed.strings, begin), own)
            states.append(model._unpack(parts, n_labels))
            models.append(model)
        weights = tuple(map(float, values["weights"]))
        fine = len(weights) == len(models) == len(self.settings.members) and min(weights) >= 0 < sum(weights)
        if not fine or values["average"] not in get_args(Average):
            raise ValueError(f"an ensemble of {len(models)} with {weights} and {values['average']!r:.40}")
        return _State(models, states, values["average"], weights, n_labels)


def _member(told: str, threads: int | None) -> Model[Any, Any]:
    from xmcascade.models import model_of

    return model_of(told, threads=threads)


def _told(model: Model[Any, Any]) -> str:
    """The opposite: its name, and the settings that are not the default."""
    changed: list[str] = []

    def compare(own: Mapping[str, Any], usual: Mapping[str, Any], begin: str) -> None:
        for name, value in own.items():
            if isinstance(value, Mapping):
                compare(value, usual[name], f"{begin}{name}.")
            elif value != usual[name]:
                changed.append(f"{begin}{name}={json.dumps(value)}")

    compare(model.settings.to_dict(), model.settings_type().to_dict(), "")
    return shlex.join([model.name, *changed])


def _counting(state: _State) -> Iterator[tuple[Model[Any, Any], Any, float]]:
    """The members whose weight is not 0."""
    every = zip(state.models, state.states, state.weights, strict=True)
    return (member for member in every if member[2] > 0)


def _averaged(parts: Floats, weights: Floats, average: Average) -> Floats:
    weights = weights / weights.sum()
    if average == "probability":
        mean = weights @ parts
    elif average == "geometric":
        mean = np.exp(weights @ np.log(np.maximum(parts, LEAST_CHANCE)))
    else:
        mean = 1 / (weights @ parts)
    return np.asarray(np.clip(mean, 0, 1), np.float32)


def _climbed(value_of: Callable[[Floats], float], start: Floats) -> tuple[Floats, float]:
    """Weights with a higher value, found by changing one at a time."""
    best, value = start, value_of(start)
    for _ in range(ROUNDS):
        before = value
        for i in range(len(start)):
            for factor in FACTORS:
                tried = best.copy()
                tried[i] *= factor
                now = value_of(tried) if tried.any() else -1.0
                if now > value:
                    best, value = tried, now
        if value == before:
            break
    return best / best.sum(), value


def _runs_of(models: list[Model[Any, Any]], run: FitRun, processes: int) -> list[FitRun]:
    """A run for each member: of its own seed, with its part of the time, and what it chooses told apart."""
    minutes = run.minutes and run.minutes * processes / len(models)
    return [
        FitRun(
            np.random.default_rng(model.settings.seed),
            max(1, run.threads // processes),
            run.checkpoint and run.checkpoint.part(f"member-{i}"),
            minutes,
            n_extra=run.n_extra,
        )
        for i, model in enumerate(models)
    ]


def _trained(model: Model[Any, Any], corpus: Corpus, run: FitRun) -> tuple[Packed, dict[str, Derived]]:
    return model._pack(model._fit_on(corpus, run)[0]), run.derived
