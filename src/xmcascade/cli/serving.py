"""`xmcascade serve`: a model as a server with a page."""

from __future__ import annotations

import logging
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xmcascade.cli.common import Runtime, Threads
from xmcascade.errors import SettingError

__all__ = ["serve"]

KEY = "XMCASCADE_API_KEY"


def serve(
    model: Annotated[Path, Argument(metavar="MODEL", help="A model folder, or a folder of several.")],
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0: any that is free.")] = 8000,
    key_file: Annotated[Path | None, Option(help=f"File with the key [default: ${KEY}].")] = None,
    insecure: Annotated[bool, Option("--insecure", help="Listen beyond this machine without a key.")] = False,
    cors: Annotated[list[str] | None, Option(help="A web site whose pages may call, https://...")] = None,
    set_values: Annotated[list[str] | None, Option("--set", help="A limit: name=value.")] = None,
    show: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    threads: Threads = None,
    runtime: Runtime = None,
) -> None:
    """Serve a model: an HTTP interface, and a page for people at /.

    Folders that are published anew are loaded, and take the place of the old ones without a pause.

    Example: XMCASCADE_API_KEY=secret xmcascade serve my-model --port 8000
    """
    from xmcascade.serve import Limits
    from xmcascade.serve import serve as run

    limits = Limits().with_text(set_values or [])
    if not 0 <= port < 2**16:
        raise SettingError(f"port is {port}", remedy="use a number from 0 to 65535")
    key = _key(key_file)
    # A line of JSON for each event and request, and nothing around it.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("xmcascade.serve", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    run(
        model, host=host, port=port, key=key, insecure=insecure, origins=cors, limits=limits,
        threads=threads, runtime=runtime, ready=webbrowser.open if show else lambda url: None,
    )  # fmt: skip


def _key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(KEY) or None
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingError(f"the key cannot be read ({error})", remedy="check --key-file") from error
    if not key:
        raise SettingError(f"{file} holds no key", remedy="write the key into it")
    return key
