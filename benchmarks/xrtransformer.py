"""XRTransformer against PECOS's own; and the paper's ablations. Same split, same encoder (MiniLM), CPU.

    python benchmarks/xrtransformer.py --data DATA                        # against PECOS, test documents
    python benchmarks/xrtransformer.py --data DATA --ablations            # all variants, held-out documents
    python benchmarks/xrtransformer.py --data DATA --ablations one-shot   # one; the saved results are renewed
    python benchmarks/xrtransformer.py --report                           # measures nothing
    python benchmarks/xrtransformer.py --data DATA --quick                # a trial of all; nothing is saved

Against PECOS: each is a process of its own (xmcascade.report.compare) that trains on all training documents,
reading each as often (--epochs, divided evenly among the levels), cut at --tokens; saves and loads its model;
predicts the test documents in one batch, then one at a time. PECOS is given our tf-idf; ours makes its own,
in the measured time. Both fine-tune on every level of their first trees. The encoder is the same, from the
same files; batches of 32, rate 1e-4. Ours goes on where a killed run stopped, with the same command.

Ablations: variants that differ in one setting, on --documents of the training documents, evaluated on others
(near-duplicates stay together); the test documents are never read.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

import linear
from common import ENVIRONMENTS, WORK, data_folder, goal, measured, parser, run_worker, save, saved, today

CORPUS = "tate-subjects"
BATCH = 32
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
    model = XRTransformer(**how, calibrate=False)
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
    from xmcascade import TfidfSettings
    from xmcascade.report import compare as compared

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    told = f"epochs={given.epochs:g}", f"max_tokens={given.tokens}"
    methods = {
        "ours": f"xr-transformer training.{told[0]} training.batch={BATCH} {told[1]} calibrate=false",
        "pecos": f"peer:pecos-xrtransformer {told[0]} batch={BATCH} {told[1]}",
    }
    train, test = linear.corpora(data, CORPUS)
    if given.quick:
        train, test = train.take(np.arange(TINY)), test.take(np.arange(TINY_OTHER))
    names = given.only or list(methods)
    folder = WORK / "xrtransformer" / ("quick" if given.quick else "whole")
    chosen, features = [methods[name] for name in names], TfidfSettings(min_df=2)
    found = compared(train, test, chosen, folder, features=features, environments=ENVIRONMENTS)
    rows = {}
    for name, own in zip(names, found.rows, strict=True):
        if own.error:
            sys.exit(f"{name} failed: {own.error}")
        rows[name] = {
            **{key: own.metrics[key] for key in SHOWN},
            "intervals": {key: own.intervals[key] for key in SHOWN},
            **own.measured,
            "epochs": given.epochs,
            "tokens": given.tokens,
            "software": own.software,
        }
    shutil.rmtree(folder)  # the next time all is measured anew
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
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps(variant(given)))
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
