"""Other libraries to compare with, each in an environment of its own, made on first use.

Nothing of them is installed beside this package: PECOS, for one, needs an older numpy and transformers.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xmcascade.errors import SettingError, XmcError
from xmcascade.store.atomic import replacing
from xmcascade.store.files import user_cache

__all__ = ["ENVIRONMENTS", "PEERS", "PREFIX", "Peer", "peer_of", "peer_python"]

log = logging.getLogger("xmcascade")

PREFIX = "peer:"
INSTALLED = "installed.json"  # in an environment: what is installed there
SAID_LINES = 6  # of pip's complaints
ENVIRONMENTS: dict[str, list[str]] = {
    # name: what is installed there. PECOS cannot be imported with newer releases of transformers and numpy.
    "pecos": ["libpecos==1.2.8", "torch==2.13.0", "transformers==4.48.3", "numpy<2"],
    "omikuji": ["omikuji==0.5.2", "numpy", "scipy"],
    "napkinxc": ["napkinxc==0.7.2", "numpy", "scipy"],
    "scikit-learn": ["scikit-learn==1.9.1", "numpy", "scipy"],
}
NEWEST_PYTHON = {"pecos": (3, 12)}  # there is neither a wheel for a newer one nor a source to build


@dataclass(frozen=True)
class Peer:
    """A method of another library."""

    name: str
    environment: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All it can be told, with the defaults of the library (or, where it has none, of ours)."""


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("pecos-xrlinear", "pecos", {"beam": 20}),
        Peer(
            "pecos-xrtransformer",
            "pecos",
            # Without a number of epochs, documents are read 5 times for every level.
            {"encoder": "minilm", "epochs": None, "max_tokens": 128, "batch": 32, "rate": 1e-4, "beam": 20},
        ),
        Peer("omikuji-parabel", "omikuji", {"beam": 10, "trees": 3}),
        Peer("omikuji-bonsai", "omikuji", {"beam": 10, "trees": 3}),
        Peer("napkinxc-plt", "napkinxc", {"loss": "log", "cost": 10.0}),
        Peer("sklearn-linearsvc", "scikit-learn", {"cost": 1.0, "threshold": 0.01}),
    )
}


def peer_of(told: str) -> Peer:
    """A peer from its name and settings on one line, without what marks it as a peer.

    >>> peer_of("omikuji-bonsai beam=20").settings
    {'beam': 20, 'trees': 3}
    """
    try:
        name, *assignments = shlex.split(told)
    except ValueError:  # nothing at all, or a quotation without an end
        name, assignments = told, []
    if name not in PEERS:
        known = ", ".join(PREFIX + known for known in PEERS)
        raise SettingError(f"there is no peer {name!r}", remedy=f"the peers are: {known}")
    settings = dict(PEERS[name].settings)
    for assignment in assignments:
        own, _, text = assignment.partition("=")
        if own not in settings:
            what = f"{PREFIX}{name} cannot be told {assignment!r}"
            raise SettingError(what, remedy=f"write name=value; it has: {', '.join(settings)}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text  # a plain word
        if not _fits(value, settings[own]):
            what = f"{own} of {PREFIX}{name} is {value!r:.60}"
            raise SettingError(what, remedy=f"give something like {settings[own] or 1}")
        settings[own] = value
    return Peer(name, PEERS[name].environment, settings)


def _fits(value: Any, usual: Any) -> bool:
    if isinstance(usual, str):
        return isinstance(value, str)
    whole = isinstance(usual, int)
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool) and value > 0


def peer_python(environment: str, folder: str | Path | None = None) -> Path:
    """The interpreter of an environment; made if it is not there, or has other things installed.

    Environments are kept in the folder, by default `peers` in the user's cache folder ($XMCASCADE_CACHE).

    >>> peer_python("weka")
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: there is no environment 'weka'. Remedy: there are: pecos, omikuji, \
napkinxc, scikit-learn
    """
    if environment not in ENVIRONMENTS:
        remedy = f"there are: {', '.join(ENVIRONMENTS)}"
        raise SettingError(f"there is no environment {environment!r}", remedy=remedy)
    home = _cache() if folder is None else Path(folder)
    target, wanted = home / environment, ENVIRONMENTS[environment]
    if _installed(target) != wanted:
        own = sys.version_info[:2]
        newest = NEWEST_PYTHON.get(environment, own)
        if own > newest:
            what = f"{environment} cannot be installed with Python {own[0]}.{own[1]}"
            raise XmcError(what, remedy=f"run this with Python {newest[0]}.{newest[1]} or older")
        log.info("making an environment for %s: %s", environment, ", ".join(wanted))
        with replacing(target) as new:  # what is half made is never found
            _run([sys.executable, "-m", "venv", str(new)], environment)
            pip = [str(_python(new)), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
            _run([*pip, *wanted], environment)
            (new / INSTALLED).write_text(json.dumps(wanted), encoding="utf-8")
    return _python(target)


def _cache() -> Path:
    cache = user_cache()
    if cache is None:
        raise XmcError("there is no home folder for the peers' environments", remedy="set XMCASCADE_CACHE")
    return cache / "peers"


def _python(environment: Path) -> Path:
    # Not resolved: a link to the interpreter, called by this name, is what makes it an environment.
    return environment.absolute() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _installed(environment: Path) -> Any:
    """What an environment says is installed in it; None when it is not whole."""
    if not _python(environment).exists():  # also when it is a link to an interpreter that was removed since
        return None
    try:
        return json.loads((environment / INSTALLED).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _run(command: list[str], environment: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = " / ".join(said[-SAID_LINES:]) or f"exit code {done.returncode}"
        what = f"the environment for {environment} cannot be made: {told:.1500}"
        raise XmcError(what, remedy="check the network and the space on the disk, then run the same again")
