"""Balanced label trees: ours against PECOS's hierarchical k-means, alternating, two threads.

    python benchmarks/tree.py --data DATA
    python benchmarks/tree.py --sizes 2000 --corpora         # a quick trial; nothing is saved

Label features are random (30 non-zeros a label, 100,000 features) or PIFA of a corpus (default tf-idf). Every
run is a process of its own that loads them from a file and clusters them once, after a small warm-up: halves
by spherical 2-means, at most 20 rounds, leaves of at most 100 labels. How good a tree is: the mean cosine of
a label to the centre of its leaf. Every round has a seed of its own; medians are reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from common import WORK, data_folder, measured, parser, peer_python, run_worker, save

ROUNDS = 5
THREADS = 2
SIZES = [100_000, 1_000_000]
CORPORA = ["gutenberg-lcsh", "eurlex57k"]
N_FEATURES, PER_LABEL = 100_000, 30
WARM_UP = 1_000


def random_features(n_labels: int) -> Any:
    from xmcascade.features import normalise_rows

    rng = np.random.default_rng(0)
    columns = rng.integers(0, N_FEATURES, n_labels * PER_LABEL, dtype=np.int32)
    values = rng.random(n_labels * PER_LABEL, dtype=np.float32)
    starts = np.arange(n_labels + 1) * PER_LABEL
    matrix = sp.csr_matrix((values, columns, starts), shape=(n_labels, N_FEATURES))
    matrix.sum_duplicates()
    return normalise_rows(matrix)


def pifa(data: Path, corpus: str) -> Any:
    from xmcascade import Tfidf, read_corpus
    from xmcascade.features import label_features

    train = read_corpus(data / corpus / "train.jsonl.xz", on_error="skip")
    return label_features("pifa", documents=Tfidf().fit_transform(train.texts), labels=train.labels)


def ours(features: Any, seed: int = 0) -> Any:
    from xmcascade.tree import balanced_tree

    return balanced_tree(features, max_leaf=100, threads=THREADS, seed=seed)


def our_leaves(tree: Any) -> Any:
    return tree.parents[-1][tree.positions]


def pecos(features: Any, seed: int = 0) -> Any:
    from pecos.xmc import Indexer

    options = {"nr_splits": 16, "max_leaf_size": 100, "threads": THREADS, "seed": seed}
    return Indexer.gen(features, indexer_type="hierarchicalkmeans", **options)


def pecos_leaves(chain: Any) -> Any:
    return chain[-1].tocsr().indices


WORKERS = {"ours": (ours, our_leaves), "pecos": (pecos, pecos_leaves)}


def work(arguments: argparse.Namespace) -> None:
    build, leaves_of = WORKERS[arguments.worker]
    features = sp.csr_matrix(sp.load_npz(arguments.features), dtype=np.float32)
    build(features[:WARM_UP])
    found, numbers = measured(lambda: build(features, arguments.seed))
    np.save(arguments.leaves, leaves_of(found))
    print(json.dumps(numbers))


def closeness(features: Any, leaves: Any) -> dict[str, float]:
    """Mean cosine of labels to the centre of their leaf, and the sizes of leaves."""
    n_labels = features.shape[0]
    members = sp.csr_matrix((np.ones(n_labels, np.float32), (leaves, np.arange(n_labels))))
    sums = (members @ features).astype(np.float64)
    lengths = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    sizes = np.bincount(leaves)
    return {
        # the cosines of a leaf's labels to their sum add up to the length of that sum
        "mean_cosine": float(lengths.sum() / (features.getnnz(axis=1) > 0).sum()),
        "leaves": len(sizes),
        "smallest_leaf": int(sizes.min()),
        "largest_leaf": int(sizes.max()),
    }


def compare(title: str, features: Any) -> dict[str, Any]:
    folder = WORK / "tree"
    folder.mkdir(parents=True, exist_ok=True)
    file, leaves = folder / "features.npz", folder / "leaves.npy"
    sp.save_npz(file, features, compressed=False)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WORKERS}
    for seed in range(ROUNDS):
        for name in WORKERS:
            python = peer_python("pecos") if name == "pecos" else None
            options = ("--features", str(file), "--leaves", str(leaves), "--seed", str(seed))
            numbers = run_worker(__file__, name, *options, python=python)
            runs[name].append({**numbers, **closeness(features, np.load(leaves))})
    file.unlink()
    leaves.unlink()
    n_labels, n_features = features.shape
    print(f"\n{title}: {n_labels:,} labels, {n_features:,} features, {features.nnz:,} non-zeros")
    heads = ("seconds", "CPU s", "x ours", "peak MB", "mean cosine", "leaves", "sizes")
    print(" " * 8 + "".join(f"{head:>{n}}" for head, n in zip(heads, (9, 9, 8, 9, 13, 8, 9), strict=True)))
    rows: dict[str, Any] = {"labels": n_labels, "features": n_features, "nonzeros": int(features.nnz)}
    for name, found in runs.items():
        row = {key: statistics.median(run[key] for run in found) for key in found[0]}
        ratios = [a["cpu_seconds"] / b["cpu_seconds"] for a, b in zip(found, runs["ours"], strict=True)]
        row["times_ours"] = statistics.median(ratios)
        row["all_cpu_seconds"] = [run["cpu_seconds"] for run in found]
        rows[name] = row
        times = f"{row['seconds']:9.2f}{row['cpu_seconds']:9.2f}{row['times_ours']:8.2f}{row['peak_mb']:9.0f}"
        sizes = f"{row['smallest_leaf']:.0f}-{row['largest_leaf']:.0f}"
        print(f"{name:8}{times}{row['mean_cosine']:13.4f}{row['leaves']:8,.0f}{sizes:>9}", flush=True)
    return rows


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="labels with random features")
    arguments.add_argument("--corpora", nargs="*", default=CORPORA, help="corpora to take PIFA of")
    arguments.add_argument("--features", help=argparse.SUPPRESS)
    arguments.add_argument("--leaves", help=argparse.SUPPRESS)
    arguments.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.worker:
        work(given)
        return
    results = {}
    for n_labels in given.sizes:
        title = f"random {n_labels:,}"
        results[title] = compare(title, random_features(n_labels))
    for corpus in given.corpora:
        results[corpus] = compare(corpus, pifa(data_folder(given), corpus))
    if (given.sizes, given.corpora) == (SIZES, CORPORA):
        save("tree", results, ["numpy", "scipy", "numba"])


if __name__ == "__main__":
    main()
