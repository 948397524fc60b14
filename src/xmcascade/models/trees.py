"""The label tree of a corpus, as its settings ask for: read from a file, or learnt from label features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.features import LabelFeatures, Tfidf, label_features, normalise_rows
from xmcascade.models.fitting import FitRun
from xmcascade.neural import plan
from xmcascade.tree import LabelTree, TreeSettings, build_tree, read_tree, smooth

__all__ = ["encoder_tree", "learnt_tree", "planned_sizes", "tree_arrays"]


def learnt_tree(
    corpus: Corpus,
    documents: Any,
    tfidf: Tfidf | None,
    settings: TreeSettings,
    *,
    kind: LabelFeatures = "pifa",
    smoothing: int = 0,
    seed: int = 0,
    threads: int | None = None,
) -> LabelTree:
    """A tree from the documents' features (a row each), made by this tfidf if by any.

    >>> corpus = Corpus.from_lists(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> learnt_tree(corpus, sp.csr_matrix(np.eye(2, dtype=np.float32)), None, TreeSettings()).sizes
    [2]
    """
    if settings.file is not None:
        return read_tree(settings.file, corpus.label_names)
    own = None
    if tfidf is not None and corpus.label_texts is not None:
        own = tfidf.transform(corpus.label_texts)
    of_labels = label_features(kind, documents=documents, labels=corpus.labels, texts=own)
    if smoothing:
        of_labels = smooth(of_labels, corpus.labels, neighbours=smoothing)
    if kind == "pifa" and own is not None:
        unseen = sp.diags((corpus.label_counts() == 0).astype(np.float32), format="csr")
        of_labels = of_labels + normalise_rows(unseen @ own)  # a label without documents has its text
    return build_tree(settings, of_labels, seed=seed, threads=threads)


def encoder_tree(
    corpus: Corpus,
    words: Callable[[], tuple[Tfidf, Any]],
    settings: TreeSettings,
    kind: LabelFeatures,
    seed: int,
    run: FitRun,
    levels_of: Callable[[int], tuple[int, ...]] = plan.cluster_levels,
) -> LabelTree:
    """A tree to train an encoder on; if its settings do not say, with the levels for this many labels."""
    if settings == TreeSettings():
        levels = _levels(corpus, run, levels_of)
        if not levels:
            return LabelTree.flat(corpus.n_labels)
        settings = settings.with_values({"levels": levels})
    tfidf, documents = words()
    return learnt_tree(corpus, documents, tfidf, settings, kind=kind, seed=seed, threads=run.threads)


def planned_sizes(
    corpus: Corpus, settings: TreeSettings, run: FitRun, levels_of: Callable[[int], tuple[int, ...]]
) -> list[int]:
    """Nodes of each level of the tree that would be trained on, without building it.

    >>> corpus = Corpus.from_lists(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> planned_sizes(corpus, TreeSettings(), FitRun(np.random.default_rng(0), 1), plan.cluster_levels)
    [2]
    """
    if settings == TreeSettings():
        return [*_levels(corpus, run, levels_of), corpus.n_labels]
    if settings.levels is not None:
        return [*settings.levels, corpus.n_labels]
    if settings.file is not None:
        return read_tree(settings.file, corpus.label_names).sizes
    # How deep others become depends on the arity alone, so features of no meaning will do.
    nothing = sp.csr_matrix(np.eye(corpus.n_labels, 1, dtype=np.float32))
    return build_tree(settings.with_values({"max_iterations": 0}), nothing, seed=0).sizes


def _levels(corpus: Corpus, run: FitRun, levels_of: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
    levels = levels_of(corpus.n_labels)
    run.derive("tree.levels", list(levels), f"{corpus.n_labels:,} labels")
    return levels


def tree_arrays(corpus: Corpus, settings: TreeSettings) -> list[npt.NDArray[Any]]:
    """What is in the tree's file, if there is one."""
    if settings.file is None:
        return []
    return [*read_tree(settings.file, corpus.label_names).to_arrays().values()]
