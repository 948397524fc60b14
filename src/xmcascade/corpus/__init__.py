"""Texts and label sets come in here and are checked here, once."""

from xmcascade.corpus.builtin import BUILT_IN, load_corpus
from xmcascade.corpus.corpus import Corpus, LeftOut, near_duplicate_key
from xmcascade.corpus.docstrings import build_docstrings
from xmcascade.corpus.readers import read_corpus
from xmcascade.corpus.reading import ReadSettings
from xmcascade.corpus.synthetic import make_synthetic
from xmcascade.corpus.writers import write_corpus

__all__ = [
    "BUILT_IN",
    "Corpus",
    "LeftOut",
    "ReadSettings",
    "build_docstrings",
    "load_corpus",
    "make_synthetic",
    "near_duplicate_key",
    "read_corpus",
    "write_corpus",
]
