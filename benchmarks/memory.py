"""Bytes that a label takes in models with linear rows on tf-idf, and what that is for Amazon-3M.

    python benchmarks/memory.py --data DATA     # asks the models that benchmarks/accuracy.py saved; seconds

Published (CascadeXML, appendix A.3): 116 GB for such rows with DiSMEC, 470 GB with XR-Linear on Amazon-3M.
Here a label's weights are pruned as it finishes, so what grows with the labels is what is kept of them. The
plan is for its 2,812,281 labels and 1,717,899 documents, at 100 words each (that number is assumed).
"""

from __future__ import annotations

from typing import Any

from common import WORK, parser, save

LABELS, DOCUMENTS, WORDS = 2_812_281, 1_717_899, 100  # of Amazon-3M
WIDTH = 384  # of MiniLM
OPENED = 96  # clusters a document, as in the preset
CORPORA = ["gutenberg-lcsh", "tate-subjects", "eurlex57k"]


def asked(corpus: str) -> dict[str, Any]:
    """Bytes a label of one model."""
    from xmcascade.store import load_folder

    manifest, arrays, _ = load_folder(WORK / "accuracy" / f"{corpus}-test", verify=False)
    n_labels = manifest.n_labels
    rows = {name: array.nbytes for name, array in arrays.items() if name.startswith("linear.")}
    of_words = sum(rows[f"linear.{name}"] for name in ("row_features", "row_ends", "children", "weights"))
    heads = sum(array.nbytes for name, array in arrays.items() if name.startswith("head."))
    return {
        "labels": n_labels,
        "weights a label": len(arrays["linear.weights"]) / n_labels,
        "linear bytes a label": of_words / n_labels,
        "head bytes a label": heads / n_labels,
    }


def main() -> None:
    parser(__doc__ or "").parse_args()
    results: dict[str, Any] = {}
    for corpus in CORPORA:
        if not (WORK / "accuracy" / f"{corpus}-test").exists():
            print(f"{corpus}: no model was saved; run benchmarks/accuracy.py first")
            continue
        row = results[corpus] = asked(corpus)
        parts = {
            "linear rows": LABELS * row["linear bytes a label"],
            "labels' head, bfloat16": LABELS * (2 * WIDTH + 8),
            "tf-idf": DOCUMENTS * WORDS * 8,
            "opened clusters": 2 * DOCUMENTS * OPENED * 5,  # by document, then by cluster
        }
        row["Amazon-3M, GiB"] = {name: n_bytes / 2**30 for name, n_bytes in parts.items()}
        plan = row["Amazon-3M, GiB"]
        told = ", ".join(f"{name} {value:,.1f}" for name, value in row.items() if value is not plan)
        print(f"{corpus}: {told}")
        told = ", ".join(f"{name} {value:.1f}" for name, value in plan.items())
        print(f"  with so many weights a label, Amazon-3M: {sum(plan.values()):.1f} GiB ({told})")
    save("memory", results, ["numpy", "scipy", "numba"])


if __name__ == "__main__":
    main()
