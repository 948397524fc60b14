"""Corpora by name or by path: what every command that takes DATA understands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.docstrings import build_docstrings
from xmcascade.corpus.readers import read_corpus
from xmcascade.corpus.reading import ReadSettings

__all__ = ["BUILT_IN", "load_corpus"]

BUILT_IN = {"docstrings": build_docstrings}


def load_corpus(
    source: str | Path,
    part: Literal["train", "test"] = "train",
    settings: ReadSettings | None = None,
    **values: Any,
) -> Corpus:
    """A built-in corpus by its name ("docstrings"), or any file that `read_corpus` reads.

    A file of that name goes first. The part matters only for built-in corpora.

    >>> load_corpus("docstings.csv")
    Traceback (most recent call last):
    ...
    xmcascade.errors.DataError: docstings.csv: there is no such file. Remedy: check the path
    """
    if str(source) in BUILT_IN and not Path(source).exists():
        train, test = BUILT_IN[str(source)]()
        return train if part == "train" else test
    return read_corpus(source, settings, **values)
