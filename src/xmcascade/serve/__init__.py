"""A server that can be left running: an HTTP interface with batching, a page for people, and a client.

    xmcascade serve my-model

What needs the extra `serve` is loaded when it is first used; the client needs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xmcascade.errors import MissingExtraError
from xmcascade.serve.client import Client, ServerError
from xmcascade.serve.limits import Limits

if TYPE_CHECKING:
    from xmcascade.serve.running import Running, serve

__all__ = ["Client", "Limits", "Running", "ServerError", "serve"]


def __getattr__(name: str) -> Any:
    if name not in ("Running", "serve"):
        raise AttributeError(f"module 'xmcascade.serve' has no attribute {name!r}")
    try:
        from xmcascade.serve import running
    except ImportError as error:
        what = f"{error.name or 'fastapi'} is not installed"
        raise MissingExtraError(what, remedy="pip install 'xmcascade[serve]'") from error
    return getattr(running, name)
