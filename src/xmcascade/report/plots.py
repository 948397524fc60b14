"""Plots in one style: drawn without a screen, as SVG in a page or as files.

Colours are told apart by people who see few of them (Okabe and Ito's), in the light and in the dark.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xmcascade.errors import SettingError
from xmcascade.report.page import Markup, Picture
from xmcascade.store.files import replacing_file

__all__ = ["COLOURS", "figure", "picture", "save_figure"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b3a800")
GREY = "#808080"  # of axes and words; on a page they take the page's colour
STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 10,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "lines.linewidth": 2,
    "svg.fonttype": "none",  # words stay words: they can be searched and read aloud
    "svg.hashsalt": "xmcascade",  # the same plot is the same bytes
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


@contextmanager
def figure(width: float = 6.4, height: float = 3.6, columns: int = 1) -> Iterator[Any]:
    """A matplotlib figure in the house's style; its `axes` are there, as many as columns. Inches.

    >>> with figure() as fig:
    ...     _ = fig.axes[0].plot([1, 2], [3, 4])
    ...     drawn = picture(fig, "A line")
    >>> "<svg" in drawn.html.text
    True
    """
    try:
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure
    except ImportError as error:
        what = f"plots need matplotlib, which is not installed ({error})"
        raise SettingError(what, remedy='pip install "xmcascade[report]"') from error
    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        fig = Figure(figsize=(width, height), layout="constrained")  # not pyplot's: nobody has to close it
        fig.subplots(1, columns)
        yield fig


def picture(fig: Any, caption: str) -> Picture:
    """A figure as SVG, for a page; the caption says what it shows, also to those who do not see it.

    >>> with figure() as fig:
    ...     picture(fig, "Nothing yet").caption
    'Nothing yet'
    """
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context(STYLE):
        fig.savefig(stream, format="svg", metadata={"Date": None})
    svg = stream.getvalue().replace(GREY, "currentColor")
    return Picture(Markup(svg[svg.index("<svg") :]), caption)


def save_figure(fig: Any, path: str | Path) -> None:
    """Write a figure as a file, .png or .svg by its name; it appears whole or not at all.

    >>> with figure() as fig:
    ...     save_figure(fig, "plot.pdf")
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: a picture 'plot.pdf'. Remedy: name it .png or .svg
    """
    import matplotlib

    kind = Path(path).suffix.lstrip(".")
    if kind not in ("png", "svg"):
        raise SettingError(f"a picture {str(path)!r}", remedy="name it .png or .svg")
    with matplotlib.rc_context(STYLE), replacing_file(path) as stream:
        # Files are looked at anywhere: they bring their own white paper.
        facts = {"Date": None} if kind == "svg" else {"Software": None}
        fig.savefig(stream, format=kind, dpi=150, facecolor="white", metadata=facts)
