"""Doors to other libraries: scikit-learn, the Hugging Face hub and Annif.

Each is loaded when it is first used, so nothing here needs a library that nobody asked for. Annif's is not
named below: it is `xmcascade.bridges.annif`, which Annif itself loads.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmcascade.bridges.hub import from_pretrained, push_to_hub, save_pretrained
    from xmcascade.bridges.scikit import XMCClassifier, precision_at

_MODULES = {
    "XMCClassifier": "scikit",
    "from_pretrained": "hub",
    "precision_at": "scikit",
    "push_to_hub": "hub",
    "save_pretrained": "hub",
}

__all__ = ["XMCClassifier", "from_pretrained", "precision_at", "push_to_hub", "save_pretrained"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'xmcascade.bridges' has no attribute {name!r}")
    return getattr(importlib.import_module(f"xmcascade.bridges.{_MODULES[name]}"), name)
