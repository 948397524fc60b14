"""`xmcascade models` and `doctor`: what there is, and whether it works here."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

from typer import Exit

from xmcascade import __version__
from xmcascade.cli.common import AsJson, out, show, table_of
from xmcascade.errors import XmcError

__all__ = ["doctor", "models"]

LIBRARIES = (
    "numpy", "scipy", "numba", "pyarrow", "safetensors",
    "torch", "transformers", "tokenizers", "onnxruntime", "matplotlib", "tensorboardX", "fastapi", "uvicorn",
)  # fmt: skip


def models(as_json: AsJson = False) -> None:
    """List the methods, a line each, and their presets.

    Example: xmcascade models
    """
    from xmcascade.models import MODELS

    lines = {name: (kind.__doc__ or "").strip().partition("\n")[0] for name, kind in MODELS.items()}
    if as_json:
        show(
            {name: {"is": lines[name], "presets": list(kind.presets)} for name, kind in MODELS.items()}, True
        )
        return
    table_of(["model", "what it is"], [[name, line] for name, line in lines.items()], right=9)
    for name, kind in MODELS.items():
        if kind.presets:
            out.print(f"presets of {name}: {', '.join(kind.presets)}", markup=False)


def doctor(as_json: AsJson = False) -> None:
    """Say what this installation has, and try whether it works.

    Example: xmcascade doctor
    """
    from xmcascade.kernels.parallel import thread_count

    facts: dict[str, Any] = {
        "xmcascade": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": thread_count(None),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
    }
    facts |= {name: _version(name) for name in LIBRARIES}
    logging.getLogger("xmcascade").setLevel(logging.WARNING)  # the trials' own words are of no interest
    facts |= {name: _tried(trial) for name, trial in TRIALS.items()}
    show(facts, as_json)
    if any(str(facts[name]).startswith("FAILED") for name in TRIALS):
        raise Exit(1)


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


def _tried(trial: Callable[[], str]) -> str:
    try:
        return trial()
    except XmcError as error:
        return f"not here: {error}"
    except Exception as error:
        return f"FAILED: {error!r:.300}"


def _kernels() -> str:
    """A tree, linear rows and a search, compiled here, on documents whose labels are plain."""
    from xmcascade import XRLinear

    words = [f"word{i}" for i in range(12)]
    model = XRLinear(tree={"max_leaf": 4, "arity": 2}).fit(words * 2, [[word] for word in words * 2])
    found = [row[0].label for row in model.predict(words, k=1)]
    if found != words:
        raise AssertionError(f"{sum(map(str.__ne__, found, words))} of {len(words)} answers are wrong")
    return "work"


def _encoder() -> str:
    from xmcascade.neural import Encoder

    encoder = Encoder.load()
    ids = encoder.tokenizer.encode("which functions would I call to do this?").ids
    return f"found: {encoder.family}, {encoder.n_layers} layers, {encoder.width} wide, {len(ids)} tokens read"


TRIALS: dict[str, Callable[[], str]] = {"kernels": _kernels, "encoder": _encoder}
