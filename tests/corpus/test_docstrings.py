"""The docstrings corpus is the same everywhere, leaks nothing, and survives what it finds on disk."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

import pytest

from xmcascade.corpus import _calls, docstrings
from xmcascade.corpus._shelf import Row, Shelf
from xmcascade.corpus.corpus import near_duplicate_key
from xmcascade.errors import DataError, SettingError

VERBS = ["open", "close", "read", "write", "send", "count", "merge", "split", "sort", "find", "paint", "load"]
THINGS = ["door", "window", "garden", "river", "engine", "letter", "basket", "ladder", "mirror", "planet"]


@pytest.fixture
def site(tmp_path):
    """Two packages of many files, with their own functions and a common one, and things to stumble over."""
    root = tmp_path / "site"
    for p, package in enumerate(["alpha", "beta"]):
        for t, thing in enumerate(THINGS):
            folder = root / package / thing
            folder.mkdir(parents=True)
            lines = ["import json", "from os import path"]
            for v, verb in enumerate(VERBS):
                other = THINGS[(t * 7 + v * 5 + p + 1) % len(THINGS)]
                lines += [
                    f"def {verb}_{thing}(x):",
                    f'    """{verb.title()}s the {thing} beside a {other} of {package} number {v}."""',
                    f"    return x.{verb}(), json.dumps(x), path.join(x), len(x), x.{package}_{thing}_{v}()",
                ]
            lines += ["def common(x):", '    """Does what all of them do."""', "    return x.open()"]
            (folder / "work.py").write_text("\n".join(lines))
    skipped = 'def secret(x):\n    """A secret function."""\n    return len(x), x.secret()\n'
    for path in [
        "alpha/tests/a.py",
        "alpha/test/b.py",
        "alpha/test_c.py",
        "alpha/_vendor/d.py",
        "xmcascade/e.py",
    ]:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(skipped)
    (root / "not-a-name").mkdir()
    (root / "not-a-name/f.py").write_text(skipped)
    (root / "alpha/syntax.py").write_text(skipped + "def (")
    (root / "alpha/undecodable.py").write_bytes(skipped.encode() + b"# \xff\xfe\n")
    (root / "alpha/nul.py").write_bytes(skipped.encode() + b"\0")
    (root / "alpha/deep.py").write_text(skipped + "x = " + "(" * 50_000 + ")" * 50_000)
    (root / "alpha/huge.py").write_text(skipped + "#" * _calls.MAX_BYTES)
    (root / "alpha/broken.py").symlink_to(root / "nothing.py")
    (root / "alpha/loop").symlink_to(root, target_is_directory=True)
    (root / "alpha/self.py").symlink_to(root / "alpha/self.py")
    return root


def build(root, *, workers=1, shelf=None, packages=None):
    return docstrings._build([("site", root)], workers=workers, shelf=shelf, packages=packages)


def facts(corpora):
    return [
        (list(c.texts), list(c.ids), list(c.label_names), [c.label_set(i) for i in range(c.n_docs)])
        for c in corpora
    ]


def test_documents_labels_and_ids(site):
    train, test = build(site)
    assert train.n_docs > test.n_docs > 0
    assert train.label_names == test.label_names
    assert set(train.label_names) == {"json.dumps", "os.path.join", "len", *(f".{verb}" for verb in VERBS)}
    assert train.label_counts().min() >= docstrings.MIN_DOCS
    sample = train.texts[0]
    assert sample.startswith("open ") and ": Opens the " in sample
    path, _, rest = str(train.doc_id(0)).partition(":")
    assert (site / path).is_file()
    line, name = rest.split(" ")
    assert f"def {name}(" in (site / path).read_text().splitlines()[int(line) - 1]


def test_nothing_comes_from_skipped_or_broken_files(site):
    assert not [text for corpus in build(site) for text in corpus.texts if "secret" in text]


def test_result_is_the_same_for_any_number_of_workers_place_and_listing_order(site, tmp_path, monkeypatch):
    expected = facts(build(site))
    monkeypatch.setattr(docstrings, "BATCH_BYTES", 5000)
    assert facts(build(site, workers=2)) == expected
    monkeypatch.setattr(docstrings, "_can_run_apart", lambda: False)
    assert facts(build(site, workers=2)) == expected
    moved = tmp_path / "elsewhere" / "deeper"
    moved.parent.mkdir()
    site.rename(moved)
    walk = os.walk

    def backwards(root):
        for folder, folders, names in walk(root):
            folders.reverse()
            yield folder, folders, names[::-1]

    monkeypatch.setattr(docstrings.os, "walk", backwards)
    assert facts(build(moved)) == expected


def test_a_file_is_on_one_side_and_no_near_duplicate_crosses(site):
    train, test = build(site)
    files = [{doc_id.partition(":")[0] for doc_id in corpus.ids} for corpus in (train, test)]
    assert files[0] and files[1] and not files[0] & files[1]
    assert not {near_duplicate_key(t) for t in train.texts} & {near_duplicate_key(t) for t in test.texts}
    assert list(train.texts).count("common: Does what all of them do.") == 1
    assert "common: Does what all of them do." not in list(test.texts)
    assert len(set(train.texts)) == train.n_docs


def test_copies_with_small_edits_leave_the_test_side():
    train = [Row(False, "1", "solve: Solve a linear system of equations with a dense matrix.", ["x"])]
    texts = [
        "solve: SOLVE a linear system of 2 equations with a dense matrix!",
        "lu solve: Solve a linear system of equations with a dense array.",
        "solve: Solve a puzzle of words with a pencil.",
        "solve: Solve a linear system.",
    ]
    left = docstrings._without_copies([Row(True, "2", text, ["x"]) for text in texts], train)
    assert [row.text for row in left] == texts[2:3]


def test_packages_restrict(site):
    train, test = build(site, packages=["beta"])
    assert {str(doc_id).split("/")[0] for corpus in (train, test) for doc_id in corpus.ids} == {"beta"}
    with pytest.raises(SettingError, match="gamma"):
        build(site, packages=["beta", "gamma"])


def test_nothing_to_mine_is_said(tmp_path):
    with pytest.raises(DataError, match="docstring"):
        build(tmp_path)


def test_result_is_stored_and_read_again(site, tmp_path, monkeypatch):
    shelf = Shelf(tmp_path / "cache")
    expected = facts(build(site, shelf=shelf))
    assert len(list(shelf.folder.iterdir())) == 1
    with monkeypatch.context() as patched:
        patched.setattr(docstrings, "_mine", lambda *_: pytest.fail("mined again"))
        assert facts(build(site, shelf=shelf)) == expected
    with (site / "alpha/door/work.py").open("a") as stream:
        stream.write('\ndef extra(x):\n    """Something wholly new."""\n    len(x)\n')
    build(site, shelf=shelf)
    assert len(list(shelf.folder.iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_damaged_store_is_noticed_and_built_anew(site, tmp_path, damage, caplog):
    shelf = Shelf(tmp_path / "cache")
    expected = facts(build(site, shelf=shelf))
    (stored,) = shelf.folder.iterdir()
    raw = stored.read_bytes()
    flipped = bytearray(raw)
    flipped[len(raw) // 2] ^= 1
    stored.write_bytes(
        {"cut": raw[:-10], "flipped": bytes(flipped), "empty": b"", "other": b"x" * 100}[damage]
    )
    assert facts(build(site, shelf=shelf)) == expected
    assert "damaged" in caplog.text
    assert stored.read_bytes() == raw


def test_folder_that_cannot_be_written_is_only_a_warning(site, tmp_path, caplog):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING, "xmcascade"):
        train, _ = build(site, shelf=Shelf(blocked / "cache"))
    assert train.n_docs
    assert "cannot be kept" in caplog.text


def test_builders_side_by_side_agree(site, tmp_path):
    shelf = Shelf(tmp_path / "cache")
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(facts(build(site, shelf=shelf)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(result == results[0] for result in results)
    assert len(list(shelf.folder.iterdir())) == 1


def test_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XMCASCADE_CACHE", str(tmp_path))
    assert Shelf.of_user().folder == tmp_path
    monkeypatch.delenv("XMCASCADE_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Shelf.of_user().folder == tmp_path / "xdg" / "xmcascade"


def test_a_file_that_kills_the_miner_is_left_out(site, tmp_path, monkeypatch, caplog):
    expected = [corpus.n_docs for corpus in build(site)]
    killer = tmp_path / "killer.py"
    killer.write_text(
        f"import sys; sys.path.insert(0, {os.path.dirname(_calls.__file__)!r}); import _calls\n"  # noqa: PTH120
        "for line in sys.stdin:\n"
        "    if 'alpha/syntax.py' in line: sys.exit(3)\n"
        "    sys.stdout.write(next(_calls.run([line])) + '\\n')\n"
    )
    monkeypatch.setattr(_calls, "__file__", str(killer))
    monkeypatch.setattr(docstrings, "BATCH_BYTES", 5000)
    assert [corpus.n_docs for corpus in build(site, workers=2)] == expected
    assert "alpha/syntax.py" in caplog.text


def test_real_packages_from_a_script_without_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from xmcascade.corpus import docstrings\n"
        "docstrings.BATCH_BYTES = 50_000\n"
        "train, test = docstrings.build_docstrings(packages=['json', 'email', 'http'], workers=2)\n"
        "assert 'len' in train.label_ids and '.append' in train.label_ids\n"
        "assert train.n_docs > 100 and 0 < test.n_docs < train.n_docs\n"
    )
    environment = {**os.environ, "XMCASCADE_CACHE": str(tmp_path / "cache")}
    for _ in range(2):
        subprocess.run([sys.executable, str(script)], check=True, timeout=120, env=environment)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("bad", [{"workers": 0}, {"packages": "json"}, {"packages": ["no_such_package"]}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(SettingError, match=next(iter(bad))):
        docstrings.build_docstrings(cache=False, **bad)
