"""Extreme multi-label text classification: raw text in, the right few of up to millions of labels out.

The names below are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xmcascade.version import __version__

if TYPE_CHECKING:
    from xmcascade.bridges import XMCClassifier, from_pretrained, push_to_hub
    from xmcascade.corpus import Corpus, ReadSettings, load_corpus, make_synthetic, read_corpus, write_corpus
    from xmcascade.errors import XmcError
    from xmcascade.features import Tfidf, TfidfSettings
    from xmcascade.models import (
        XMLCNN,
        AttentionXML,
        Bonsai,
        CascadeXML,
        DiSMEC,
        Ensemble,
        LightXML,
        NearestNeighbours,
        Parabel,
        Prediction,
        XRLinear,
        XRTransformer,
        XTransformer,
        load,
    )

_ROOMS = {
    "AttentionXML": "models",
    "Bonsai": "models",
    "CascadeXML": "models",
    "Corpus": "corpus",
    "DiSMEC": "models",
    "Ensemble": "models",
    "LightXML": "models",
    "NearestNeighbours": "models",
    "Parabel": "models",
    "Prediction": "models",
    "ReadSettings": "corpus",
    "Tfidf": "features",
    "TfidfSettings": "features",
    "XMCClassifier": "bridges",
    "XMLCNN": "models",
    "XRLinear": "models",
    "XRTransformer": "models",
    "XTransformer": "models",
    "XmcError": "errors",
    "from_pretrained": "bridges",
    "load": "models",
    "load_corpus": "corpus",
    "make_synthetic": "corpus",
    "push_to_hub": "bridges",
    "read_corpus": "corpus",
    "write_corpus": "corpus",
}

__all__ = [
    "XMLCNN",
    "AttentionXML",
    "Bonsai",
    "CascadeXML",
    "Corpus",
    "DiSMEC",
    "Ensemble",
    "LightXML",
    "NearestNeighbours",
    "Parabel",
    "Prediction",
    "ReadSettings",
    "Tfidf",
    "TfidfSettings",
    "XMCClassifier",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "XmcError",
    "__version__",
    "from_pretrained",
    "load",
    "load_corpus",
    "make_synthetic",
    "push_to_hub",
    "read_corpus",
    "write_corpus",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'xmcascade' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"xmcascade.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
