"""CascadeXML over clusters of even sizes and random words: where only sizes matter, nothing is clustered."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade import CascadeXML, Corpus
from xmcascade.neural import plan
from xmcascade.store import Strings
from xmcascade.tree import LabelTree

LABELS_A_DOCUMENT = 5
WORDS = ["history", "church", "war", "sea", "king", "garden", "river", "city"]  # each is one token of MiniLM


def even_tree(sizes: list[int]) -> LabelTree:
    """Levels of these sizes, the labels last; clusters of a level differ by one child at most."""
    return LabelTree(
        np.arange(sizes[-1]), tuple(np.arange(n + 1) * below // n for n, below in pairwise(sizes))
    )


def words(n_tokens: int, rng: np.random.Generator) -> str:
    """A text of so many tokens, the two special ones included."""
    return " ".join(rng.choice(WORDS, n_tokens - 2))


def random_corpus(n_docs: int, n_labels: int, n_tokens: int) -> Corpus:
    """Random texts with random labels, whose names are their numbers."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, n_labels, n_docs * LABELS_A_DOCUMENT)
    starts = np.arange(n_docs + 1) * LABELS_A_DOCUMENT
    labels = sp.csr_matrix((np.ones(len(own), np.float32), own, starts), shape=(n_docs, n_labels))
    labels.sum_duplicates()
    labels.data[:] = 1
    texts = Strings.of([words(n_tokens, rng) for _ in range(n_docs)])
    return Corpus(labels=labels, label_names=Strings.of(map(str, range(n_labels))), texts=texts)


class EvenCascade(CascadeXML):
    """The model with the levels it would derive, but labels in the order of their numbers."""

    def _tree(self, corpus: Corpus, *_: Any) -> LabelTree:
        return even_tree([*plan.cluster_levels(corpus.n_labels), corpus.n_labels])
