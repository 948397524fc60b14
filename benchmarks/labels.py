"""Labels added to a model that has learnt, against training again: quality and seconds.

    python benchmarks/labels.py --data DATA
    python benchmarks/labels.py --data DATA --only add     # with the models that were kept; renews these rows
    python benchmarks/labels.py --report                   # measures nothing
    python benchmarks/labels.py --data DATA --quick        # a trial; nothing is saved

5% of the labels of tate-subjects, at random among those with 20 training documents or more, are held back.
A model (cascadexml-tfidf) learns without them; then `add_labels` is given 1, 5 or 20 documents of each.
Training again has the other labels' documents and the same 20 of each new label. All are asked about the test
documents that have a new label: P@5 over all their labels, and the share of their new labels that are among
the first 5.
"""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from common import WORK, data_folder, goal, measured, parser, run_worker, save, saved, today

CORPUS, SHARE, COUNTS = "tate-subjects", 0.05, (1, 5, 20)
KIND = "cascadexml-tfidf"
RUNS = ("base", "again", "add")
TINY = 600  # documents of a trial
PACKAGES = ["numpy", "scipy", "numba", "torch", "transformers", "tokenizers"]


def read(given: argparse.Namespace) -> tuple[Any, Any, Any, Any]:
    """Training documents, test documents, ids of the labels held back, and 20 documents of each of them."""
    from xmcascade import read_corpus

    folder = Path(given.data) / CORPUS
    train = read_corpus(folder / "train.jsonl.xz", on_error="skip")
    if given.quick:
        train, test = train.take(np.arange(TINY)), train.take(np.arange(TINY, 2 * TINY))
    else:
        test = read_corpus(folder / "test.jsonl.xz", empty_text="keep")
    rng, most = np.random.default_rng(0), max(COUNTS)
    frequent = np.flatnonzero(train.label_counts() >= most)
    n_new = min(round(SHARE * train.n_labels), len(frequent) // 2)
    new = np.sort(rng.choice(frequent, n_new, replace=False))
    columns = train.labels.tocsc()
    shown = [
        rng.permutation(columns.indices[columns.indptr[label] : columns.indptr[label + 1]])[:most]
        for label in new
    ]
    return train, test.over_labels(train.label_names), new, shown


def without(train: Any, new: Any, shown: Any, n_shown: int) -> Any:
    """The training documents with the new labels only where they are shown; at none: without them."""
    labels = train.labels
    keep = np.ones(train.n_labels, np.bool_)
    keep[new] = False
    marks = [(doc, label) for label, docs in zip(new, shown, strict=True) for doc in docs[:n_shown]]
    rows, columns = (np.array(part, np.int64) for part in zip(*marks, strict=True)) if marks else ([], [])
    some = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), labels.shape)
    labels = (labels @ sp.diags(keep.astype(np.float32)) + some).tocsr().astype(np.float32)
    labels.eliminate_zeros()
    labels.sort_indices()
    if n_shown:
        return replace(train, labels=labels)
    kept = np.flatnonzero(keep)
    return replace(train, labels=labels[:, kept], label_names=train.label_names.take(kept))


def judged(model: Any, train: Any, test: Any, new: Any) -> dict[str, Any]:
    """What a model says of the test documents that have a new label."""
    names = {train.label_names[label] for label in new.tolist()}
    marks = np.zeros(test.n_labels, np.float32)
    marks[new] = 1
    some = test.take(np.flatnonzero(test.labels @ marks > 0))
    found = model.predict(some.texts, k=5)
    hits = total = right = 0
    for doc, row in enumerate(found):
        true, said = set(some.label_set(doc)), {prediction.label for prediction in row}
        right += len(true & said)
        hits += len(true & said & names)
        total += len(true & names)
    return {
        "documents": some.n_docs,
        "P@5": 100 * right / (5 * some.n_docs),
        "new labels found": 100 * hits / total,
    }


def work(given: argparse.Namespace) -> dict[str, Any]:
    """One of the runs."""
    from xmcascade import load
    from xmcascade.models import MODELS

    train, test, new, shown = read(given)
    folder = WORK / "labels" / ("quick" if given.quick else "whole")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{given.worker}.log"
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    facts = {"new_labels": len(new), "labels": train.n_labels, "epochs": given.epochs, "date": today()}
    if given.worker != "add":
        corpus = without(train, new, shown, max(COUNTS) if given.worker == "again" else 0)
        model = MODELS[KIND](training={"epochs": given.epochs})
        kept = None if given.quick else folder / f"{given.worker}.work"
        _, training = measured(lambda: model.fit(corpus, checkpoint=kept))
        model.save(folder / given.worker)
        return {given.worker: {**judged(model, train, test, new), **facts, "train": training}}
    names = [train.label_names[label] for label in new.tolist()]
    rows = {}
    for count in COUNTS:
        model = load(folder / "base")
        examples = [[train.texts[int(doc)] for doc in docs[:count]] for docs in shown]
        _, adding = measured(
            lambda model=model, examples=examples: model.add_labels(names, examples=examples)
        )
        rows[f"add {count}"] = {**judged(model, train, test, new), **facts, "train": adding}
    return rows


def report(results: dict[str, Any]) -> None:
    """The table, and the goal."""
    first = next(iter(results.values()), {})
    if first:
        print(f"\n{CORPUS}: {first['new_labels']:,} of {first['labels']:,} labels held back; ", end="")
        print(f"{first['documents']:,} test documents; {KIND}, {first['epochs']:g} epochs")
    for name, row in results.items():
        numbers = f"P@5 {row['P@5']:.2f}, new labels found {row['new labels found']:.1f}%"
        cost = f"{row['train']['seconds']:,.1f} s, {row['train']['cpu_seconds']:,.1f} CPU s"
        print(f"  {name:8}{numbers}, {cost}")
    if {"again", "add 20"} <= results.keys():
        goal(
            "P@5, 20 examples / trained again", results["add 20"]["P@5"] / results["again"]["P@5"], ">=", 0.9
        )


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--only", nargs="*", choices=RUNS, default=RUNS)
    arguments.add_argument("--epochs", type=float, default=1.0)
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps(work(given)))
        return
    results: dict[str, Any] = {} if given.quick else saved("labels").get("results", {})
    if not given.report:
        data = data_folder(given)
        options = ["--data", str(data), "--epochs", str(given.epochs), *["--quick"] * given.quick]
        for name in given.only:
            print(f"{name}: running", flush=True)
            results |= run_worker(__file__, name, *options)
            if not given.quick:
                results = saved("labels").get("results", {}) | results
                save("labels", results, PACKAGES)
    report(results)


if __name__ == "__main__":
    main()
