"""The linear family against its peers: quality, training, prediction, memory, size; same tf-idf, same beam.

    python benchmarks/linear.py --data DATA
    python benchmarks/linear.py --data DATA --corpora eurlex57k --runs parabel omikuji  # renews these rows
    python benchmarks/linear.py --report                                                # measures nothing

Features are ours (words, min_df 2, sublinear; the bag-of-words corpora split at blanks). Each run is a
process of its own (xmcascade.report.compare) that reads its input, trains, saves and loads a model, predicts
the test documents in one batch, and then one document at a time. CPU seconds are of all threads; training
includes saving and loading, but no imports and no preparation of input. omikuji's binding has no batch call:
it gets document by document. Every test document with a label counts; labels never seen in training count as
missed.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import ENVIRONMENTS, WORK, data_folder, parser, save, saved

# As each is compared; a peer follows ours, so that both meet the same machine, and both only learn to rank.
RUNS = {
    "xr-linear": "xr-linear calibrate=false",
    "pecos": "peer:pecos-xrlinear",
    "parabel": "parabel calibrate=false",
    "omikuji": "peer:omikuji-parabel",
    "bonsai": "bonsai calibrate=false",
    "omikuji-bonsai": "peer:omikuji-bonsai",
    "dismec": "dismec calibrate=false",
    "linear-svc": "peer:sklearn-linearsvc",
    "napkinxc": "peer:napkinxc-plt",
}
ALL, QUICK = list(RUNS), ["xr-linear", "pecos"]
CORPORA = {  # the other runs take many minutes on the larger corpora: ask for them with --runs
    "bibtex-bow": ALL,
    "delicious-bow": ALL,
    "tate-subjects": ALL,
    "gutenberg-lcsh": QUICK,
    "eurlex57k": QUICK,
    "reverse-dictionary": QUICK,
    "synthetic-100000": QUICK,
}
SINGLES = 300
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
NUMBERS: dict[str, Callable[[dict[str, Any]], float]] = {
    "train CPU s": lambda row: float(row["train"]["cpu_seconds"]),
    "wall s": lambda row: float(row["train"]["seconds"]),
    "docs/CPU s": lambda row: float(row["documents_per_cpu_second"]),
    "single ms": lambda row: float(row["single_ms"]),
    "model MB": lambda row: float(row["model_mb"]),
    "peak MB": lambda row: float(row["peak_mb"]),
}
SLACK = 0.2  # points of P@k and PSP@k that ours may stay below the peer's
LIGHTER = {"peak MB": ("<=", 1.0), "model MB": ("<=", 1.0)}
CLAIMS: dict[tuple[str, str], dict[str, tuple[str, float]]] = {
    # ours, peer: bounds of ours / peer's. Quality is claimed of every pair.
    ("xr-linear", "pecos"): {
        "train CPU s": ("<=", 0.8),
        "docs/CPU s": (">=", 1.0),
        "single ms": ("<=", 1.0),
        **LIGHTER,
    },
    ("parabel", "omikuji"): {"train CPU s": ("<=", 1.0), **LIGHTER},
    ("bonsai", "omikuji-bonsai"): {"train CPU s": ("<=", 1.0), **LIGHTER},
    ("dismec", "linear-svc"): {},
}
# With the repository's own features, not our tf-idf: to see that nothing in the chain is broken.
PUBLISHED: dict[str, dict[str, Any]] = {
    "bibtex-bow": {
        "parabel": ("Parabel", (64.53, 38.56, 27.94, 50.88, 52.42, 57.36)),
        "dismec": ("1-vs-All", (62.62, 39.09, 28.79, 48.84, 52.96, 59.29)),
    },
    "delicious-bow": {
        "parabel": ("Parabel", (67.44, 61.83, 56.75, 32.69, 34.00, 34.53)),
        "dismec": ("1-vs-All", (65.02, 58.88, 53.28, 31.95, 33.24, 33.47)),
    },
}
SOURCE = "manikvarma.org/downloads/XC/XMLRepository.html, tables 2 and 6"


def corpora(data: Path, name: str) -> Any:
    """The training and the test documents of one corpus."""
    from xmcascade import make_synthetic, read_corpus

    if name.startswith("synthetic"):
        n_labels = int(name.removeprefix("synthetic-"))
        return [make_synthetic(n, n_labels, part=i) for i, n in enumerate((n_labels, 10_000))]
    train = read_corpus(data / name / "train.jsonl.xz", on_error="skip")
    return train, read_corpus(data / name / "test.jsonl.xz", empty_text="keep")


def measure(data: Path, corpus: str, names: list[str]) -> dict[str, Any]:
    """Rows of one corpus, measured anew."""
    from xmcascade import TfidfSettings
    from xmcascade.report import compare

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = WORK / "linear" / corpus
    shutil.rmtree(folder / "methods", ignore_errors=True)
    features = TfidfSettings(min_df=2, tokens="whitespace" if "bow" in corpus else "word")
    methods, how = [RUNS[name] for name in names], {"singles": SINGLES, "environments": ENVIRONMENTS}
    found = compare(*corpora(data, corpus), methods, folder, features=features, **how)
    sizes = found.facts["data"]
    print(f"\n{corpus}: {sizes['train_documents']:,} documents, {sizes['labels']:,} labels")
    print(" " * 15 + "".join(f"{t:>7}" for t in SHOWN) + "".join(f"{t:>12}" for t in NUMBERS))
    rows = {}
    for name, own in zip(names, found.rows, strict=True):
        if own.error:
            sys.exit(f"{name} failed: {own.error}")
        metrics = {key: own.metrics[key] for key in (*SHOWN, "nDCG@5")}
        intervals = {key: own.intervals[key] for key in SHOWN}
        row = rows[name] = {**own.measured, **metrics, "intervals": intervals, "software": own.software}
        costs = "".join(f"{number(row):12,.2f}" for number in NUMBERS.values())
        print(f"{name:15}" + "".join(f"{row[key]:7.2f}" for key in SHOWN) + costs, flush=True)
    return rows


def merged(corpus: str, rows: dict[str, Any]) -> dict[str, Any]:
    """All results: what was saved before, with these rows of one corpus renewed."""
    record = saved("linear")
    results: dict[str, Any] = record.get("results", {})
    for runs in results.values():
        for name in RUNS.keys() & runs.keys():
            runs[name].setdefault("date", record["date"])
    known = results.get(corpus, {}) | rows
    results[corpus] = {name: known[name] for name in RUNS if name in known}
    if corpus in PUBLISHED:
        said = {title: dict(zip(SHOWN, n, strict=True)) for title, n in PUBLISHED[corpus].values()}
        results[corpus]["published"] = {"source": SOURCE, **said}
    order = [*CORPORA, *results]
    return {name: results[name] for name in sorted(results, key=order.index)}


def report(results: dict[str, Any]) -> None:
    """Every claim, corpus by corpus."""
    print("\nours - peer's in points, or ours / peer's; ! where the claim is missed, - where not measured")
    for (own, peer), bounds in CLAIMS.items():
        claimed = [name for name, runs in CORPORA.items() if own in runs]
        more = [name for name, rows in results.items() if own in rows and peer in rows]
        corpora = list(dict.fromkeys(claimed + more))
        rows = [results.get(name, {}) for name in corpora]
        pairs = [(row[own], row[peer]) if own in row and peer in row else None for row in rows]
        print(f"\n{own + ' / ' + peer:23}" + "".join(f"{name.split('-')[0]:>10} " for name in corpora))
        for key in SHOWN:
            points = [pair and pair[0][key] - pair[1][key] for pair in pairs]
            verdict(f"{key} >= -{SLACK}", points, ">=", -SLACK, "+")
        for key, (sign, bound) in bounds.items():
            number = NUMBERS[key]
            ratios = [pair and number(pair[0]) / number(pair[1]) for pair in pairs]
            verdict(f"{key} {sign} {bound}x", ratios, sign, bound, "")
        days = [
            name for name, pair in zip(corpora, pairs, strict=True) if pair and day(pair[0]) != day(pair[1])
        ]
        if days:
            print(f"  measured on different days, so compare no seconds: {', '.join(days)}")
    print(f"\npublished: {SOURCE}\n" + " " * 38 + "".join(f"{key:>8}" for key in SHOWN))
    for corpus, known in PUBLISHED.items():
        for own, (title, published) in known.items():
            print(f"{corpus:15}{title + ' (published)':23}" + "".join(f"{n:8.2f}" for n in published))
            row = results.get(corpus, {}).get(own)
            if row:
                print(f"{'':15}{own:23}" + "".join(f"{row[key]:8.2f}" for key in SHOWN))


def verdict(title: str, values: list[float | None], sign: str, bound: float, plus: str) -> None:
    """One line: one claim on all corpora."""
    cells, outcome = [], "incomplete" if None in values else "ok"
    for value in values:
        kept = value is None or (value <= bound if sign == "<=" else value >= bound)
        outcome = outcome if kept else "MISSED"
        cells.append("- " if value is None else f"{value:{plus}.2f}" + (" " if kept else "!"))
    print(f"  {title:21}" + "".join(f"{cell:>11}" for cell in cells) + f"  {outcome}")


def day(row: dict[str, Any]) -> str:
    return str(row.get("date", ""))


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--corpora", nargs="*", default=list(CORPORA), help="also synthetic-N, N labels")
    arguments.add_argument("--runs", nargs="*", choices=ALL, help="instead of a corpus's own choice")
    arguments.add_argument("--report", action="store_true", help="judge the saved results, measure nothing")
    given = arguments.parse_args()
    if not given.report:
        data = data_folder(given)
        for name in given.corpora:
            rows = measure(data, name, given.runs or CORPORA.get(name, QUICK))
            save("linear", merged(name, rows), ["numpy", "scipy", "numba"])
    report(saved("linear").get("results", {}))


if __name__ == "__main__":
    main()
