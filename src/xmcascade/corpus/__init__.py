"""Texts and label sets come in here and are checked here, once."""

from xmcascade.corpus.corpus import Corpus, LeftOut, near_duplicate_key

__all__ = ["Corpus", "LeftOut", "near_duplicate_key"]
