"""From a method's name to what it found: files that it reads, the process it runs in, results that are kept.

Every file a process reads or leaves is JSON or arrays without objects, so that peers need nothing of this
package.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, XmcError
from xmcascade.features import Tfidf, TfidfSettings
from xmcascade.models import XRLinear, model_of
from xmcascade.models.xr_linear import SMALL_CORPUS, XRLinearSettings
from xmcascade.neural import pretrained
from xmcascade.progress import tracker
from xmcascade.report import worker
from xmcascade.report.comparison import K, Row, seconds
from xmcascade.report.peers import ENVIRONMENTS, PREFIX, peer_of, peer_python
from xmcascade.store import fingerprint
from xmcascade.store.files import replacing_file
from xmcascade.version import __version__

__all__ = ["Data", "Job", "Method", "Ranked"]

log = logging.getLogger("xmcascade")

HEARTBEAT = 10.0  # seconds; what a method of ours logs is passed on, no more often than this
TRIED_TEXTS = 100  # turned into features one by one, to tell how long that takes
Reads = Literal["features", "texts", "both"]
Ranked = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
"""Labels and scores, [documents, k]."""


@dataclass(frozen=True)
class Method:
    """What is compared: a model of ours, or a peer."""

    told: str
    maker: str
    """Which of the worker's makers knows it."""
    reads: Reads
    told_worker: dict[str, Any]
    environment: str = ""
    """Of a peer."""
    files: list[npt.NDArray[Any]] = field(default_factory=list)
    """What is in files that its settings name."""

    @classmethod
    def of(cls, told: str, train: Corpus) -> Method:
        """A method from its name and settings on one line."""
        if not told.startswith(PREFIX):
            model = model_of(told)
            return cls(told, "ours", _reads(model, train), {"method": told}, files=model._files(train))
        peer = peer_of(told.removeprefix(PREFIX))
        settings = dict(peer.settings)
        if here := "encoder" in settings and pretrained.folder_of(settings["encoder"]):
            settings["encoder"] = str(here.resolve())
        job = {"method": peer.name, "settings": settings}
        return cls(told, peer.name, "both" if "encoder" in settings else "features", job, peer.environment)

    @property
    def software(self) -> list[str]:
        """What it is made of."""
        return ENVIRONMENTS[self.environment] if self.environment else [f"xmcascade=={__version__}"]


def _reads(model: Any, train: Corpus) -> Reads:
    """Linear models read what all linear methods read, unless they are told to make features themselves."""
    s, usual = model.settings, model.settings_type()
    if train.texts is None:
        return "features"
    if not isinstance(model, XRLinear) or s.label_documents:
        return "texts"
    return "features" if (s.features, s.label_features) == (usual.features, usual.label_features) else "texts"


class Data:
    """Documents as files that any process can read; each is made when it is first needed."""

    def __init__(
        self, folder: Path, train: Corpus, test: Corpus, features: TfidfSettings | None, threads: int
    ) -> None:
        self.train, self.test, self.threads = train, test, threads
        few = train.n_docs < SMALL_CORPUS  # as XRLinear does
        self.settings = features or XRLinearSettings().features.with_values({"min_df": 1} if few else {})
        facts = {"features": self.settings.to_dict()}
        self.fingerprint = fingerprint(facts, train.arrays() + test.arrays())
        self.folder = folder / f"documents-{self.fingerprint[:16]}"

    def make(self, method: Method) -> None:
        """All files that this method reads."""
        for other in self.folder.parent.glob("documents-" + "[0-9a-f]" * 16):
            if other != self.folder:  # of an earlier comparison in the same place
                shutil.rmtree(other)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._matrix("Y.trn", self.train.labels)
        self._lines("labels", self.train.label_names)
        if self.train.label_texts is not None:
            self._lines("label_texts", self.train.label_texts)
        if method.reads != "features":
            if self.train.texts is None or self.test.texts is None:
                raise DataError(
                    f"{method.told} needs texts, the corpus has only features", remedy="give texts"
                )
            self._lines("trn", self.train.texts)
            self._lines("tst", self.test.texts)
        if method.reads != "texts":
            self._features()
        if method.environment == "omikuji":
            self._file("trn.svm", self._svm)

    def facts(self) -> dict[str, Any]:
        """Of the features; empty where no method needed any."""
        file = self.folder / "features.json"
        return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}

    def _features(self) -> None:
        if self.facts():
            return
        told: dict[str, Any] = {"settings": None}
        if self.train.texts is None or self.test.texts is None:
            matrices = {"X.trn": self.train.features, "X.tst": self.test.features}
        else:
            tfidf, texts = Tfidf(self.settings, threads=self.threads), self.train.texts
            tfidf.fit_transform(texts[:SMALL_CORPUS])  # compiles
            own, took = worker.measured(lambda: tfidf.fit_transform(texts))
            singles = []
            for row in range(min(TRIED_TEXTS, len(texts))):
                one = texts.take([row])
                start = time.perf_counter()
                tfidf.transform(one)
                singles.append(1000 * (time.perf_counter() - start))
            matrices = {"X.trn": own, "X.tst": tfidf.transform(self.test.texts)}
            told = {"settings": self.settings.to_dict(), "single_ms": float(np.median(singles))}
            told |= {"seconds": took["seconds"], "cpu_seconds": took["cpu_seconds"]}
        for name, matrix in matrices.items():
            self._matrix(name, matrix)
        told["columns"] = int(matrices["X.trn"].shape[1])
        self._file("features.json", lambda stream: stream.write(json.dumps(told).encode()))

    def _matrix(self, name: str, matrix: Any) -> None:
        self._file(f"{name}.npz", lambda stream: sp.save_npz(stream, matrix, compressed=False))

    def _lines(self, name: str, strings: Iterable[str]) -> None:
        def write(stream: Any) -> None:
            for string in strings:
                stream.write(json.dumps(string).encode() + b"\n")

        self._file(f"{name}.jsonl", write)

    def _svm(self, stream: Any) -> None:
        """The training documents in the format that omikuji reads."""
        x, y = sp.load_npz(self.folder / "X.trn.npz"), self.train.labels
        stream.write(f"{x.shape[0]} {x.shape[1]} {y.shape[1]}\n".encode())
        with tracker("writing documents for omikuji", x.shape[0]) as seen:
            for row in range(x.shape[0]):
                own = ",".join(map(str, y.indices[y.indptr[row] : y.indptr[row + 1]].tolist()))
                at = slice(x.indptr[row], x.indptr[row + 1])
                pairs = zip(x.indices[at].tolist(), x.data[at].tolist(), strict=True)
                stream.write(f"{own} {' '.join(f'{f}:{v:.6g}' for f, v in pairs)}\n".encode())
                seen.advance()

    def _file(self, name: str, write: Callable[[Any], Any]) -> None:
        if not (self.folder / name).exists():
            with replacing_file(self.folder / name) as stream:
                write(stream)


@dataclass(frozen=True)
class Job:
    """One method on these documents: run, or found finished."""

    method: Method
    data: Data
    folder: Path
    """Of all methods; the comparison's is the one above."""
    threads: int
    singles: int
    environments: str | Path | None

    @property
    def out(self) -> Path:
        """Where this method leaves its files."""
        told = self.method.told
        name = re.sub(r"[^A-Za-z0-9.=]+", "-", told).strip("-.")[:60]
        return self.folder / f"{name}-{hashlib.blake2b(told.encode(), digest_size=4).hexdigest()}"

    def run(self) -> tuple[Row, Ranked | None]:
        """The method's row, not judged yet, and what it ranked; None when it failed."""
        told, mark = self.method.told, self._fingerprint()
        row = Row(told, self.method.software, self.method.reads)
        kept = self._kept(mark)
        if kept is not None:
            log.info("  finished before")
            return self._finished(row, kept[0]), kept[1]
        try:
            error = self._work(mark)
        except (XmcError, OSError) as failure:
            error = str(failure)
        kept = None if error else self._kept(mark)
        if kept is None:
            log.warning("%s failed: %s (its log is %s)", told, error, self.out / "log.txt")
            return replace(row, error=error or "what it found is not there"), None
        log.info("  trained in %s", seconds(kept[0]["train"]["seconds"]))
        return self._finished(row, kept[0]), kept[1]

    def _finished(self, row: Row, measured: dict[str, Any]) -> Row:
        model = self.out / "model"
        kept = model.relative_to(self.folder.parent).as_posix() if model.exists() else ""
        return replace(row, measured=measured, model=kept)

    def _fingerprint(self) -> str:
        method = self.method
        job = method.told_worker, method.reads, method.software, self.threads, self.singles
        return fingerprint({"data": self.data.fingerprint, "job": job}, method.files)

    def _kept(self, mark: str) -> tuple[dict[str, Any], Ranked] | None:
        """What was found of the same documents, by the same method; None when nothing whole is there."""
        if self._mark() != mark:
            return None
        try:
            result = _read(self.out / "result.json")
            with np.load(self.out / "ranking.npz") as arrays:
                found = arrays["labels"], arrays["scores"]
        except (OSError, ValueError, KeyError, BadZipFile):
            return None
        return None if "error" in result or len(found[0]) != self.data.test.n_docs else (result, found)

    def _mark(self) -> str:
        try:
            return str(_read(self.out / "job.json")["fingerprint"])
        except (OSError, ValueError, KeyError):
            return ""

    def _work(self, mark: str) -> str:
        """Run it in a process; returns why it failed, or nothing."""
        method, out = self.method, self.out
        python = peer_python(method.environment, self.environments) if method.environment else None
        self.data.make(method)
        own_texts = python is None and method.reads == "texts"  # training goes on where it was stopped
        if not own_texts or self._mark() != mark:
            shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").unlink(missing_ok=True)
        job = {
            **method.told_worker,
            "maker": method.maker,
            "reads": method.reads,
            "fingerprint": mark,
            "k": K,
        }
        job |= {"threads": self.threads, "singles": self.singles, "n_queries": self.data.test.n_docs}
        job |= {"data": str(self.data.folder), "out": str(out)}
        with replacing_file(out / "job.json") as stream:
            stream.write(json.dumps(job).encode())
        code = self._process(python)
        if not (out / "result.json").exists():
            return self._end(code)
        error = str(_read(out / "result.json").get("error", ""))
        if not error:
            for name in ("work", *([] if own_texts else ["model"])):  # a model that took long is kept
                shutil.rmtree(out / name, ignore_errors=True)
        return error

    def _process(self, python: Path | None) -> int:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        if python is None:
            paths = [str(Path(worker.__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        # What lies beside the script must not be imported in place of libraries; peers see nothing of ours.
        command = [sys.executable, "-P"] if python is None else [str(python), "-I"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        pipes["stderr"] = subprocess.STDOUT
        command += [worker.__file__, str(self.out / "job.json")]
        with (
            (self.out / "log.txt").open("ab") as kept,
            subprocess.Popen(command, env=environment, **pipes) as process,
        ):
            try:
                shown = time.monotonic()
                for line in process.stdout or ():
                    kept.write(line)
                    kept.flush()
                    if python is None and time.monotonic() > shown + HEARTBEAT:
                        shown = time.monotonic()
                        log.info("  %.160s", line.decode("utf-8", "replace").rstrip())
            except BaseException:
                process.kill()
                raise
        return process.returncode

    def _end(self, code: int) -> str:
        """What a process that left no result died of."""
        if code < 0:
            why = ", as happens when memory runs out" if -code == getattr(signal, "SIGKILL", 9) else ""
            return f"its process was ended by signal {-code}{why}"
        lines = (self.out / "log.txt").read_text("utf-8", "replace").strip().splitlines()
        return f"its process ended with code {code}: {' '.join(lines[-1:])}"


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text("utf-8")))
