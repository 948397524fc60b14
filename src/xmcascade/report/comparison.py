"""What a comparison of methods found: rows with intervals, differences that are tested, as JSON and Markdown.

Every method ranked the same documents, so differences are paired: document by document.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.evaluate import SLICES, Ranking, compare_rankings, evaluate_ranking, holm
from xmcascade.report.page import Number, Table
from xmcascade.store.files import replacing_file

__all__ = ["HOW_TESTED", "SHOWN", "Comparison", "Row", "Tested", "judged", "megabytes", "seconds"]

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
K = 5
RECALL = f"R@{K}"
LEVEL = 0.05
Shown = tuple[float, Number]  # a number, and how it is written
NOT_JUDGED = ("micro-F1", "macro-F1", "ECE@")  # these need probabilities


@dataclass(frozen=True)
class Row:
    """One method: how good it is, and what it takes."""

    method: str
    software: list[str]
    reads: str
    """"features" (tf-idf, the same for all), "texts" or "both"."""
    measured: dict[str, Any] = field(default_factory=dict)
    """train (seconds, cpu_seconds, peak_mb, stops), documents_per_second, single_ms, single_ms_p95, model_mb,
    peak_mb, date and more; empty when it failed."""
    metrics: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    slices: dict[str, dict[str, float]] = field(default_factory=dict)
    model: str = ""
    """Folder of the trained model inside that of the comparison; those that read texts are kept."""
    error: str = ""
    """Why it failed."""


@dataclass(frozen=True)
class Tested:
    """A metric of a method minus the baseline's, in percent points."""

    difference: float
    low: float
    high: float
    """95% interval, by bootstrap over documents, the same documents for both."""
    p_value: float
    """Two-sided, by sign flips, after Holm's correction over the methods."""

    @property
    def significant(self) -> bool:
        """Whether chance alone would rarely make such a difference in any of the methods."""
        return self.p_value < LEVEL


@dataclass(frozen=True)
class Comparison:
    """Methods on the same documents.

    >>> import numpy as np, scipy.sparse as sp
    >>> truth = sp.csr_matrix(np.eye(2).repeat(50, axis=0))
    >>> right, wrong = np.arange(2).repeat(50)[:, None], np.ones((100, 1), int)
    >>> rows = [Row("good", [], "texts"), Row("bad", [], "texts"), Row("ill", [], "texts", error="no memory")]
    >>> found = {"good": (right, right), "bad": (wrong, wrong)}
    >>> comparison = judged(rows, found, truth, label_counts=[9, 9], n_train_docs=18)
    >>> comparison.baseline, comparison.tested["bad"]["P@1"].significant
    ('good', True)
    >>> [row[:2] for row in comparison.quality().rows]
    [['good', Number(text='100.00', note='100.0–100.0')], ['bad', Number(text='50.00', note='40.0–60.0')], \
['ill', None]]
    """

    rows: list[Row]
    baseline: str
    """The method that all others are compared with; empty when none finished."""
    tested: dict[str, dict[str, Tested]]
    """By method, then metric."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Of the documents, the machine and the software."""

    @property
    def finished(self) -> list[Row]:
        """The methods that did not fail."""
        return [row for row in self.rows if not row.error]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        rows = []
        for row in self.rows:
            slices = {
                name: {key: None if math.isnan(value) else value for key, value in values.items()}
                for name, values in row.slices.items()
            }
            rows.append({**asdict(row), "slices": slices})
        tested = {
            method: {name: {**asdict(one), "significant": one.significant} for name, one in found.items()}
            for method, found in self.tested.items()
        }
        return {**self.facts, "rows": rows, "baseline": self.baseline, "differences": tested}

    def to_json(self) -> str:
        """All of it, as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """The tables, as Markdown."""
        parts = ["# Methods compared", _markdown(self.quality())]
        if self.tested:
            parts += [f"## Differences to {_plain(self.baseline)}", _markdown(self.differences())]
            parts += [HOW_TESTED]
        parts += ["## By label frequency", _markdown(self.by_frequency()), "## Cost", _markdown(self.costs())]
        if failed := [row for row in self.rows if row.error]:
            parts += ["## What failed", *(f"- {_plain(row.method)}: {_plain(row.error)}" for row in failed)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: str | Path) -> None:
        """Write comparison.json, comparison.md and index.html; each appears whole or not at all."""
        from xmcascade.report.comparison_page import page_of

        for name, text in (("json", self.to_json()), ("md", self.to_markdown())):
            with replacing_file(Path(folder, f"comparison.{name}")) as stream:
                stream.write(text.encode("utf-8", "replace"))
        page_of(self).write(Path(folder, "index.html"))

    # Tables -----------------------------------------------------------------------------------------------

    def quality(self) -> Table:
        """P@k, nDCG@k and PSP@k with their 95% intervals, in percent."""
        return self._table({name: _metric(name) for name in SHOWN}, dict.fromkeys(SHOWN, max))

    def differences(self) -> Table:
        """To the baseline, with 95% intervals; a star marks what is significant."""
        rows = []
        for method, found in self.tested.items():
            cells = [found[name] for name in SHOWN]
            rows.append([method, *(_difference(cell) for cell in cells)])
        return Table(["method", *SHOWN], rows)

    def by_frequency(self) -> Table:
        """R@5 on frequent, middling and rare labels, in percent."""
        return self._table({name: _recall(name) for name in SLICES}, dict.fromkeys(SLICES, max))

    def costs(self) -> Table:
        """Time, memory and size."""
        return self._table(COSTS, {"documents/s": max})

    def _table(
        self, columns: Mapping[str, Callable[[Row], Shown | None]], best: Mapping[str, Callable[..., Shown]]
    ) -> Table:
        rows: list[list[Any]] = [[row.method, *[None] * len(columns)] for row in self.rows]
        marked = []
        for x, (name, value_of) in enumerate(columns.items(), 1):
            found = {y: value_of(row) for y, row in enumerate(self.rows) if not row.error}
            known = {y: cell for y, cell in found.items() if cell is not None}
            for y, cell in known.items():
                rows[y][x] = cell[1]
            if len(known) > 1:
                top = best.get(name, min)(known.values(), key=lambda cell: cell[0])
                marked += [(y, x) for y, (_, cell) in known.items() if cell.text == top[1].text]
        return Table(["method", *columns], rows, marked)


def _metric(name: str) -> Callable[[Row], Shown | None]:
    def shown(row: Row) -> Shown:
        low, high = row.intervals[name]
        return row.metrics[name], Number(f"{row.metrics[name]:.2f}", f"{low:.1f}–{high:.1f}")

    return shown


def _recall(name: str) -> Callable[[Row], Shown | None]:
    def shown(row: Row) -> Shown | None:
        value = row.slices[name][RECALL]
        return None if math.isnan(value) else (value, Number(f"{value:.2f}"))

    return shown


def _difference(found: Tested) -> Number:
    star = "*" if found.significant else ""
    bounds = f"{_signed(found.low, 1)} to {_signed(found.high, 1)}"
    return Number(_signed(found.difference, 2) + star, bounds)


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _latency(row: Row) -> Shown:
    middle, slow = row.measured["single_ms"] / 1000, row.measured["single_ms_p95"] / 1000
    return middle, Number(seconds(middle), f"p95 {seconds(slow)}")


def _peak(row: Row) -> Shown | None:
    peak = row.measured["peak_mb"]
    return None if peak is None else (peak, Number(megabytes(peak)))


COSTS: dict[str, Callable[[Row], Shown | None]] = {
    "training": lambda row: _time(row.measured["train"]["seconds"]),
    "CPU time": lambda row: _time(row.measured["train"]["cpu_seconds"]),
    "peak memory": _peak,
    "model": lambda row: (row.measured["model_mb"], Number(megabytes(row.measured["model_mb"]))),
    "documents/s": lambda row: (
        row.measured["documents_per_second"],
        Number(_short(row.measured["documents_per_second"])),
    ),
    "one document": _latency,
}


def _time(value: float) -> Shown:
    return value, Number(seconds(value))


def seconds(value: float) -> str:
    """A time as people say it.

    >>> seconds(0.0003124), seconds(75.04), seconds(600), seconds(9000)
    ('0.31 ms', '75 s', '10 min', '2.5 h')
    """
    for limit, unit, name in ((0.1, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if value < limit:
            return f"{_short(value / unit)} {name}"
    return f"{_short(value / 3600)} h"


def megabytes(value: float) -> str:
    """A size as people say it.

    >>> megabytes(0.512), megabytes(289.1), megabytes(2048)
    ('0.51 MB', '289 MB', '2.0 GB')
    """
    return f"{_short(value)} MB" if value < 1024 else f"{_short(value / 1024)} GB"


def _short(value: float) -> str:
    """Two digits at least, and no more behind the point than tell something."""
    return f"{value:,.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def _markdown(table: Table) -> str:
    best = set(table.best)
    rows = [
        [_plain_cell(value, (y, x) in best) for x, value in enumerate(row)]
        for y, row in enumerate(table.rows)
    ]
    lines = [list(table.columns), ["---", *["---:"] * (len(table.columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain_cell(value: Any, is_best: bool) -> str:
    if value is None:
        return "–"
    if not isinstance(value, Number):
        return _plain(str(value))
    text = f"**{value.text}**" if is_best else value.text.replace("*", "\\*")
    return f"{text} ({value.note})" if value.note else text


def _plain(text: str) -> str:
    """Text that stays text in Markdown, on one line and in one cell."""
    return re.sub(r"([\\`*_\[\]<>|&#])", r"\\\1", " ".join(text.split()))


HOW_TESTED = (
    "Differences in percent points with 95% intervals, by bootstrap over test documents. A star marks those "
    "with p < 0.05, by sign flips of the documents' differences, after Holm's correction over the methods "
    "(for each metric by itself)."
)


def judged(
    rows: Sequence[Row],
    found: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    truth: Any,
    *,
    label_counts: npt.ArrayLike,
    n_train_docs: int,
    baseline: str | None = None,
    replicates: int = 1000,
    facts: Mapping[str, Any] | None = None,
) -> Comparison:
    """Judge what methods found: for each the labels and scores of the test documents, best first.

    The baseline is a method's name; by default the one with the best P@1.

    >>> judged([], {}, None, label_counts=[], n_train_docs=0).baseline
    ''
    """
    rankings: dict[str, Ranking] = {}
    judged_rows = []
    how: dict[str, Any] = {"label_counts": label_counts, "n_train_docs": n_train_docs}
    how |= {"ks": (1, 3, K), "replicates": replicates}
    for row in rows:
        if row.error:
            judged_rows.append(row)
            continue
        labels, scores = found[row.method]
        nothing = np.zeros(np.shape(scores), np.float32)  # not all methods give probabilities
        rankings[row.method] = Ranking(np.asarray(labels), np.asarray(scores), nothing)
        seen = evaluate_ranking(truth, rankings[row.method], **how)
        metrics = {name: value for name, value in seen.metrics.items() if not name.startswith(NOT_JUDGED)}
        judged_rows.append(replace(row, metrics=metrics, intervals=seen.intervals, slices=seen.slices))
    by_name = {row.method: row for row in judged_rows}
    if baseline is not None and baseline not in by_name:
        raise SettingError(f"the baseline {baseline!r} is not compared", remedy=f"use: {', '.join(by_name)}")
    if baseline not in rankings:  # it was not given, or failed
        baseline = max(rankings, key=lambda name: by_name[name].metrics["P@1"], default="")
    tested = _tested(truth, rankings, baseline, how)
    return Comparison(judged_rows, baseline, tested, dict(facts or {}))


def _tested(
    truth: Any, rankings: Mapping[str, Ranking], baseline: str, how: Mapping[str, Any]
) -> dict[str, dict[str, Tested]]:
    others = [name for name in rankings if name != baseline]
    found = {name: compare_rankings(truth, rankings[name], rankings[baseline], **how) for name in others}
    tested: dict[str, dict[str, Tested]] = {name: {} for name in others}
    for metric in SHOWN if others else ():
        adjusted = holm([found[name][metric].p_value for name in others]).tolist()
        for name, p_value in zip(others, adjusted, strict=True):
            one = found[name][metric]
            tested[name][metric] = Tested(one.difference, one.low, one.high, p_value)
    return tested
