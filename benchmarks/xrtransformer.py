"""XRTransformer against PECOS's own; and the paper's ablations. Same split, same encoder (MiniLM), CPU.

    python benchmarks/xrtransformer.py --data DATA                        # against PECOS, test documents
    python benchmarks/xrtransformer.py --data DATA --ablations            # all variants, held-out documents
    python benchmarks/xrtransformer.py --data DATA --ablations one-shot   # one; the saved results are renewed
    python benchmarks/xrtransformer.py --report                           # measures nothing
    python benchmarks/xrtransformer.py --data DATA --quick                # a trial of all; nothing is saved

Against PECOS: each is a process of its own that trains on all training documents, reading each as often
(--epochs, divided evenly among the levels), cut at --tokens; predicts the test documents in one batch, then
one at a time. PECOS is given our tf-idf; ours makes its own, in the measured time. Both fine-tune on
every level of their first trees. The encoder is the same, from the same files; batches of 32, rate 1e-4.

Ablations: variants that differ in one setting, on --documents of the training documents, evaluated on others
(near-duplicates stay together); the test documents are never read.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import linear
from common import (
    PEERS,
    WORK,
    data_folder,
    goal,
    measured,
    memory_plans,
    parser,
    peak_mb,
    peer_python,
    run_worker,
    save,
    saved,
    today,
)

CORPUS = "tate-subjects"
BATCH, RATE, BEAM, K = 32, 1e-4, 20, 5
SINGLES = 200
TINY, TINY_OTHER = 300, 60  # documents of a trial
HELD_SHARE = 0.08
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "not-cost-sensitive": {"cost_sensitive": False},
    "bootstrap-inherit": {"bootstrap": "inherit"},
    "bootstrap-none": {"bootstrap": "none"},
    "bootstrap-not-at-root": {"bootstrap_root": False},
    "one-shot": {"one_shot": True},
    "embedding-only": {"use": "embedding"},
    "tfidf-only": {"use": "tfidf"},
    "pre-trained-only": {"fine_tune": False},
}
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5")
PACKAGES = ["numpy", "scipy", "numba", "torch", "transformers", "tokenizers"]


def prepare(data: Path, quick: bool) -> Path:
    """Texts and matrices of the corpus, as PECOS takes them."""
    from xmcascade import read_corpus

    folder, matrices = WORK / "xrtransformer" / ("quick" if quick else "whole"), linear.prepare(data, CORPUS)
    folder.mkdir(parents=True, exist_ok=True)
    for part, name, most in (("train", "trn", TINY), ("test", "tst", TINY_OTHER)):
        how: dict[str, Any] = {"on_error": "skip"} if part == "train" else {"empty_text": "keep"}
        corpus = read_corpus(data / CORPUS / f"{part}.jsonl.xz", **how)
        assert corpus.texts is not None
        n_docs = most if quick else corpus.n_docs
        lines = "".join(json.dumps(text) + "\n" for text in corpus.texts[:n_docs])
        (folder / f"{name}.jsonl").write_text(lines)
        for kind in "XY":
            whole = sp.load_npz(matrices / f"{kind}.{name}.npz")
            sp.save_npz(folder / f"{kind}.{name}.npz", whole[:n_docs], compressed=False)
    return folder


def texts_of(folder: Path, name: str) -> list[str]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def matrix(folder: Path, name: str) -> Any:
    return sp.load_npz(folder / f"{name}.npz").astype(np.float32)


def asked(predict: Callable[[Any], Any], whole: Any, one: Callable[[int], Any], n: int) -> dict[str, Any]:
    """Test documents in one batch, then one by one."""
    predict(one(0))
    _, batch = measured(lambda: predict(whole))
    seconds = []
    for row in range(min(SINGLES, n)):
        query = one(row)
        start = time.perf_counter()
        predict(query)
        seconds.append(time.perf_counter() - start)
    return {
        "documents_per_second": n / batch["seconds"],
        "documents_per_cpu_second": n / batch["cpu_seconds"],
        "single_ms": 1000 * statistics.median(seconds),
        "peak_mb": peak_mb(),
    }


def ours(given: argparse.Namespace) -> dict[str, Any]:
    """Train and ask our model on the prepared texts."""
    from xmcascade import Corpus, XRTransformer
    from xmcascade.store import Strings

    folder = Path(given.folder)
    texts, labels = Strings.of(texts_of(folder, "trn")), matrix(folder, "Y.trn")
    names = Strings.of(map(str, range(labels.shape[1])))
    queries = texts_of(folder, "tst")
    logging.basicConfig(filename=folder / "ours.log", level=logging.INFO, format="%(asctime)s %(message)s")
    how: dict[str, Any] = {"training": {"epochs": given.epochs, "batch": BATCH}, "max_tokens": given.tokens}
    plans = memory_plans()
    model = XRTransformer(**how)
    corpus = Corpus(labels=labels, label_names=names, texts=texts)
    kept = folder / "ours.work" if given.keep else None
    _, training = measured(lambda: model.fit(corpus, checkpoint=kept))
    model.save(folder / "ours")
    numbers = asked(
        lambda some: model.rank(some, K), queries, lambda row: queries[row : row + 1], len(queries)
    )
    found = model.rank(queries, K)
    np.savez(folder / "ours.npz", labels=found.labels, scores=found.scores)
    derived = {name: each["value"] for name, each in model.derived.items()}
    return {"train": training, **numbers, "plans": plans, "derived": derived}


def pecos(given: argparse.Namespace) -> dict[str, Any]:
    """Train and ask PECOS's XR-Transformer, in its own environment."""
    import torch
    from pecos.xmc.xtransformer.model import XTransformer
    from pecos.xmc.xtransformer.module import MLProblemWithText

    folder = Path(given.folder)
    logging.basicConfig(filename=folder / "pecos.log", level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(2)
    texts, queries = texts_of(folder, "trn"), texts_of(folder, "tst")
    x, y, x_test = matrix(folder, "X.trn"), matrix(folder, "Y.trn"), matrix(folder, "X.tst")
    params = XTransformer.TrainParams.from_dict({}, recursive=True)
    n_levels = pecos_levels(x, y, params)
    steps = max(1, round(given.epochs * len(texts) / BATCH / n_levels))
    matcher = params.matcher_params_chain
    matcher.model_shortcut, matcher.max_steps, matcher.batch_size = given.encoder, steps, BATCH
    matcher.learning_rate, matcher.warmup_steps, matcher.save_steps = RATE, steps // 10, steps + 1
    matcher.negative_sampling, matcher.batch_gen_workers, matcher.use_gpu = "tfn+man", 1, False
    matcher.cost_sensitive_ranker = True
    ask = XTransformer.PredParams.from_dict({}, recursive=True)
    ask.matcher_params_chain.truncate_length = given.tokens
    problem = MLProblemWithText(texts, y, X_feat=x)
    model, training = measured(
        lambda: XTransformer.train(problem, train_params=params, pred_params=ask, threads=2, beam_size=BEAM)
    )

    def predict(some: tuple[list[str], Any]) -> Any:
        how = {"only_topk": K, "beam_size": BEAM, "batch_gen_workers": 1, "use_gpu": False, "threads": 2}
        return model.predict(some[0], X_feat=some[1], batch_size=BATCH, **how)

    whole = queries, x_test
    numbers = asked(predict, whole, lambda row: (queries[row : row + 1], x_test[[row]]), len(queries))
    found = predict(whole)
    labels, scores = np.full((len(queries), K), -1, np.int32), np.zeros((len(queries), K), np.float32)
    for row in range(len(queries)):
        at = slice(found.indptr[row], found.indptr[row + 1])
        order = np.argsort(-found.data[at], kind="stable")[:K]
        labels[row, : len(order)], scores[row, : len(order)] = found.indices[at][order], found.data[at][order]
    np.savez(folder / "pecos.npz", labels=labels, scores=scores)
    return {"train": training, **numbers, "levels": n_levels, "steps_a_level": steps}


def pecos_levels(x: Any, y: Any, params: Any) -> int:
    """On how many levels of its first tree PECOS will fine-tune."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory

    chain = Indexer.gen(LabelEmbeddingFactory.pifa(y, x), train_params=params.preliminary_indexer_params)
    return sum(level.shape[0] <= params.max_match_clusters for level in chain)


def variant(given: argparse.Namespace) -> dict[str, Any]:
    """Train one variant on some documents and evaluate it on held-out ones."""
    from xmcascade import XRTransformer, read_corpus

    train = read_corpus(Path(given.data) / CORPUS / "train.jsonl.xz", on_error="skip")
    held = train.split_mask(HELD_SHARE, seed=0)
    train, other = train.take(~held), train.take(held)
    most = TINY if given.quick else given.documents
    train = train.take(np.sort(np.random.default_rng(0).permutation(train.n_docs)[:most]))
    other = other.take(np.arange(TINY_OTHER)) if given.quick else other
    work = WORK / "xrtransformer" / given.worker
    work.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=f"{work}.log", level=logging.INFO, format="%(asctime)s %(message)s", force=True
    )
    settings = VARIANTS[given.worker]
    how = {"training": {"epochs": given.epochs, "batch": BATCH}, "max_tokens": given.tokens, **settings}
    model = XRTransformer(**how)
    kept = None if given.quick else f"{work}.work"
    _, training = measured(lambda: model.fit(train, checkpoint=kept))
    model.save(work)
    return {
        **model.evaluate(other).to_dict(),
        "train": training,
        "settings": settings,
        "train_documents": train.n_docs,
        "epochs": given.epochs,
        "tokens": given.tokens,
        "date": today(),
    }


def compare(data: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Both models, ours first, on the test documents."""
    from xmcascade.evaluate import Ranking, evaluate_ranking
    from xmcascade.neural import pretrained

    folder = prepare(data, given.quick)
    truth, seen = sp.load_npz(folder / "Y.tst.npz"), sp.load_npz(folder / "Y.trn.npz")
    counts = np.zeros(truth.shape[1], np.int64)
    counts[: seen.shape[1]] = np.bincount(seen.indices, minlength=seen.shape[1])
    options = ["--folder", str(folder), "--epochs", str(given.epochs), "--tokens", str(given.tokens)]
    options += ["--encoder", str(pretrained._embedded())]
    rows = {}
    for name in given.only or ("ours", "pecos"):
        print(f"{name}: training; its log is {folder / name}.log", flush=True)
        python = peer_python("pecos") if name == "pecos" else None
        row = run_worker(__file__, name, *options, *["--keep"] * given.keep, python=python)
        found = np.load(folder / f"{name}.npz")
        ranking = Ranking(found["labels"], found["scores"], np.zeros_like(found["scores"]))
        evaluation = evaluate_ranking(truth, ranking, label_counts=counts, n_train_docs=seen.shape[0])
        software = PEERS["pecos"] if name == "pecos" else []
        rows[name] = {
            **{key: evaluation.metrics[key] for key in SHOWN},
            "intervals": {key: evaluation.intervals[key] for key in SHOWN},
            **row,
            "epochs": given.epochs,
            "tokens": given.tokens,
            "date": today(),
            "software": software,
        }
    return rows


def report(results: dict[str, Any]) -> None:
    """All tables."""
    if rows := results.get("compare"):
        print(f"\n{CORPUS}, test documents")
        table(rows)
        for name, row in rows.items():
            asked = f"{row['documents_per_second']:.1f} documents/s, {row['single_ms']:.1f} ms for one"
            print(
                f"  {name}: {asked}, peak {row['peak_mb']:,.0f} MB, {row['epochs']:g} epochs, {row['date']}"
            )
        if {"ours", "pecos"} <= rows.keys():
            own, peer = rows["ours"], rows["pecos"]
            for key in ("P@1", "P@3", "P@5"):
                goal(f"{key}, ours - PECOS's", own[key] - peer[key], ">=", 0.0)
            goal("training, wall", own["train"]["seconds"] / peer["train"]["seconds"], "<=", 0.6)
            goal("training, CPU", own["train"]["cpu_seconds"] / peer["train"]["cpu_seconds"], "<=", 0.6)
            goal("one document", own["single_ms"] / peer["single_ms"], "<=", 0.5)
            goal("peak memory", own["peak_mb"] / peer["peak_mb"], "<=", 1.0)
    if rows := results.get("ablations"):
        first = next(iter(rows.values()))
        print(f"\n{CORPUS}: variants, {first['train_documents']:,} documents, held-out documents")
        table(rows)


def table(rows: dict[str, Any]) -> None:
    print(f"{'':24}" + "".join(f"{name:>8}" for name in SHOWN) + f"{'min':>8}{'CPU min':>9}")
    for name, row in rows.items():
        cells = "".join(f"{row[key]:8.2f}" for key in SHOWN)
        print(f"{name:24}{cells}{row['train']['seconds'] / 60:8.1f}{row['train']['cpu_seconds'] / 60:9.1f}")


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--ablations", nargs="*", choices=list(VARIANTS), metavar="VARIANT")
    arguments.add_argument("--only", nargs="*", choices=["ours", "pecos"], help="renew this row")
    arguments.add_argument("--epochs", type=float, default=1.0)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--documents", type=int, default=20_000, help="of the ablations")
    arguments.add_argument("--keep", action="store_true", help="ours goes on after a kill")
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    arguments.add_argument("--folder", help=argparse.SUPPRESS)
    arguments.add_argument("--encoder", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps({"ours": ours, "pecos": pecos}.get(given.worker, variant)(given)))
        return
    results: dict[str, Any] = {} if given.quick else saved("xrtransformer").get("results", {})
    if given.report:
        report(results)
        return
    data = data_folder(given)
    if given.ablations is None or given.quick:
        results.setdefault("compare", {}).update(compare(data, given))
        if not given.quick:
            save("xrtransformer", results, PACKAGES)
    if given.ablations is not None or given.quick:
        options = ["--data", str(data), "--epochs", str(given.epochs), "--tokens", str(given.tokens)]
        options += ["--documents", str(given.documents), *["--quick"] * given.quick]
        for name in given.ablations or VARIANTS:
            print(f"{name}: training", flush=True)
            row = run_worker(__file__, name, *options)
            if not given.quick:  # another core may have saved rows meanwhile
                results = saved("xrtransformer").get("results", {})
            results.setdefault("ablations", {})[name] = row
            if not given.quick:
                save("xrtransformer", results, PACKAGES)
    report(results)


if __name__ == "__main__":
    main()
