"""A cascade's training tried on held-out documents, and what is chosen on them afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xmcascade.evaluate import judge, ndcg, precision
from xmcascade.neural.cascade import Cascade, Truth
from xmcascade.neural.heads import Floats, Ints
from xmcascade.neural.training import BEST, Training

__all__ = ["CascadeTraining"]

log = logging.getLogger("xmcascade")

EXPONENTS = 0.5, 1.0
ENOUGH_RECALL, MOST_SCORED, WORSE = 0.95, 16384, 0.001  # of true clusters; labels a document; nDCG@5


@dataclass(eq=False, kw_only=True)
class CascadeTraining(Training):
    """Training of a cascade."""

    cascade: Cascade
    held: Ints
    """Documents to choose on."""
    powers: tuple[float, ...]
    """How scores of levels are combined when the model is tried."""

    def _tried(self) -> bool:
        """Try the model on the held-out documents; whether it is time to stop."""
        facts: dict[str, Any] = {"step": self.at.step, "loss": [round(level.loss, 6) for level in self.last]}
        if not len(self.held):
            return False
        self._swap()
        xs = self.held_features()
        found, _ = self.cascade.find(xs, self.powers, 5)
        judged = judge(self._labels(self.held), found)
        quality = float(ndcg(judged, min(5, found.shape[1])).mean())
        facts["P@1"] = round(100 * float(precision(judged, 1).mean()), 2)
        facts["nDCG@5"] = round(100 * quality, 2)
        facts["recall"] = [round(100 * share, 2) for share in self.cascade.recall(xs, self._known_truths())]
        facts["crowded"] = self.at.crowded
        log.info("%s: %s", self.title, ", ".join(f"{name} {value}" for name, value in facts.items()))
        self.at.history.append(facts)
        self.at.worse += 1
        if quality > self.at.best:
            self.at.best, self.at.best_step, self.at.worse = quality, self.at.step, 0
            if self.at.step < self.n_steps:
                self.best.save(BEST, self._learnt(), {})
        self._swap()
        return self.at.worse >= self.settings.patience

    def held_features(self) -> list[Floats]:
        """What the levels read of the held-out documents."""
        return self.reader.encode(self.tokens, self.held)

    def widen(self, xs: list[Floats]) -> float:
        """Let more clusters go on, until few true ones of the held-out documents are missed; returns recall.

        Not where that makes answers worse, or labels to score too many.
        """
        cascade, truths = self.cascade, self._known_truths()
        below = cascade.tree.n_labels / cascade.tree.sizes[-2]
        quality, recall = self._quality(xs, self.powers), cascade.recall(xs, truths)[-1]
        while recall < ENOUGH_RECALL and 2 * cascade.keeps[-1] * below <= MOST_SCORED:
            before = cascade.keeps
            cascade.keeps = tuple(min(2 * k, n) for k, n in zip(before, cascade.tree.sizes, strict=False))
            now = self._quality(xs, self.powers)
            if now < quality - WORSE or cascade.keeps == before:
                cascade.keeps = before
                break
            quality, recall = max(quality, now), cascade.recall(xs, truths)[-1]
        return recall

    def _quality(self, xs: list[Floats], powers: Sequence[float]) -> float:
        """nDCG@5 on the held-out documents."""
        found, _ = self.cascade.find(xs, powers, 5)
        return float(ndcg(judge(self._labels(self.held), found), found.shape[1]).mean())

    def chosen_powers(self, xs: list[Floats]) -> tuple[list[float], str]:
        """The way to combine levels that is best on the held-out documents, and why."""
        n_levels = self.cascade.tree.n_levels
        last = [0.0] * (n_levels - 1) + [1.0]
        tried = [
            last,
            *(
                [e * (t >= first) for t in range(n_levels - 1)] + [1.0]
                for first in (n_levels - 2, 0)
                for e in EXPONENTS
            ),
        ]
        quality = [self._quality(xs, powers) for powers in tried]
        best = int(np.argmax(quality))
        reason = f"nDCG@5 {100 * quality[best]:.1f} on held-out documents, with the last level alone"
        return tried[best], f"{reason} {100 * quality[0]:.1f}"

    def _labels(self, docs: Ints) -> Any:
        """Label sets by id."""
        last = self.relevance[-1][docs].copy()
        last.indices = self.cascade.tree.order[last.indices]
        last.has_sorted_indices = False
        last.sort_indices()
        return last

    def _known_truths(self) -> list[Truth]:
        """The true nodes of held-out documents, for labels that documents to learn from have too."""
        tree, labels = self.cascade.tree, self._labels(self.held)
        known = np.zeros(tree.n_labels, np.bool_)
        known[tree.order[self.relevance[-1][self.docs].indices]] = True
        labels.data[~known[labels.indices]] = 0
        labels.eliminate_zeros()
        return [Truth.of(level, slice(None)) for level in tree.relevance(labels)]
