"""One document: a whole prediction of CascadeXML against the bare encoder's forward pass.

    python benchmarks/latency.py
    python benchmarks/latency.py --quick   # a trial with few labels and calls; nothing is saved

A text of 32 tokens, MiniLM, random heads (even clusters; levels, shortlists and precision as fit derives
them), 40,000 and 3,000,000 labels, scores of all levels counted, the 5 best labels asked for. Three works,
alternating, 200 calls each, all cores: the whole `predict` of a text; the same from token ids; the bare
encoder on the same ids, as transformers has it, without its pooler (torch, inference mode, the same threads).
An unmeasured pass of the bare encoder goes before each call: every one finds the caches as it leaves them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from common import alternated, goal, parser, run_worker, save, times

SIZES = {40_000: 1.10, 3_000_000: 1.20}  # labels: the goal, in times the bare encoder
QUICK = {3_000: 1.10, 20_000: 1.20}
N_TOKENS, K = 32, 5
CALLS, QUICK_CALLS = (200, 20), (5, 1)  # measured, and before to warm up
BARE, TOKENS, WHOLE = "bare encoder", "from tokens", "predict"


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


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps(work(int(given.worker), *(QUICK_CALLS if given.quick else CALLS))))
        return
    results: dict[str, Any] = {}
    goals = {}
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
        save(
            "latency", {**results, "goals": goals}, ["numpy", "numba", "torch", "transformers", "tokenizers"]
        )


if __name__ == "__main__":
    main()
