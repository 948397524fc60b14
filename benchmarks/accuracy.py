"""CascadeXML with default settings on three corpora beside linear models; and the papers' claims, held out.

    python benchmarks/accuracy.py --data DATA                             # all three corpora, hours
    python benchmarks/accuracy.py --data DATA --corpus eurlex57k          # one; the saved results are renewed
    python benchmarks/accuracy.py --data DATA --corpus eurlex57k --again  # chooses anew, see below; minutes
    python benchmarks/accuracy.py --data DATA --model xr-transformer --epochs 1   # one row more; then:
    python benchmarks/accuracy.py --data DATA --model ensemble
    python benchmarks/accuracy.py --data DATA --model seed-1              # another seed; then:
    python benchmarks/accuracy.py --data DATA --model ensemble-seeds
    python benchmarks/accuracy.py --data DATA --corpus gutenberg-lcsh --variant default coarse --epochs 2
    python benchmarks/accuracy.py --report                                # measures nothing
    python benchmarks/accuracy.py --data DATA --quick                     # a trial of all; nothing is saved

Each corpus: a process reads train.jsonl.xz, fits once with linear rows on tf-idf (cascadexml-tfidf), is
evaluated on test.jsonl.xz, once, with these rows and without (cascadexml: the cascade is the same), and saves
the model under .benchmarks/accuracy. Every test document with a label counts; labels never seen in training
count as missed. Time is fit's, of the cascade alone until the linear rows begin; the peak is the process's
until fit ends, the plan is what fit says before training that it will need. A killed run goes on with the
same command, and its minutes too. The rows of XR-Linear, PECOS and NearestNeighbours are those that
benchmarks/linear.py and benchmarks/nearest.py saved for the same split (named in the row); only what they
lack is run.

--again: with the models that were saved, chooses anew what is chosen after training (clusters that go on, how
levels are combined, the share of the linear rows), on the documents that were held out, and evaluates again;
with --variant, for these.

--model xr-transformer, seed-1 (cascadexml-tfidf again, from another seed): learn from the documents that
CascadeXML learns from, without what it holds out. ensemble: CascadeXML with tf-idf and XR-Transformer as they
were saved, and an XR-Linear of the same documents; ensemble-seeds: the other seed in XR-Transformer's place.
What each counts is chosen on the documents held out.

--variant: a model that differs in one setting, on a part of the training documents, evaluated on the other 8%
(near-duplicates stay together); the test documents are never read. coarse: a last level of 4 times fewer
clusters, and 4 times fewer of them go on, so that as many labels are scored.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import linear
from common import (
    ROOT,
    WORK,
    data_folder,
    measured,
    memory_plans,
    parser,
    peak_mb,
    run_worker,
    save,
    saved,
    today,
)  # fmt: skip

CORPORA = ["gutenberg-lcsh", "tate-subjects", "eurlex57k"]
LINEAR = ["xr-linear", "pecos"]
CASCADE, TFIDF = "cascadexml", "cascadexml-tfidf"
OTHERS = ["xr-transformer", "seed-1", "ensemble", "ensemble-seeds"]
VARIANTS = ["default", "float32", "last-layer", "no-rescale", "coarse", "random", "documents", "heads"]
SAME = {"heads": "default"}  # under its other name: the start of heads that is the default
HELD_SHARE = 0.08
COARSER = 4
ENCODER_LAYERS = 6  # of MiniLM
TINY, TINY_OTHER = 240, 60  # documents of a trial
SHOWN = ("P@1", "P@3", "P@5")
MORE = ("nDCG@5", "PSP@1", "PSP@3", "PSP@5")
PACKAGES = ["numpy", "scipy", "numba", "torch", "transformers", "tokenizers"]


class Spent(logging.Handler):
    """Minutes of a run and of its evaluations, kept in a file as the log goes on: a killed run goes on too.

    What was done after the last checkpoint is done again, and counted twice.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.start = file, (time.time(), time.process_time())
        before = json.loads(file.read_text()) if file.exists() else {"minutes": 0, "cpu_minutes": 0}
        self.before, self.of_step = before, dict[str, dict[str, float]](before.get("of_step", {}))
        self.of_cascade: dict[str, float] = {}

    def now(self) -> dict[str, float]:
        wall, cpu = ((end - start) / 60 for end, start in zip(self._clocks(), self.start, strict=True))
        peak = max(self.before.get("peak_mb", 0.0), peak_mb())
        before = self.before["minutes"], self.before["cpu_minutes"]
        return {"minutes": before[0] + wall, "cpu_minutes": before[1] + cpu, "peak_mb": peak}

    def _clocks(self) -> tuple[float, float]:
        return time.time(), time.process_time()

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r": step (\d+), loss", record.getMessage()):
            self.of_step[found[1]] = self.now()
        if "the cascade has learnt" in record.getMessage():
            self.of_cascade = self.now()
        self.file.write_text(json.dumps({**self.now(), "of_step": self.of_step}))


def settings_of(variant: str, n_labels: int) -> dict[str, Any]:
    """What a variant changes, on a corpus with so many labels."""
    from xmcascade.neural import plan

    levels = plan.cluster_levels(n_labels)
    keeps = plan.shortlists([*levels, n_labels])
    if variant in ("last-layer", "coarse") and not levels:
        raise SystemExit(f"{variant} needs a tree; {n_labels:,} labels have none")
    if variant == "coarse":
        tree = {"levels": (*levels[:-1], levels[-1] // COARSER)}
        return {"tree": tree, "shortlists": (*keeps[:-1], keeps[-1] // COARSER)}
    return {
        "default": {},
        "heads": {},
        "float32": {"training": {"arithmetic": "float32"}},
        "last-layer": {"layers": ((ENCODER_LAYERS,),) * (len(levels) + 1)},
        "no-rescale": {"rescale": False},
        "random": {"init": "random", "training": {"head_epochs": 0.0}},
        "documents": {"init": "documents", "training": {"head_epochs": 0.0}},
    }[variant]


def documents(given: argparse.Namespace) -> tuple[Any, Any]:
    """To learn from, and to evaluate on: the test documents, or for a variant held-out ones."""
    from xmcascade import read_corpus

    folder = Path(given.data, given.corpus[0])
    train = read_corpus(folder / "train.jsonl.xz", on_error="skip")
    if given.quick:
        train, unread = train.take(np.arange(TINY)), train.take(np.arange(TINY, TINY + TINY_OTHER))
    if given.worker in VARIANTS:
        held = train.split_mask(HELD_SHARE, seed=0)
        return train.take(~held), train.take(held)
    if given.quick:  # a trial leaves the test documents alone
        return train, unread
    return train, read_corpus(folder / "test.jsonl.xz", empty_text="keep")


def work(given: argparse.Namespace) -> dict[str, Any]:
    """Fit and evaluate one model: on the test documents, or of a variant on held-out ones; rows by name."""
    from xmcascade import CascadeXML
    from xmcascade.models import CascadeXMLTfidf

    (corpus,), variant = given.corpus, given.worker
    train, other = documents(given)
    settings = {} if variant == "test" else settings_of(variant, train.n_labels)
    own = {} if given.epochs is None else {"epochs": given.epochs}
    own = {**({"epochs": 0.3, "head_epochs": 0.3} if given.quick else own), **settings.get("training", {})}
    work = WORK / "accuracy" / f"{corpus}-{variant}"
    work.parent.mkdir(parents=True, exist_ok=True)
    log = work.with_suffix(".log")
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    plans, spent = memory_plans(), Spent(work.with_suffix(".spent"))
    logging.getLogger().addHandler(spent)
    kind = CascadeXMLTfidf if variant == "test" else CascadeXML
    model = kind(**{**settings, "training": own})
    checkpoint = None if given.quick else work.with_suffix(".work")
    model.fit(train, checkpoint=checkpoint)
    took = spent.now()
    logging.getLogger().removeHandler(spent)
    evaluation, testing = measured(lambda: model.evaluate(other))
    model.save(work)  # the checkpoint is deleted
    spent.file.unlink()
    rows = {}
    if variant == "test":
        rows[TFIDF] = {**evaluation.to_dict(), **took, "date": today()}
        assert model._learnt is not None
        alone = replace(model._learnt.state, second=None)
        model._learnt = replace(model._learnt, state=alone, calibration=None)
        took = spent.of_cascade
        evaluation, testing = measured(lambda: model.evaluate(other))
    derived = {name: each["value"] for name, each in model.derived.items()}
    history = [{**spent.of_step[str(facts["step"])], **facts} for facts in derived.pop("history", [])]
    best = max(history, key=lambda facts: facts["nDCG@5"], default={})
    rows[variant if variant != "test" else CASCADE] = {
        **evaluation.to_dict(),
        "train_documents": train.n_docs,
        "labels": train.n_labels,
        "settings": settings,
        "epochs": own.get("epochs", derived.get("epochs")),
        **took,
        **plans[0],
        "test_seconds": testing["seconds"],
        "shortlist_recall": derived.get("shortlist_recall", next(iter(best.get("recall", [])[-1:]), None)),
        "history": history,
        "derived": derived,
        "date": today(),
    }
    return rows


def again(given: argparse.Namespace) -> dict[str, Any]:
    """Choose anew for a saved model, and evaluate; what changes of its two rows, by name."""
    from xmcascade import load
    from xmcascade.models.fitting import FitRun
    from xmcascade.models.held import held_out
    from xmcascade.neural import Trial

    work = WORK / "accuracy" / f"{given.corpus[0]}-{given.worker}"
    train, test = documents(given)
    train, run = train.take(np.diff(train.labels.indptr) > 0), FitRun(np.random.default_rng(0), 1)
    docs, held = held_out(train, 0, run)
    model, some = load(work), train.take(held)
    state = model._fitted().state
    xs = model._read(state, some)
    trial = Trial(state.cascade, xs, some.labels, train.take(docs).label_counts(), len(docs))
    if state.cascade.tree.n_levels > 1:
        state.cascade.keeps = tuple(model.derived["shortlists"]["value"])
        state = replace(state, powers=model._chosen(trial, state.powers, run))
    second, rows, name = state.second, {}, CASCADE if given.worker == "test" else given.worker
    if second is not None:
        second = model._weighed(second, trial, second.features(some.texts, xs[-1]), run)
    for row, stage in {**({TFIDF: second} if second else {}), name: None}.items():
        own = replace(state, second=stage)
        calibration = model._calibration(own, some, run)
        model._learnt = replace(model._fitted(), state=own, calibration=calibration, canary=None)
        evaluation, testing = measured(lambda: model.evaluate(test))
        rows[row] = {**evaluation.to_dict(), "date": today()}
    derived = {key: each["value"] for key, each in run.derived.items()}
    rows[name] |= {"test_seconds": testing["seconds"], "derived": derived}
    if "shortlist_recall" in derived:
        rows[name]["shortlist_recall"] = derived["shortlist_recall"]
    both = replace(state, second=second)
    model._learnt = replace(model._fitted(), state=both, calibration=model._calibration(both, some, run))
    model.save(work)
    return rows


def other(given: argparse.Namespace) -> dict[str, Any]:
    """Fit and evaluate another model on the same documents; the row by its name."""
    from xmcascade import Ensemble, XRLinear, XRTransformer, load
    from xmcascade.models import CascadeXMLTfidf
    from xmcascade.models.fitting import FitRun
    from xmcascade.models.held import held_out

    (corpus,), name = given.corpus, given.worker
    train, test = documents(given)
    train = train.take(np.diff(train.labels.indptr) > 0)
    docs, held = held_out(train, 0, FitRun(np.random.default_rng(0), 1))
    learnt, work = train.take(docs), WORK / "accuracy" / f"{corpus}-{name}{'-quick' * given.quick}"
    logging.basicConfig(filename=f"{work}.log", level=logging.INFO, format="%(asctime)s %(message)s")
    facts: dict[str, Any] = {"train_documents": learnt.n_docs, "labels": train.n_labels, "date": today()}
    if name in ("ensemble", "ensemble-seeds"):
        linear = XRLinear(calibrate=False).fit(learnt)
        second = "xr-transformer" if name == "ensemble" else "seed-1"
        parts = [load(WORK / "accuracy" / f"{corpus}-{part}") for part in ("test", second)]
        model, fitting = measured(lambda: Ensemble.of([*parts, linear], choose_on=train.take(held)))
        facts |= {"minutes": fitting["seconds"] / 60, "cpu_minutes": fitting["cpu_seconds"] / 60}
        facts["derived"] = {key: each["value"] for key, each in model.derived.items()}
    else:
        spent = Spent(work.with_suffix(".spent"))
        logging.getLogger().addHandler(spent)
        own = {"epochs": 0.3 if given.quick else given.epochs}
        kind, more = (XRTransformer, {}) if name == "xr-transformer" else (CascadeXMLTfidf, {"seed": 1})
        model = kind(training=own, calibrate=False, **more)
        _, fitting = measured(lambda: model.fit(learnt, checkpoint=work.with_suffix(".work")))
        facts |= {**spent.now(), **own}
        logging.getLogger().removeHandler(spent)
        model.save(work)
        spent.file.unlink()
    return {name: {"peak_mb": fitting["peak_mb"], **model.evaluate(test).to_dict(), **facts}}


def beside(data: Path, corpus: str) -> dict[str, Any]:
    """The rows of the other models: as saved by their own benchmarks, or run now."""
    record = saved("linear")
    known = record.get("results", {}).get(corpus, {})
    rows = {name: row_of(known[name], "linear") for name in LINEAR if name in known}
    if missing := [name for name in LINEAR if name not in rows]:
        found = linear.measure(data, corpus, missing)
        rows |= {name: row_of(row, None) for name, row in found.items()}
    record = saved("nearest")
    known = record.get("results", {}).get(corpus)
    if known is not None:
        rows["nearest"] = row_of({"date": record["date"], **known}, "nearest")
    else:
        nearest = str(Path(__file__).with_name("nearest.py"))
        rows["nearest"] = row_of(run_worker(nearest, corpus, "--data", str(data)), None)
    return rows


def row_of(row: dict[str, Any], saved_in: str | None) -> dict[str, Any]:
    """What is shown of another model's row, with where it is from."""
    fit = row.get("train") or row["fit"]
    return {
        **{name: row[name] for name in (*SHOWN, *MORE)},
        "intervals": {name: row["intervals"][name] for name in SHOWN},
        "minutes": fit["seconds"] / 60,
        "cpu_minutes": fit["cpu_seconds"] / 60,
        "peak_mb": row.get("peak_mb", fit["peak_mb"]),
        "date": row.get("date", today()),
        "from": f"benchmarks/results/{saved_in}.json" if saved_in else "run for this table",
    }


def report(results: dict[str, Any]) -> None:
    """All tables, from the results."""
    for corpus, rows in results.get("test", {}).items():
        own = rows[CASCADE]
        print(f"\n{corpus}: {own['train_documents']:,} documents, {own['labels']:,} labels; test")
        table(rows)
        told = [f"{name} {row['from']} of {row['date']}" for name, row in rows.items() if "from" in row]
        print("  others: " + "; ".join(told))
        ratio = own["peak_mb"] / own["planned_mb"]
        print(f"  peak {own['peak_mb']:,.0f} MB, planned {own['planned_mb']:,.0f} MB: {ratio:.2f}x", end="; ")
        recall = own["shortlist_recall"]
        print("no clusters" if recall is None else f"true clusters reached, held out: {recall:.2f}%")
        course(own)
    for corpus, variants in results.get("claims", {}).items():
        print(f"\n{corpus}: variants, on the {HELD_SHARE:.0%} held out of the training documents")
        table(variants)
        for name, row in variants.items():
            recall = row["shortlist_recall"]
            reached = "no clusters" if recall is None else f"true clusters reached {recall:.2f}%"
            print(f"  {name}: {row['epochs']:g} epochs, {reached}, {row['date']}")
            course(row)


def table(rows: dict[str, Any]) -> None:
    heads = "".join(f"{name:>20}" for name in SHOWN) + "".join(f"{name:>8}" for name in MORE)
    print(f"{'':17}{heads}{'min':>8}{'CPU min':>9}{'peak MB':>9}")
    for name, row in rows.items():
        bounds = [(row[m], *row["intervals"][m]) for m in SHOWN]
        cells = "".join(f"{f'{value:.2f} ({low:.1f}-{high:.1f})':>20}" for value, low, high in bounds)
        cells += "".join(f"{row[m]:8.2f}" for m in MORE)
        print(f"{name:17}{cells}{row['minutes']:8.1f}{row['cpu_minutes']:9.1f}{row['peak_mb']:9,.0f}")


def course(row: dict[str, Any]) -> None:
    """P@1 on the documents that fit itself held out, as training went on."""
    told = [
        f"{facts['P@1']:.2f} ({facts['nDCG@5']:.2f}) at {facts['minutes']:.1f} min"
        + (f", {facts['cpu_minutes']:.1f} of CPU" if "cpu_minutes" in facts else "")
        for facts in row["history"]
    ]
    if told:
        print("    P@1 (nDCG@5) as training went on: " + "; ".join(told), flush=True)


def measure_test(data: Path, corpus: str, quick: bool) -> dict[str, Any]:
    """All rows of a corpus."""
    log = (WORK / "accuracy" / f"{corpus}-test.log").relative_to(ROOT)
    print(f"{corpus}: training; its log is {log}", flush=True)
    options = ["--data", str(data), "--corpus", corpus, *["--quick"] * quick]
    return {**run_worker(__file__, "test", *options), **beside(data, corpus)}


def measure_claim(data: Path, corpus: str, variant: str, epochs: float | None, quick: bool) -> dict[str, Any]:
    """The row of one variant."""
    log = (WORK / "accuracy" / f"{corpus}-{variant}.log").relative_to(ROOT)
    print(f"{corpus}, {variant}: training; its log is {log}", flush=True)
    options = ["--data", str(data), "--corpus", corpus, *["--quick"] * quick]
    options += [] if epochs is None else ["--epochs", str(epochs)]
    found: dict[str, Any] = run_worker(__file__, variant, *options)[variant]
    return found


def merged(kind: str, corpus: str, rows: dict[str, Any]) -> dict[str, Any]:
    """All results: what was saved before, with these rows of one corpus renewed."""
    results: dict[str, Any] = saved("accuracy").get("results", {})
    results.setdefault(kind, {}).setdefault(corpus, {}).update(rows)
    return results


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--corpus", nargs="*", choices=CORPORA, default=CORPORA)
    arguments.add_argument("--again", action="store_true", help="choose anew for the saved models")
    arguments.add_argument("--model", choices=OTHERS, help="another row, of this model")
    arguments.add_argument("--variant", nargs="*", choices=VARIANTS, default=[], help="test claims, held out")
    arguments.add_argument(
        "--epochs", type=float, help="of variants and --model, instead of the derived number"
    )
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    arguments.add_argument("--quick", action="store_true", help="tiny, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        print(json.dumps((again if given.again else other if given.worker in OTHERS else work)(given)))
        return
    if given.report:
        report(saved("accuracy").get("results", {}))
        return
    data, trial = data_folder(given), given.quick
    tried: dict[str, Any] = {"test": {}, "claims": {}}
    for corpus in given.corpus if given.model else []:
        options = ["--data", str(data), "--corpus", corpus, *["--quick"] * trial]
        options += [] if given.epochs is None else ["--epochs", str(given.epochs)]
        print(f"{corpus}, {given.model}: its log is in {WORK.relative_to(ROOT)}/accuracy", flush=True)
        rows = run_worker(__file__, given.model, *options)
        if trial:
            table(rows)
        else:
            save("accuracy", merged("test", corpus, rows), PACKAGES)
            table(saved("accuracy")["results"]["test"][corpus])
    for corpus, which in product(given.corpus, given.variant or ["test"]) if given.again else []:
        kind = "claims" if given.variant else "test"
        rows = run_worker(__file__, which, "--data", str(data), "--corpus", corpus, "--again")
        known = saved("accuracy")["results"][kind][corpus]
        for name, row in rows.items():
            derived = {**known[name].get("derived", {}), **row.get("derived", {})}
            rows[name] = {**known[name], **row} | ({"derived": derived} if derived else {})
        save("accuracy", merged(kind, corpus, rows), PACKAGES)
        report({kind: {corpus: saved("accuracy")["results"][kind][corpus]}})
    if given.model or given.again:
        return
    for corpus in given.corpus if not given.variant else []:
        rows = tried["test"][corpus] = measure_test(data, corpus, trial)
        if not trial:
            save("accuracy", merged("test", corpus, rows), PACKAGES)
    for corpus in given.corpus if given.variant else given.corpus[:1] * trial:
        for variant in given.variant or VARIANTS:
            rows = tried["claims"].setdefault(corpus, {})
            twin = rows.get(SAME.get(variant, ""))  # the same settings need no second run
            rows[variant] = twin or measure_claim(data, corpus, variant, given.epochs, trial)
            if not trial:
                save("accuracy", merged("claims", corpus, rows), PACKAGES)
    report(tried)


if __name__ == "__main__":
    main()
