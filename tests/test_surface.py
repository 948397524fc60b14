"""The package from outside: what it loads, who imports whom, what is banned, what is public."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import xmcascade

PACKAGE = Path(xmcascade.__file__).parent
ROOT = PACKAGE.parent.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ["torch", "transformers", "sklearn", "pandas", "annif", "huggingface_hub", "onnx", "onnxruntime"]

# Left to right: a room may import from those before it, and from the foundations.
ROOMS = {
    "corpus": 0,
    "features": 1,
    "tree": 2,
    "linear": 3,
    "neural": 3,
    "models": 4,
    "bridges": 5,
    "report": 5,
    "serve": 6,
    "cli": 7,
}
FOUNDATIONS = {"errors", "settings", "progress", "version", "kernels", "evaluate", "store"}
OUTSIDE = {"__init__", "__main__"}  # the public names, and `python -m xmcascade`

PUBLIC = [
    "AttentionXML",
    "Bonsai",
    "CascadeXML",
    "Corpus",
    "DiSMEC",
    "Ensemble",
    "LightXML",
    "NearestNeighbours",
    "Parabel",
    "Prediction",
    "ReadSettings",
    "Tfidf",
    "TfidfSettings",
    "XMCClassifier",
    "XMLCNN",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "XmcError",
    "__version__",
    "from_pretrained",
    "load",
    "load_corpus",
    "make_synthetic",
    "push_to_hub",
    "read_corpus",
    "write_corpus",
]


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def where(path, node):
    return f"{path.relative_to(PACKAGE)}:{node.lineno}"


def imported(tree):
    """(node, full module name) of every import, inside functions too; names of `from x import y` as x.y."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write the full name, not a relative import"
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


# What is loaded -------------------------------------------------------------------------------------------


def loaded_by(statement):
    command = [sys.executable, "-X", "importtime", "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}


def test_importing_the_package_loads_nothing_large():
    loaded = loaded_by("import xmcascade")
    assert "xmcascade" in loaded
    assert not loaded & {*HEAVY, "numba", "scipy", "numpy", "pyarrow", "rich", "typer"}


@pytest.mark.parametrize("module", ["models", "cli", "corpus", "evaluate", "store", "bridges", "serve"])
def test_importing_a_room_loads_no_optional_library(module):
    if importlib.util.find_spec(f"xmcascade.{module}") is None:
        pytest.skip(f"there is no {module} yet")
    assert not loaded_by(f"import xmcascade.{module}") & {
        *HEAVY,
        "polars",
        "datasets",
        "matplotlib",
        "fastapi",
        "uvicorn",
    }


# Who imports whom -----------------------------------------------------------------------------------------


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_is_on_the_plan():
    assert {room_of(path) for path in SOURCES} <= ROOMS.keys() | FOUNDATIONS | OUTSIDE


def test_imports_go_one_way():
    wrong = []
    for path in SOURCES:
        room = room_of(path)
        if room in OUTSIDE:
            continue
        for node, name in imported(parsed(path)):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package != "xmcascade" or other == room or other in FOUNDATIONS:
                continue
            if other in ROOMS and room in ROOMS and ROOMS[other] < ROOMS[room]:
                continue
            if room == "cli":  # the last room may use the public names too
                continue
            wrong.append(f"{where(path, node)}: {room} imports {other}")
    assert not wrong, "\n".join(wrong)


# What is banned -------------------------------------------------------------------------------------------

BANNED_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve", "imp"}
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_ATTRIBUTES = {"torch.load", "torch.jit.load", "pd.read_pickle", "pandas.read_pickle", "os.system"}
BANNED_WORDS = {"allow_pickle", "trust_remote_code", "weights_only"}


def banned(path):
    tree = parsed(path)
    not_here = BANNED_CALLS if room_of(path) == "cli" else {*BANNED_CALLS, "print"}
    for node, name in imported(tree):
        if name.partition(".")[0] in BANNED_MODULES:
            yield node, f"import {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in not_here:
            yield node, f"{node.func.id}()"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in BANNED_ATTRIBUTES:
            yield node, ast.unparse(node)
        if isinstance(node, ast.keyword) and node.arg in BANNED_WORDS and not is_false(node):
            yield node.value, f"{node.arg}="


def is_false(keyword):
    return keyword.arg != "weights_only" and ast.unparse(keyword.value) == "False"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_banned(path):
    assert [f"{where(path, node)}: {what}" for node, what in banned(path)] == []


def test_the_ban_works(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(
        "import pickle\nfrom joblib import load\ndef f(x):\n    import dill.source\n    eval(x); print(x)\n"
        "    np.load(x, allow_pickle=True)\n    torch.load(x)\n    np.load(x, allow_pickle=False)\n"
    )
    assert len(list(banned(path))) == 7


# What is public -------------------------------------------------------------------------------------------


def test_public_names():
    assert sorted(xmcascade.__all__) == PUBLIC
    assert dir(xmcascade) == PUBLIC
    for name in PUBLIC:
        assert getattr(xmcascade, name) is not None
    with pytest.raises(AttributeError, match=r"nothing_of_that_name"):
        _ = xmcascade.nothing_of_that_name


def public_things():
    rooms = {found.name for found in pkgutil.iter_modules(xmcascade.__path__)} & (
        ROOMS.keys() | {"errors", "evaluate"}
    )
    for room in sorted(rooms - {"cli"}):
        module = importlib.import_module(f"xmcascade.{room}")
        for name in getattr(module, "__all__", ()):
            yield pytest.param(getattr(module, name), id=f"{room}.{name}")


def needs_no_example(thing):
    """Constants, types, and classes that only hold data or say what went wrong."""
    if not inspect.isclass(thing) and not inspect.isroutine(thing):
        return True
    if inspect.isclass(thing):
        plain = dataclasses.is_dataclass(thing) or hasattr(thing, "_fields") or typing.is_typeddict(thing)
        return plain or issubclass(thing, BaseException)
    return False


def examples(thing):
    """The docstrings of a function, or of a class and its public methods."""
    yield thing.__doc__ or ""
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            if not name.startswith("_") and isinstance(
                member, (types.FunctionType, classmethod, staticmethod)
            ):
                yield member.__doc__ or ""


@pytest.mark.parametrize("thing", list(public_things()))
def test_public_things_are_explained(thing):
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert inspect.getdoc(thing)
    assert needs_no_example(thing) or any(">>>" in text for text in examples(thing))


# Size, and traces of the machine it was written on --------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_too_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


MACHINE = re.compile(
    r"/root/|/home/[a-z]|/tmp/|/Users/|/srv/|/mnt/|[A-Z]:\\\\Users|--(?:extra-)?index-url|artifactory|nexus\.|jfrog"
    r"|\.internal\b|\.corp\b|pypi\.(?!org)[\w.]+|\b(?:10|192\.168|172\.16)(?:\.\d+){2,3}\b"
)
TEXT = {".py", ".md", ".toml", ".html", ".css", ".js", ".json", ".txt", ".yml", ".yaml", ".cfg", ""}


def written_files():
    yield from (path for path in (ROOT / "README.md", ROOT / "pyproject.toml") if path.is_file())
    for folder in (PACKAGE, ROOT / "docs"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def test_no_trace_of_the_machine():
    traces = []
    for path in written_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := MACHINE.search(line):
                traces.append(f"{path.name}:{number}: {found.group()}")
    assert not traces, "\n".join(traces)
