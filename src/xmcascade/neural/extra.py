"""What only extras bring, asked for when it is needed: the rest of the package works without."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

from xmcascade.errors import MissingExtraError

__all__ = ["needed", "torch"]

# torch compiles a product for every shape, and keeps 1,024 of them; documents of many lengths have as many
# shapes, and what is kept lies between freed memory, which grows and grows. A pass needs about 12 at a time.
SHAPES, KEPT = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16"


@cache
def needed(module: str, extra: str = "neural") -> Any:
    """The module, or an error that says how to install it.

    >>> needed("json").__name__
    'json'
    """
    if module == "torch":
        os.environ.setdefault(SHAPES, KEPT)  # is read when the first product is compiled
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
