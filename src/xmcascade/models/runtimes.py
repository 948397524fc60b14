"""What runs a model's encoder: torch, or a graph of it that onnxruntime runs, when its answers are the same.

A graph is part of the model folder. Which is the fastest is measured when it is made, and noted there.
"""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, SettingError, XmcError
from xmcascade.models.fitting import parts_of
from xmcascade.models.inputs import checked_documents
from xmcascade.models.reading import TORCH, TextReader
from xmcascade.neural import NETWORKS, extra, quantised, written
from xmcascade.store import Strings

if TYPE_CHECKING:
    from xmcascade.models.base import Model

__all__ = ["Runtime", "RuntimeReport", "choose_runtime", "export_runtime", "readers_of"]

log = logging.getLogger("xmcascade")

Runtime = Literal["torch", "onnx", "onnx-int8"]
NEEDED = "onnxruntime", "onnx"
LEAST_AGREEMENT = 0.98
MOST_DOCS = 2000  # to compare on
NAMES_A_TEXT, N_TEXTS = 8, 500  # of texts made of labels' names
ROUNDS, CALLS = 4, 6  # the first call of a round is not counted


@dataclass(frozen=True)
class RuntimeReport:
    """What an export found."""

    runtime: str
    n_docs: int
    """Documents on which it was compared with torch."""
    agreement: float
    """Share of the 5 best labels that both name, 0 to 1."""
    identical: float
    """Share of documents whose 5 best labels are the same."""
    milliseconds: dict[str, float]
    """Of a prediction of one document, by runtime."""
    n_bytes: int
    """What it adds to the model folder."""
    default: str
    """What a loaded model will use: the fastest."""


def readers_of(model: Model[Any, Any]) -> list[TextReader]:
    """The encoders of a model, or of the members of an ensemble.

    >>> from xmcascade import XRLinear
    >>> readers_of(XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]]))
    []
    """
    return _readers(model._fitted().state)


def _readers(state: Any) -> list[TextReader]:
    own = getattr(state, "text", None)
    members = [reader for member in getattr(state, "states", ()) for reader in _readers(member)]
    return [own, *members] if isinstance(own, TextReader) else members


def choose_runtime(model: Model[Any, Any], runtime: str | None, folder: str | Path) -> None:
    """Let a runtime run the encoders of a model from this folder; None: the fastest that is there.

    >>> from xmcascade import XRLinear
    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> choose_runtime(model, None, "my-model")
    >>> choose_runtime(model, "onnx", "my-model")
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: my-model: the model carries no 'onnx'. Remedy: xmcascade export my-model \
--runtime onnx
    """
    readers = readers_of(model)
    if runtime not in (None, TORCH):
        _check(runtime)
        if not any(runtime in reader.graphs for reader in readers):
            remedy = f"xmcascade export {folder} --runtime {runtime}"
            raise SettingError(f"the model carries no {runtime!r}", where=str(folder), remedy=remedy)
    installed = all(map(find_spec, NEEDED))
    for reader in readers:
        usable = [name for name in reader.fastest if name == TORCH or installed]
        wanted = usable[0] if runtime is None else runtime
        with parts_of(folder):
            reader.use(wanted if wanted in usable else TORCH, model.threads)
    if readers:
        log.info("%s: %s runs the encoder", model.name, model.runtime)


def export_runtime(model: Model[Any, Any], runtime: Runtime, documents: Any = None) -> RuntimeReport:
    """Add a graph of the encoder to a model, for `save`; "onnx-int8" rounds, and is smaller and faster.

    Refused when its 5 best labels are not those of torch, on documents like those to come (2,000 are enough).
    Without documents, texts are made of labels' names. The model uses what is fastest from then on.

    >>> from xmcascade import XRLinear
    >>> export_runtime(XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]]), "onnx")
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: xr-linear has no encoder that onnx could run. Remedy: export a model that \
has one, such as cascadexml or xr-transformer
    """
    _check(runtime)
    readers = [reader for reader in readers_of(model) if reader.family not in NETWORKS]
    if not readers:
        remedy = "export a model that has one, such as cascadexml or xr-transformer"
        raise SettingError(f"{model.name} has no encoder that {runtime} could run", remedy=remedy)
    corpus = _documents(model, documents)
    before = [(reader, reader.runtime, reader.graphs, reader.fastest) for reader in readers]
    try:
        _use(readers, TORCH, model)
        right = model.rank(corpus).labels
        for reader in readers:
            graph = written(reader.reader, reader.max_tokens)
            graph = quantised(graph) if runtime == "onnx-int8" else graph
            reader.graphs = {**reader.graphs, runtime: np.frombuffer(graph, np.uint8)}
        _use(readers, runtime, model)
        agreement, identical = _agreement(right, model.rank(corpus).labels)
        if agreement < LEAST_AGREEMENT:
            named = f"{agreement:.1%} of the 5 best labels of {corpus.n_docs:,} documents"
            what = f"{runtime} names {named}, less than {LEAST_AGREEMENT:.0%}: it is not exported"
            raise XmcError(what, remedy="give documents like those to come, or use another runtime")
        times = _milliseconds(model, readers, [TORCH, *readers[0].graphs], corpus)
        for reader in readers:
            reader.fastest = sorted(times, key=times.__getitem__)
        _use(readers, readers[0].fastest[0], model)
    except BaseException:
        for reader, used, graphs, fastest in before:
            reader.use(TORCH)
            reader.graphs, reader.fastest = graphs, fastest
            reader.use(used, model.threads)
        raise
    return RuntimeReport(
        runtime=runtime,
        n_docs=corpus.n_docs,
        agreement=agreement,
        identical=identical,
        milliseconds=times,
        n_bytes=sum(reader.graphs[runtime].nbytes for reader in readers),
        default=readers[0].runtime,
    )


def _check(runtime: str | None) -> None:
    graphs = get_args(Runtime)[1:]
    if runtime not in graphs:
        raise SettingError(f"there is no runtime {runtime!r}", remedy=f"use {' or '.join(graphs)}")
    for module in NEEDED:
        extra.needed(module, "onnx")


def _documents(model: Model[Any, Any], documents: Any) -> Corpus:
    """Texts to compare on."""
    names = model.label_names
    if documents is None:
        some = np.random.default_rng(0).integers(0, len(names), (N_TEXTS, NAMES_A_TEXT)).tolist()
        documents = [" ".join(names[label] for label in labels) for labels in some]
    corpus = checked_documents(documents, None)
    if not corpus.n_docs:
        raise DataError("there are no documents to compare on", remedy="give some, about 2,000")
    return corpus.take(np.arange(0, corpus.n_docs, -(-corpus.n_docs // MOST_DOCS)))


def _use(readers: list[TextReader], runtime: str, model: Model[Any, Any]) -> None:
    for reader in readers:
        reader.use(runtime, model.threads)


def _agreement(right: npt.NDArray[np.int32], found: npt.NDArray[np.int32]) -> tuple[float, float]:
    """The share of labels that are found too, and of documents where all are."""
    there = ((right[:, :, None] == found[:, None, :]).any(2) | (right < 0)).mean(1)
    return float(there.mean()), float((there == 1).mean())


def _milliseconds(
    model: Model[Any, Any], readers: list[TextReader], runtimes: list[str], corpus: Corpus
) -> dict[str, float]:
    """Medians of a prediction of the document of middle length, taken in turn."""
    assert corpus.texts is not None
    middle = np.argsort(np.diff(corpus.texts.offsets), kind="stable")[corpus.n_docs // 2]
    text, taken = Strings.of([corpus.texts[int(middle)]]), {name: list[float]() for name in runtimes}
    for _ in range(ROUNDS):
        for name in runtimes:
            _use(readers, name, model)
            for call in range(CALLS):
                start = time.perf_counter()
                model.rank(text)
                if call:
                    taken[name].append(1000 * (time.perf_counter() - start))
    return {name: round(statistics.median(times), 3) for name, times in taken.items()}
