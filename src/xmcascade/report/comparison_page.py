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
from xmcascade.report.page import Number, Page, Part, Picture, Table
from xmcascade.report.plots import COLOURS, figure, picture

__all__ = ["name_boxes", "page_of"]

log = logging.getLogger("xmcascade")

NAME_LENGTH = 40  # characters of a method's name in a plot
NAME_SIZE = 8.5
FAR = 16  # pixels; a name farther from its point than this is joined to it by a line
LINE_PARTS, FRONT_PARTS = 12, 40  # places at which it is looked what a line meets
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top
MOST_TICKS = 8
UNITS = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"), (1e8, ""))
STYLE = """
main td:first-child { min-width: 10rem; overflow-wrap: anywhere }
main td.number, main th.number { padding-left: .6rem; padding-right: .5rem }
@media (max-width: 56rem) { main td:first-child { min-width: 8rem }
  figure { overflow-x: auto } figure svg { min-width: 34rem } }
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


def _summary(found: Comparison) -> Iterator[Part | str]:
    """Who is best at what."""
    rows = found.finished
    winners: list[list[Any]] = [["P@1", max(rows, key=lambda row: row.metrics["P@1"]), ""]]
    winners.append(["rare labels (PSP@5)", max(rows, key=lambda row: row.metrics["PSP@5"]), ""])
    for title, cost, told in (
        ("training time", _training, seconds),
        ("time for one document", _latency, seconds),
        ("size of the model", _size, megabytes),
    ):
        best = min(rows, key=cost)
        winners.append([title, best, told(cost(best))])
    cells = [
        [title, row.method, Number(told), row.metrics["P@1"], row.metrics["PSP@5"]]
        for title, row, told in winners
    ]
    yield Table(["best by", "method", "", "P@1", "PSP@5"], cells, [(0, 3), (1, 4), (2, 2), (3, 2), (4, 2)])
    alike = [name for name, tested in found.tested.items() if not tested["P@1"].significant]
    if alike and found.baseline == winners[0][1].method:
        yield f"By P@1 not told apart from the best (see Differences): {_listed(alike)}."


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
    with figure(6.8, 4.6) as fig:
        axes = fig.axes[0]
        axes.set_xscale("log")
        front = _front(list(zip(xs, ys, strict=True)))
        axes.plot(*zip(*front, strict=True), color="#808080", linewidth=1, alpha=0.5, zorder=1)
        spans = [row.intervals["P@1"] for row in rows]
        for i, (row, (low, high)) in enumerate(zip(rows, spans, strict=True)):
            colour, bars = COLOURS[i % len(COLOURS)], [[ys[i] - low], [high - ys[i]]]
            axes.errorbar(xs[i], ys[i], yerr=bars, color=colour, elinewidth=1, alpha=0.45, zorder=2)
            axes.plot(xs[i], ys[i], _marker(row), color=colour, markersize=8, zorder=3)
        axes.set_xlim(min(xs) / 2, max(xs) * 2)
        axes.margins(y=0.12)
        _ticks(axes)
        axes.set_xlabel(axis)
        axes.set_ylabel("P@1, %")
        _name_points(fig, list(zip(xs, ys, strict=True)), spans, front, _short_names(rows))
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


def _name_points(
    fig: Any, points: Sequence[Point], spans: Sequence[Point], front: Sequence[Point], names: Sequence[str]
) -> None:
    """Write a name beside each point, joined to it by a line where it had to go far."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer, axes = FigureCanvasAgg(fig).get_renderer(), fig.axes[0]
    fig.draw_without_rendering()  # lays the figure out
    pixels, back = axes.transData.transform, axes.transData.inverted().transform
    sizes, bars = [], []
    for name, (x, _), (low, high) in zip(names, points, spans, strict=True):
        text = axes.annotate(name, (0, 0), xycoords="figure pixels", fontsize=NAME_SIZE)
        sizes.append(tuple(text.get_window_extent(renderer).size))
        text.remove()
        (left, bottom), (_, top) = pixels([(x, low), (x, high)])
        bars.append((left - 3, bottom, left + 3, top))
    for one, other in pairwise(pixels(front)):
        bars += [_around(one + (other - one) * part / FRONT_PARTS) for part in range(FRONT_PARTS)]
    places = [tuple(point) for point in pixels(points)]
    boxes = name_boxes(places, sizes, bars, axes.get_window_extent(renderer).extents)
    for name, box, point in zip(names, boxes, places, strict=True):
        axes.annotate(name, back(box[:2]), fontsize=NAME_SIZE, va="bottom", annotation_clip=False)
        if line := _line(box, point):
            ends = zip(back(point), back(line[-1]), strict=True)
            axes.plot(*ends, color="#808080", linewidth=0.6, zorder=1)


def name_boxes(
    points: Sequence[Point], sizes: Sequence[Point], bars: Sequence[Box], frame: Sequence[float]
) -> list[Box]:
    """Where names go: each covers as little as can be of the points, what is drawn at them and other names.

    >>> name_boxes([(50, 50), (50, 50)], [(20, 10), (20, 10)], [], (0, 0, 100, 100))
    [(61.0, 45.0, 81.0, 55.0), (19.0, 45.0, 39.0, 55.0)]
    """
    taken = [*bars, *((x - 7, y - 7, x + 7, y + 7) for x, y in points)]
    found = []
    for point, size in zip(points, sizes, strict=True):
        box = min(_places(point, *size), key=lambda box: _cost(box, point, taken, frame))
        found.append(box)
        taken += [box, *map(_around, _line(box, point))]
    return found


def _around(point: Point) -> Box:
    """What a line takes at a point."""
    return point[0] - 2, point[1] - 2, point[0] + 2, point[1] + 2


def _places(point: Point, width: float, height: float) -> Iterator[Box]:
    """Where a name can stand: beside its point, above or below, nearer or farther."""
    for up in range(0, 120, 6):
        for dy in (up, -up):
            for dx, share in ((11, 0.0), (-11, 1.0), (0, 0.5), (30, 0.0), (-30, 1.0)):
                if up > 12 or share != 0.5:
                    left, bottom = point[0] + dx - width * share, point[1] + dy - height / 2
                    yield left, bottom, left + width, bottom + height


def _cost(box: Box, point: Point, taken: Sequence[Box], frame: Sequence[float]) -> float:
    """How bad a place is: outside the frame, on top of something, its line across something, or far away."""
    outside = sum(max(0.0, frame[i] - box[i]) + max(0.0, box[i + 2] - frame[i + 2]) for i in range(2))
    line = _line(box, point)
    crossed = sum(x0 < x < x1 and y0 < y < y1 for x, y in line for x0, y0, x1, y1 in taken)
    return 100 * outside + sum(_shared(box, one) for one in taken) + 50 * crossed + _near(box, point)[1]


def _shared(one: Box, other: Box) -> float:
    """The area in both."""
    sides = [min(one[i + 2], other[i + 2]) - max(one[i], other[i]) for i in range(2)]
    return max(0.0, sides[0]) * max(0.0, sides[1])


def _near(box: Box, point: Point) -> tuple[Point, float]:
    """The place of a name that is nearest to its point, and how far that is."""
    x, y = (min(max(point[i], box[i]), box[i + 2]) for i in range(2))
    return (x, y), math.dist((x, y), point)


def _line(box: Box, point: Point) -> list[Point]:
    """Places along the line that joins a name to its point; none where it is near enough to need no line."""
    (x, y), far = _near(box, point)
    if far <= FAR:
        return []
    shares = [part / LINE_PARTS for part in range(2, LINE_PARTS + 1)]  # the first lie on the point itself
    return [(point[0] + share * (x - point[0]), point[1] + share * (y - point[1])) for share in shares]


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
    if models := [row.model for row in found.finished if row.model]:
        yield f"Trained models are kept, beside this page: {_listed(models)}."
    if len({row.measured.get("date") for row in found.finished}) > 1:
        yield "Not all were measured on the same day: their seconds may not compare."
    if found.facts:
        yield Table(["", ""], _facts(found.facts))


READS = {"features": "tf-idf", "texts": "texts", "both": "texts and tf-idf"}


def _features(features: dict[str, Any]) -> str:
    told = f"Methods that read tf-idf are given the same {features['columns']:,} columns"
    if "seconds" not in features:
        return told + ", those that the documents came with."
    return (
        f"{told}, made once by this package in {seconds(features['seconds'])} for the training documents and "
        f"{seconds(features['single_ms'] / 1000)} for a single text. That is not in their times; methods "
        "that read texts do all of it themselves."
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
