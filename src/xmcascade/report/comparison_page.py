"""A comparison as a page: tables, and plots of quality against what it costs.

Points are named where they lie, since a legend of ten colours is a riddle; names avoid one another.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from xmcascade.errors import SettingError
from xmcascade.evaluate import SLICES
from xmcascade.report.comparison import HOW_TESTED, RECALL, Comparison, Row, megabytes, seconds
from xmcascade.report.page import Page, Part, Picture, Table
from xmcascade.report.plots import COLOURS, figure, picture

__all__ = ["page_of"]

log = logging.getLogger("xmcascade")

NAME_LENGTH = 34  # characters of a method's name in a plot
MOST_TICKS = 8
UNITS = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"), (1e8, ""))
STYLE = """
main table td:first-child { white-space: nowrap; padding-right: 1.2rem }
@media (max-width: 56rem) { main table td:first-child { white-space: normal; min-width: 9rem } }
"""


def page_of(found: Comparison) -> Page:
    """The page.

    >>> page_of(Comparison([Row("nearest", [], "texts", error="no memory")], "", {})).title
    'Methods compared'
    """
    data = found.facts.get("data", {})
    subtitle = ""
    if data:
        subtitle = (
            f"{data['train_documents']:,} documents to learn from, {data['test_documents']:,} to test on, "
            f"{data['labels']:,} labels; {found.facts['date']}"
        )
    page = Page("Methods compared", subtitle, extra_style=STYLE)
    if found.finished:
        page.section("In short", *_summary(found))
        page.section("Quality", QUALITY, found.quality())
        if found.tested:
            page.section("Differences", *_differences(found))
        page.section("What it costs", COSTS, found.costs())
        page.section("Quality against time", *_plotted(found))
        page.section("By label frequency", *_frequency(found))
    if failed := [row for row in found.rows if row.error]:
        page.section("What failed", Table(["method", "why"], [[row.method, row.error] for row in failed]))
    page.section("How it was measured", *_how(found))
    return page


QUALITY = (
    "Percent, with 95% intervals under them; the best of each column is marked. P@k: the share of the first "
    "k labels that are right. nDCG@5: earlier ranks count more. PSP@k: rare labels count more, relative to "
    "the best possible."
)
COSTS = (
    "The best of each column is marked. Training is wall time from documents in memory to a model saved and "
    "loaded again, and CPU time that of all threads and child processes. Peak memory is that of the whole "
    "process, with its data. Documents/s: all test documents in one batch. One document: the median of "
    "single calls, and what 95% of them stay below."
)


def _summary(found: Comparison) -> Iterator[str]:
    rows = found.finished
    best = max(rows, key=lambda row: row.metrics["P@1"])
    low, high = best.intervals["P@1"]
    yield f"Best by P@1: `{best.method}`, {best.metrics['P@1']:.2f} (95% interval {low:.1f} to {high:.1f})."
    if len(rows) == 1:
        return
    if found.baseline == best.method:
        alike = [name for name, tested in found.tested.items() if not tested["P@1"].significant]
        if alike:
            yield f"Not told apart from it by P@1: {_listed(alike)}."
    for title, key, told in (
        ("Trained in the least time", _training, seconds),
        ("Fastest for one document", _latency, seconds),
        ("Smallest model", _size, megabytes),
    ):
        row = min(rows, key=key)
        less = "" if row is best else f", {best.metrics['P@1'] - row.metrics['P@1']:.2f} points of P@1 less"
        yield f"{title}: `{row.method}`, {told(key(row))}{less}."


def _training(row: Row) -> float:
    return float(row.measured["train"]["seconds"])


def _latency(row: Row) -> float:
    return float(row.measured["single_ms"]) / 1000


def _size(row: Row) -> float:
    return float(row.measured["model_mb"])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _differences(found: Comparison) -> Iterator[Part | str]:
    chosen = max(found.finished, key=lambda row: row.metrics["P@1"]).method == found.baseline
    yield f"Each method minus `{found.baseline}`. {HOW_TESTED}"
    yield found.differences()
    if chosen:
        yield (
            "The baseline is the method with the best P@1 on these documents: its lead is a little flattered "
            "by that choice."
        )


def _frequency(found: Comparison) -> Iterator[Part | str]:
    slices = found.finished[0].slices
    told = "; ".join(
        f"{name}: {slices[name]['labels']:,.0f} labels, {slices[name]['share']:.0f}% of what is to be found"
        for name in SLICES
    )
    yield (
        f"{RECALL} on labels that are frequent, middling and rare in training, each group with about a third "
        f"of the labels given there. In the test documents: {told}."
    )
    yield _drawn(partial(_bars, found.finished))
    yield found.by_frequency()


def _plotted(found: Comparison) -> Iterator[Part | str]:
    for cost, axis in ((_training, "training time"), (_latency, "time for one document")):
        caption = (
            f"P@1 with its 95% interval against {axis}, which is logarithmic; up and to the left is better. "
            "The line joins the methods that no other beats in both. Peers are squares."
        )
        yield _drawn(partial(_against, found.finished, cost, axis, caption))


def _drawn(draw: Callable[[], Picture]) -> Part | str:
    try:
        return draw()
    except SettingError as error:  # matplotlib is not installed
        log.warning("%s", error)
        return str(error)


# Plots ----------------------------------------------------------------------------------------------------


def _against(rows: Sequence[Row], cost: Callable[[Row], float], axis: str, caption: str) -> Picture:
    """P@1 against a cost, on a logarithmic axis."""
    xs, ys = [cost(row) for row in rows], [row.metrics["P@1"] for row in rows]
    with figure(6.4, 4.2) as fig:
        axes = fig.axes[0]
        axes.set_xscale("log")
        front = _front(list(zip(xs, ys, strict=True)))
        axes.plot(*zip(*front, strict=True), color="#808080", linewidth=1, alpha=0.5, zorder=1)
        for i, row in enumerate(rows):
            low, high = row.intervals["P@1"]
            colour = COLOURS[i % len(COLOURS)]
            bars = [[ys[i] - low], [high - ys[i]]]
            axes.errorbar(xs[i], ys[i], yerr=bars, fmt=_marker(row), color=colour, markersize=8, elinewidth=1)
        axes.set_xlim(min(xs) / 2, max(xs) * 2)
        axes.margins(y=0.12)
        _ticks(axes)
        axes.set_xlabel(axis)
        axes.set_ylabel("P@1, %")
        _name_points(fig, axes, xs, ys, _short_names(rows))
        return picture(fig, caption)


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both, the cheapest first.

    >>> _front([(2, 5), (1, 3), (3, 4), (4, 6)])
    [(1, 3), (2, 5), (4, 6)]
    """
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return kept


def _marker(row: Row) -> str:
    return "s" if row.method.startswith("peer:") else "o"


def _ticks(axes: Any) -> None:
    """Ticks at times that people name, few of them whatever the range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_xlim()
    every = [_times(steps) for steps in ((1, 2, 5), (1, 3), (1,))]
    seen = [{at: name for at, name in times.items() if low <= at <= high} for times in every]
    shown = next((times for times in seen if len(times) <= MOST_TICKS), seen[-1])
    axes.xaxis.set_major_locator(FixedLocator(list(shown)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: shown.get(at, "")))


def _times(steps: Sequence[int]) -> dict[float, str]:
    """Times in seconds, and their names.

    >>> list(_times([1, 3]).values())[6:14]
    ['1 ms', '3 ms', '10 ms', '30 ms', '100 ms', '300 ms', '1 s', '3 s']
    """
    found = {}
    for (unit, name), (following, _) in pairwise(UNITS):
        for power in range(4):
            for step in steps:
                at = step * 10**power * unit
                if at * 1.7 < following:  # 50 s would stand too close to 1 min
                    found[at] = f"{step * 10**power} {name}"
    return found


def _name_points(fig: Any, axes: Any, xs: Sequence[float], ys: Sequence[float], names: Sequence[str]) -> None:
    """Write a name beside each point, where it covers least of other points, names and the frame."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(fig).get_renderer()
    fig.draw_without_rendering()  # lays the figure out
    frame = axes.get_window_extent(renderer)
    points = [axes.transData.transform(point) for point in zip(xs, ys, strict=True)]
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in points]
    for (x, y), name in zip(points, names, strict=True):
        text = axes.annotate(name, (0, 0), xycoords="figure pixels", fontsize=9)
        size = text.get_window_extent(renderer)
        text.remove()
        width, height = size.width, size.height
        places = [
            (x + dx - width * share, y + dy - height / 2)
            for dy in (0, 12, -12, 24, -24, 36, -36)
            for dx, share in ((11, 0.0), (-11, 1.0), (0, 0.5))
            if dy or share != 0.5
        ]
        left, bottom = min(places, key=lambda place: _covered(place, (width, height), taken, frame))
        taken.append((left, bottom, left + width, bottom + height))
        at = axes.transData.inverted().transform((left, bottom))
        axes.annotate(name, at, fontsize=9, va="bottom", annotation_clip=False)


def _covered(place: tuple[float, float], size: tuple[float, float], taken: Any, frame: Any) -> float:
    """Pixels of what is there that a name at this place would cover; leaving the frame counts most."""
    left, bottom = place
    right, top = left + size[0], bottom + size[1]
    outside = max(0.0, frame.x0 - left) + max(0.0, right - frame.x1)
    outside += max(0.0, frame.y0 - bottom) + max(0.0, top - frame.y1)
    covered = 100.0 * outside
    for x0, y0, x1, y1 in taken:
        covered += max(0.0, min(right, x1) - max(left, x0)) * max(0.0, min(top, y1) - max(bottom, y0))
    return float(covered)


def _bars(rows: Sequence[Row]) -> Picture:
    """R@5 of each group of labels, the methods side by side."""
    width = 0.8 / len(rows)
    with figure(6.4, 3.4 + 0.22 * math.ceil(len(rows) / 2)) as fig:
        axes = fig.axes[0]
        for i, (row, name) in enumerate(zip(rows, _short_names(rows), strict=True)):
            at = [group + (i - (len(rows) - 1) / 2) * width for group in range(len(SLICES))]
            heights = [row.slices[group][RECALL] for group in SLICES]
            hatch = "///" if row.method.startswith("peer:") else None
            colour = COLOURS[i % len(COLOURS)]
            axes.bar(
                at,
                heights,
                width * 0.92,
                label=name,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
        axes.set_xticks(range(len(SLICES)), [f"{name} labels" for name in SLICES])
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(f"{RECALL}, %")
        fig.legend(loc="outside lower center", ncols=2, fontsize=9)
        return picture(
            fig, f"{RECALL} on frequent (head), middling (torso) and rare (tail) labels; peers are hatched."
        )


def _short_names(rows: Sequence[Row]) -> list[str]:
    """Names for plots: long ones are cut, and then numbered where that makes them equal."""
    cut = [_cut(row.method) for row in rows]
    named = [f"{name} ({i + 1})" if cut.count(name) > 1 else name for i, name in enumerate(cut)]
    return [name.replace("$", r"\$") for name in named]  # no formula


def _cut(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


# How ------------------------------------------------------------------------------------------------------


def _how(found: Comparison) -> Iterator[Part | str]:
    yield (
        "Every method is trained and asked in a process of its own, one after another, with the same number "
        "of threads. Documents without labels are left out; labels never seen in training count as missed. "
        "Peers are the libraries named below, with their own defaults unless a setting is shown."
    )
    if features := found.facts.get("features"):
        yield _features(features)
    rows = [[row.method, READS[row.reads], ", ".join(row.software)] for row in found.rows]
    yield Table(["method", "reads", "software"], rows)
    resumed = [row.method for row in found.finished if row.measured["train"].get("stops")]
    if resumed:
        yield f"Stopped and gone on, the time of all parts counted: {_listed(resumed)}."
    if found.facts:
        yield Table(["", ""], _facts(found.facts))


READS = {"features": "tf-idf", "texts": "texts", "both": "texts and tf-idf"}


def _features(features: dict[str, Any]) -> str:
    told = f"Methods that read tf-idf are given the same {features['columns']:,} columns"
    if "seconds" not in features:
        return told + ", those that the documents came with."
    return (
        f"{told}, made once by this package in {seconds(features['seconds'])} for the training documents and "
        f"{seconds(features['single_ms'] / 1000)} for a single text. That is not in their times; methods that "
        "read texts do all of it themselves."
    )


def _facts(facts: dict[str, Any]) -> list[list[str]]:
    data, machine = facts["data"], facts["machine"]
    memory = "" if machine["memory_gib"] is None else f", {machine['memory_gib']} GiB"
    return [
        ["split", data["split"]],
        ["true labels never seen in training", f"{data['unseen_share']:.1f}%"],
        ["threads", str(facts["threads"])],
        ["machine", f"{machine['cpu']}, {machine['cores']} cores{memory}, {machine['system']}"],
        ["software", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())],
        ["date", facts["date"]],
    ]
