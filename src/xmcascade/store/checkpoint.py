"""Long work kept as it goes: named pieces in a folder, each whole or not there, all of the same run.

A run is known by its fingerprint (what is learnt, from what, how). Pieces of another run are never mixed in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import ModelFolderError
from xmcascade.store.atomic import UNFINISHED, discard
from xmcascade.store.folder import load_folder, read_manifest, save_folder
from xmcascade.store.manifest import DAMAGED, MANIFEST
from xmcascade.version import __version__

__all__ = ["Checkpoint", "fingerprint"]

KIND = "checkpoint"
RUN = "run"  # the piece that holds the fingerprint


def fingerprint(facts: Mapping[str, Any], arrays: Iterable[npt.NDArray[Any]]) -> str:
    """A run's name: a hash of the package's version, JSON facts and arrays.

    >>> fingerprint({"k": 5}, [np.arange(3)]) == fingerprint({"k": 5}, [np.arange(4)])
    False
    """
    digest = hashlib.blake2b(json.dumps([__version__, facts], sort_keys=True).encode(), digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class Checkpoint:
    """A folder of pieces.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     kept = Checkpoint(f"{parent}/work", "0a1b")
    ...     kept.save("step-1", {"weights": np.eye(2)}, {"loss": 0.5})
    ...     arrays, values = Checkpoint(f"{parent}/work", "0a1b").load("step-1")
    >>> arrays["weights"].shape, values
    ((2, 2), {'loss': 0.5})
    """

    def __init__(self, folder: str | Path, run: str) -> None:
        """Open or begin; raises when the folder holds the work of another run, or anything else."""
        self.folder, self.begin = Path(folder), ""
        where = str(self.folder)
        if not self.folder.is_dir() and self.folder.exists():
            raise ModelFolderError("is a file", where=where, remedy="use another folder")
        begun = self.load(RUN) if _is_piece(self.folder / RUN) else None
        if begun is None:
            names = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
            if not all(map(UNFINISHED.fullmatch, names)):  # a run may be killed as it begins or ends
                what = "is not empty, and not unfinished work"
                raise ModelFolderError(what, where=where, remedy="use another folder")
            self.save(RUN, {}, {"run": run})
        elif begun[1].get("run") != run:
            raise ModelFolderError(
                "holds unfinished work with other documents, settings or version",
                where=where,
                remedy="use the same again, another folder, or delete this one",
            )

    def part(self, name: str) -> Checkpoint:
        """The same work for one of several parts: what parts keep under equal names does not meet."""
        part = copy(self)
        part.begin = f"{self.begin}{name}-"
        return part

    def save(self, name: str, arrays: Mapping[str, npt.NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Keep a piece, in place of one with the same name."""
        where = self.folder / (self.begin + name)
        save_folder(where, kind=KIND, settings={}, n_labels=1, arrays=arrays, strings={}, values=values)

    def load(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
        """A piece's arrays (mapped, read-only) and values; None when it was not kept."""
        where = self.folder / (self.begin + name)
        if not (where / MANIFEST).exists():
            return None
        try:
            manifest, arrays, _ = load_folder(where, kind=KIND)
        except ModelFolderError as error:
            if error.remedy != DAMAGED:
                raise
            remedy = f"delete {self.folder} and begin anew"
            raise ModelFolderError(error.what, where=error.where, remedy=remedy) from error
        return arrays, manifest.values

    def remove(self) -> None:
        """Delete what was kept: the work is done. The folder goes too, unless others put something there."""
        with suppress(OSError):
            # The run's own piece goes last: who is killed before can still go on.
            for path in sorted(self.folder.iterdir(), key=lambda path: path.name == RUN):
                if UNFINISHED.fullmatch(path.name) or _is_piece(path):
                    discard(path)
            self.folder.rmdir()


def _is_piece(folder: Path) -> bool:
    """Whether this is a piece, if perhaps a damaged one."""
    if not (folder / MANIFEST).exists():
        return False
    try:
        return read_manifest(folder).kind == KIND
    except ModelFolderError:
        return True
