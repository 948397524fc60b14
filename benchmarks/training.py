"""A training step of CascadeXML: what it takes beside the encoder, and what batches of like length gain.

    python benchmarks/training.py --data DATA
    python benchmarks/training.py --data DATA --quick   # a trial on a few documents; nothing is saved

gutenberg-lcsh, default settings but for rows that start at random (to start them otherwise takes minutes, and
a step as long); the run is that of fit, stopped after its first steps.

step: 60 steps after 5 to warm up, from the end of one step to the end of the next, so that choosing documents
and padding count. The encoder's own work is its forward pass with pooling and the backward pass through both.
The rest is everything else: tokens, heads, targets, shortlists, and the update of the encoder's weights
(clipping, AdamW), which is also shown apart: shares with it in the rest and without.

bucketing: forward and backward of the encoder alone, on the batches of an epoch (documents of like length,
padded to their longest) and on the same documents padded to max_tokens; batch by batch, alternating.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from common import data_folder, goal, parser, run_worker, save

CORPUS = "gutenberg-lcsh"
MAX_TOKENS = 128  # what CascadeXML cuts texts to
WARM_UP, STEPS, BATCHES = 5, 60, 40
QUICK_DOCS, QUICK_STEPS = 300, 4
PARTS = {
    # part of a step: is it the encoder's own
    "encoder forward": True,
    "encoder backward": True,
    "encoder update": False,
    "heads forward": False,
    "heads backward": False,
    "padding": False,
}


class Enough(Exception):
    """All steps are done that are wanted."""


class Clock:
    """Seconds and CPU seconds by part, of calls that are not inside one another."""

    def __init__(self) -> None:
        self.now = dict.fromkeys(PARTS, (0.0, 0.0))
        self.steps: list[dict[str, tuple[float, float]]] = []
        self.last = read()

    def timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            start = read()
            found = work(*args, **kwargs)
            self.now[part] = added(self.now[part], start, read())
            return found

        return wrapped

    def step_done(self) -> None:
        end = read()
        self.steps.append({**self.now, "step": added((0.0, 0.0), self.last, end)})
        self.now = dict.fromkeys(PARTS, (0.0, 0.0))
        self.last = end


def read() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def added(total: Any, start: Any, end: Any) -> tuple[float, float]:
    return total[0] + end[0] - start[0], total[1] + end[1] - start[1]


def watched(n_steps: int, n_batches: int, found: dict[str, Any]) -> type:
    """Training that stops after some steps, and leaves in `found` what they took."""
    from xmcascade.neural import CascadeTraining

    class Watched(CascadeTraining):
        def run(self, *args: Any) -> Any:
            try:
                super().run(*args)
            except Enough:
                found["steps"] = self.clock.steps[WARM_UP:]
                found["arithmetic"] = self.reader.arithmetic
                found["bucketing"] = measure_bucketing(self, n_batches)
            raise Enough  # nothing of this model is wanted

        def _step(self, parts: Any) -> None:
            if not self.at.step:
                self.watch()
            super()._step(parts)
            self.clock.step_done()
            if self.at.step == WARM_UP + n_steps:
                raise Enough

        def watch(self) -> None:
            clock = self.clock = Clock()
            encoder, reader, cascade = self.reader.encoder, self.reader, self.cascade
            encoder.features = clock.timed("encoder forward", encoder.features)
            self._backward = clock.timed("encoder backward", self._backward)
            self.optimizer.step = clock.timed("encoder update", self.optimizer.step)
            cascade.forward = clock.timed("heads forward", cascade.forward)
            cascade.backward = clock.timed("heads backward", cascade.backward)
            reader.tensors = clock.timed("padding", reader.tensors)

    return Watched


def measure_bucketing(training: Any, n_batches: int) -> dict[str, Any]:
    """Documents a second through the encoder, batches padded to their longest and to max_tokens."""
    import torch

    from xmcascade.neural import batches

    reader, tokens, docs = training.reader, training.tokens, training.docs

    def own(ids: Any, real: Any) -> tuple[Any, Any]:
        return ids, real

    def widened(ids: Any, real: Any) -> tuple[Any, Any]:
        missing = (0, MAX_TOKENS - ids.shape[1])
        pad = torch.nn.functional.pad
        return pad(ids, missing, value=reader.encoder.pad), pad(real, missing, value=False)

    ways = {"to their longest": own, "to max_tokens": widened}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    n_docs = n_tokens = 0
    reader.encoder.model.train()
    drawn = batches(tokens.lengths[docs], training.settings.batch, training.seed, 0)
    for number, batch in enumerate(islice(drawn, WARM_UP + n_batches)):
        for name, way in ways.items():
            inputs = way(*reader.tensors(tokens, docs[batch]))
            start = read()
            with torch.autocast("cpu", torch.bfloat16, enabled=reader.arithmetic == "bfloat16"):
                xs = reader.encoder.features(*inputs, reader.reads, reader.pooling)
            torch.autograd.backward(xs, [torch.ones_like(x) for x in xs])
            if number >= WARM_UP:
                seconds[name].append(added((0.0, 0.0), start, read()))
            reader.encoder.model.zero_grad(set_to_none=True)
        if number >= WARM_UP:
            n_docs, n_tokens = n_docs + len(batch), n_tokens + int(tokens.lengths[docs[batch]].sum())
    rows = {}
    for name, runs in seconds.items():
        wall, cpu = np.array(runs).sum(axis=0).tolist()
        rows[name] = {"seconds": wall, "cpu_seconds": cpu, "documents_per_second": n_docs / wall}
    gains = [b[0] / a[0] for a, b in zip(*seconds.values(), strict=True)]
    return {
        "documents": n_docs,
        "mean_tokens": n_tokens / n_docs,
        "longest": int(tokens.lengths.max()),
        "max_tokens": MAX_TOKENS,
        "rows": rows,
        "gain": rows["to max_tokens"]["seconds"] / rows["to their longest"]["seconds"],
        "median_gain_of_a_batch": statistics.median(gains),
    }


def summed(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of a step by part, and the shares that are not the encoder's."""
    names = [*PARTS, "step"]
    means = {name: np.mean([step[name] for step in steps], axis=0).tolist() for name in names}
    encoder = [sum(step[name][0] for name in PARTS if PARTS[name]) for step in steps]
    whole = [step["step"][0] for step in steps]
    update = [step["encoder update"][0] for step in steps]
    rest = [a - b for a, b in zip(whole, encoder, strict=True)]
    means["other"] = [means["step"][i] - sum(means[name][i] for name in PARTS) for i in range(2)]
    means["step"] = means.pop("step")  # last
    return {
        "steps": len(steps),
        "parts": {name: {"seconds": wall, "cpu_seconds": cpu} for name, (wall, cpu) in means.items()},
        "rest": sum(rest) / sum(whole),
        "rest_without_update": (sum(rest) - sum(update)) / sum(whole),
        "median_rest": statistics.median(a / b for a, b in zip(rest, whole, strict=True)),
    }


def work(data: Any, quick: bool) -> dict[str, Any]:
    """One fit, stopped after its first steps."""
    from xmcascade import CascadeXML, read_corpus
    from xmcascade.models import cascadexml

    corpus = read_corpus(data / CORPUS / "train.jsonl.xz", on_error="skip")
    if quick:
        corpus = corpus.take(np.arange(QUICK_DOCS))
    model, found = CascadeXML(init="random", training={"head_epochs": 0.0}), {}
    n_steps, n_batches = (QUICK_STEPS, 3) if quick else (STEPS, BATCHES)
    cascadexml.CascadeTraining = watched(n_steps, n_batches, found)
    try:
        model.fit(corpus)
    except Enough:
        return {
            "documents": corpus.n_docs,
            "labels": corpus.n_labels,
            "batch": model.settings.training.batch,
            "arithmetic": found["arithmetic"],
            "step": summed(found["steps"]),
            "bucketing": found["bucketing"],
        }
    raise RuntimeError("the training is shorter than the steps to be measured")


def shown(found: dict[str, Any]) -> dict[str, Any]:
    step, bucketing = found["step"], found["bucketing"]
    sizes = f"{found['documents']:,} documents, {found['labels']:,} labels, {found['arithmetic']}"
    print(f"\n{CORPUS}: {sizes}; means of {step['steps']} steps of {found['batch']} documents")
    print(f"{'':20}{'ms':>10}{'CPU ms':>10}{'share':>9}")
    whole = step["parts"]["step"]["seconds"]
    for name, part in step["parts"].items():
        numbers = f"{1000 * part['seconds']:10.1f}{1000 * part['cpu_seconds']:10.1f}"
        print(f"{name:20}{numbers}{part['seconds'] / whole:9.1%}")
    sizes = f"{bucketing['mean_tokens']:.1f} tokens a document, at most {bucketing['longest']}"
    print(f"\nencoder forward and backward, {bucketing['documents']:,} documents; {sizes}")
    for name, row in bucketing["rows"].items():
        times = f"{row['seconds']:8.1f} s {row['cpu_seconds']:8.1f} CPU s"
        print(f"padded {name:20}{row['documents_per_second']:8.1f} documents/s {times}")
    print()
    return {
        "rest": goal("percent of a step beside the encoder, its update in it", 100 * step["rest"], "<=", 15),
        "rest_without_update": goal(
            "percent of a step beside the encoder and its update", 100 * step["rest_without_update"], "<=", 15
        ),
        "bucketing": goal("like lengths, times faster", bucketing["gain"], ">=", 2),
    }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    data = data_folder(given)
    if given.worker:
        print(json.dumps(work(data, given.quick)))
        return
    found = run_worker(__file__, "training", "--data", str(data), *["--quick"] * given.quick)
    goals = shown(found)
    if not given.quick:
        packages = ["numpy", "scipy", "numba", "torch", "transformers", "tokenizers"]
        save("training", {**found, "goals": goals}, packages)


if __name__ == "__main__":
    main()
