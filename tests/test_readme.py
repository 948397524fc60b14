"""The code of the README and the docs is run as it stands, in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import typer

from xmcascade.cli import app

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("docs/*.md")),
]


def blocks(language, page="README.md"):
    return [dedent(code) for found, code in BLOCK.findall((ROOT / page).read_text()) if found == language]


def test_the_readme_has_code_of_both_kinds():
    assert len(blocks("python")) >= 1
    assert len(blocks("sh")) >= 4


DOCS = [(page.name, i) for page in ROOT.glob("docs/*.md") for i in range(len(blocks("python", page)))]


@pytest.mark.parametrize(("page", "number"), DOCS)
def test_python_blocks_of_the_docs_run(page, number, tmp_path):
    code = blocks("python", f"docs/{page}")[number]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "apple" in done.stdout


def test_shell_blocks_run_in_order(tmp_path):
    own = [code for code in blocks("sh") if not code.startswith("make ")]
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "xmcascade"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xmcascade "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    script = "set -e\n" + "".join(own)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tagged.jsonl").read_text().count("\n") == 4
    assert '"P@1"' in done.stdout


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = {word for code in blocks("sh") for word in re.findall(r"^make (\S+)", code, re.MULTILINE)}
    assert named == {"demo", "test"}
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in named)


def commands():
    """Every call of xmcascade in the pages, as words."""
    for page in PAGES:
        for language in ("sh", "text"):
            for code in blocks(language, page):
                for line in code.replace("\\\n", " ").splitlines():
                    call = re.search(r"(?:^|[|] *)xmcascade (.*)", line.strip())
                    if call:
                        yield pytest.param(
                            shlex.split(call[1], comments=True), id=f"{page.stem}: {call[1]:.60}"
                        )


@pytest.mark.parametrize("words", list(commands()))
def test_commands_and_options_of_the_docs_exist(words):
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= {*known, "--help"}


def anchors(page):
    """What can be linked to in a page, by its headings."""
    heads = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not link.startswith(("http://", "https://")):
            target, _, anchor = link.partition("#")
            found = (page.parent / target).resolve() if target else page
            assert found.exists(), link
            assert not anchor or anchor in anchors(found), link
