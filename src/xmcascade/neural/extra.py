"""What only extras bring, asked for when it is needed: the rest of the package works without."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from xmcascade.errors import MissingExtraError

__all__ = ["needed", "torch"]


@cache
def needed(module: str, extra: str = "neural") -> Any:
    """The module, or an error that says how to install it.

    >>> needed("json").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} is not installed", remedy=f"pip install 'xmcascade[{extra}]'"
        ) from error


def torch() -> Any:
    """The module torch.

    >>> torch().__name__
    'torch'
    """
    return needed("torch")
