"""Checks of single values: a text's characters, a label, weights, an id.

Each raises `Refused` with the field and a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = [
    "Refused",
    "check_unicode",
    "checked_id",
    "checked_label",
    "checked_weights",
    "is_missing",
    "kind",
    "listed_labels",
]

LEAST_WEIGHT, MOST_WEIGHT = 1.2e-38, 3.4e38  # beyond these a 32-bit float is 0 or infinite


class Refused(Exception):
    """One document cannot be taken; on_error decides what follows."""

    def __init__(self, reason: str, what: str, field: str, remedy: str) -> None:
        self.reason, self.what, self.field, self.remedy = reason, what, field, remedy
        super().__init__(what)


def check_unicode(string: str, what: str, field: str) -> None:
    """Refuse half of a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        string.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(string[error.start]):04X}"
        remedy = "remove it; half of a surrogate pair is not a character"
        message = f"the {what} holds {code} at character {error.start + 1}"
        raise Refused(f"{what} not Unicode", message, field, remedy) from None


def listed_labels(labels: Any, field: str) -> list[Any]:
    """Any iterable of labels as a list; a string is not one."""
    if isinstance(labels, str):
        what = f"{labels!r:.60} is a string, not a list of labels"
        raise Refused("labels not a list", what, field, f"write [{labels!r:.60}]")
    if not isinstance(labels, (bytes, Mapping)):
        try:
            return list(labels)
        except TypeError:
            pass
    what = f"the labels are {kind(labels)}, not a list"
    raise Refused("labels not a list", what, field, "write a list of strings, [] for none")


def checked_label(label: Any, i: int, field: str) -> str:
    """The label, which must be a string."""
    if isinstance(label, str):
        return str(label)
    remedy = "write every label as a string"
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool) and abs(int(label)) < 10**18:
        remedy = f'write "{label}", or give a file of names for the numbers (label_names=; --label-names)'
    raise Refused("label not a string", f"label {i + 1} is {kind(label)}, not a string", field, remedy)


def checked_weights(weights: Any, ids: dict[int, int], n_labels: int, field: str) -> list[float]:
    """The weights of the labels that were kept (id -> place among those given)."""
    try:
        if isinstance(weights, (str, bytes, Mapping)):
            raise TypeError
        given = list(weights)
    except TypeError:
        what = f"the weights are {kind(weights)}, not a list"
        raise Refused("weights not a list", what, field, "write a list of numbers") from None
    if len(given) != n_labels:
        what = f"{len(given):,} weights for {n_labels:,} labels"
        raise Refused("weights do not fit", what, field, "give one for each label, in the same order")
    for i, value in enumerate(given):
        number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not number or not LEAST_WEIGHT < value < MOST_WEIGHT:
            what, remedy = (
                f"weight {i + 1} is {kind(value)}",
                "use numbers above 0 (and within 32-bit floats)",
            )
            raise Refused("weight not a positive number", what, field, remedy)
    return [float(given[i]) for i in ids.values()]


def checked_id(doc_id: Any, field: str) -> str:
    """The id as a string; an integer will do."""
    if isinstance(doc_id, bool) or not isinstance(doc_id, (str, int, np.integer)) or _is_huge(doc_id):
        what = f"the id is {kind(doc_id)}"
        raise Refused("id not a string", what, field, "write it as a string or an integer")
    name = str(doc_id)
    if not name.isascii():
        check_unicode(name, "id", field)
    return name


def is_missing(value: Any) -> bool:
    """Whether this stands for no value: None, NaN, or pandas' NA and NaT.

    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _is_huge(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > 4096  # Python refuses to print far longer ones


def kind(value: Any) -> str:
    """How a person would name this value."""
    if value is None:
        return "null"
    if is_missing(value):
        return "NaN"
    if isinstance(value, bool):
        return f"a truth value ({value})"
    if _is_huge(value):
        return "a huge number"
    if isinstance(value, (int, float, np.number)):
        return f"a number ({value!s:.40})"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, str):
        return f"{value!r:.40}"
    return f"of type {type(value).__name__}"
