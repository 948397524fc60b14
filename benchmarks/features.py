"""tf-idf of eurlex57k: ours against scikit-learn's and PECOS's vectoriser, alternating, all cores.

    python benchmarks/features.py --data DATA

Every run is a process of its own that is given the texts as a list of strings and fits and transforms them
once, after a small warm-up. Settings: words, min_df 2, sublinear tf, smoothed idf, l2.
"""

from __future__ import annotations

import json
import lzma
import statistics
from pathlib import Path
from typing import Any

from common import data_folder, measured, parser, peer_python, run_worker, save

ROUNDS = 3


def texts_of(data: str) -> list[str]:
    with lzma.open(Path(data) / "eurlex57k" / "train.jsonl.xz") as lines:
        return [json.loads(line)["text"] for line in lines]


def ours(texts: list[str], longest: int) -> Any:
    from xmcascade import Tfidf

    return Tfidf(min_df=2, ngrams=(1, longest)).fit_transform(texts)


def scikit_learn(texts: list[str], longest: int) -> Any:
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(min_df=2, ngram_range=(1, longest), sublinear_tf=True, dtype=np.float32)
    return vectoriser.fit_transform(texts)


def pecos(texts: list[str], longest: int) -> Any:
    from pecos.utils.featurization.text.vectorizers import Tfidf

    options = {
        "ngram_range": [1, longest],
        "min_df_cnt": 2,
        "max_df_ratio": 1.0,
        "analyzer": "word",
        "sublinear_tf": True,
    }
    vectoriser = Tfidf.train(texts, options)
    return vectoriser.predict(texts)


WORKERS = {"ours": ours, "scikit-learn": scikit_learn, "pecos": pecos}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--longest", type=int, default=1, help="longest n-gram (of a worker)")
    given = arguments.parse_args()
    if given.worker:
        texts = texts_of(given.data)
        WORKERS[given.worker](texts[:300], given.longest)
        matrix, numbers = measured(lambda: WORKERS[given.worker](texts, given.longest))
        print(json.dumps({**numbers, "features": matrix.shape[1], "nonzeros": int(matrix.nnz)}))
        return
    data = data_folder(given)
    results: dict[str, Any] = {}
    for longest in (1, 2):
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WORKERS}
        for _ in range(ROUNDS):
            for name in WORKERS:
                python = peer_python("pecos") if name == "pecos" else None
                options = ("--data", str(data), "--longest", str(longest))
                runs[name].append(run_worker(__file__, name, *options, python=python))
        title = "words" if longest == 1 else "words and bigrams"
        results[title] = {name: summary(found, runs["ours"]) for name, found in runs.items()}
        print(f"\neurlex57k, 45,000 documents, {title} (median of {ROUNDS}, alternating)")
        print(f"{'':14}{'seconds':>9}{'CPU s':>9}{'x ours':>8}{'peak MB':>9}{'features':>10}{'nonzeros':>12}")
        for name, row in results[title].items():
            numbers = (
                f"{row['seconds']:9.2f}{row['cpu_seconds']:9.2f}{row['times_ours']:8.2f}{row['peak_mb']:9.0f}"
            )
            print(f"{name:14}{numbers}{row['features']:10,}{row['nonzeros']:12,}")
    save("features", results, ["numpy", "scipy", "numba", "scikit-learn"])


def summary(runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, Any]:
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    ratios = [run["seconds"] / other["seconds"] for run, other in zip(runs, base, strict=True)]
    return {
        **middle,
        "times_ours": statistics.median(ratios),
        "all_seconds": [run["seconds"] for run in runs],
    }


if __name__ == "__main__":
    main()
