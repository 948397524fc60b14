"""Reading 1,000,000 synthetic short documents: speed and peak memory, by format.

    python benchmarks/corpus.py

The files are generated once (about 25 words a document). Each is read in a process of its own; peak memory
is given as a whole, and as a multiple of the text's size, with and without what Python and the imports take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import WORK, measured, parser, peak_mb, run_worker, save

N_DOCS, N_LABELS, WORDS = 1_000_000, 100_000, 25


def files() -> dict[str, Path]:
    """The same corpus in four formats, written on first use."""
    folder = WORK / "corpus-1m"
    paths = {
        "jsonl": folder / "a.jsonl",
        "csv": folder / "a.csv",
        "fasttext": folder / "a.ft",
        "parquet": folder / "a.parquet",
    }
    if all(path.exists() for path in paths.values()):
        return paths
    import csv

    from xmcascade import make_synthetic, write_corpus

    folder.mkdir(parents=True, exist_ok=True)
    print("generating the documents", flush=True)
    corpus = make_synthetic(N_DOCS, N_LABELS, words_per_doc=WORDS)
    assert corpus.texts is not None
    write_corpus(corpus, paths["jsonl"])
    write_corpus(corpus, paths["parquet"])
    with paths["csv"].open("w", newline="") as plain, paths["fasttext"].open("w") as marked:
        rows = csv.writer(plain)
        rows.writerow(["text", "labels"])
        for doc, text in enumerate(corpus.texts):
            labels = corpus.label_set(doc)
            rows.writerow([text, ";".join(labels)])
            marked.write(" ".join([*(f"__label__{label}" for label in labels), text]) + "\n")
    return paths


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--file", help="file to read (of a worker)")
    given = arguments.parse_args()
    if given.worker:
        from xmcascade import read_corpus

        before = peak_mb()
        corpus, numbers = measured(lambda: read_corpus(given.file))
        text_mb = corpus.texts.n_bytes / 2**20
        found = {**numbers, "documents": corpus.n_docs, "labels": corpus.n_labels, "text_mb": text_mb}
        found["documents_per_second"] = corpus.n_docs / numbers["seconds"]
        found["peak_over_text"] = numbers["peak_mb"] / text_mb
        found["growth_over_text"] = (numbers["peak_mb"] - before) / text_mb
        print(json.dumps(found))
        return
    results: dict[str, Any] = {}
    titles = ("seconds", "docs/s", "file MB", "text MB", "peak MB", "peak/text", "growth/text")
    print(" " * 10 + "".join(f"{title:>12}" for title in titles))
    for name, path in files().items():
        row = run_worker(__file__, "read", "--file", str(path))
        row["file_mb"] = path.stat().st_size / 2**20
        results[name] = row
        numbers = (
            row["seconds"],
            row["documents_per_second"],
            row["file_mb"],
            row["text_mb"],
            row["peak_mb"],
        )
        ratios = (row["peak_over_text"], row["growth_over_text"])
        print(f"{name:10}" + "".join(f"{n:12,.1f}" for n in numbers) + "".join(f"{r:12.2f}" for r in ratios))
    save("corpus", results, ["numpy", "pyarrow"])


if __name__ == "__main__":
    main()
