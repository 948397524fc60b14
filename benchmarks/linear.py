"""The linear family against PECOS and omikuji: quality, training, prediction, memory, size; same tf-idf.

    python benchmarks/linear.py --data DATA

Features are ours (words, min_df 2, sublinear; the bag-of-words corpora split at blanks). Each run is a
process of its own that loads the matrices, trains once, saves, predicts the test documents in one batch (beam
20; omikuji's binding has no batch call), and then one document at a time. CPU seconds are of all threads.
Every test document with a label counts; labels never seen in training count as missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from common import WORK, data_folder, measured, parser, peak_mb, peer_python, run_worker, save

ALL, QUICK = ["xr-linear", "pecos", "parabel", "omikuji"], ["xr-linear", "pecos"]
CORPORA = {  # omikuji takes many minutes on the larger corpora: ask for it with --runs
    "bibtex-bow": ALL,
    "delicious-bow": ALL,
    "tate-subjects": ALL,
    "gutenberg-lcsh": QUICK,
    "eurlex57k": QUICK,
    "reverse-dictionary": QUICK,
}
BEAM, K, SINGLES = 20, 5, 300
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
RUNS = {
    # name: environment (None: ours)
    "xr-linear": None,
    "pecos": "pecos",
    "parabel": None,
    "omikuji": "omikuji",
}
Trained = tuple[Callable[[Any], tuple[Any, Any]], Path]


def prepare(data: Path, name: str) -> Path:
    """Matrices of one corpus, made on first use."""
    folder = WORK / "linear" / name
    if (folder / "done").exists():
        return folder
    from xmcascade import Tfidf, make_synthetic, read_corpus

    folder.mkdir(parents=True, exist_ok=True)
    if name.startswith("synthetic"):
        n_labels = int(name.removeprefix("synthetic-"))
        train, test = (make_synthetic(n, n_labels, part=i) for i, n in enumerate((n_labels, 10_000)))
    else:
        train = read_corpus(data / name / "train.jsonl.xz", on_error="skip")
        test = read_corpus(data / name / "test.jsonl.xz", empty_text="keep")
    test = test.over_labels(train.label_names)
    assert train.texts is not None and test.texts is not None
    tfidf = Tfidf(min_df=2, tokens="whitespace" if "bow" in name else "word")
    sp.save_npz(folder / "X.trn.npz", tfidf.fit_transform(train.texts), compressed=False)
    sp.save_npz(folder / "X.tst.npz", tfidf.transform(test.texts), compressed=False)
    sp.save_npz(folder / "Y.trn.npz", train.labels, compressed=False)
    sp.save_npz(folder / "Y.tst.npz", test.labels, compressed=False)
    (folder / "done").touch()
    return folder


def ours(kind: str, features: Any, labels: Any, folder: Path) -> Trained:
    from xmcascade import Corpus
    from xmcascade.models import MODELS, load
    from xmcascade.store import Strings

    names = Strings.of(map(str, range(labels.shape[1])))
    model = MODELS[kind](beam=BEAM).fit(Corpus(labels=labels, label_names=names, features=features))
    model.save(folder / kind)
    loaded = load(folder / kind)

    def predict(queries: Any) -> tuple[Any, Any]:
        ranking = loaded.rank(queries, K)
        return ranking.labels, ranking.scores

    return predict, folder / kind


def pecos(features: Any, labels: Any, folder: Path) -> Trained:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    of_labels = LabelEmbeddingFactory.create(labels, features, method="pifa")
    chain = Indexer.gen(of_labels, indexer_type="hierarchicalkmeans", threads=2)
    model = XLinearModel.train(features, labels, C=chain, threads=2)
    model.save(str(folder / "pecos"))
    loaded = XLinearModel.load(str(folder / "pecos"), is_predict_only=True)

    def predict(queries: Any) -> tuple[Any, Any]:
        found = loaded.predict(queries, beam_size=BEAM, only_topk=K, threads=2).tocsr()
        return _ranked(found)

    return predict, folder / "pecos"


def _ranked(found: Any) -> tuple[Any, Any]:
    labels = np.full((found.shape[0], K), -1, np.int32)
    scores = np.zeros((found.shape[0], K), np.float32)
    for row in range(found.shape[0]):
        own = slice(found.indptr[row], found.indptr[row + 1])
        best = np.argsort(-found.data[own], kind="stable")[:K]
        labels[row, : len(best)], scores[row, : len(best)] = found.indices[own][best], found.data[own][best]
    return labels, scores


def omikuji(features: Any, labels: Any, folder: Path) -> Trained:
    import omikuji as peer

    path = folder / "train.svm"
    if not path.exists():
        with path.open("w") as out:
            out.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
            for row in range(features.shape[0]):
                own = ",".join(map(str, labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()))
                at = slice(features.indptr[row], features.indptr[row + 1])
                pairs = zip(features.indices[at].tolist(), features.data[at].tolist(), strict=True)
                out.write(own + " " + " ".join(f"{f}:{v:.6g}" for f, v in pairs) + "\n")
    model = peer.Model.train_on_data(str(path), peer.Model.default_hyper_param(), n_threads=2)
    model.save(str(folder / "omikuji"))

    def predict(queries: Any) -> tuple[Any, Any]:
        labels = np.full((queries.shape[0], K), -1, np.int32)
        scores = np.zeros((queries.shape[0], K), np.float32)
        for row in range(queries.shape[0]):
            at = slice(queries.indptr[row], queries.indptr[row + 1])
            pairs = list(zip(queries.indices[at].tolist(), queries.data[at].tolist(), strict=True))
            for rank, (label, score) in enumerate(model.predict(pairs, beam_size=10, top_k=K)):
                labels[row, rank], scores[row, rank] = label, score
        return labels, scores

    return predict, folder / "omikuji"


def work(given: argparse.Namespace) -> None:
    """One run of one peer on one corpus."""
    folder = Path(given.folder)
    x, y = (sp.load_npz(folder / name).astype(np.float32) for name in ("X.trn.npz", "Y.trn.npz"))
    queries = sp.load_npz(folder / "X.tst.npz").astype(np.float32)
    warm = folder / "warm"
    for old in (warm, folder / given.worker):  # a model of an earlier run would count in this one's size
        shutil.rmtree(old, ignore_errors=True)
    warm.mkdir()
    train = {"pecos": pecos, "omikuji": omikuji}.get(given.worker)
    fit = train or (lambda *parts: ours(given.worker, *parts))
    if not train:  # compile first: the others come compiled
        fit(x[:200], y[:200], warm)[0](queries[:50])
    (predict, saved), training = measured(lambda: fit(x, y, folder))
    predict(queries[:20])
    (labels, scores), batch = measured(lambda: predict(queries))
    np.savez(folder / f"{given.worker}.npz", labels=labels, scores=scores)
    seconds = []
    for row in range(min(SINGLES, queries.shape[0])):
        one = queries[[row]]
        start = time.perf_counter()
        predict(one)
        seconds.append(time.perf_counter() - start)
    size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()) / 2**20
    print(
        json.dumps(
            {
                "train": training,
                "documents_per_cpu_second": queries.shape[0] / batch["cpu_seconds"],
                "single_ms": 1000 * statistics.median(seconds),
                "model_mb": size,
                "peak_mb": peak_mb(),
            }
        )
    )


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--folder", help=argparse.SUPPRESS)
    arguments.add_argument("--corpora", nargs="*", default=list(CORPORA))
    arguments.add_argument("--runs", nargs="*", help=f"of {ALL}")
    given = arguments.parse_args()
    if given.worker:
        work(given)
        return
    from xmcascade.evaluate import Ranking, evaluate_ranking

    data = data_folder(given)
    results: dict[str, Any] = {}
    for name in given.corpora:
        folder = prepare(data, name)
        truth, seen = sp.load_npz(folder / "Y.tst.npz"), sp.load_npz(folder / "Y.trn.npz")
        counts = np.zeros(truth.shape[1], np.int64)
        counts[: seen.shape[1]] = np.bincount(seen.indices, minlength=seen.shape[1])
        print(f"\n{name}: {seen.shape[0]:,} documents, {seen.shape[1]:,} labels")
        more = ("train CPU s", "wall s", "docs/CPU s", "single ms", "model MB", "peak MB")
        print(" " * 12 + "".join(f"{t:>7}" for t in SHOWN) + "".join(f"{t:>12}" for t in more))
        results[name] = {}
        for run in given.runs or CORPORA.get(name, ALL):
            python = None if RUNS[run] is None else peer_python(RUNS[run])
            row = run_worker(__file__, run, "--folder", str(folder), python=python)
            found = np.load(folder / f"{run}.npz")
            ranking = Ranking(found["labels"], found["scores"], np.zeros_like(found["scores"]))
            evaluation = evaluate_ranking(truth, ranking, label_counts=counts, n_train_docs=seen.shape[0])
            row |= {key: evaluation.metrics[key] for key in (*SHOWN, "nDCG@5")}
            row["intervals"] = {key: evaluation.intervals[key] for key in SHOWN}
            results[name][run] = row
            kept = [row[key] for key in ("documents_per_cpu_second", "single_ms", "model_mb", "peak_mb")]
            numbers = [row["train"]["cpu_seconds"], row["train"]["seconds"], *kept]
            shown = "".join(f"{row[key]:7.2f}" for key in SHOWN) + "".join(f"{n:12,.2f}" for n in numbers)
            print(f"{run:12}{shown}", flush=True)
    save("linear", results, ["numpy", "scipy", "numba"])


if __name__ == "__main__":
    main()
