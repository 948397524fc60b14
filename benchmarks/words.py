"""What linear rows should read of short and of long documents: words or pairs too, and how firmly they learn.

    python benchmarks/words.py --data DATA
    python benchmarks/words.py --report           # measures nothing

XR-Linear on a part of the training documents, evaluated on the other 8% (near-duplicates stay together); the
test documents are never read. What is found here is what `cascadexml-tfidf` derives for its rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from common import data_folder, measured, parser, run_worker, save, saved, today

CORPORA = ["gutenberg-lcsh", "tate-subjects", "eurlex57k"]
HELD_SHARE = 0.08
PAIRS, FIRMER = {"ngrams": (1, 2), "min_df": 5}, {"cost": 4.0, "threshold": 0.05}
VARIANTS: dict[str, dict[str, Any]] = {
    "words": {},
    "words, firmer": {"linear": FIRMER},
    "pairs": {"features": PAIRS},
    "pairs, firmer": {"features": PAIRS, "linear": FIRMER},
}
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
PACKAGES = ["numpy", "scipy", "numba"]


def work(given: argparse.Namespace) -> dict[str, Any]:
    """All variants on one corpus."""
    from xmcascade import XRLinear, read_corpus

    train = read_corpus(Path(given.data, given.worker, "train.jsonl.xz"), on_error="skip")
    assert train.texts is not None
    held, rows = train.split_mask(HELD_SHARE, seed=0), {}
    for name, how in VARIANTS.items():
        model = XRLinear(calibrate=False, **how)
        _, fitting = measured(lambda model=model: model.fit(train.take(~held)))
        rows[name] = {**model.evaluate(train.take(held)).to_dict(), "train": fitting, "date": today()}
    return {"bytes": train.texts.n_bytes / train.n_docs, "rows": rows}


def report(results: dict[str, Any]) -> None:
    """The tables."""
    for corpus, own in results.items():
        print(f"\n{corpus}: {own['bytes']:,.0f} bytes in a document; held-out documents")
        print(f"{'':16}" + "".join(f"{name:>8}" for name in SHOWN) + f"{'CPU s':>8}")
        for name, row in own["rows"].items():
            cells = "".join(f"{row[key]:8.2f}" for key in SHOWN)
            print(f"{name:16}{cells}{row['train']['cpu_seconds']:8.0f}")


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps(work(given)))
        return
    results = saved("words").get("results", {})
    if not given.report:
        data = str(data_folder(given))
        results = {corpus: run_worker(__file__, corpus, "--data", data) for corpus in CORPORA}
        save("words", results, PACKAGES)
    report(results)


if __name__ == "__main__":
    main()
