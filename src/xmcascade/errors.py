"""One family of errors: every message says what is wrong, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "DataError",
    "MissingExtraError",
    "ModelFolderError",
    "NotFittedError",
    "Place",
    "SettingError",
    "XmcError",
]


class XmcError(Exception):
    """Anything this package refuses to do; catch it to catch them all.

    >>> str(XmcError("the tree has no labels", remedy="give at least one label"))
    'the tree has no labels. Remedy: give at least one label'
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        message = f"{where}: {what}" if where else what
        super().__init__(f"{message}. Remedy: {remedy}" if remedy else message)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments need help to cross a process boundary.
        return _rebuild, (type(self), self.what, self.where, self.remedy)


def _rebuild(kind: type[XmcError], what: str, where: str, remedy: str) -> XmcError:
    return kind(what, where=where, remedy=remedy)


class DataError(XmcError):
    """A document, a label or a file is not what it should be."""


class SettingError(XmcError, ValueError):
    """A setting or an argument is outside its allowed range."""


class NotFittedError(XmcError):
    """A model was asked for answers before it was trained."""


class ModelFolderError(XmcError):
    """A model folder is missing, damaged, hostile or from a newer version."""


class MissingExtraError(XmcError, ImportError):
    """An optional dependency is not installed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the input something was found; lines and rows count from 1.

    >>> str(Place("train.csv", line=3, field="labels"))
    "train.csv, line 3, field 'labels'"
    """

    source: str | Path
    line: int = 0
    field: str = ""
    unit: str = "line"

    def __str__(self) -> str:
        parts = [str(self.source)]
        if self.line:
            parts.append(f"{self.unit} {self.line}")
        if self.field:
            parts.append(f"field {self.field!r}")
        return ", ".join(parts)
