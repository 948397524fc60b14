"""An answer that a model folder keeps, to see after loading that the model still gives it.

Hashes say that the files are those that were saved. This says that they mean the same here: with this
version, these libraries, this machine, this runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xmcascade.errors import ModelFolderError

if TYPE_CHECKING:
    from xmcascade.models.base import Model

__all__ = ["agree", "canary_of"]

NAMES, LABELS = 8, 5
IN_COMMON = 0.8  # of the labels: equal scores may change places, and rounded encoders differ a little
APART = 0.1  # of a probability, at most


def canary_of(model: Model[Any, Any]) -> dict[str, Any] | None:
    """A text that is nobody's, names of frequent labels, and what the model says of it.

    None for a model that reads features in place of texts.

    >>> from xmcascade import XRLinear
    >>> canary_of(XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]]))["text"]
    'fruit weather'
    """
    learnt = model._fitted()
    if learnt.n_features is not None:
        return None
    frequent = np.argsort(-learnt.label_counts, kind="stable")[:NAMES]
    text = " ".join(learnt.label_names[label] for label in frequent.tolist())
    ranking = model.rank([text], LABELS)
    return {
        "text": text,
        "labels": ranking.labels[0].tolist(),
        "probabilities": [round(float(chance), 4) for chance in ranking.probabilities[0]],
    }


def agree(model: Model[Any, Any], canary: dict[str, Any], where: str) -> None:
    """Raise unless the model answers as it did when it was saved.

    >>> from xmcascade import XRLinear
    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> agree(model, canary_of(model) | {"labels": [5, 6]}, "my-model")
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: my-model: the model does not answer as it did when it was saved \
(0 of 2 labels, and probabilities 1.00 apart). Remedy: save it again with this version
    """
    ranking = model.rank([canary["text"]], LABELS)
    said = dict(zip(ranking.labels[0].tolist(), ranking.probabilities[0].tolist(), strict=True))
    kept = dict(zip(canary["labels"], canary["probabilities"], strict=True))
    common = said.keys() & kept.keys()
    apart = max((abs(said[label] - kept[label]) for label in common), default=1.0)
    if len(common) < IN_COMMON * len(kept) or not apart <= APART:
        what = f"{len(common)} of {len(kept)} labels, and probabilities {apart:.2f} apart"
        raise ModelFolderError(
            f"the model does not answer as it did when it was saved ({what})",
            where=where,
            remedy="save it again with this version",
        )
