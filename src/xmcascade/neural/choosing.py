"""A cascade's training tried on held-out documents, and what is chosen on them afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.evaluate import Propensity, judge, ndcg, precision, worth
from xmcascade.neural.cascade import Cascade, Truth
from xmcascade.neural.heads import Floats, Ints
from xmcascade.neural.training import BEST, Training
from xmcascade.progress import tell

__all__ = ["CascadeTraining", "Powers", "Trial"]

log = logging.getLogger("xmcascade")

EXPONENTS = 0.25, 0.5, 1.0
ENOUGH_RECALL, MOST_SCORED, WORSE = 0.95, 16384, 0.001  # of true clusters; labels a document; of worth

Powers = tuple[float, ...]


@dataclass(eq=False)
class Trial:
    """A cascade asked about documents that it has not learnt from."""

    cascade: Cascade
    xs: list[Floats]
    """What the levels read of them."""
    labels: Any
    """CSR, documents x labels by id."""
    counts: npt.NDArray[np.int64]
    """How many documents to learn from have each label."""
    n_docs: int
    """Documents to learn from."""
    _found: dict[Any, float] = field(default_factory=dict)

    @cached_property
    def _truths(self) -> list[Truth]:
        """The true nodes, for labels that could have been learnt."""
        labels = self.labels.copy()
        labels.data[self.counts[labels.indices] == 0] = 0
        labels.eliminate_zeros()
        return [Truth.of(level, slice(None)) for level in self.cascade.tree.relevance(labels)]

    def recall(self) -> list[float]:
        """For each level of clusters, the share of true ones that go on."""
        return self.cascade.recall(self.xs, self._truths)

    def judged(self, powers: Powers) -> Any:
        """Which of the five best labels are right."""
        return judge(self.labels, self.cascade.find(self.xs, powers, 5)[0])

    @cached_property
    def inverse(self) -> npt.NDArray[np.float64]:
        """The labels' inverse propensities."""
        return Propensity().inverse(self.counts, self.n_docs)

    def quality(self, powers: Powers) -> float:
        """What the answers are worth, with the clusters that now go on; found once."""
        key = self.cascade.keeps, powers
        if key not in self._found:
            self._found[key] = worth(self.judged(powers), self.inverse)
        return self._found[key]

    def ways(self) -> list[Powers]:
        """To combine levels: the last alone, with its cluster's, with all on the path, at some exponents."""
        above = self.cascade.tree.n_levels - 1
        firsts = sorted({max(above - 1, 0), 0}, reverse=True) if above else []
        mixed = [tuple(e * (t >= first) for t in range(above)) for first in firsts for e in EXPONENTS]
        return [(*own, 1.0) for own in dict.fromkeys([(0.0,) * above, *mixed])]

    def best(self, ways: Sequence[Powers]) -> tuple[Powers, float]:
        """The best of some ways, and its quality."""
        quality = [self.quality(powers) for powers in ways]
        at = int(np.argmax(quality))
        return ways[at], quality[at]

    def widen(self, ways: Sequence[Powers]) -> float:
        """Let more clusters go on, until few true ones are missed; returns recall at the last level of them.

        Not where that makes the best of these ways worse, or labels to score too many.
        """
        cascade = self.cascade
        below = cascade.tree.n_labels / cascade.tree.sizes[-2]
        quality, recall = self.best(ways)[1], self.recall()[-1]
        while recall < ENOUGH_RECALL and 2 * cascade.keeps[-1] * below <= MOST_SCORED:
            before = cascade.keeps
            cascade.keeps = tuple(min(2 * k, n) for k, n in zip(before, cascade.tree.sizes, strict=False))
            now = self.best(ways)[1]
            if now < quality - WORSE or cascade.keeps == before:
                cascade.keeps = before
                break
            quality, recall = max(quality, now), self.recall()[-1]
        return recall


@dataclass(eq=False, kw_only=True)
class CascadeTraining(Training):
    """Training of a cascade."""

    cascade: Cascade
    held: Ints
    """Documents to choose on."""
    powers: Powers
    """How scores of levels are combined when the model is tried."""

    def _tried(self) -> bool:
        """Try the model on the held-out documents; whether it is time to stop."""
        facts: dict[str, Any] = {"step": self.at.step, "loss": [round(level.loss, 6) for level in self.last]}
        if not len(self.held):
            return False
        self._swap()
        trial = self.trial(self.reader.encode(self.tokens, self.held))
        judged = trial.judged(self.powers)
        quality = float(ndcg(judged, min(5, self.cascade.tree.n_labels)).mean())
        facts["P@1"] = round(100 * float(precision(judged, 1).mean()), 2)
        facts["nDCG@5"] = round(100 * quality, 2)
        facts["recall"] = [round(100 * share, 2) for share in trial.recall()]
        facts["crowded"] = self.at.crowded
        log.info("%s: %s", self.title, ", ".join(f"{name} {value}" for name, value in facts.items()))
        tell("evaluation", title=self.title, **facts)
        self.at.history.append(facts)
        self.at.worse += 1
        if quality > self.at.best:
            self.at.best, self.at.best_step, self.at.worse = quality, self.at.step, 0
            if self.at.step < self.n_steps:
                self.best.save(BEST, self._learnt(), {})
        self._swap()
        return self.at.worse >= self.settings.patience

    def trial(self, xs: list[Floats]) -> Trial:
        """On the held-out documents, of which the levels read this."""
        tree, last = self.cascade.tree, self.relevance[-1]
        labels = last[self.held].copy()
        labels.indices = tree.order[labels.indices]
        labels.has_sorted_indices = False
        labels.sort_indices()
        counts = np.bincount(tree.order[last[self.docs].indices], minlength=tree.n_labels)
        return Trial(self.cascade, xs, labels, counts, len(self.docs))
