"""NearestNeighbours on the shared corpora: test P@k and PSP@k with 95% intervals, time and memory.

    python benchmarks/nearest.py --data DATA

Default settings. The two bag-of-words corpora are split at blanks, take no bigrams and keep common words:
their words are a chosen few hundred, in alphabetical order. Empty training texts are left out; every test
document with a label counts, and labels never seen in training count as missed.
"""

from __future__ import annotations

import json
from typing import Any

from common import data_folder, measured, parser, run_worker, save

BAG_OF_WORDS = {"features": {"tokens": "whitespace", "ngrams": [1, 1], "max_df": 1.0}}
CORPORA: dict[str, dict[str, Any]] = {
    "eurlex57k": {},
    "gutenberg-lcsh": {},
    "tate-subjects": {},
    "bibtex-bow": BAG_OF_WORDS,
    "delicious-bow": BAG_OF_WORDS,
}
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def main() -> None:
    given = parser(__doc__ or "").parse_args()
    data = data_folder(given)
    if given.worker:
        from xmcascade import NearestNeighbours, read_corpus

        train = read_corpus(data / given.worker / "train.jsonl.xz", on_error="skip")
        test = read_corpus(data / given.worker / "test.jsonl.xz", empty_text="keep")
        model, training = measured(
            lambda: NearestNeighbours(**CORPORA[given.worker], calibrate=False).fit(train)
        )
        evaluation, testing = measured(lambda: model.evaluate(test))
        sizes = {"train_documents": train.n_docs, "labels": train.n_labels}
        print(
            json.dumps(
                {**evaluation.to_dict(), **sizes, "derived": model.derived, "fit": training, "test": testing}
            )
        )
        return
    results = {}
    print(
        f"{'':16}"
        + "".join(f"{name:>22}" for name in SHOWN[:3])
        + "".join(f"{name:>8}" for name in SHOWN[3:])
    )
    for name in CORPORA:
        row = results[name] = run_worker(__file__, name, "--data", str(data))
        cells = "".join(
            f"{row[m]:9.2f} ({row['intervals'][m][0]:.1f}-{row['intervals'][m][1]:.1f})" for m in SHOWN[:3]
        )
        times = f"  fit {row['fit']['seconds']:.1f} s, test {row['test']['seconds']:.1f} s"
        print(f"{name:16}{cells}" + "".join(f"{row[m]:8.2f}" for m in SHOWN[3:]) + times, flush=True)
    save("nearest", results, ["numpy", "scipy", "numba"])


if __name__ == "__main__":
    main()
