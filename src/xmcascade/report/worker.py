"""One method, trained and asked in a process of its own; what is measured is the same for ours and for peers.

A script: it is run by its path, also in environments that do not have this package, so it imports nothing of
it but where a method of ours is asked for. A maker imports its library and reads its input, so that neither
is in the measured time; what it gives back trains, saves and loads a model (measured).

    python worker.py JOB.json    the job says which method, from which files, and where to leave what is found
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["MAKERS", "Run", "main", "measured"]

WARM_DOCS = 200  # that a method of ours learns from beforehand, to compile: the others come compiled
WARM_QUERIES = 20
BATCH_SECONDS, BATCH_ROUNDS = 0.5, 20  # the test documents are asked until either is reached, at least once
LEAST_SINGLES, SINGLES_SECONDS = 20, 60.0  # slow methods are asked for fewer documents one by one
LOOK_SECONDS = 10.0  # how often it is looked whether training has kept what it did so far
AT_ONCE = 1000  # documents that LinearSVC scores together: its scores are dense


@dataclass(frozen=True)
class Run:
    """One method on one corpus."""

    fit: Callable[[Path], Callable[[Any], Any]]
    """Trains, saves to the folder, loads from there; returns the function that predicts documents."""
    documents: Callable[[int, int], Any]
    """Test documents from one to before another, as the method takes them."""
    ranked: Callable[[Any], tuple[Any, Any]]
    """Labels and scores, both (documents, k), of what was predicted; -1 for no label."""
    facts: Callable[[], dict[str, Any]] = dict
    """More to tell, after training."""


# Files ----------------------------------------------------------------------------------------------------


def matrix(job: dict[str, Any], name: str) -> Any:
    """X.trn, X.tst, Y.trn: documents x features or labels."""
    return sp.load_npz(Path(job["data"], f"{name}.npz")).astype(np.float32, copy=False)


def lines(job: dict[str, Any], name: str) -> list[str]:
    """Strings, one a line, as JSON."""
    with Path(job["data"], f"{name}.jsonl").open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def rows_of(queries: Any) -> Callable[[int, int], Any]:
    """Test documents that are rows of a matrix, or a list."""
    return lambda start, stop: queries[start:stop]


def write(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


# Methods --------------------------------------------------------------------------------------------------


def ours(job: dict[str, Any]) -> Run:
    """Any model of this package, by its name and settings."""
    from xmcascade.corpus import Corpus
    from xmcascade.models import load, model_of
    from xmcascade.store import Strings

    names, texts = Strings.of(lines(job, "labels")), None
    told = Path(job["data"], "label_texts.jsonl").exists()
    parts: dict[str, Any] = {"label_texts": Strings.of(lines(job, "label_texts"))} if told else {}
    if job["reads"] == "texts":
        texts, parts["texts"] = lines(job, "tst"), Strings.of(lines(job, "trn"))
    else:
        parts["features"] = matrix(job, "X.trn")
    corpus = Corpus(labels=matrix(job, "Y.trn"), label_names=names, **parts)
    queries = matrix(job, "X.tst") if texts is None else texts
    found: list[Any] = []

    def fit(saved: Path) -> Callable[[Any], Any]:
        # Saved in one step: a model that is there was finished before this process was stopped.
        if texts is None or not saved.exists():
            kept = None if texts is None else saved.with_name("work")
            model_of(job["method"], threads=job["threads"]).fit(corpus, checkpoint=kept).save(saved)
        found.append(load(saved, threads=job["threads"]))
        return lambda some: found[0].rank(some, job["k"])

    model = model_of(job["method"])
    if not hasattr(model.settings, "encoder") and not hasattr(model.settings, "members"):  # soon done
        model.fit(corpus.take(np.arange(min(WARM_DOCS, corpus.n_docs)))).rank(
            queries[:WARM_QUERIES], job["k"]
        )
    return Run(
        fit,
        rows_of(queries),
        lambda ranking: (ranking.labels, ranking.scores),
        lambda: {"derived": {name: each["value"] for name, each in found[0].derived.items()}},
    )


def pecos_xrlinear(job: dict[str, Any]) -> Run:
    """XR-Linear of PECOS, with teacher-forced negatives, as by default."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    x, y, threads = matrix(job, "X.trn"), matrix(job, "Y.trn"), job["threads"]
    ask = {"beam_size": job["settings"]["beam"], "only_topk": job["k"], "threads": threads}

    def fit(saved: Path) -> Callable[[Any], Any]:
        of_labels = LabelEmbeddingFactory.create(y, x, method="pifa")
        chain = Indexer.gen(of_labels, indexer_type="hierarchicalkmeans", threads=threads)
        XLinearModel.train(x, y, C=chain, threads=threads).save(str(saved))
        loaded = XLinearModel.load(str(saved), is_predict_only=True)
        return lambda queries: loaded.predict(queries, **ask)

    return Run(fit, rows_of(matrix(job, "X.tst")), lambda found: _padded(_entries(found), job["k"]))


def pecos_xrtransformer(job: dict[str, Any]) -> Run:
    """XR-Transformer of PECOS on texts and tf-idf, with negatives and costs as in its paper."""
    import torch
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xtransformer.model import XTransformer
    from pecos.xmc.xtransformer.module import MLProblemWithText

    told, threads = job["settings"], job["threads"]
    torch.set_num_threads(threads)
    texts, queries = lines(job, "trn"), lines(job, "tst")
    x, y, x_test = matrix(job, "X.trn"), matrix(job, "Y.trn"), matrix(job, "X.tst")
    params = XTransformer.TrainParams.from_dict({}, recursive=True)
    chain = Indexer.gen(LabelEmbeddingFactory.pifa(y, x), train_params=params.preliminary_indexer_params)
    n_levels = sum(level.shape[0] <= params.max_match_clusters for level in chain)  # those it fine-tunes on
    matcher = params.matcher_params_chain
    epochs = matcher.num_train_epochs if told["epochs"] is None else told["epochs"] / n_levels
    steps = max(1, round(epochs * len(texts) / told["batch"]))
    matcher.model_shortcut, matcher.max_steps, matcher.batch_size = told["encoder"], steps, told["batch"]
    matcher.learning_rate, matcher.warmup_steps, matcher.save_steps = told["rate"], steps // 10, steps + 1
    matcher.negative_sampling, matcher.cost_sensitive_ranker, matcher.use_gpu = "tfn+man", True, False
    matcher.batch_gen_workers = 1  # with none it divides by zero
    ask = XTransformer.PredParams.from_dict({}, recursive=True)
    ask.matcher_params_chain.truncate_length = told["max_tokens"]
    problem = MLProblemWithText(texts, y, X_feat=x)
    how = {"only_topk": job["k"], "beam_size": told["beam"], "batch_gen_workers": 1, "threads": threads}

    def fit(saved: Path) -> Callable[[Any], Any]:
        asked = {"pred_params": ask, "beam_size": told["beam"], "threads": threads}
        XTransformer.train(problem, train_params=params, **asked).save(str(saved))
        loaded = XTransformer.load(str(saved))
        return lambda some: loaded.predict(
            some[0], X_feat=some[1], batch_size=told["batch"], use_gpu=False, **how
        )

    return Run(
        fit,
        lambda start, stop: (queries[start:stop], x_test[start:stop]),
        lambda found: _padded(_entries(found), job["k"]),
        lambda: {"levels": n_levels, "steps_a_level": steps},
    )


def omikuji(job: dict[str, Any]) -> Run:
    """Parabel or Bonsai of omikuji."""
    import omikuji as library

    settings = library.Model.default_hyper_param()  # those of Parabel
    settings.n_trees, beam = job["settings"]["trees"], job["settings"]["beam"]
    if job["method"] == "omikuji-bonsai":  # as its README compares itself with Bonsai
        settings.cluster_k, settings.cluster_balanced, settings.max_depth = 100, False, 3

    def fit(saved: Path) -> Callable[[Any], Any]:
        file = str(Path(job["data"], "trn.svm"))
        library.Model.train_on_data(file, settings, n_threads=job["threads"]).save(str(saved))
        loaded = library.Model.load(str(saved))

        def predict(queries: Any) -> list[Any]:  # its Python binding takes one document, as pairs
            found = []
            for row in range(queries.shape[0]):
                at = slice(queries.indptr[row], queries.indptr[row + 1])
                pairs = list(zip(queries.indices[at].tolist(), queries.data[at].tolist(), strict=True))
                found.append(loaded.predict(pairs, beam_size=beam, top_k=job["k"]))
            return found

        return predict

    return Run(fit, rows_of(matrix(job, "X.tst")), lambda found: _padded(found, job["k"]))


def napkinxc_plt(job: dict[str, Any]) -> Run:
    """Probabilistic label tree of napkinXC."""
    from napkinxc.models import PLT

    x, y, threads = matrix(job, "X.trn"), matrix(job, "Y.trn"), job["threads"]
    told = {"loss": job["settings"]["loss"], "liblinear_c": job["settings"]["cost"]}

    def fit(saved: Path) -> Callable[[Any], Any]:
        PLT(str(saved), threads=threads, seed=0, **told).fit(x, y)  # saves while it trains
        loaded = PLT(str(saved), threads=threads)
        loaded.load()
        return lambda queries: loaded.predict_proba(queries, top_k=job["k"])

    return Run(fit, rows_of(matrix(job, "X.tst")), lambda found: _padded(found, job["k"]))


def sklearn_linearsvc(job: dict[str, Any]) -> Run:
    """One LinearSVC of scikit-learn for each label, small weights dropped as DiSMEC does."""
    from sklearn.svm import LinearSVC

    warnings.filterwarnings("ignore")  # some labels do not converge at scikit-learn's defaults
    x, columns = matrix(job, "X.trn").astype(np.float64), matrix(job, "Y.trn").tocsc()
    counts = np.diff(columns.indptr)
    learnt = np.flatnonzero((counts > 0) & (counts < x.shape[0]))
    cost, threshold = job["settings"]["cost"], job["settings"]["threshold"]

    def one(label: int) -> tuple[Any, Any, float]:
        target = np.zeros(x.shape[0], np.int8)
        target[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = 1
        model = LinearSVC(C=cost, dual=True).fit(x, target)  # the optimum of dual=False, found sooner
        kept = np.flatnonzero(np.abs(model.coef_[0]) >= threshold)
        return kept, model.coef_[0][kept].astype(np.float32), model.intercept_[0]

    def fit(saved: Path) -> Callable[[Any], Any]:
        with ThreadPoolExecutor(job["threads"]) as pool:  # liblinear lets go of the GIL
            found = list(pool.map(one, learnt))
        features, values = (np.concatenate([each[i] for each in found]) for i in range(2))
        ends = np.zeros(len(counts) + 1, np.int64)
        ends[learnt + 1] = [len(each[0]) for each in found]
        weights = sp.csc_matrix((values, features, np.cumsum(ends)), shape=(x.shape[1], len(counts)))
        bias = np.full(len(counts), -np.inf, np.float32)
        bias[learnt] = [each[2] for each in found]
        saved.mkdir()
        sp.save_npz(saved / "weights.npz", weights.tocsr(), compressed=False)
        np.save(saved / "bias.npy", bias)
        loaded = sp.load_npz(saved / "weights.npz")

        def predict(queries: Any) -> tuple[Any, Any]:
            parts = [
                _best((queries[at : at + AT_ONCE] @ loaded).toarray() + bias, job["k"])
                for at in range(0, queries.shape[0], AT_ONCE)
            ]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

        return predict

    return Run(fit, rows_of(matrix(job, "X.tst")), lambda found: found)


MAKERS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "ours": ours,
    "pecos-xrlinear": pecos_xrlinear,
    "pecos-xrtransformer": pecos_xrtransformer,
    "omikuji-parabel": omikuji,
    "omikuji-bonsai": omikuji,
    "napkinxc-plt": napkinxc_plt,
    "sklearn-linearsvc": sklearn_linearsvc,
}


def _entries(found: Any) -> Iterable[Iterable[tuple[int, float]]]:
    """The (label, score) pairs of each row of a CSR matrix."""
    for row in range(found.shape[0]):
        at = slice(found.indptr[row], found.indptr[row + 1])
        yield zip(found.indices[at].tolist(), found.data[at].tolist(), strict=True)


def _padded(found: Iterable[Iterable[tuple[int, float]]], k: int) -> tuple[Any, Any]:
    """Pairs of label and score of each document, as two matrices, best first."""
    rows = [sorted(pairs, key=lambda pair: -pair[1])[:k] for pairs in found]
    labels, scores = np.full((len(rows), k), -1, np.int32), np.zeros((len(rows), k), np.float32)
    for row, pairs in enumerate(rows):
        for rank, (label, score) in enumerate(pairs):
            labels[row, rank], scores[row, rank] = label, score
    return labels, scores


def _best(scores: Any, k: int) -> tuple[Any, Any]:
    """The k best columns of each row, best first."""
    k = min(k, scores.shape[1])
    some = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(scores, some, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    labels = np.take_along_axis(some, order, axis=1).astype(np.int32)
    return labels, np.take_along_axis(values, order, axis=1)


# Measuring ------------------------------------------------------------------------------------------------


def _used(children: bool) -> Any:
    """What the system says of this process, or of its children that have ended; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)


def cpu_seconds() -> float:
    """Of all threads of this process, and of its children that have ended."""
    children = _used(children=True)
    return time.process_time() + (children.ru_utime + children.ru_stime if children else 0)


def peak_mb() -> float | None:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held before it started this process
        high = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(high.split()[1]) / 1024
    own = _used(children=False)
    return own and float(own.ru_maxrss / 2**20)  # macOS, in bytes


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Do some work; returns its result, and seconds, CPU seconds and the process's peak memory so far.

    >>> measured(lambda: 42)[0]
    42
    """
    wall, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    took = time.perf_counter() - wall, cpu_seconds() - cpu
    return result, {"seconds": took[0], "cpu_seconds": took[1], "peak_mb": peak_mb()}


def trained(fit: Callable[[], Any], out: Path) -> tuple[Any, dict[str, Any]]:
    """As `measured`, for work that may be stopped and goes on in another process.

    Whenever a checkpoint was kept it is noted how long that took: the next process counts it too, and counts
    nothing that has to be done again.
    """
    file = out / "spent.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    start, done = (time.perf_counter(), cpu_seconds()), threading.Event()

    def now() -> dict[str, Any]:
        return {
            "seconds": before.get("seconds", 0.0) + time.perf_counter() - start[0],
            "cpu_seconds": before.get("cpu_seconds", 0.0) + cpu_seconds() - start[1],
            "peak_mb": max(before.get("peak_mb") or 0.0, peak_mb() or 0.0) or None,
            "stops": before.get("stops", -1) + 1,
        }

    def note() -> None:
        seen = _newest(out / "work")
        while not done.wait(LOOK_SECONDS):
            if (newest := _newest(out / "work")) != seen:
                seen = newest
                write(file, now())

    noting = threading.Thread(target=note, daemon=True)
    noting.start()
    try:
        found = fit()
    finally:
        done.set()
        noting.join()
    numbers = now()
    write(file, numbers)
    return found, numbers


def _newest(checkpoint: Path) -> int:
    """When the last of its pieces was kept."""
    try:
        return max((path.stat().st_mtime_ns for path in checkpoint.glob("*/manifest.json")), default=0)
    except OSError:  # a piece is being replaced
        return 0


def asked(predict: Callable[[Any], Any], run: Run, n_docs: int, singles: int) -> tuple[Any, dict[str, Any]]:
    """All test documents in one batch, after a few to warm up; then one by one."""
    predict(run.documents(0, min(WARM_QUERIES, n_docs)))
    whole, batches = run.documents(0, n_docs), list[dict[str, Any]]()
    end = time.perf_counter() + BATCH_SECONDS
    while not batches or (len(batches) < BATCH_ROUNDS and time.perf_counter() < end):
        found, numbers = measured(lambda: predict(whole))
        batches.append(numbers)
    seconds, end = list[float](), time.perf_counter() + SINGLES_SECONDS
    for row in range(min(singles, n_docs)):
        one = run.documents(row, row + 1)
        start = time.perf_counter()
        predict(one)
        seconds.append(time.perf_counter() - start)
        if start > end and len(seconds) >= LEAST_SINGLES:
            break
    wall, cpu = (float(np.median([each[key] for each in batches])) for key in ("seconds", "cpu_seconds"))
    return found, {
        "documents_per_second": n_docs / wall,
        "documents_per_cpu_second": n_docs / max(cpu, 1e-6),
        "single_ms": 1000 * float(np.median(seconds)),
        "single_ms_p95": 1000 * float(np.quantile(seconds, 0.95)),
        "singles": len(seconds),
        "peak_mb": peak_mb(),
    }


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Train and ask; leaves the ranking as a file, returns the measurements."""
    out = Path(job["out"])
    run = MAKERS[job["maker"]](job)
    predict, training = trained(lambda: run.fit(out / "model"), out)
    found, numbers = asked(predict, run, job["n_queries"], job["singles"])
    labels, scores = run.ranked(found)
    np.savez(out / "ranking.npz", labels=labels, scores=scores)
    size = sum(path.stat().st_size for path in (out / "model").rglob("*") if path.is_file()) / 2**20
    return {"train": training, **numbers, "model_mb": size, "date": time.strftime("%Y-%m-%d"), **run.facts()}


def end_with_parent() -> None:
    """Nobody is left to measure for once who started this is gone: the other end of standard input closes."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Do one job; an error is a result too."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        result = work(job)
    except Exception as error:
        traceback.print_exc()
        known = hasattr(error, "remedy")  # ours say all in one line
        result = {"error": str(error) if known else f"{type(error).__name__}: {error}"}
    write(Path(job["out"], "result.json"), result)


if __name__ == "__main__":
    main()
