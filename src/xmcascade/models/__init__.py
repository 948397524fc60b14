"""The methods, by the names they have on the command line; `load` finds the right one for a folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from xmcascade.errors import ModelFolderError, SettingError
from xmcascade.kernels.parallel import thread_count
from xmcascade.models.base import Model, Prediction
from xmcascade.models.cascadexml import CascadeXML, CascadeXMLTfidf, LightXML
from xmcascade.models.ensemble import Ensemble
from xmcascade.models.fitting import ModelSettings
from xmcascade.models.nearest import NearestNeighbours
from xmcascade.models.runtimes import Runtime, RuntimeReport, export_runtime
from xmcascade.models.word_networks import XMLCNN, AttentionXML
from xmcascade.models.xr_linear import Bonsai, DiSMEC, Parabel, XRLinear
from xmcascade.models.xr_transformer import XRTransformer, XTransformer
from xmcascade.store import load_folder

__all__ = [
    "MODELS",
    "XMLCNN",
    "AttentionXML",
    "Bonsai",
    "CascadeXML",
    "CascadeXMLTfidf",
    "DiSMEC",
    "Ensemble",
    "LightXML",
    "Model",
    "ModelSettings",
    "NearestNeighbours",
    "Parabel",
    "Prediction",
    "Runtime",
    "RuntimeReport",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "export_runtime",
    "load",
    "model_of",
]

MODELS: dict[str, type[Model[Any, Any]]] = {
    model.name: model
    for model in (
        NearestNeighbours,
        XRLinear,
        Parabel,
        Bonsai,
        DiSMEC,
        CascadeXML,
        CascadeXMLTfidf,
        LightXML,
        XRTransformer,
        XTransformer,
        AttentionXML,
        XMLCNN,
        Ensemble,
    )
}


def model_of(told: str, *, threads: int | None = None) -> Model[Any, Any]:
    """A model that has not learnt yet, from its name and settings on one line.

    >>> model_of("xr-linear beam=30 linear.cost=2").settings.beam
    30
    """
    try:
        name, *assignments = shlex.split(told)
    except ValueError as error:  # nothing at all, or a quotation without an end
        what = f"{told!r:.80} names no model"
        raise SettingError(what, remedy="write a model's name, and settings as name=value") from error
    if name not in MODELS:
        raise SettingError(f"there is no model {name!r}", remedy=f"the models are: {', '.join(MODELS)}")
    kind = MODELS[name]
    return kind(kind.settings_type().with_text(assignments), threads=threads)


def load(
    folder: str | Path,
    *,
    threads: int | None = None,
    verify: bool = True,
    links: bool = False,
    runtime: Runtime | None = None,
) -> Model[Any, Any]:
    """Load any model folder. With `links`, its files may be links to files elsewhere.

    runtime: what runs its encoder: "torch", "onnx" or "onnx-int8" (see `export_runtime`); None: the fastest
    that the folder carries and that is installed.

    >>> load("no/such/model")
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: no/such/model: there is no model folder here. Remedy: check the path
    """
    thread_count(threads)  # what is wrong with them is no fault of the folder
    manifest, *parts = load_folder(folder, verify=verify, links=links)
    if manifest.kind not in MODELS:
        what = f"a model of the unknown kind {manifest.kind!r:.40}"
        remedy = f"load it with the xmcascade that saved it ({manifest.package_version}), or a newer one"
        raise ModelFolderError(what, where=str(folder), remedy=remedy)
    return MODELS[manifest.kind]._restored(folder, threads, runtime, manifest, *parts)
