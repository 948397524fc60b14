"""What the functions of one Python file say they do, and what they call; nothing is imported or executed.

The file is a program too (file names in, findings out, both as JSON): many files are mined at once by running
it several times, which needs neither a fork of a process with threads nor a `__main__` guard in the caller's
script. That is why it imports only the standard library.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import decode_source
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Function", "Module", "mine_file", "mine_source", "module_name", "words_of_name"]

MAX_BYTES = 2_000_000  # larger files are tables written by a program
MIN_WORDS = 2  # a docstring of one word says nothing
MAX_WORDS = 100  # a first "paragraph" that never ends is not one

_BUILTINS = frozenset(dir(builtins))
_SILENT = frozenset(["super"])  # called in passing; names no work
_SELF = frozenset(["self", "cls"])
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_WORD_ENDS = re.compile(
    r"_+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"
)
_PARAGRAPH_ENDS = re.compile(
    r"\n[ \t]*(?:\n|>>>|[:@](?:param|arg|type|returns?|rtype|raises?)\b"
    r"|(?:Parameters|Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):?[ \t]*\n)"
)


class Function(NamedTuple):
    """One function with a docstring. Calls are full dotted names as far as the file alone can tell."""

    line: int
    name: str
    text: str
    calls: list[str]


class Module(NamedTuple):
    """One file: its functions, and what its top level binds, to follow names from file to file."""

    path: str
    functions: list[Function]
    imports: dict[str, str]
    stars: list[str]
    definitions: list[str]
    variables: list[str]


def words_of_name(name: str) -> str:
    """A Python name as words.

    >>> words_of_name("__getHTTPHeader2_x")
    'get http header 2 x'
    """
    return " ".join(_WORD_ENDS.sub(" ", name.strip("_")).lower().split())


def module_name(path: str) -> str:
    """The dotted name under which a file is imported.

    >>> module_name("json/decoder.py"), module_name("json/__init__.py")
    ('json.decoder', 'json')
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def mine_file(path: str, file: str) -> Module | None:
    """Mine a file, known as `path`; None when it cannot be read or is not Python."""
    try:
        with Path(file).open("rb") as stream:
            source = stream.read(MAX_BYTES + 1)
    except OSError:
        return None
    return mine_source(source, path)


def mine_source(source: bytes, path: str) -> Module | None:
    """Mine the text of a file.

    >>> source = b'import numpy as np\\ndef full(n):\\n    "An array of ones."\\n    return np.ones(n)'
    >>> mine_source(source, "house/room.py").functions
    [Function(line=2, name='full', text='full: An array of ones.', calls=['numpy.ones'])]
    """
    if len(source) > MAX_BYTES:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's escape sequences
            tree = ast.parse(decode_source(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = _Names(module_name(path), path.endswith("/__init__.py"))
    names.read_top(tree.body)
    functions = list(_functions(tree, names))
    return Module(
        path, functions, names.imports, names.stars, sorted(names.definitions), sorted(names.variables)
    )


class _Names:
    """What names mean in one module."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.module = module
        self.package = module if is_package else module.rpartition(".")[0]
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.definitions: set[str] = set()
        self.variables: set[str] = set()

    def read_top(self, body: list[ast.stmt]) -> None:
        """Bindings of the module itself, also under if, try and with."""
        todo: list[ast.AST] = list(reversed(body))
        while todo:
            node = todo.pop()
            if isinstance(node, _SCOPES):
                self.definitions.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, target in self.imported(node):
                    if name == "*":
                        self.stars.append(target)
                    else:
                        self.imports.setdefault(name, target)  # the first choice of a try/except
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    self.variables.add(node.id)
            elif not isinstance(node, ast.Lambda):
                todo.extend(reversed(list(ast.iter_child_nodes(node))))

    def imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
        """(bound name, full name) of one import statement."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
            return
        source = node.module or ""
        if node.level:
            package = self.package.split(".")
            package = package[: len(package) - node.level + 1]
            source = ".".join([*package, source] if source else package)
        for alias in node.names:
            if alias.name == "*":
                yield "*", source
            else:
                yield alias.asname or alias.name, f"{source}.{alias.name}"

    def resolve(self, parts: list[str], local: set[str], local_imports: dict[str, str]) -> str | None:
        """The label of a call to a dotted name; None where it names nothing (a parameter, a local name)."""
        head, rest = parts[0], parts[1:]
        method = f".{rest[-1]}" if rest else None
        if head in local_imports:
            return ".".join([local_imports[head], *rest])
        if head in local:
            return method
        if head in self.imports:
            return ".".join([self.imports[head], *rest])
        if head in self.definitions:
            return ".".join([self.module, *parts])
        if head in _BUILTINS and head not in self.variables:
            return None if head in _SILENT else ".".join(parts)
        # A variable of the module, or a name that came with a star.
        return method or f"{self.module}.{head}"


def _functions(tree: ast.Module, names: _Names) -> Iterator[Function]:
    """All functions with a docstring and a call, in file order."""
    # (node, inside a class, names bound by the functions around it)
    todo: list[tuple[ast.AST, bool, frozenset[str]]] = [
        (node, False, frozenset()) for node in reversed(tree.body)
    ]
    while todo:
        node, in_class, around = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = _Body(node, around, names)
            text = _text(node)
            if text:
                calls = body.labels(names, None if in_class else f"{names.module}.{node.name}")
                if calls:
                    yield Function(node.lineno, node.name, text, calls)
            if not body.nested:
                continue
            around = frozenset(body.local)
        elif isinstance(node, ast.expr):
            continue  # an expression holds no def
        inside = isinstance(node, ast.ClassDef)
        todo.extend((child, inside, around) for child in reversed(list(ast.iter_child_nodes(node))))


class _Body:
    """One walk over a function's body: what it binds and what it calls, nested functions included."""

    def __init__(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, around: frozenset[str], names: _Names
    ) -> None:
        self.name = function.name
        self.local: set[str] = set(around)
        self.imports: dict[str, str] = {}
        self.called: list[ast.expr] = []
        self.nested = False
        shared: set[str] = set()
        todo: list[ast.AST] = [function.args, *function.body]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    self.local.add(node.id)
                continue
            if isinstance(node, (ast.Constant, ast.Raise)):
                continue  # what is called only to complain is no answer to "how do I do this?"
            if isinstance(node, ast.Call):
                self.called.append(node.func)
            elif isinstance(node, _SCOPES):
                self.nested = True
                self.local.add(node.name)
                todo.extend(node.body)  # without decorators
                if not isinstance(node, ast.ClassDef):
                    todo.append(node.args)
                continue
            elif isinstance(node, ast.arguments):
                every = (node.posonlyargs, node.args, node.kwonlyargs, [node.vararg], [node.kwarg])
                self.local.update(arg.arg for group in every for arg in group if arg)
                continue  # defaults are computed outside the body
            elif isinstance(node, ast.ExceptHandler):
                self.local.update([node.name] if node.name else [])
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.update(names.imported(node))
            elif isinstance(node, ast.Global):
                shared.update(node.names)
            todo.extend(ast.iter_child_nodes(node))
        self.local -= shared

    def labels(self, names: _Names, own: str | None) -> list[str]:
        """The calls' labels, each once, in alphabetical order; a call of the function itself is none."""
        found: set[str] = set()
        for func in self.called:
            parts: list[str] = []
            node: ast.expr = func
            while isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            if isinstance(node, ast.Name):
                if own is None and parts == [self.name] and node.id in _SELF:
                    continue
                label = names.resolve([node.id, *reversed(parts)], self.local, self.imports)
            elif parts and not (parts == [self.name] and _is_super(node)):
                label = f".{parts[0]}"
            else:
                continue
            if label and label != own:
                found.add(label)
        return sorted(found)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Name and first paragraph of the docstring; "" when there is too little to go by."""
    first = function.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return ""
    doc = first.value.value
    if not isinstance(doc, str):
        return ""
    words = _PARAGRAPH_ENDS.split(doc.strip(), maxsplit=1)[0].split()[:MAX_WORDS]
    if sum(any(map(str.isalpha, word)) for word in words) < MIN_WORDS:
        return ""
    text = f"{words_of_name(function.name)}: {' '.join(words)}".removeprefix(": ")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, in a docstring on surrogates
        return ""
    return text


def run(lines: Iterable[str]) -> Iterator[str]:
    """The program: JSON lines of [path, file] in, JSON lines of findings (or null) out."""
    for line in lines:
        path, file = json.loads(line)
        yield json.dumps(mine_file(path, file))


def read_module(line: str) -> Module | None:
    """One line of the program's answer."""
    row: Any = json.loads(line)
    if row is None:
        return None
    path, functions, *rest = row
    return Module(path, [Function(*function) for function in functions], *rest)


if __name__ == "__main__":
    for answer in run(sys.stdin):
        sys.stdout.write(answer + "\n")
