"""The plots of an inspection: each from plain numbers, in the house's style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.evaluate.calibration import Reliability
from xmcascade.report.attention import Attention
from xmcascade.report.plots import COLOURS, figure

__all__ = [
    "calibration_plot",
    "entropy_plot",
    "matrix_plot",
    "recall_plot",
    "self_attention_plot",
    "slices_plot",
]

BLUE, ORANGE, GREEN, GREY = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[6]


@contextmanager
def slices_plot(slices: Mapping[str, Mapping[str, float]], metric: str) -> Iterator[Any]:
    """Recall on frequent, middling and rare labels."""
    with figure(5.6, 3.0) as fig:
        ax = fig.axes[0]
        values = [own[metric] for own in slices.values()]
        labels = [f"{name}\n{own['labels']:,.0f} labels" for name, own in slices.items()]
        _bars(ax, labels, values)
        ax.set_ylabel(f"{metric}, %")
        yield fig


@contextmanager
def recall_plot(names: Sequence[str], clusters: Sequence[float], labels: Sequence[float]) -> Iterator[Any]:
    """True clusters that go on, by level, and true labels that can still be found; in percent."""
    with figure(6.4, 3.0) as fig:
        ax, places = fig.axes[0], np.arange(len(names))
        for shift, values, colour, name in (
            (-0.2, clusters, BLUE, "true clusters that go on"),
            (0.2, labels, GREEN, "true labels still to be found"),
        ):
            bars = ax.bar(places + shift, values, 0.36, color=colour, label=name)
            ax.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
        ax.set_xticks(places, names)
        ax.set_ylim(0, 112)
        ax.set_yticks([0, 25, 50, 75, 100])
        ax.set_ylabel("%")
        ax.grid(axis="x", visible=False)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
        yield fig


@contextmanager
def calibration_plot(found: Reliability) -> Iterator[Any]:
    """What was promised against what was right, and how many predictions there are of each kind."""
    with figure(6.4, 4.2) as fig:
        ax = fig.axes[0]
        full = found.counts > 0
        ax.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="as promised")
        points = found.confidence[full], found.accuracy[full]
        ax.plot(*points, color=BLUE, label="this model", linewidth=1.5)
        ax.scatter(*points, 8 + 60 * np.sqrt(found.counts[full] / found.counts.max()), color=BLUE, zorder=3)
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.02, 1.05)
        ax.set_xlabel("probability that was told")
        ax.set_ylabel("share that was right")
        beside = ax.twinx()
        edges = np.linspace(0, 1, len(found.counts) + 1)
        beside.bar(edges[:-1], found.counts, np.diff(edges), align="edge", color=GREY, alpha=0.22)
        beside.set_ylim(0, 3.5 * max(1, int(found.counts.max())))
        beside.set_yticks([])
        beside.grid(visible=False)
        beside.spines[:].set_visible(False)
        ax.set_zorder(beside.get_zorder() + 1)
        ax.legend(loc="upper left")
        yield fig


@contextmanager
def self_attention_plot(
    own: Attention, before: Attention | None, reads: Sequence[Sequence[int]]
) -> Iterator[Any]:
    """What the summary token, and any token, takes from itself, layer by layer, before training and after."""
    titles = {
        "self_mean": "summary token, mean over heads",
        "self_most": "summary token, head with most",
        "self_all": "all tokens, mean over heads",
    }
    with figure(10.2, 3.2, columns=3) as fig:
        for ax, (name, title) in zip(fig.axes, titles.items(), strict=True):
            mine, theirs = getattr(own, name), None if before is None else getattr(before, name)
            layers = np.arange(1, len(mine) + 1)
            if theirs is not None:
                ax.plot(layers, theirs, "s--", color=GREY, label="before training", markersize=4)
            ax.plot(layers, mine, "o-", color=BLUE, label="this model", markersize=5)
            for layer in sorted({k for read in reads for k in read if k}):
                ax.axvline(layer, color=GREEN, linewidth=6, alpha=0.13, zorder=0)
            ax.set_title(title, fontsize=10)
            ax.set_xticks(layers)
            ax.set_ylim(0, None)
            ax.set_xlabel("encoder layer")
        fig.axes[0].set_ylabel("attention to itself")
        fig.axes[0].legend()
        yield fig


@contextmanager
def entropy_plot(
    names: Sequence[str], own: npt.NDArray[Any], before: npt.NDArray[Any] | None, of: str
) -> Iterator[Any]:
    """How widely attention is spread, as a box over documents for each level (or layer)."""
    with figure(max(5.2, 1.5 * len(names)), 3.4) as fig:
        ax, places = fig.axes[0], np.arange(len(names))
        drawn = [("this model", own, BLUE, -0.18 if before is not None else 0.0)]
        if before is not None:
            drawn.append(("before training", before, GREY, 0.18))
        handles = []
        for name, values, colour, shift in drawn:
            boxes = ax.boxplot(
                list(values.T), positions=places + shift, widths=0.3, patch_artist=True, showfliers=False,
                medianprops={"color": "white"}, whiskerprops={"color": colour}, capprops={"color": colour},
                boxprops={"facecolor": colour, "edgecolor": colour}, manage_ticks=False,
            )  # fmt: skip
            boxes["boxes"][0].set_label(name)
            handles.append(boxes["boxes"][0])
        ax.set_xticks(places, names)
        ax.set_xlabel(of)
        ax.set_ylabel("entropy of attention, bits")
        ax.grid(axis="x", visible=False)
        ax.legend(handles=handles)
        yield fig


@contextmanager
def matrix_plot(names: Sequence[str], matrices: Mapping[str, npt.NDArray[Any]]) -> Iterator[Any]:
    """Numbers from 0 to 1 between levels, as squares, one matrix beside another."""
    n = len(names)
    with figure(
        0.9 + len(matrices) * max(2.6, 0.85 * n), max(2.4, 0.75 * n + 0.6), columns=len(matrices)
    ) as fig:
        for ax, (title, values) in zip(fig.axes, matrices.items(), strict=True):
            ax.imshow(values, cmap="Blues", vmin=0, vmax=1)
            for i in range(n):
                for j in range(n):
                    colour = "white" if values[i, j] > 0.55 else "#333333"
                    ax.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", color=colour, fontsize=9)
            ax.set_xticks(range(n), names)
            ax.set_yticks(range(n), names)
            ax.set_title(title, fontsize=10)
            ax.grid(visible=False)
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
        yield fig


def _bars(ax: Any, labels: Sequence[str], values: Sequence[float]) -> None:
    bars = ax.bar(
        range(len(labels)), np.nan_to_num(values), 0.55, color=[BLUE, COLOURS[5], GREEN][: len(labels)]
    )
    ax.bar_label(bars, [f"{value:.1f}" if value == value else "–" for value in values], padding=2)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_ylim(0, max(10.0, float(np.nanmax([*values, 0.0])) * 1.18))
    ax.grid(axis="x", visible=False)
