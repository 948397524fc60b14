"""The manifest of a model folder: small, readable, and checked as something that anybody may have written."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from xmcascade.errors import ModelFolderError
from xmcascade.version import __version__

__all__ = [
    "ARRAYS",
    "DAMAGED",
    "FORMAT",
    "MANIFEST",
    "MAX_JSON",
    "Derived",
    "FileEntry",
    "Manifest",
    "is_strings_file",
    "manifest_bytes",
    "parse_json",
    "parse_manifest",
]

FORMAT = 1  # of the folder; raised when an older version of this package could no longer read it
MANIFEST, ARRAYS = "manifest.json", "arrays.safetensors"
MAX_JSON = 64 << 20  # bytes of a manifest or of the arrays' header: far above any real one
DAMAGED = "copy the model folder again from where it is whole, or train and save the model anew"

_STRINGS = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}\.arrow")  # no capitals: on some disks A is a


class Derived(TypedDict):
    """A value that the library chose, and why."""

    value: Any
    reason: str


class FileEntry(TypedDict):
    """What the manifest says of a file."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a model folder says of itself."""

    format: int
    package_version: str
    kind: str
    settings: dict[str, Any]
    derived: dict[str, Derived]
    n_labels: int
    values: dict[str, Any]
    files: dict[str, FileEntry]


def is_strings_file(name: str) -> bool:
    """Whether a file of this name holds strings; such a name cannot lead out of its folder.

    >>> is_strings_file("label_names.arrow"), is_strings_file("../label_names.arrow")
    (True, False)
    """
    return _STRINGS.fullmatch(name) is not None


def manifest_bytes(facts: Mapping[str, Any], where: Path) -> bytes:
    """The manifest as JSON, the same bytes for the same facts.

    >>> manifest_bytes({"format": float("nan")}, Path("model"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: model: the settings or values cannot be stored as JSON: ...
    """
    try:
        plain = parse_json(json.dumps(facts, allow_nan=False, default=_plain).encode(), str(where))
        plain["sha256"] = _digest(plain)
        raw = json.dumps(plain, sort_keys=True, indent=2, ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError, ModelFolderError) as error:
        raise ModelFolderError(
            f"the settings or values cannot be stored as JSON: {error}",
            where=str(where),
            remedy="use finite numbers, valid strings, lists and dicts, and put arrays in `arrays`",
        ) from error
    if len(raw) > MAX_JSON:
        what = f"the settings and values take {len(raw):,} bytes"
        raise ModelFolderError(what, where=str(where), remedy="put what is large in arrays or strings")
    parse_manifest(raw, where, remedy="give it as documented")  # nothing is saved that could not be loaded
    return raw


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def parse_manifest(raw: bytes, path: Path, *, remedy: str = DAMAGED) -> Manifest:
    """Check a manifest's bytes, first of all whether we are too old to understand the rest.

    >>> parse_manifest(b'{"format": 7}', Path("manifest.json"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: manifest.json: model folder format 7 is newer than this xmcascade ...
    """
    facts = parse_json(raw, str(path))
    number, version = facts.get("format"), facts.get("package_version")
    if type(number) is int and number > FORMAT:
        plain = isinstance(version, str) and re.fullmatch(r"[0-9][0-9A-Za-z.+-]{0,40}", version)
        raise ModelFolderError(
            f"model folder format {number} is newer than this xmcascade {__version__} understands ({FORMAT})",
            where=str(path),
            remedy=f"install xmcascade >= {version}" if plain else "install the newest xmcascade",
        )
    if facts.get("sha256") != _digest(facts):
        what = "not what was saved (its own SHA-256 differs)"
        raise ModelFolderError(what, where=str(path), remedy=remedy)
    types: dict[str, type] = {"format": int, "package_version": str, "kind": str, "n_labels": int}
    names = [field.name for field in fields(Manifest)]
    wrong = [repr(name) for name in names if type(facts.get(name)) is not types.get(name, dict)]
    if not wrong:
        wrong += ["'format'"] if number != FORMAT else []
        wrong += ["'n_labels'"] if facts["n_labels"] < 0 else []
        wrong += [f"derived {name!r}" for name, entry in facts["derived"].items() if not _is_derived(entry)]
        wrong += [f"file {name!r}" for name, entry in facts["files"].items() if not _is_file(name, entry)]
        wrong += [f"file {ARRAYS!r}"] if ARRAYS not in facts["files"] else []
    if wrong:
        what = f"not a model's manifest: {wrong[0]} is missing or not what it should be"
        raise ModelFolderError(what, where=str(path), remedy=remedy)
    return Manifest(**{name: facts[name] for name in names})


def _digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of what the facts say, without the digest itself; layout and order do not matter."""
    rest = {name: value for name, value in facts.items() if name != "sha256"}
    try:
        return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    except RecursionError:  # deeper than anything that can be saved
        return ""


def _is_derived(entry: Any) -> bool:
    return type(entry) is dict and set(entry) == {"value", "reason"} and type(entry["reason"]) is str


def _is_file(name: str, entry: Any) -> bool:
    if not ((name == ARRAYS or is_strings_file(name)) and type(entry) is dict):
        return False
    digest, size = entry.get("sha256"), entry.get("bytes")
    whole = type(digest) is str and re.fullmatch("[0-9a-f]{64}", digest) is not None
    return whole and type(size) is int and size >= 0 and len(entry) == 2


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
    """A JSON object from bytes that nobody vouches for: no NaN, no infinity, no key twice.

    >>> parse_json(b'{"a": 1, "a": 2}', "manifest.json")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: manifest.json: not valid JSON: 'a' is there twice. Remedy: ...
    """
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's errors are ValueErrors
        what = "nested too deeply" if isinstance(error, RecursionError) else f"not valid JSON: {error}"
        raise ModelFolderError(what, where=where, remedy=DAMAGED) from error
    if not isinstance(value, dict):
        raise ModelFolderError("not a JSON object", where=where, remedy=DAMAGED)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"{name!r} is there twice")
        result[name] = value
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value
