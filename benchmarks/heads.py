"""Training heads: a step of the last level against the usual way, its growth with labels, and peak memory.

    python benchmarks/heads.py
    python benchmarks/heads.py --parts memory --start   # one part; heads start as CascadeXML's do
    python benchmarks/heads.py --quick                  # a trial of everything, tiny; nothing is saved

step: 670,000 labels in 65,536 clusters, 384 features, 64 documents with 400 random clusters and 5 true labels
each. Ours is what Cascade does at one level: sort the shortlist, score, mark the true ones, cross entropy,
backward and update. The usual way is in this file: candidates padded to the longest, a sparse nn.Embedding
gathered to [documents, candidates, 384], bmm, cross entropy, autograd, SparseAdam; its padded candidates and
targets are given to it ready; its forward is that of training, so autograd takes its notes. That scores and
gradients are the same is checked first. All in one process, alternating, the same batch each time, all cores.

scaling: the same number of entries (400 clusters of 10 labels a document) with 100,000 and with 3,000,000
labels, their rows kept as fit derives for so many, alternating; once with clusters drawn from all (among many
labels, fewer documents share one), once from as many for both, so that the same number of rows is touched.

memory: the peak of a process that fits CascadeXML on 2,800,000 labels (even clusters: 1,024 / 8,192 / 65,536)
for 20 steps of 32 documents of 32 tokens, all of MiniLM trained; imports and label names included. Heads
start random; with --start as by default, from all documents' features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from common import alternated, goal, memory_plans, parser, peak_mb, run_worker, save, saved, times, today

WIDTH, TRUE, ADAGRAD_RATE = 384, 5, 0.05
STEP = {"labels": 670_000, "clusters": 65_536, "documents": 64, "shortlist": 400, "rounds": 9}
SCALING = {"labels": [100_000, 3_000_000], "block": 10, "documents": 64, "shortlist": 400, "rounds": 15}
MEMORY = {"labels": 2_800_000, "documents": 192, "batch": 32, "tokens": 32, "steps": 20}
TINY = {
    "step": {**STEP, "labels": 20_000, "clusters": 2_000, "documents": 8, "shortlist": 20, "rounds": 2},
    "scaling": {**SCALING, "labels": [5_000, 20_000], "documents": 8, "shortlist": 20, "rounds": 2},
    "memory": {**MEMORY, "labels": 5_000, "documents": 8, "batch": 4, "steps": 3},
}
OURS: dict[str, tuple[dict[str, Any], float]] = {
    # row: how the head is kept and trained, the rate
    "ours, adagrad": ({"optimizer": "adagrad", "precision": "float32"}, ADAGRAD_RATE),
    "ours, adam": ({"optimizer": "adam", "precision": "float32"}, 1e-3),
    "ours, adagrad, bfloat16": ({"optimizer": "adagrad", "precision": "bfloat16"}, ADAGRAD_RATE),
}
USUAL = "gather, bmm, SparseAdam"


class Batch:
    """Random features, shortlist and true labels of some documents, over clusters of even sizes."""

    def __init__(self, n_labels: int, n_clusters: int, pool: int, given: dict[str, Any]) -> None:
        from even import even_tree
        from xmcascade.neural import Truth

        rng, n_docs, size = np.random.default_rng(0), given["documents"], given["shortlist"]
        self.n_docs, self.n_labels = n_docs, n_labels
        self.x = rng.standard_normal((n_docs, WIDTH), np.float32)
        self.tree = even_tree([n_clusters, n_labels])
        wanted = np.sort(rng.choice(n_clusters, pool, replace=False))
        drawn = [np.sort(rng.choice(wanted, size, replace=False)) for _ in range(n_docs)]
        self.pairs = np.arange(n_docs + 1) * size, np.concatenate(drawn), self.tree.offsets[0]
        every = np.split(self.short().rows, self.short().entry_bounds[1:-1])
        true = [np.sort(rng.choice(rows, TRUE, replace=False)) for rows in every]
        nodes = np.concatenate(true).astype(np.int32)
        self.truth = Truth(np.arange(n_docs + 1) * TRUE, nodes, np.ones(len(nodes), np.float32))

    def short(self) -> Any:
        """A new one each time: what it remembers, the sorted order above all, is part of the work."""
        from xmcascade.neural import Shortlist

        return Shortlist(*self.pairs)

    def numbers(self) -> dict[str, int]:
        short = self.short()
        touched = np.diff(short.offsets)[np.unique(short.clusters)].sum()
        return {"labels": self.n_labels, "entries": short.n_entries, "rows_touched": int(touched)}


class Ours:
    """One level, as Cascade.forward and Cascade.backward do it."""

    def __init__(self, batch: Batch, how: dict[str, Any], rate: float) -> None:
        from xmcascade.neural import Head

        self.batch, self.rate = batch, rate
        self.head = Head.random(batch.n_labels, WIDTH, np.random.default_rng(1), **how)

    def forward(self) -> tuple[Any, Any]:
        short = self.batch.short()
        return short, self.head.logits(self.batch.x, short)

    def step(self, hold: bool = False) -> Any:
        from xmcascade.kernels import heads as kernels

        (short, logits), truth = self.forward(), self.batch.truth
        y, slopes = np.zeros(short.n_entries, np.float32), np.empty(short.n_entries, np.float32)
        where = short.pairs, short.doc_pairs, short.offsets, self.batch.tree.parents[0]
        kernels.targets(*where, truth.rows, truth.nodes, truth.values, y)
        scales = 1.0 / self.batch.n_docs / np.diff(short.entry_bounds)
        kernels.cross_entropy(logits, y, short.entry_bounds, scales, slopes)
        return self.head.step(self.batch.x, short, slopes, self.rate, hold=hold)


class Usual:
    """The same level as most implementations do it; one more row stands for padding."""

    def __init__(self, batch: Batch, rows: Any) -> None:
        import torch

        short, n_labels = batch.short(), batch.n_labels
        sizes = np.diff(short.entry_bounds)
        self.real = np.arange(sizes.max()) < sizes[:, None]
        candidates = np.full(self.real.shape, n_labels)
        candidates[self.real] = short.rows
        true = sp.csr_matrix(
            (np.ones(len(batch.truth.nodes), np.float32), batch.truth.nodes, batch.truth.rows),
            shape=(batch.n_docs, n_labels + 1),
        )
        y = [np.isin(own, row.indices) for own, row in zip(candidates, true, strict=True)]
        weights = self.real / (batch.n_docs * sizes[:, None])
        self.candidates = torch.from_numpy(candidates)
        self.y, self.weights = (torch.from_numpy(np.asarray(each, np.float32)) for each in (y, weights))
        self.x = torch.from_numpy(batch.x).clone().requires_grad_()
        self.rows = torch.nn.Embedding(n_labels + 1, WIDTH, sparse=True)
        self.biases = torch.nn.Embedding(n_labels + 1, 1, sparse=True)
        with torch.no_grad():
            self.rows.weight[:-1] = torch.from_numpy(rows)
            self.rows.weight[-1] = 0
            self.biases.weight.zero_()
        self.optimizer = torch.optim.SparseAdam([self.rows.weight, self.biases.weight], lr=1e-3)

    def logits(self) -> Any:
        import torch

        scores = torch.bmm(self.rows(self.candidates), self.x[:, :, None])
        return (scores + self.biases(self.candidates)).squeeze(-1)

    def forward(self) -> Any:
        return self.logits().detach()

    def step(self) -> Any:
        import torch

        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
        cross_entropy(self.logits(), self.y, weight=self.weights, reduction="sum").backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        back, self.x.grad = self.x.grad, None
        return back


def measure_step(given: dict[str, Any]) -> dict[str, Any]:
    """Forward and step of every row, after a check that ours and the usual way compute the same."""
    import torch

    from xmcascade.kernels.parallel import thread_count

    torch.set_num_threads(thread_count())
    batch = Batch(given["labels"], given["clusters"], given["clusters"], given)
    rows: dict[str, Any] = {name: Ours(batch, *how) for name, how in OURS.items()}
    first = next(iter(rows.values()))
    usual = Usual(batch, first.head.rows)
    rows = {USUAL: usual, **rows}
    np.testing.assert_allclose(first.forward()[1], usual.forward().numpy()[usual.real], rtol=1e-4, atol=1e-4)
    back = first.step(hold=True)
    np.testing.assert_allclose(back, usual.step().numpy(), rtol=1e-3, atol=1e-4 * np.abs(back).max())
    parts: dict[str, dict[str, Any]] = {}
    for part in ("forward", "step"):
        parts[part] = alternated({name: getattr(row, part) for name, row in rows.items()}, given["rounds"])
    found: dict[str, Any] = {name: {part: parts[part][name] for part in parts} for name in rows}
    for row in found.values():
        row["faster"] = {part: times(found[USUAL][part], row[part]) for part in parts}
    return {**batch.numbers(), "rows": found}


def measure_scaling(given: dict[str, Any]) -> dict[str, Any]:
    """A step with few and with many labels, the same number of entries."""
    from xmcascade.neural import plan

    found: dict[str, Any] = {}
    for title in ("clusters drawn from all", "clusters drawn from as many"):
        works: dict[str, Callable[[], Any]] = {}
        numbers = {}
        for n_labels in given["labels"]:
            n_clusters = n_labels // given["block"]
            least = given["labels"][0] // given["block"]
            batch = Batch(n_labels, n_clusters, n_clusters if title.endswith("all") else least, given)
            how = {"optimizer": "adagrad", "precision": plan.precision(n_labels, WIDTH)[0]}
            works[f"{n_labels:,}"] = Ours(batch, how, ADAGRAD_RATE).step
            numbers[f"{n_labels:,}"] = {**batch.numbers(), **how}
        rows = alternated(works, given["rounds"])
        few, many = rows.values()
        found[title] = {
            "rows": {name: {**numbers[name], **rows[name]} for name in rows},
            "times": times(many, few),
        }
        del works  # the heads, before others are made
    return {"draws": found}


def measure_memory(given: dict[str, Any], precision: str, start: bool) -> dict[str, Any]:
    """Peak memory of this process after a fit of some steps."""
    from even import EvenCascade, random_corpus

    corpus = random_corpus(given["documents"], given["labels"], given["tokens"])
    batches = -(-corpus.n_docs // given["batch"])
    training = {"batch": given["batch"], "accumulate": 1, "epochs": given["steps"] / batches}
    plain = {} if start else {"init": "random", "training": {**training, "head_epochs": 0.0}}
    model = EvenCascade(precision=precision, **{"training": training, **plain})
    plans = memory_plans()
    model.fit(corpus)
    return {
        "labels": corpus.n_labels,
        "clusters": model._fitted().state.cascade.tree.sizes[:-1],
        "started_from": "documents" if start else "random rows",
        **plans[0],
        "peak_mb": peak_mb(),
    }


def shown_step(found: dict[str, Any]) -> dict[str, Any]:
    print(f"\nstep: {found['labels']:,} labels, {found['entries']:,} entries, {found['rows_touched']:,} rows")
    heads = ("forward ms", "CPU ms", "x faster", "step ms", "CPU ms", "x faster")
    print(" " * 26 + "".join(f"{head:>11}" for head in heads))
    for name, row in found["rows"].items():
        cells = ""
        for part in ("forward", "step"):
            numbers = (1000 * row[part]["seconds"], 1000 * row[part]["cpu_seconds"], row["faster"][part])
            cells += "".join(f"{number:11,.1f}" for number in numbers)
        print(f"{name:26}{cells}")
    faster = found["rows"]["ours, adagrad"]["faster"]
    return {
        "step": goal("step, times faster than the usual way", faster["step"], ">=", 30),
        "forward": goal("forward, times faster than the usual way", faster["forward"], ">=", 20),
    }


def shown_scaling(found: dict[str, Any]) -> dict[str, Any]:
    print(
        "\nscaling, ours, adagrad"
        + " " * 16
        + "".join(f"{h:>14}" for h in ("kept as", "entries", "rows", "step ms", "CPU ms"))
    )
    goals = {}
    for title, part in found["draws"].items():
        for name, row in part["rows"].items():
            numbers = f"{1000 * row['seconds']:14.1f}{1000 * row['cpu_seconds']:14.1f}"
            kept = f"{row['precision']:>14}{row['entries']:14,}{row['rows_touched']:14,}"
            print(f"{title:28}{name:>10}{kept}{numbers}")
        goals[title] = goal(f"many labels / few, {title}", part["times"], "<=", 1.5)
    return goals


def shown_memory(found: dict[str, Any]) -> dict[str, Any]:
    print("\nmemory" + " " * 32 + "".join(f"{h:>14}" for h in ("labels", "planned MB", "peak MB")))
    for name, row in found.items():
        print(f"{name:38}{row['labels']:14,}{row['planned_mb']:14,.0f}{row['peak_mb']:14,.0f}")
    bounds = {"float32": 6, "bfloat16": 4}
    return {
        name: goal(f"peak, GiB, {name}", row["peak_mb"] / 1024, "<=", bounds[name.split(",")[0]])
        for name, row in found.items()
    }


def work(given: argparse.Namespace) -> dict[str, Any]:
    """What a worker measures."""
    part, _, precision = given.worker.partition("-")
    sizes: dict[str, Any] = TINY if given.quick else {"step": STEP, "scaling": SCALING, "memory": MEMORY}
    if part == "memory":
        return measure_memory(sizes[part], precision, given.start)
    return {"step": measure_step, "scaling": measure_scaling}[part](sizes[part])


def memory(options: list[str]) -> dict[str, Any]:
    title = ", started from documents" if "--start" in options else ""
    return {
        f"{precision}{title}": run_worker(__file__, f"memory-{precision}", *options)
        for precision in ("float32", "bfloat16")
    }


def main() -> None:
    shown = {"step": shown_step, "scaling": shown_scaling, "memory": shown_memory}
    arguments = parser(__doc__ or "")
    arguments.add_argument("--parts", nargs="*", choices=list(shown), default=list(shown))
    arguments.add_argument("--start", action="store_true", help="memory: start heads as CascadeXML does")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps({**work(given), "date": today()}))
        return
    options = ["--quick"] * given.quick + ["--start"] * given.start
    results = saved("heads").get("results", {})
    goals = results.pop("goals", {})
    for part in given.parts:
        found = memory(options) if part == "memory" else run_worker(__file__, part, *options)
        goals[part] = {**goals.get(part, {}), **shown[part](found)}
        results[part] = {**results.get(part, {}), **found}
    if not given.quick:
        save("heads", {**results, "goals": goals}, ["numpy", "scipy", "numba", "torch", "transformers"])


if __name__ == "__main__":
    main()
