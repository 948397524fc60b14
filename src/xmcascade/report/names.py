"""Clusters named by the words that are typical of their labels' names.

A word is typical where many labels of the cluster have it, and frequent ones, and few elsewhere. Where names
are no words (numbers, codes), the words that speak for the cluster in a linear model name it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.features import Tfidf
from xmcascade.models.views import View
from xmcascade.store import Strings
from xmcascade.tree import LabelTree

__all__ = ["TreeNames", "shortened"]

WORDS = 3  # of a name
LONGEST = 80  # characters of a label's name where many stand together
# Words of names that tell nothing of a cluster.
COMMON = {
    *("and", "as", "at", "by", "for", "from", "in", "non", "of", "on", "or", "other", "the", "to", "with"),
    *("de", "des", "di", "du", "la", "le", "les", "und"),
}


class TreeNames:
    """Names of a tree's nodes, each made when it is asked for.

    >>> names = Strings.of(["red apple", "green apple", "blue car", "old car"])
    >>> tree = LabelTree(np.arange(4), (np.array([0, 2, 4]),))
    >>> typical = TreeNames(names, np.array([5, 4, 3, 2]), tree)
    >>> typical.of(0, 0), typical.of(0, 1), typical.of(1, 3)
    ('apple, red, green', 'car, blue, old', 'old car')
    """

    def __init__(
        self,
        label_names: Strings,
        label_counts: npt.NDArray[np.int64],
        tree: LabelTree,
        view: View | None = None,
    ) -> None:
        """Of labels with so many training documents; view: where words come from when names are none."""
        self.label_names, self.label_counts, self.tree, self.view = label_names, label_counts, tree, view
        self._known: dict[tuple[int, int], str] = {}

    def of(self, level: int, node: int) -> str:
        """The name of a node: a label's own, a cluster's typical words."""
        if level == self.tree.n_levels - 1:
            return self.label_names[int(self.tree.order[node])]
        if (level, node) not in self._known:
            self._known[level, node] = self._made(level, node)
        return self._known[level, node]

    def _made(self, level: int, node: int) -> str:
        words: list[str] = []
        if self._are_codes and self.view is not None:
            words = [word for word, _ in self.view.speaking(level, node, WORDS)]
        words = words or self._typical(level, node)
        if not words:  # names without a letter: those of its most frequent labels
            below = self.tree.order[list(self.tree.below(level, node))]
            best = below[np.lexsort((below, -self.label_counts[below]))][:WORDS]
            words = [shortened(self.label_names[int(label)], LONGEST // 2) for label in best]
        return ", ".join(words)

    def _typical(self, level: int, node: int) -> list[str]:
        terms, by_position, total = self._words
        below = self.tree.below(level, node)
        part = by_position[below.start : below.stop]
        found, place = np.unique(part.indices, return_inverse=True)
        own = np.bincount(place, part.data, len(found))
        # How much more of the word's weight is here than would be by chance (its term of a divergence).
        share = own / max(float(part.data.sum()), 1e-12)
        typical = share * np.log(share / (total[found] / total.sum()) + 1e-12)
        if not (typical > 1e-9).any():
            typical = share  # nothing tells this cluster from the others
        best = np.lexsort((found, -typical))[:WORDS]
        return [terms[int(found[i])] for i in best if typical[i] > 1e-9]

    @cached_property
    def _words(self) -> tuple[Strings, Any, npt.NDArray[np.float64]]:
        """Words of names; labels in tree order x words, by how frequent the label is; and their sums."""
        counter = Tfidf(idf=False, l2=False, sublinear=False)
        counts = counter.fit_transform(self.label_names).tocsr()
        assert counter.terms is not None
        told = np.array([term[0].isalpha() and term not in COMMON for term in counter.terms], np.float64)
        weights = np.log1p(self.label_counts.astype(np.float64)) + 0.1
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        data = (counts.data > 0) * weights[rows] * told[counts.indices]
        weighed = sp.csr_matrix((data, counts.indices, counts.indptr), counts.shape)
        weighed.eliminate_zeros()
        total = np.asarray(weighed.sum(axis=0)).ravel()
        return counter.terms, weighed[self.tree.order], total

    @cached_property
    def _are_codes(self) -> bool:
        """Whether most names have no word of three letters."""
        told = [any(len(word) > 2 and word.isalpha() for word in name.split()) for name in self.label_names]
        return sum(told) * 2 < len(told)


def shortened(name: str, most: int = LONGEST) -> str:
    """A name or text in one line, cut where it is long.

    >>> shortened("a very\\nlong name", 8)
    'a very…'
    """
    line = " ".join(name[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
