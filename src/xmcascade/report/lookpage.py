"""Where an encoder looks, on a page: self-attention, how widely attention is spread, how levels differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from xmcascade.report import inspectplots as plots
from xmcascade.report.inspect import Looking
from xmcascade.report.page import Part, Picture, Table

__all__ = ["LookingParts"]

Draw = Callable[[str, AbstractContextManager[Any], str], Picture]


@dataclass(frozen=True, eq=False)
class LookingParts:
    """The parts of the sections on one encoder."""

    looking: Looking
    draw: Draw

    @property
    def names(self) -> list[str]:
        """Of the levels."""
        n = len(self.looking.reads) if self.looking.entropy is None else self.looking.entropy.shape[1]
        return [f"level {t + 1}" if t + 1 < n else "labels" for t in range(n)]

    def where(self) -> list[Part | str]:
        """Self-attention by layer, and entropy by level, or by layer where only one is read."""
        looking = self.looking
        own, parts, names, of = looking.entropy, self._itself(), self.names, "level"
        before = None if looking.before is None else looking.before.levels
        if own is None and looking.attention is not None:
            own, of = looking.attention.layers, "encoder layer"
            before = None if looking.before is None else looking.before.layers
            names = [str(i + 1) for i in range(own.shape[1])]
        if own is None:
            return parts
        caption = f"Entropy of attention over {looking.n_docs:,} documents; a box is the middle half of them."
        return [
            *parts,
            f"How many tokens each {of} attends to. A bit more is twice as many: 4 bits are as if 16 tokens "
            "counted alike. Where boxes fall, finer levels look at fewer tokens (Figure 3).",
            self.draw("entropy", plots.entropy_plot(names, own, before, of), caption),
        ]

    def _itself(self) -> list[Part | str]:
        looking = self.looking
        if looking.attention is None:
            return []
        text = (
            "An encoder rewrites every token, layer by layer, from what it takes of all tokens. If the "
            "summary token took mostly from itself, a layer would repeat the one below; where it takes "
            "little, the layer gathers afresh what its level needs (Figure 2 of the CascadeXML paper). "
            "Green: layers that levels read."
        )
        if looking.pooling == "mean":
            text += " This model reads the mean of all tokens, so the last plot is the one that counts."
        plot = plots.self_attention_plot(looking.attention, looking.before, looking.reads)
        caption = "How much of itself a token keeps at each encoder layer."
        return [text, self.draw("self-attention", plot, caption)]

    def levels(self) -> list[Part | str]:
        """Similarity of features and of attention between levels."""
        looking = self.looking
        assert looking.similarity is not None
        matrices = {"features": looking.similarity.values}
        if looking.similarity_before is not None:
            matrices["features before training"] = looking.similarity_before.values
        if looking.attention is not None:
            matrices["attention"] = looking.attention.overlap
        text = (
            "Features: 1 where what one level reads of a text can be computed from what another reads, by a "
            f"linear map (PWCCA, Figure 4); unrelated ones would have {looking.similarity.chance:.2f} here. "
            "Attention: the share that two levels spend on the same tokens. Neighbours should be alike; the "
            "first level and the labels as different as their tasks are."
        )
        if len(set(looking.reads)) == 1:
            text += " In this model all levels read the same layers, so they cannot differ."
        facts = zip(self.names, looking.reads, looking.similarity.directions, strict=True)
        rows = [[name, ", ".join(map(str, layers)), directions] for name, layers, directions in facts]
        plot = plots.matrix_plot(self.names, matrices)
        return [
            text,
            self.draw("similarity", plot, "How alike the levels are, from 0 to 1."),
            Table(["level", "reads encoder layers", "directions compared"], rows),
        ]
