"""One document: a whole prediction of CascadeXML against the bare encoder's forward pass, and by runtime.

    python benchmarks/latency.py --data FOLDER [--model FOLDER]
    python benchmarks/latency.py --quick   # a trial with few labels and calls; nothing is saved

A text of 32 tokens, MiniLM, random heads (even clusters; levels, shortlists and precision as fit derives
them), 40,000 and 3,000,000 labels, scores of all levels counted, the 5 best labels asked for. Three works,
alternating, 200 calls each, all cores: the whole `predict` of a text; the same from token ids; the bare
encoder on the same ids, as transformers has it, without its pooler (torch, inference mode, the same threads).
An unmeasured pass of the bare encoder goes before each call: every one finds the caches as it leaves them.

The runtimes torch, onnx and onnx-int8 predict the same text, of 40,000 labels, alternating too; a pause goes
before each call, in which the threads of the others come to rest. How often their 5 best labels are those of
torch is counted on 2,000 test documents of Tate subjects, with a model that was trained on the others
(--model, a model folder; by default the one that accuracy.py leaves).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import WORK, alternated, data_folder, goal, parser, run_worker, save, times

SIZES = {40_000: 1.10, 3_000_000: 1.20}  # labels: the goal, in times the bare encoder
QUICK = {3_000: 1.10, 20_000: 1.20}
N_TOKENS, K = 32, 5
CALLS, QUICK_CALLS = (200, 20), (5, 1)  # measured, and before to warm up
BARE, TOKENS, WHOLE = "bare encoder", "from tokens", "predict"
RUNTIMES, PAUSE = ("torch", "onnx", "onnx-int8"), 0.02  # seconds
CORPUS, TRAINED, N_DOCS = "tate-subjects", WORK / "accuracy" / "tate-subjects-test", 2000
FASTER, IDENTICAL = 1.2, 99.5  # goals of onnx: times torch's speed, and % of documents


def work(n_labels: int, calls: int, warm_up: int) -> dict[str, Any]:
    """Latencies with so many labels."""
    import torch

    from even import EvenCascade, random_corpus, words
    from xmcascade.kernels.parallel import thread_count
    from xmcascade.neural import TokenStore, padded, pretrained, torch_threads

    model = EvenCascade(init="random", score="path", training={"epochs": 0.0, "head_epochs": 0.0})
    model.fit(random_corpus(8, n_labels, N_TOKENS))
    learnt = model._fitted()
    state = learnt.state
    encoder = state.text.reader.encoder
    torch.set_num_threads(thread_count())  # as predict does
    text = words(N_TOKENS, np.random.default_rng(1))
    tokens = TokenStore.of([text], encoder.tokenizer, state.text.max_tokens)
    ids = torch.from_numpy(padded(tokens, [0], encoder.pad)[0])
    assert ids.shape == (1, N_TOKENS)
    alone = pretrained.load(pretrained.EMBEDDED)[0].eval()
    alone.pooler = None

    def bare() -> Any:
        with torch.inference_mode():
            return alone(input_ids=ids)

    def from_tokens() -> list[str]:
        with torch_threads(thread_count()):
            xs = state.text.reader.encode(tokens)
        labels, _ = state.cascade.find(xs, state.powers, K)
        return [learnt.label_names[label] for label in labels[0].tolist()]

    def whole() -> list[str]:
        return [found.label for found in model.predict([text], k=K)[0]]

    assert whole() == from_tokens()
    works = {BARE: bare, TOKENS: from_tokens, WHOLE: whole}
    rows = alternated(works, calls, warm_up, before=bare)
    ratios = {name: times(row, rows[BARE]) for name, row in rows.items()}
    for name, row in rows.items():
        every = row.pop("all_seconds")
        row |= {"p95_seconds": float(np.percentile(every, 95)), "times_bare": ratios[name]}
    precision = model.derived["precision"]["value"]
    return {"labels": n_labels, "threads": thread_count(), "precision": precision, "rows": rows}


def runtimes(n_labels: int, calls: int, warm_up: int) -> dict[str, Any]:
    """Latencies of the runtimes with so many labels."""
    from even import EvenCascade, random_corpus, words
    from xmcascade import load
    from xmcascade.kernels.parallel import thread_count
    from xmcascade.neural import quantised, written

    model = EvenCascade(init="random", score="path", training={"epochs": 0.0, "head_epochs": 0.0})
    model.fit(random_corpus(8, n_labels, N_TOKENS))
    own = model._fitted().state.text
    graph = written(own.reader, own.max_tokens)
    graphs = {"onnx": graph, "onnx-int8": quantised(graph)}  # whatever random heads make of rounded features
    own.graphs = {name: np.frombuffer(raw, np.uint8) for name, raw in graphs.items()}
    own.fastest = list(RUNTIMES)
    text = words(N_TOKENS, np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        models = {name: load(folder, runtime=name) for name in RUNTIMES}
    works = {name: lambda model=model: model.predict([text], k=K) for name, model in models.items()}
    rows = alternated(works, calls, warm_up, before=lambda: time.sleep(PAUSE))
    for row in rows.values():
        every = row.pop("all_seconds")
        row["p95_seconds"] = float(np.percentile(every, 95))
        row["times_faster"] = rows["torch"]["seconds"] / row["seconds"]
    sizes = {name: len(raw) for name, raw in graphs.items()}
    return {"labels": n_labels, "threads": thread_count(), "bytes": sizes, "rows": rows}


def agreement(folder: str, data: str, n_docs: int) -> dict[str, Any]:
    """How often a trained model's 5 best labels are the same in each runtime, in %, and how many of them."""
    from xmcascade import load, read_corpus
    from xmcascade.errors import XmcError
    from xmcascade.models import export_runtime

    corpus = read_corpus(Path(data, CORPUS, "test.jsonl.xz"), empty_text="keep")
    corpus, found = corpus.take(np.arange(min(n_docs, corpus.n_docs))), {}
    model = load(folder, runtime="torch")
    for name in RUNTIMES[1:]:
        try:
            report = export_runtime(model, name, corpus)
            found[name] = {"identical": 100 * report.identical, "agreement": 100 * report.agreement}
        except XmcError as error:
            found[name] = {"refused": str(error)}
    return {"documents": corpus.n_docs, "model": model.name, "labels": model.n_labels, **found}


def show_runtimes(results: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """Measure them and print; what to save of the goals."""
    quick = ["--quick"] * given.quick
    found = results["runtimes"] = run_worker(__file__, "runtimes", *quick)
    print(f"\n{found['labels']:,} labels, by runtime")
    print(f"{'':14}{'median ms':>10}{'p95 ms':>10}{'CPU ms':>10}{'faster':>8}")
    for name, row in found["rows"].items():
        numbers = (row["seconds"], row["p95_seconds"], row["cpu_seconds"])
        print(f"{name:14}" + "".join(f"{1000 * n:10.2f}" for n in numbers) + f"{row['times_faster']:8.2f}")
    faster = found["rows"]["onnx"]["times_faster"]
    goals = {"onnx, times faster": goal("onnx, times faster than torch", faster, ">=", FASTER)}
    if not Path(given.model).is_dir():
        print(f"there is no model in {given.model}: agreement is not counted")
        return goals
    where = ["--model", given.model, "--data", str(data_folder(given))]
    found = results["agreement"] = run_worker(__file__, "agreement", *where, *quick)
    print(f"\n{found['documents']:,} documents, {found['model']}, {found['labels']:,} labels")
    for name in RUNTIMES[1:]:
        said = [f"{what} {value:.2f}%" if what != "refused" else value for what, value in found[name].items()]
        print(f"{name:14}{', '.join(said)}")
    same = found["onnx"].get("identical", 0.0)
    return {**goals, "onnx, identical": goal("onnx, % of documents as torch", same, ">=", IDENTICAL)}


def worker(given: argparse.Namespace) -> dict[str, Any]:
    calls = QUICK_CALLS if given.quick else CALLS
    if given.worker == "runtimes":
        return runtimes(min(QUICK if given.quick else SIZES), *calls)
    if given.worker == "agreement":
        return agreement(given.model, given.data, N_DOCS // 20 if given.quick else N_DOCS)
    return work(int(given.worker), *calls)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    arguments.add_argument("--model", default=str(TRAINED), help="a model of Tate subjects")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps(worker(given)))
        return
    results: dict[str, Any] = {}
    goals = show_runtimes(results, given)
    for n_labels, bound in (QUICK if given.quick else SIZES).items():
        found = results[f"{n_labels:,}"] = run_worker(__file__, str(n_labels), *["--quick"] * given.quick)
        threads = f"{found['threads']} thread{'s' * (found['threads'] > 1)}"
        print(f"\n{n_labels:,} labels, {found['precision']}, {threads}")
        print(f"{'':14}{'median ms':>10}{'p95 ms':>10}{'CPU ms':>10}{'x bare':>8}")
        for name, row in found["rows"].items():
            numbers = (row["seconds"], row["p95_seconds"], row["cpu_seconds"])
            print(f"{name:14}" + "".join(f"{1000 * n:10.2f}" for n in numbers) + f"{row['times_bare']:8.3f}")
        for name in (WHOLE, TOKENS):
            title = f"{n_labels:,} labels, {name}"
            goals[title] = goal(
                f"{title}, times the bare encoder", found["rows"][name]["times_bare"], "<=", bound
            )
    if not given.quick:
        packages = ["numpy", "numba", "torch", "transformers", "tokenizers", "onnx", "onnxruntime"]
        save("latency", {**results, "goals": goals}, packages)


if __name__ == "__main__":
    main()
