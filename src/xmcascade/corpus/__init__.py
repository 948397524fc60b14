"""Texts and label sets come in here and are checked here, once."""

from xmcascade.corpus.corpus import Corpus, LeftOut, near_duplicate_key
from xmcascade.corpus.reading import ReadSettings
from xmcascade.corpus.readers import read_corpus
from xmcascade.corpus.writers import write_corpus

__all__ = ["Corpus", "LeftOut", "ReadSettings", "near_duplicate_key", "read_corpus", "write_corpus"]
