"""The label tree on a page: branches that open when they are asked to, without a script.

A tree of a million labels is not written whole: what is left out is counted where it would stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from xmcascade.report.names import TreeNames, shortened
from xmcascade.report.page import Markup
from xmcascade.tree import LabelTree

__all__ = ["TREE_STYLE", "TreePart"]

MOST_NODES = 25_000  # written: about 3 MB
MOST_SIBLINGS = 1000
TREE_STYLE = """
.tree { font-size: .92rem; margin: .8rem 0 1.4rem }
.tree details { border-left: 1px solid var(--line); margin-left: .45rem; padding-left: .9rem }
.tree > details { border: 0; margin: 0; padding: 0 }
.tree summary { cursor: pointer; padding: .16rem 0; overflow-wrap: anywhere; list-style: none; display: flex;
  gap: .6rem; align-items: baseline; flex-wrap: wrap }
.tree summary::-webkit-details-marker { display: none }
.tree summary::before { content: "+"; color: var(--mark); font-weight: 600; flex: 0 0 .8rem }
.tree details[open] > summary::before { content: "\\2212" }
.tree summary:hover b { color: var(--mark) }
.tree b { font-weight: 500 }
.tree small { color: var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap }
.tree i { flex: 0 0 4rem; align-self: center; height: .4rem; border-radius: .2rem; background: var(--line) }
.tree i u { display: block; height: 100%; border-radius: inherit; background: var(--mark) }
.tree ul { list-style: none; margin: .1rem 0 .5rem .45rem; padding: 0 0 0 1.6rem; columns: 18rem;
  column-gap: 2rem; border-left: 1px solid var(--line) }
.tree li { max-width: none; break-inside: avoid; padding: .1rem 0 }
.tree p { margin: .2rem 0 .5rem 1.6rem }
"""


@dataclass(frozen=True, eq=False)
class TreePart:
    """A tree whose branches open."""

    names: TreeNames
    most: int = MOST_NODES
    """Nodes that are written, about."""

    @property
    def tree(self) -> LabelTree:
        """What is shown."""
        return self.names.tree

    @property
    def depth(self) -> int:
        """Levels of clusters that are written; the labels below the last of them follow it."""
        return max(1, int((np.cumsum(self.tree.sizes[:-1]) <= self.most // 2).sum()))

    @cached_property
    def labels_each(self) -> int:
        """Labels of a cluster that are written, at most: so many that all clusters together fit."""
        sizes = np.sort(self._sizes)
        room = self.most - int(np.sum(self.tree.sizes[: self.depth]))
        whole = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # labels of the smaller clusters
        fits = whole + sizes * np.arange(len(sizes), 0, -1) <= room
        if fits.all():
            return int(sizes[-1])
        at = int(np.argmin(fits))
        return max(1, (room - int(whole[at])) // (len(sizes) - at))

    @property
    def n_labels_written(self) -> int:
        """Labels that the page has."""
        return int(np.minimum(self._sizes, self.labels_each).sum())

    @property
    def _sizes(self) -> Any:
        level = self.depth - 1
        return np.array([len(self.tree.below(level, i)) for i in range(self.tree.sizes[level])])

    @cached_property
    def _uses(self) -> Any:
        """How often labels before each position were used."""
        return np.concatenate([[0], np.cumsum(self.names.label_counts[self.tree.order])])

    def to_html(self) -> Markup:
        """How it looks."""
        return Markup(f"<div class=tree>{self._branches(0, range(self.tree.sizes[0]))}</div>")

    def _branches(self, level: int, nodes: range) -> str:
        shown = nodes[:MOST_SIBLINGS]
        below = [self.tree.below(level, node) for node in shown]
        used = [int(self._uses[own.stop] - self._uses[own.start]) for own in below]
        most, parts = max([*used, 1]), []
        for node, own, count in zip(shown, below, used, strict=True):
            name = escape(shortened(self.names.of(level, node)))
            width = round(100 * (count / most) ** 0.5)
            parts.append(
                f"<details><summary><i><u style=width:{width}%></u></i><b>{name}</b>"
                f"<small>{_counted(len(own), 'label')}, used {_counted(count, 'time')}</small></summary>"
            )
            if level + 1 < self.depth:
                parts.append(self._branches(level + 1, self.tree.children(level, node)))
            else:
                parts.append(self._labels(own))
            parts.append("</details>")
        return "".join(parts) + _more(len(nodes) - len(shown), "cluster")

    def _labels(self, positions: range) -> str:
        counts, labels = self.names.label_counts, self.tree.order[positions.start : positions.stop]
        shown = labels[np.lexsort((labels, -counts[labels]))][: self.labels_each]
        names = (escape(shortened(self.names.label_names[int(label)])) for label in shown)
        items = (f"<li>{name} <small>{n:,}</small>" for name, n in zip(names, counts[shown], strict=True))
        return f"<ul>{''.join(items)}</ul>" + _more(len(labels) - len(shown), "label")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _more(n: int, what: str) -> str:
    return f"<p class=soft>and {_counted(n, f'more {what}')}</p>" if n else ""
