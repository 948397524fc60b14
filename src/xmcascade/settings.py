"""Settings are small frozen dataclasses that check themselves and go to JSON and back.

A message names the setting, its value and what is allowed. `with_text` serves the command line, where values
arrive as text: `features.min_df=3`.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from xmcascade.errors import SettingError

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: `check` states the allowed ranges.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Search(Settings):
    ...     beam: int = 10
    ...     def check(self) -> None:
    ...         self.require(self.beam >= 1, "beam", "from 1 up")
    >>> Search(beam=0)
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: beam is 0. Remedy: allowed: from 1 up
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):  # JSON knows no tuples
                value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
                object.__setattr__(self, field.name, value)
            if not _fits(value, hints[field.name]):
                allowed = _name(hints[field.name])
                raise SettingError(f"{field.name} is {value!r:.60}", remedy=f"allowed: {allowed}")
        self.check()

    def check(self) -> None:
        """Raise SettingError when a value is out of range."""

    def require(self, fine: bool, name: str, allowed: str) -> None:
        """Refuse the setting's value unless it is fine."""
        if not fine:
            raise SettingError(f"{name} is {getattr(self, name)!r:.60}", remedy=f"allowed: {allowed}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; nested settings become nested objects."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.to_dict() if isinstance(v, Settings) else list(v) if isinstance(v, tuple) else v
                for k, v in values.items()}  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The opposite of to_dict; unknown names are refused."""
        return cls().with_values(values)

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """A copy with some values replaced; a mapping replaces values of nested settings.

        >>> Settings().with_values({"beem": 3})
        Traceback (most recent call last):
        ...
        xmcascade.errors.SettingError: there is no setting 'beem'. Remedy: the settings are: none
        """
        changed = {}
        names = [field.name for field in fields(self)]
        for name, value in values.items():
            if name not in names:
                raise SettingError(
                    f"there is no setting {name!r}", remedy=f"the settings are: {', '.join(names) or 'none'}"
                )
            own = getattr(self, name)
            nested = isinstance(own, Settings) and isinstance(value, Mapping)
            changed[name] = own.with_values(value) if nested else value
        return replace(self, **changed)

    def with_text(self, assignments: list[str]) -> Self:
        """A copy with values given as text, "name=value" or "part.name=value".

        >>> Settings().with_text(["beam"])
        Traceback (most recent call last):
        ...
        xmcascade.errors.SettingError: 'beam' is not name=value. Remedy: write for example seed=1
        """
        changed = self
        for assignment in assignments:
            path, equals, text = assignment.partition("=")
            if not equals:
                raise SettingError(f"{assignment!r} is not name=value", remedy="write for example seed=1")
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = text  # a plain word is a string
            tree: Any = value
            for name in reversed(path.strip().split(".")):
                tree = {name: tree}
            changed = changed.with_values(tree)
        return changed


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is typing.Literal:
        return value in args
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(_fits, value, args))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is type(None):
        return value is None
    return isinstance(value, hint)


def _name(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(map(repr, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_name, args))
    if origin is tuple:
        return f"({', '.join('...' if arg is Ellipsis else _name(arg) for arg in args)})"
    known = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a string",
        types.NoneType: "null",
    }
    return known.get(hint, getattr(hint, "__name__", str(hint)))
