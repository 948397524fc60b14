"""The built-in corpus "docstrings": a real problem that every installation carries; nothing is downloaded.

"Which functions would I call to do this?" A document is a function of the standard library or of an installed
package: its name as words and the first paragraph of its docstring. Its labels are what its body calls:

    len, dict.fromkeys    a builtin
    numpy.zeros           a function or class found through the file's imports or definitions, under the
                          shortest public name its package gives it (see `_names`)
    .append               a method of an object whose type the file does not tell

Not labels: private names (`_x`), parameters and local variables that are called, what a `raise` calls, the
function itself, and `super`. A label stays when at least three training documents have it.

About 15 % of the files, chosen by a hash of their path inside their root, are test. Of equal texts on one
side the first stays. A test document goes when training holds a near-duplicate: a text that differs only in
case, digits, spaces and punctuation, or one that has more than 60 % of its word 4-grams.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from xmcascade.corpus import _calls
from xmcascade.corpus._names import PublicNames
from xmcascade.corpus._shelf import Row, Shelf
from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.corpus import Corpus, near_duplicate_key
from xmcascade.errors import DataError, SettingError
from xmcascade.progress import tracker
from xmcascade.version import __version__

__all__ = ["build_docstrings"]

log = logging.getLogger("xmcascade")

MINER = 1  # count up when the same files give other documents: stored results are then made anew
TEST_SHARE = 0.15
MIN_DOCS = 3  # of a label, in training
NGRAM = 4  # words
OVERLAP = 0.6  # share of a test document's n-grams in one training document that makes it a copy
BATCH_BYTES = 2_000_000  # source that one run of the miner gets: about a second of work

STDLIB = "stdlib"
_TESTS = ("test", "tests", "idlelib", "turtledemo")
_COPIES = ("_vendor", "_vendored", "vendor", "vendored", "third_party", "externals", "extern")
_SKIPPED_FOLDERS = {*_TESTS, *_COPIES, "site-packages", "dist-packages", "__pycache__", "xmcascade"}
_SKIPPED_FILES = re.compile(r"(test_.*|.*_tests?|conftest)\.py")


class _File(NamedTuple):
    path: str  # relative to its root, with "/": the only name that enters results
    size: int
    file: str
    root: str


def build_docstrings(
    *, workers: int | None = None, cache: bool = True, packages: Sequence[str] | None = None
) -> tuple[Corpus, Corpus]:
    """Training and test corpus over the same labels, from the Python files of this installation.

    Only reads files: nothing is imported or executed. The same packages give the same documents anywhere.
    `workers` is the number of processes (all cores by default). `packages` keeps only these top-level names;
    "stdlib" stands for the whole standard library. Results are stored in $XMCASCADE_CACHE or the user's cache
    folder, and used again as long as the version of Python and all file names and sizes are the same.

    >>> train, test = build_docstrings(packages=["json", "email"], workers=1, cache=False)
    >>> train.label_names == test.label_names, "len" in train.label_ids
    (True, True)
    """
    if workers is not None and workers < 1:
        raise SettingError(f"workers is {workers}", remedy="use 1 or more, or None for all cores")
    if isinstance(packages, str):
        raise SettingError(f"packages is {packages!r}, a string", remedy=f"write [{packages!r}]")
    paths = sysconfig.get_paths()
    roots = [(STDLIB, Path(paths["stdlib"]))]
    roots += [("site", Path(site)) for site in dict.fromkeys([paths["purelib"], paths["platlib"]])]
    shelf = Shelf.of_user() if cache else None
    return _build(roots, workers=workers or os.cpu_count() or 1, shelf=shelf, packages=packages)


def _build(
    roots: Sequence[tuple[str, Path]],
    *,
    workers: int,
    shelf: Shelf | None,
    packages: Sequence[str] | None = None,
) -> tuple[Corpus, Corpus]:
    files = _find_files(roots, packages)
    name = f"docstrings-{_fingerprint(files, roots)}.arrow"
    rows = shelf.load(name) if shelf else None
    if rows is None:
        rows = _choose(_mine(files, workers))
        if shelf:
            shelf.save(name, rows)
    return _corpora(rows)


# Files


def _find_files(roots: Sequence[tuple[str, Path]], packages: Sequence[str] | None) -> list[_File]:
    """The Python files under these roots in the order of their paths, each path once: the first root wins."""
    found: dict[str, _File] = {}
    for kind, root in roots:
        for file in _walk(root, kind):
            found.setdefault(file.path, file)
    files = sorted(found.values())
    if packages is None:
        return files
    kept = [
        file
        for file in files
        if _top(file.path) in packages or (file.root in packages and file.root == STDLIB)
    ]
    missing = set(packages) - {_top(file.path) for file in kept} - {file.root for file in kept}
    if missing:
        raise SettingError(
            f"packages names {', '.join(sorted(missing))}, of which no Python file was found",
            remedy='use top-level names of installed packages, or "stdlib"',
        )
    return kept


def _walk(root: Path, kind: str) -> Iterator[_File]:
    for folder, folders, names in os.walk(root):  # does not follow links to folders, so loops cannot hold it
        folders[:] = [name for name in folders if name.isidentifier() and name not in _SKIPPED_FOLDERS]
        for name in names:
            if not name.endswith(".py") or _SKIPPED_FILES.fullmatch(name):
                continue
            file = Path(folder, name)
            try:
                path = file.relative_to(root).as_posix()
                path.encode()
                status = file.stat()
            except (OSError, UnicodeEncodeError):
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size <= _calls.MAX_BYTES:
                yield _File(path, status.st_size, str(file), kind)


def _top(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def _fingerprint(files: Iterable[_File], roots: Iterable[tuple[str, Path]]) -> str:
    """Changes when the result may change; costs no look into a file."""
    installed: set[str] = set()
    for kind, root in roots:
        if kind != STDLIB and root.is_dir():
            installed.update(entry.name for entry in root.glob("*.dist-info"))
    versions = [__version__, MINER, sys.implementation.name, *sys.version_info]
    facts = [versions, sorted(installed), [(file.root, file.path, file.size) for file in files]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


# Mining


def _mine(files: Sequence[_File], workers: int) -> list[_calls.Module]:
    """What the files hold, in their order, whoever mined them."""
    batches: list[list[_File]] = [[]]
    size = 0
    for file in files:
        if size > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += file.size
    mine = _mine_apart if workers > 1 and _can_run_apart() else _mine_here
    done: dict[int, list[_calls.Module]] = {}
    with tracker("reading docstrings", len(files), "files") as shown:
        if mine is _mine_here or len(batches) == 1:
            for i, batch in enumerate(batches):
                done[i] = _mine_here(batch)
                shown.advance(len(batch))
        else:
            pool = ThreadPoolExecutor(workers)  # each thread waits for a process
            try:
                waiting = {pool.submit(mine, batch): i for i, batch in enumerate(batches)}
                for future in as_completed(waiting):
                    done[waiting[future]] = future.result()
                    shown.advance(len(batches[waiting[future]]))
            finally:
                pool.shutdown(cancel_futures=True)
    return [module for i in range(len(batches)) for module in done[i]]


def _mine_here(files: Sequence[_File]) -> list[_calls.Module]:
    mined = (_calls.mine_file(file.path, file.file) for file in files)
    return [module for module in mined if module is not None]


def _can_run_apart() -> bool:
    """Whether sys.executable is a Python that can run the miner's file."""
    usable = re.match(r"python|pypy", Path(sys.executable or "").name.lower()) is not None
    return usable and not getattr(sys, "frozen", False) and Path(_calls.__file__).is_file()


def _mine_apart(files: Sequence[_File]) -> list[_calls.Module]:
    """The same in a process of its own. A file on which that process dies is left out."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", _calls.__file__]
    asked = "".join(json.dumps([file.path, file.file]) + "\n" for file in files)
    try:
        ended = subprocess.run(command, input=asked.encode(), capture_output=True, check=False)
    except OSError as error:
        log.warning("cannot start %s (%s); mining in this process", sys.executable, error)
        return _mine_here(files)
    if ended.returncode == 0:
        mined = map(_calls.read_module, ended.stdout.decode().splitlines())
        return [module for module in mined if module is not None]
    if len(files) == 1:
        log.warning("%s left out: the miner ended with %d", files[0].path, ended.returncode)
        return []
    half = len(files) // 2
    return _mine_apart(files[:half]) + _mine_apart(files[half:])


# Choosing documents and labels


def _is_test(path: str) -> bool:
    digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < TEST_SHARE * 2**64


def _choose(modules: Sequence[_calls.Module]) -> list[Row]:
    """Documents of both sides: public labels, no repeats, no test copies, no rare labels."""
    public = PublicNames(modules).public
    sides: dict[bool, dict[str, Row]] = {False: {}, True: {}}
    for module in modules:
        is_test = _is_test(module.path)
        for function in module.functions:
            labels = {public(call) for call in function.calls}
            labels = {label for label in labels if not label.rpartition(".")[2].startswith("_")}
            doc_id = f"{module.path}:{function.line} {function.name}"
            if labels:
                sides[is_test].setdefault(function.text, Row(is_test, doc_id, function.text, sorted(labels)))
    train = list(sides[False].values())
    test = _without_copies(list(sides[True].values()), train)
    counts = Counter(label for row in train for label in row.labels)
    rows = []
    for row in train + test:
        labels_kept = [label for label in row.labels if counts[label] >= MIN_DOCS]
        if labels_kept:
            rows.append(row._replace(labels=labels_kept))
    return rows


def _without_copies(test: Sequence[Row], train: Sequence[Row]) -> list[Row]:
    """The test documents of which training holds no near-duplicate."""
    holders: dict[str, list[int]] = {}  # n-gram -> test documents
    allowed = []  # n-grams a training document may share with this test document
    for i, row in enumerate(test):
        grams = _ngrams(row.text)
        allowed.append(OVERLAP * len(grams))
        for gram in grams:
            holders.setdefault(gram, []).append(i)
    copies: set[int] = set()
    for row in train:
        shared = Counter(i for gram in _ngrams(row.text) for i in holders.get(gram, ()))
        copies.update(i for i, n in shared.items() if n > allowed[i])
    return [row for i, row in enumerate(test) if i not in copies]


def _ngrams(text: str) -> set[str]:
    """Runs of words; equal texts by `near_duplicate_key` have equal runs."""
    words = near_duplicate_key(text).split()
    return {" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}


def _corpora(rows: Sequence[Row]) -> tuple[Corpus, Corpus]:
    if not rows:
        raise DataError(
            "no function with a docstring calls anything often enough",
            where="the docstrings corpus",
            remedy="mine more packages",
        )
    names = sorted({label for row in rows for label in row.labels})
    train, test = CorpusBuilder(label_names=names), CorpusBuilder(label_names=names)
    for row in rows:
        (test if row.is_test else train).add(row.text, row.labels, doc_id=row.id)
    return train.build(), test.build()
