"""Model folders: a manifest in JSON, arrays in safetensors, strings in Arrow; no file can carry code.

    manifest.json        what the model is, every other file's size and SHA-256, and its own
    arrays.safetensors   all arrays
    <name>.arrow         one file for each packed sequence of strings

A folder is published in one step and never changed after, the same model gives the same bytes, and a reader
gets the model that stood there when it came or a newer one, whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from xmcascade.errors import ModelFolderError
from xmcascade.store.atomic import leftovers, replacing
from xmcascade.store.manifest import (
    ARRAYS,
    DAMAGED,
    FORMAT,
    MANIFEST,
    MAX_JSON,
    Derived,
    Manifest,
    is_strings_file,
    manifest_bytes,
    parse_manifest,
)
from xmcascade.store.parts import read_arrays, read_strings, write_file
from xmcascade.store.strings import Strings
from xmcascade.version import __version__

__all__ = ["Parts", "check_target", "load_folder", "read_manifest", "save_folder", "within"]

T = TypeVar("T")
Array = npt.NDArray[Any]

_PAUSES = [0.0, 0.005, *[0.02] * 50]  # seconds between a reader's attempts while the folder is being replaced


@dataclass(frozen=True)
class Parts:
    """The large things in a model folder, by name."""

    arrays: dict[str, Array]
    strings: dict[str, Strings]


def save_folder(
    folder: str | Path,
    *,
    kind: str,
    settings: Mapping[str, Any],
    n_labels: int,
    arrays: Mapping[str, Array],
    strings: Mapping[str, Strings],
    values: Mapping[str, Any] | None = None,
    derived: Mapping[str, Derived] | None = None,
) -> Manifest:
    """Save a model as a folder, in place of an older model if there is one there.

    Until the last step the old model stays untouched, and so it does when anything fails; who has loaded it
    goes on using it. Settings, values and derived are stored as JSON holds them: a tuple becomes a list.
    Arrays come back with the same shape (also () and with zeros in it) and dtype. What a killed save leaves
    behind, a folder `.<name>.saving-...` beside the target, is removed by a save to that name a day later.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     saved = save_folder(
    ...         f"{parent}/model", kind="toy", settings={"k": 5}, n_labels=2,
    ...         arrays={"weights": np.eye(2)}, strings={"label_names": Strings.of(["cat", "dog"])},
    ...     )
    ...     manifest, arrays, strings = load_folder(f"{parent}/model")
    >>> sorted(saved.files), manifest == saved, strings["label_names"][1], arrays["weights"].shape
    (['arrays.safetensors', 'label_names.arrow'], True, 'dog', (2, 2))
    """
    where = Path(folder)
    content: dict[str, Strings | Mapping[str, Array]] = {ARRAYS: _checked_arrays(arrays, where)}
    for name, packed in sorted(strings.items()):
        if not is_strings_file(f"{name}.arrow"):
            raise ModelFolderError(
                f"strings are named {name!r}", where=str(where), remedy="use small letters, digits and _"
            )
        content[f"{name}.arrow"] = packed
    facts: dict[str, Any] = {
        **{"format": FORMAT, "package_version": __version__, "kind": kind, "n_labels": n_labels},
        **{"settings": settings, "values": values or {}, "derived": derived or {}},
        "files": {name: {"sha256": "0" * 64, "bytes": 0} for name in content},
    }
    manifest_bytes(facts, where)  # what cannot be stored is said before the large files are written
    try:
        with replacing(where, _check_content) as new:
            facts["files"] = {name: write_file(new / name, part) for name, part in content.items()}
            raw = manifest_bytes(facts, where)
            write_file(new / MANIFEST, raw)
    except OSError as error:
        raise _explained(error, where) from error
    return parse_manifest(raw, where / MANIFEST)


def check_target(folder: str | Path, *, also: Collection[str] = ()) -> None:
    """Raise unless a model may be saved here: nothing, an empty folder, or nothing but a model.

    Long work that ends in a save calls this at its start. `also` names files that may be there too, because
    who saves keeps them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     check_target(folder)
    ...     _ = Path(folder, "thesis.tex").write_text("...")
    ...     check_target(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: ...: holds 'thesis.tex', which is not part of a model...
    """
    path = Path(folder)
    if os.path.ismount(path):  # a folder takes the place of another by its name
        what = "is where another disk begins, and cannot be replaced"
        raise ModelFolderError(what, where=str(path), remedy="name a folder inside it")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    trial = above / f".{path.name}.saving-{secrets.token_hex(6)}"  # rights alone do not tell
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        what = f"{above} may not be written to ({error.strerror or error})"
        raise ModelFolderError(what, where=str(path), remedy="save somewhere else") from error
    _check_content(path, also)


def _check_content(path: Path, also: Collection[str] = ()) -> None:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise ModelFolderError("is a file", where=str(path), remedy="save to another name") from error
    except OSError as error:
        raise _explained(error, path) from error
    for name in names:
        if name not in (MANIFEST, ARRAYS, *also) and not is_strings_file(name):
            raise ModelFolderError(
                f"holds {name!r}, which is not part of a model, and saving would delete it",
                where=str(path),
                remedy="save to another folder, or move that file away",
            )
    if set(names) - set(also) and MANIFEST not in names:
        raise ModelFolderError(
            f"exists but is not a model folder: it has no {MANIFEST}",
            where=str(path),
            remedy="save to another folder, or delete this one",
        )


def read_manifest(folder: str | Path) -> Manifest:
    """What a model folder says of itself; reads no large file and checks none.

    >>> read_manifest("no/such/model")
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: no/such/model: there is no model folder here. Remedy: check the path
    """
    return _read(Path(folder), _Opened.manifest)


def load_folder(
    folder: str | Path, *, kind: str | None = None, verify: bool = True, links: bool = False
) -> tuple[Manifest, dict[str, Array], dict[str, Strings]]:
    """A model folder's manifest, arrays and strings, the last two read-only and mapped from the files.

    With `verify` every file is read once to check its SHA-256; without, opening takes no time and only what
    cannot be right is refused (the manifest is always checked). Other files in the folder are ignored. With
    `links`, files may be links to files elsewhere, as they are in caches of downloads.

    >>> load_folder("no/such/model", kind="toy")
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: no/such/model: there is no model folder here. Remedy: check the path
    """

    def read(opened: _Opened) -> tuple[Manifest, Parts]:
        manifest = opened.manifest()
        if kind is not None and manifest.kind != kind:
            raise ModelFolderError(
                f"holds a model of kind {manifest.kind!r}, not {kind!r}",
                where=str(opened.folder),
                remedy=f"load it as {manifest.kind!r}, or check the path",
            )
        return manifest, opened.parts(manifest, verify)

    manifest, parts = _read(Path(folder), read, links)
    return manifest, parts.arrays, parts.strings


class _Opened:
    """A folder opened once: its files are those of one publication, whatever takes its place meanwhile."""

    def __init__(self, folder: Path, stack: ExitStack, links: bool) -> None:
        self.folder, self.stack, self.links = folder, stack, links
        self.handle: int | None = None
        if os.open in os.supports_dir_fd:
            self.handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, self.handle)
        self.identity = _identity(folder if self.handle is None else self.handle)

    def open(self, name: str) -> int:
        """A file's descriptor; only a regular file, and no link where links are not allowed, is opened."""
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        # A link is refused by the system, and a pipe without a writer does not block us.
        flags |= getattr(os, "O_NONBLOCK", 0) | (0 if self.links else getattr(os, "O_NOFOLLOW", 0))
        path = self.folder / name
        try:
            at = path if self.handle is None else name
            handle = os.open(at, flags, dir_fd=self.handle)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOENT):
                raise
            missing = error.errno == errno.ENOENT
            what, remedy = "the file is a link", "put the file itself in its place"
            if missing:
                what = f"the file is missing{', so this is no model folder' * (name == MANIFEST)}"
                remedy = f"{'check the path, or ' * (name == MANIFEST)}{DAMAGED}"
            raise ModelFolderError(what, where=str(path), remedy=remedy) from error
        self.stack.callback(os.close, handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ModelFolderError("is not a regular file", where=str(path), remedy=DAMAGED)
        return handle

    def manifest(self) -> Manifest:
        path, handle = self.folder / MANIFEST, self.open(MANIFEST)
        size = os.fstat(handle).st_size
        if size > MAX_JSON:
            raise ModelFolderError(f"{size:,} bytes are too many", where=str(path), remedy=DAMAGED)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return parse_manifest(file.read(size), path)

    def parts(self, manifest: Manifest, verify: bool) -> Parts:
        # All files are opened before any is read, so that a publication meanwhile cannot take one away.
        handles = {name: self.open(name) for name in manifest.files}
        arrays: dict[str, Array] = {}
        strings: dict[str, Strings] = {}
        for name, handle in handles.items():
            path, entry = self.folder / name, manifest.files[name]
            size = os.fstat(handle).st_size
            if size != entry["bytes"]:
                what = f"the file has {size:,} bytes, not {entry['bytes']:,}"
                raise ModelFolderError(what, where=str(path), remedy=DAMAGED)
            if verify and _sha256(handle) != entry["sha256"]:
                what = "the file's content is not what was saved (its SHA-256 differs)"
                raise ModelFolderError(what, where=str(path), remedy=DAMAGED)
            if name == ARRAYS:
                arrays = read_arrays(handle, path)
            else:
                strings[name.removesuffix(".arrow")] = read_strings(handle, path)
        return Parts(arrays, strings)


def _sha256(handle: int) -> str:
    with os.fdopen(handle, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(folder: Path, action: Callable[[_Opened], T], links: bool = False) -> T:
    """Do it with the opened folder; again if it failed because the folder was being replaced."""
    for attempt, pause in enumerate(_PAUSES):
        time.sleep(pause)
        with ExitStack() as stack:
            before = None
            try:
                opened = _Opened(folder, stack, links)
                before = opened.identity
                return action(opened)
            except (ModelFolderError, OSError) as error:
                failure = error
            # The old folder moved aside is looked for first: if it is gone by then, the new one is there.
            missing = before is None and isinstance(failure, FileNotFoundError)
            aside = leftovers(folder.resolve(), "replaced") if missing else []
            # The opened folder is still held here, so its number cannot have gone to the new one.
            now = _identity(folder)
            if missing and attempt >= 3 and now is None and not aside:
                break
            if not missing and (before is None or now == before):
                break
    if isinstance(failure, ModelFolderError):
        raise failure
    if isinstance(failure, FileNotFoundError):
        what = "there is no model folder here"
        remedy = f"a save was killed: rename {aside[-1]} to {folder.name}" if aside else "check the path"
        raise ModelFolderError(what, where=str(folder), remedy=remedy) from failure
    raise _explained(failure, folder) from failure


def _identity(folder: Path | int) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - an open folder has no path
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _checked_arrays(arrays: Mapping[str, Any], where: Path) -> dict[str, Array]:
    for name, array in arrays.items():
        if not name or name == "__metadata__" or not name.isprintable():  # lone surrogates are not, either
            raise ModelFolderError(f"an array is named {name!r}", where=str(where), remedy="use another name")
        if not isinstance(array, np.ndarray):
            what = f"{name!r} is a {type(array).__name__}, not an array"
            raise ModelFolderError(what, where=str(where), remedy="give a numpy array")
    return dict(arrays)


def _explained(error: OSError, where: Path) -> ModelFolderError:
    remedies = {
        **dict.fromkeys([errno.ENOSPC, errno.EDQUOT], "free some space on the disk, or save to another one"),
        **dict.fromkeys(
            [errno.EACCES, errno.EPERM, errno.EROFS], "ask for permission, or use another folder"
        ),
        **dict.fromkeys([errno.ENOENT, errno.ENOTDIR], "check the path"),
    }
    what = error.strerror or str(error)
    return ModelFolderError(what, where=str(where), remedy=remedies.get(error.errno or 0, "check the disk"))


def within(parts: Mapping[str, T], begin: str) -> dict[str, T]:
    """The parts whose names begin so, by the rest of their names.

    >>> within({"tree.order": 1, "rows": 2}, "tree.")
    {'order': 1}
    """
    return {name.removeprefix(begin): part for name, part in parts.items() if name.startswith(begin)}
