"""What a call is called, and which text a function gives: the miner on hand-worked examples."""

from __future__ import annotations

import textwrap

import pytest

from xmcascade.corpus import _calls
from xmcascade.corpus._names import PublicNames


def mine(source, path="house/room.py"):
    found = _calls.mine_source(textwrap.dedent(source).encode(), path)
    assert found is not None
    return found


def calls_of(body, *, top="", path="house/room.py", head="def work(a, f):"):
    """Labels of one function with this body under these top-level lines."""
    inner = textwrap.indent('"Does some work."\n' + textwrap.dedent(body).strip(), "    ")
    found = mine(f"{textwrap.dedent(top).strip()}\n{head}\n{inner}\n", path)
    return [name for function in found.functions if function.name == "work" for name in function.calls]


@pytest.mark.parametrize(
    ("top", "body", "expected"),
    [
        ("", "len(a)", ["len"]),
        ("", "dict.fromkeys(a)", ["dict.fromkeys"]),
        ("", "a.append(1)", [".append"]),
        ("", "a.b.c(1)", [".c"]),
        ("", "f(1)", []),  # a parameter
        ("", "g = a.b\ng()", []),  # a local variable
        ("", "f().close()", [".close"]),
        ("", "', '.join(a)", [".join"]),
        ("", "a[0]()", []),
        ("", "work(a)", []),  # itself
        ("", "super().open()", [".open"]),
        ("", "(lambda: len(a))", ["len"]),
        ("", "def g():\n    return sorted(a)\ng()", ["sorted"]),
        ("", "raise ValueError(str(a))", []),
        ("", "with open(a) as h:\n    h.read()", [".read", "open"]),
        ("", "for x in a:\n    x()", []),
        ("import numpy as np", "np.zeros(3)", ["numpy.zeros"]),
        ("import os", "os.path.join(a)", ["os.path.join"]),
        ("import os.path", "os.path.join(a)", ["os.path.join"]),
        ("import xml.dom as d", "d.parse(a)", ["xml.dom.parse"]),
        ("from os.path import join as j", "j(a)", ["os.path.join"]),
        ("from . import wall", "wall.paint()", ["house.wall.paint"]),
        ("from .wall import paint", "paint()", ["house.wall.paint"]),
        ("from ..yard import dig", "dig()", ["yard.dig"]),
        ("", "import json\njson.dumps(a)", ["json.dumps"]),
        ("import json", "json = a\njson.dumps(a)", [".dumps"]),
        ("try:\n    import fast as q\nexcept ImportError:\n    import slow as q", "q.run()", ["fast.run"]),
        ("def helper(): ...", "helper()", ["house.room.helper"]),
        ("class Box: ...", "Box()\nBox.of(a)", ["house.room.Box", "house.room.Box.of"]),
        ("log = object()", "log.info(a)", [".info"]),
        ("def len(x): ...", "len(a)", ["house.room.len"]),
        ("from wall import *", "paint(a)", ["house.room.paint"]),  # settled when all files are known
    ],
)
def test_what_a_call_is_called(top, body, expected):
    assert calls_of(body, top=top) == expected


def test_relative_imports_of_a_package_start_at_the_package():
    assert calls_of("paint()", top="from .wall import paint", path="house/__init__.py") == [
        "house.wall.paint"
    ]


def test_methods_async_and_nested_functions_are_documents_and_decorators_are_not_body():
    found = mine('''
        import tools

        class Box:
            @tools.cached(1)
            def open(self, x=len("")):
                """Opens the box."""
                self.open()
                super().open()
                return self.lid.open(), x

            async def wait(self):
                """Waits a while."""
                await tools.sleep(1)

                @tools.wraps(len)
                def inner(n):
                    """Sleeps inside the box."""
                    return tools.nap(n), self.done()

            class Small:
                def shut(self):
                    """Shuts the small box."""
                    print(self)

        anonymous = lambda: len("")

        def silent():
            return len("")

        def terse():
            """Terse."""
            return len("")

        if True:
            def late():
                """Comes under a condition."""
                return list()
    ''')
    assert [(function.name, function.calls) for function in found.functions] == [
        ("open", [".open"]),
        ("wait", [".done", "tools.nap", "tools.sleep"]),
        ("inner", [".done", "tools.nap"]),
        ("shut", ["print"]),
        ("late", ["list"]),
    ]


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        ("Reads  a\n    file.\n\n    More.", "read all: Reads a file."),
        ("Reads a file.\n    >>> read_all()", "read all: Reads a file."),
        ("Reads a file.\n    :param x: it", "read all: Reads a file."),
        ("Reads a file.\n    Args:\n        x: it", "read all: Reads a file."),
        ("\n\n    Reads a file.\n", "read all: Reads a file."),
    ],
)
def test_text_is_the_name_and_the_first_paragraph(doc, text):
    assert mine(f'def _read_all():\n    """{doc}"""\n    len("")').functions[0].text == text


def test_text_with_half_a_surrogate_pair_is_left_out():
    assert mine('def f():\n    "A lone \\ud800 one."\n    len("")').functions == []


def test_names_are_followed_to_the_shortest_public_one():
    files = {
        "lab/__init__.py": "from ._core import solve, helper as _h\nfrom .tools.api import Bench\nimport os",
        "lab/_core/__init__.py": "from .impl import *\nfrom lab._fast import *",
        "lab/_core/impl.py": "def solve(): ...\ndef helper(): ...\nlog = 1",
        "lab/tools/__init__.py": "from ._compiled import *",
        "lab/tools/api.py": "from .bench import Bench\nfrom os.path import join",
        "lab/tools/bench.py": "class Bench: ...",
        "_lab/loop.py": "from lab.loop import x",
        "lab/loop.py": "from _lab.loop import x",
    }
    public = PublicNames([mine(source, path) for path, source in files.items()]).public
    expected = {
        "lab._core.impl.solve": "lab.solve",
        "lab._core.solve": "lab.solve",
        "lab._core.impl.helper": "lab._core.impl.helper",
        "lab.tools.api.Bench": "lab.Bench",
        "lab.tools.bench.Bench.of": "lab.Bench.of",
        "lab.tools._compiled.gamma": "lab.tools.gamma",
        "lab._core.impl.log.info": ".info",
        "lab.tools.api.join": "lab.tools.api.join",
        "os.path.join": "os.path.join",
        "lab.loop.x": "lab.loop.x",
        "len": "len",
        ".append": ".append",
    }
    assert {name: public(name) for name in expected} == expected
