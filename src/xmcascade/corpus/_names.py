"""One name for each function, however a file reached it.

`numpy._core.numeric.asarray` inside numpy and `np.asarray` elsewhere are one function. Names are followed
through the imports of the mined files to where they are defined, and then shown under the shortest public
name that a package's `__init__` gives them. They are never followed from one top-level package into another:
`os.path.join` stays what people write, though `os` imports it from `posixpath` or `ntpath`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from xmcascade.corpus._calls import Module, module_name

__all__ = ["PublicNames"]

LONGEST_CHAIN = 12  # imports that lead in a circle end here


class PublicNames:
    """Full dotted names to the names people write.

    >>> from xmcascade.corpus._calls import mine_source
    >>> top = mine_source(b"from ._impl import solve", "lab/__init__.py")
    >>> inner = mine_source(b"def solve(): ...", "lab/_impl.py")
    >>> names = PublicNames([top, inner])
    >>> names.public("lab._impl.solve"), names.public(".append"), names.public("os.path.join")
    ('lab.solve', '.append', 'os.path.join')
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._modules = {module_name(module.path): module for module in modules}
        self._definitions = {name: frozenset(module.definitions) for name, module in self._modules.items()}
        self._aliases: dict[str, list[str]] = {}
        self._shown_by: dict[str, str] = {}  # compiled module, all of which a package shows
        for name, module in self._modules.items():
            if module.path.endswith("/__init__.py") and not _private_parts(name):
                self._read_aliases(name, module)
        self.public = cache(self._public)

    def _read_aliases(self, name: str, module: Module) -> None:
        targets = dict(module.imports)
        for star in module.stars:
            if star not in self._modules and _same_house(name, star):
                self._shown_by.setdefault(star, name)
            for defined in self._definitions.get(star, ()):
                targets.setdefault(defined, f"{star}.{defined}")
        for alias, target in targets.items():
            if not alias.startswith("_") and _same_house(name, target):
                self._aliases.setdefault(self._definition(target), []).append(f"{name}.{alias}")

    def _public(self, label: str) -> str:
        if label.startswith("."):
            return label
        home = self._definition(label)
        if home.startswith("."):
            return home
        owner, _, method = home.rpartition(".")
        choices = [home, *self._aliases.get(home, ())]
        choices += [
            f"{alias}.{method}" for alias in self._aliases.get(owner, ())
        ]  # a class's methods move with it
        if owner in self._shown_by:
            choices.append(f"{self._shown_by[owner]}.{method}")
        shortest: str = min(
            choices, key=lambda name: (_private_parts(name), name.count("."), len(name), name)
        )
        return shortest

    def _definition(self, full: str, steps: int = LONGEST_CHAIN) -> str:
        """Where a name is defined, or ".method" when the way leads through a variable."""
        module, rest = self._cut(full)
        if not rest or not steps:
            return full
        head = rest[0]
        found = self._modules[module]
        if head in self._definitions[module]:
            return full
        target = found.imports.get(head)
        if target is None:
            if head in found.variables:
                return f".{rest[-1]}" if len(rest) > 1 else full
            target = next((f"{star}.{head}" for star in found.stars if self._binds(star, head)), None)
        if target is None or not _same_house(module, target):
            return full
        return self._definition(".".join([target, *rest[1:]]), steps - 1)

    def _cut(self, full: str) -> tuple[str, list[str]]:
        """The longest known module that starts the name, and what follows it."""
        parts = full.split(".")
        for n in range(len(parts), 0, -1):
            module = ".".join(parts[:n])
            if module in self._modules:
                return module, parts[n:]
        return full, []

    def _binds(self, module: str, name: str, steps: int = LONGEST_CHAIN) -> bool:
        found = self._modules.get(module)
        if found is None or not steps:
            return False
        if name in self._definitions[module] or name in found.imports:
            return True
        return any(self._binds(star, name, steps - 1) for star in found.stars)


def _private_parts(name: str) -> int:
    return sum(part.startswith("_") for part in name.split("."))


def _same_house(name: str, other: str) -> bool:
    """Same top-level package; `pytest` and `_pytest` count as one."""
    return name.partition(".")[0].lstrip("_") == other.partition(".")[0].lstrip("_")
