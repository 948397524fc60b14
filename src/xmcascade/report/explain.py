"""Why a text got its labels: the way through the tree to each, and what spoke for it at every level.

Where words or mean-pooled tokens decide, what is told of them is exact: the parts add up to the score. With a
summary token (or AttentionXML) it is how much attention each token gets: where a level looks, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xmcascade.errors import DataError
from xmcascade.models import Model
from xmcascade.models.inputs import as_documents
from xmcascade.models.views import Inside, Step, View, look_inside
from xmcascade.report.names import TreeNames

__all__ = ["Explanation", "Label", "Opinion", "Stop", "Token", "explain", "names_of"]


@dataclass(frozen=True)
class Token:
    """A token of the text: the characters from start to end; none where the tokenizer added it."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Opinion:
    """One of those that a model's answer is made of: an encoder's, linear rows', a tree's, a member's."""

    name: str
    share: float
    """How much it counts."""
    how: str
    """What is told of tokens: "parts" of the score, or "attention" to them."""
    tokens: tuple[Token, ...]
    """As it reads the text; none where it reads words only."""


@dataclass(frozen=True)
class Stop:
    """A node on the way to a label."""

    level: int
    node: int
    name: str
    """A label's own, or typical words of a cluster."""
    n_labels: int
    """Labels below it."""
    score: float
    probability: float
    bias: float
    """What the score has before the text is read."""
    words: tuple[tuple[str, float], ...]
    """What each word adds to the score, the strongest first."""
    tokens: tuple[float, ...]
    """What each token adds to the score, or the attention it gets."""


@dataclass(frozen=True)
class Label:
    """A predicted label."""

    name: str
    score: float
    probability: float
    paths: tuple[tuple[Stop, ...], ...]
    """In each opinion, from the coarsest level to the label."""


@dataclass(frozen=True)
class Explanation:
    """Why a text got its labels."""

    text: str
    opinions: tuple[Opinion, ...]
    labels: tuple[Label, ...]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON.

        >>> from xmcascade import XRLinear
        >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> told = explain(model, "an apple", k=1).to_dict()
        >>> told["labels"][0]["name"], told["labels"][0]["paths"][0][-1]["words"][0]["word"]
        ('fruit', 'apple')
        """
        return {
            "text": self.text,
            "opinions": [
                {
                    "name": own.name,
                    "share": own.share,
                    "how": own.how,
                    "tokens": [vars(token).copy() for token in own.tokens],
                }
                for own in self.opinions
            ],
            "labels": [
                {
                    "name": label.name,
                    "score": label.score,
                    "probability": label.probability,
                    "paths": [[_plain(stop) for stop in path] for path in label.paths],
                }
                for label in self.labels
            ],
        }


def _plain(stop: Stop) -> dict[str, Any]:
    words = [{"word": word, "part": part} for word, part in stop.words]
    return {**vars(stop), "words": words, "tokens": list(stop.tokens)}


def explain(
    model: Model[Any, Any], text: str, k: int = 5, *, allowed_labels: Sequence[str] | None = None
) -> Explanation:
    """Explain the k best labels of a text, of all or of those that are allowed.

    >>> from xmcascade import XRLinear
    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> found = explain(model, "an apple in the sky", k=1)
    >>> (stop,) = found.labels[0].paths[0]
    >>> stop.name, {word for word, _ in stop.words} == {"apple", "sky"}
    ('fruit', True)
    """
    if not isinstance(text, str):
        raise DataError(f"the text is a {type(text).__name__}", remedy="give one string")
    inside, ranking = look_inside(model), model.rank([text], k, allowed_labels=allowed_labels)
    document = as_documents([text])
    found = ranking.labels[0][ranking.labels[0] >= 0]
    told = [view.told(document, found) for view in inside.views]
    opinions = [
        Opinion(view.name, view.share, view.how, tuple(Token(*token) for token in own.tokens))
        for view, own in zip(inside.views, told, strict=True)
    ]
    labels = []
    for i, label in enumerate(found.tolist()):
        each = zip(inside.views, told, strict=True)
        paths = tuple(tuple(_stop(inside, view, step) for step in own.paths[i]) for view, own in each)
        scores = float(ranking.scores[0, i]), float(ranking.probabilities[0, i])
        labels.append(Label(inside.label_names[label], *scores, paths))
    return Explanation(text, tuple(opinions), tuple(labels))


def _stop(inside: Inside, view: View, step: Step) -> Stop:
    name, n_labels = inside.label_names[step.node], 1
    if view.tree is not None:
        name = names_of(inside, view).of(step.level, step.node)
        n_labels = len(view.tree.below(step.level, step.node))
    tokens = tuple(np.asarray(step.tokens, np.float64).tolist())
    numbers = step.score, step.probability, step.bias
    return Stop(step.level, step.node, name, n_labels, *numbers, step.words, tokens)


def names_of(inside: Inside, view: View) -> TreeNames:
    """The names of a view's clusters; made once for a tree.

    >>> from xmcascade import XRLinear
    >>> inside = look_inside(XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]]))
    >>> names_of(inside, inside.views[0]).of(0, 0)
    'fruit'
    """
    tree = view.tree
    assert tree is not None
    kept = vars(tree)  # where its cached properties are: they go together
    if "_names" not in kept:
        kept["_names"] = TreeNames(inside.label_names, inside.label_counts, tree, view)
    names: TreeNames = kept["_names"]
    return names
