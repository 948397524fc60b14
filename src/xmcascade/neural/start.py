"""How heads start: biases from how frequent labels are, rows at random or from their documents' features.

Then only the heads learn for a while, from features of the encoder as it came: a pass over stored features
takes seconds where one through the encoder takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.kernels.bfloat import narrowed
from xmcascade.kernels.parallel import blocks
from xmcascade.neural.cascade import Cascade, Truth
from xmcascade.neural.heads import Floats, Head, Ints
from xmcascade.neural.training import schedule
from xmcascade.progress import tracker
from xmcascade.tree import LabelTree

__all__ = ["learn_heads", "new_rows", "start_biases", "start_rows"]

BATCH, ROWS_AT_ONCE = 64, 65536
WARMUP, ANNEAL = 0.02, 0.6
NEW_EPOCHS, NEW_STEPS, NEW_RATE = 10, 100, 0.05  # of new labels' rows


def start_biases(cascade: Cascade, relevance: Sequence[Any], docs: Ints) -> None:
    """Biases that say how likely each node is for any document.

    >>> import scipy.sparse as sp
    >>> from xmcascade.neural.heads import Head
    >>> from xmcascade.tree import LabelTree
    >>> head = Head(np.zeros((2, 3), np.float32), np.zeros(2, np.float32))
    >>> cascade = Cascade(LabelTree.flat(2), [head], ())
    >>> start_biases(cascade, [sp.csr_matrix([[1, 0], [1, 1]])], np.array([0, 1]))
    >>> np.exp(head.biases).round(2).tolist()
    [1.0, 0.5]
    """
    for head, level in zip(cascade.heads, relevance, strict=True):
        counts = np.bincount(level[docs].indices, minlength=len(head.biases))
        head.biases[:] = np.log(np.maximum(counts, 0.5) / len(docs))
        head.written()


def start_rows(
    cascade: Cascade, relevance: Sequence[Any], docs: Ints, xs: Sequence[Any], pull: float = 4.0
) -> None:
    """Rows that point from the mean of all documents to the mean of the node's documents.

    xs: each level's features of `docs`. pull: how much nearer, in units of the score, a document of mean
    distance is to itself than to the mean.

    >>> import scipy.sparse as sp
    >>> from xmcascade.neural.heads import Head
    >>> from xmcascade.tree import LabelTree
    >>> head = Head(np.zeros((2, 1), np.float32), np.zeros(2, np.float32))
    >>> cascade = Cascade(LabelTree.flat(2), [head], ())
    >>> start_rows(cascade, [sp.eye(2, format="csr")], np.array([0, 1]), [np.array([[1.0], [3.0]])])
    >>> head.rows.tolist(), head.biases.tolist()
    ([[-4.0], [4.0]], [8.0, -8.0])
    """
    for head, level, x in zip(cascade.heads, relevance, xs, strict=True):
        own = level[docs]
        own.data = np.ones(len(own.data), np.float32)
        x = np.asarray(x, np.float32)
        mean = x.mean(axis=0)
        spread = float(((x - mean) ** 2).sum(axis=1).mean())
        by_node = own.T.tocsr()
        for low, high in blocks(len(head.rows), ROWS_AT_ONCE):  # no second array as large as the head
            part = by_node[low:high]
            counts = np.diff(part.indptr).astype(np.float32)[:, None]
            rows = (part @ x / np.maximum(counts, 1) - mean) * np.float32(pull / max(spread, 1e-9))
            rows *= counts > 0
            head.biases[low:high] -= rows @ mean
            head.rows[low:high] = rows if head.rows.dtype == np.float32 else narrowed(rows)
        head.written()


def new_rows(
    x: Floats, labels: Any, others: Floats, n_docs: int, *, seed: int, threads: int | None, title: str
) -> tuple[Floats, Floats]:
    """Rows and biases of new labels, from features of documents that have them (labels: CSR) and of others.

    The others stand for n_docs, so each of them weighs more.

    >>> import scipy.sparse as sp
    >>> x = np.array([[3.0, 0.0], [0.0, 3.0]], np.float32)
    >>> labels = sp.eye(2, format="csr", dtype=np.float32)
    >>> rows, biases = new_rows(x, labels, -x, 2, seed=0, threads=1, title="new")
    >>> (rows @ x.T + biases[:, None] > 0).tolist()
    [[True, False], [False, True]]
    """
    n_new, whole = labels.shape[1], np.concatenate([x, others])
    none = sp.csr_matrix((len(others), n_new), dtype=np.float32)
    relevance, docs = [sp.vstack([labels, none], format="csr")], np.arange(len(whole))
    head = Head(np.zeros((n_new, x.shape[1]), np.float32), np.zeros(n_new, np.float32), threads=threads)
    share = np.float32(min(1.0, len(whole) / max(n_docs, 1)))
    cascade = Cascade(LabelTree.flat(n_new), [head], (), threads=threads, weights=np.full(n_new, share))
    start_biases(cascade, relevance, docs)
    head.biases += np.log(share)
    start_rows(cascade, relevance, docs, [whole])
    epochs = max(NEW_EPOCHS, NEW_STEPS * BATCH / len(whole))
    learn_heads(cascade, relevance, docs, [whole], epochs=epochs, rate=NEW_RATE, seed=seed, title=title)
    return head.rows, head.biases


def learn_heads(
    cascade: Cascade,
    relevance: Sequence[Any],
    docs: Ints,
    xs: Sequence[Any],
    *,
    epochs: float,
    rate: float,
    seed: int,
    title: str,
) -> None:
    """Train the heads alone on stored features.

    >>> import scipy.sparse as sp
    >>> from xmcascade.neural.heads import Head
    >>> from xmcascade.tree import LabelTree
    >>> head = Head(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))
    >>> cascade = Cascade(LabelTree.flat(2), [head], ())
    >>> what = [sp.eye(2, format="csr", dtype=np.float32)], np.array([0, 1]), [np.eye(2, dtype=np.float32)]
    >>> learn_heads(cascade, *what, epochs=320, rate=0.1, seed=0, title="heads")
    >>> cascade.find([np.eye(2, dtype=np.float32)], (1.0,), 1)[0].tolist()
    [[0], [1]]
    """
    n_steps = round(epochs * len(docs) / BATCH)
    step = epoch = 0
    with tracker(title, n_steps * BATCH) as seen:
        while step < n_steps:
            order = np.random.default_rng((seed, epoch)).permutation(len(docs))
            for low in range(0, len(docs), BATCH):
                own = np.sort(order[low : low + BATCH])
                features: list[Floats] = [np.asarray(x[own], np.float32) for x in xs]
                levels = cascade.forward(features, [Truth.of(level, docs[own]) for level in relevance])
                cascade.backward(levels, rate * schedule(step, n_steps, WARMUP, ANNEAL), step)
                seen.advance(len(own))
                step += 1
                if step >= n_steps:
                    break
            epoch += 1
