"""Methods compared on the same documents: each trained and asked in a process of its own, ours and peers.

What a method found is kept in the folder under a fingerprint of the documents, the method and the version:
the same call again runs only what is missing, and a method that fails does not stop the others.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.features import TfidfSettings
from xmcascade.kernels.parallel import thread_count
from xmcascade.models.inputs import with_labels
from xmcascade.report.comparison import Comparison, judged
from xmcascade.report.jobs import Data, Job, Method, Ranked
from xmcascade.store.files import alone
from xmcascade.version import __version__

__all__ = ["compare", "machine"]

log = logging.getLogger("xmcascade")

OURS = {"data", "methods", "comparison.json", "comparison.md", "index.html"}  # in the folder
PACKAGES = ("numpy", "scipy", "numba", "torch", "transformers")


def compare(
    train: Corpus,
    test: Corpus | None,
    methods: Sequence[str],
    folder: str | Path,
    *,
    test_share: float = 0.1,
    seed: int = 0,
    baseline: str | None = None,
    features: TfidfSettings | None = None,
    threads: int | None = None,
    singles: int = 200,
    replicates: int = 1000,
    environments: str | Path | None = None,
) -> Comparison:
    """Train methods on some documents and judge them on others; the folder keeps what is finished.

    test: None takes this share of the training documents, near-duplicates together.
    methods: each a model's name, perhaps with settings ("xr-linear beam=30"), or a peer
        ("peer:omikuji-bonsai").
    baseline: the method to compare the others with; None: the one with the best P@1.
    features: of linear methods, which all read the same tf-idf; a method of ours that is told other features,
        as in "xr-linear features.ngrams=[1,2]", makes its own from the texts.
    singles: documents asked one by one.
    replicates: of the bootstrap and the sign flips.
    environments: where those of peers are kept; None: in the user's cache folder.

    >>> import tempfile
    >>> from xmcascade import make_synthetic
    >>> train, test = (make_synthetic(n, 20, part=part) for part, n in enumerate((200, 50)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(train, test, ["xr-linear"], folder)
    >>> [row.method for row in found.finished], found.rows[0].metrics["P@1"] > 30
    (['xr-linear'], True)
    """
    folder, threads = Path(folder).resolve(), thread_count(threads)
    _check_folder(folder)
    told = list(dict.fromkeys(method.strip() for method in methods))
    if not told:
        raise SettingError("no method is named", remedy="name one or more to compare")
    if baseline is not None and baseline not in told:
        raise SettingError(f"the baseline {baseline!r} is not compared", remedy=f"use: {', '.join(told)}")
    train, test, split = _parts(train, test, test_share, seed)
    listed = [Method.of(each, train) for each in told]
    data = Data(folder / "data", train, test, features, threads)
    rows, found = [], dict[str, Ranked]()
    with alone(folder):
        for number, method in enumerate(listed, 1):
            log.info("method %s of %s: %s", number, len(listed), method.told)
            row, ranked = Job(method, data, folder / "methods", threads, singles, environments).run()
            rows.append(row)
            if ranked is not None:
                found[row.method] = ranked
    counts = np.zeros(test.n_labels, np.int64)
    counts[: train.n_labels] = train.label_counts()
    facts = {
        "data": {
            "train_documents": train.n_docs,
            "test_documents": test.n_docs,
            "labels": int((counts > 0).sum()),
            "unseen_share": 100 * float((counts[test.labels.indices] == 0).mean()),
            "split": split,
            "fingerprint": data.fingerprint,
        },
        "features": data.facts(),
        "threads": threads,
        "machine": machine(),
        "versions": _versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    how: dict[str, Any] = {"label_counts": counts, "n_train_docs": train.n_docs, "replicates": replicates}
    return judged(rows, found, test.labels, baseline=baseline, facts=facts, **how)


def _check_folder(folder: Path) -> None:
    """Raise unless a comparison may be written here: nothing, an empty folder, or an earlier comparison."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file", where=str(folder), remedy="give a folder")
    names = {entry.name for entry in folder.iterdir() if entry.name[0] != "."} if folder.is_dir() else set()
    if strange := names - OURS or (names if names == {"index.html"} else set()):
        what = f"holds {min(strange)!r}, which is no part of a comparison"
        raise DataError(what, where=str(folder), remedy="give a new or an empty folder")


def _parts(train: Corpus, test: Corpus | None, share: float, seed: int) -> tuple[Corpus, Corpus, str]:
    """Documents to learn from and to judge on, all with a label, and which split this is.

    Both have the labels of the first, in its order; those it does not have come after.
    """
    split = "as given"
    if test is None:
        try:
            train, test = train.split(share, seed=seed)
        except DataError as error:
            what = f"{train.n_docs:,} documents are too few to set {share:.0%} of them aside"
            remedy = "give documents to judge on (test; --test), more documents, or another share"
            raise DataError(what, remedy=remedy) from error
        split = f"{share:.0%} of the documents for testing, near-duplicates together (seed {seed})"
    if (train.texts is None) != (test.texts is None):
        what = "the training documents have texts and the test documents have none, or the other way round"
        raise DataError(what, remedy="give both in the same form")
    if train.texts is None and train.features.shape[1] != test.features.shape[1]:
        what = f"{train.features.shape[1]:,} features in training, {test.features.shape[1]:,} in testing"
        raise DataError(what, remedy="give the same features in both")
    train = with_labels(train, "training documents", aloud=True)
    test = with_labels(test, "test documents", aloud=True)
    return train, test.over_labels(train.label_names), split


def machine() -> dict[str, Any]:
    """What the numbers were measured on.

    >>> sorted(machine())
    ['cores', 'cpu', 'memory_gib', 'system']
    """
    cpu, memory = platform.processor(), None
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    if hasattr(os, "sysconf"):
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": memory, "system": platform.system()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "xmcascade": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # an extra that is not installed
            continue
    return found
