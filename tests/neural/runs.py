"""Tiny training runs: documents of equal length about a dozen labels, two levels, a small encoder."""

import numpy as np
import scipy.sparse as sp

from neural.tiny import tiny
from xmcascade.neural import Cascade, CascadeTraining, Head, Reader, TokenStore, TrainingSettings
from xmcascade.neural.training import TRAIN
from xmcascade.store import Checkpoint
from xmcascade.tree import LabelTree

N_LABELS = 12


def make_lists(n_docs=24, seed=0):
    """Texts of eight words and their labels, by id: one or two a document, each with words of its own."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(N_LABELS, 1 + i % 2, replace=False) if i >= N_LABELS else [i] for i in range(n_docs)]
    words = [[f"w{own[j % len(own)]}{'abc'[rng.integers(3)]}" for j in range(6)] for own in chosen]
    return [" ".join(["the", *own, "of"]) for own in words], [sorted(map(int, own)) for own in chosen]


def relevance_of(labels):
    rows = np.concatenate([[0], np.cumsum([len(own) for own in labels])])
    flat = np.array([label for own in labels for label in own], np.int32)
    return sp.csr_matrix((np.ones(len(flat), np.float32), flat, rows), shape=(len(labels), N_LABELS))


def make_run(
    folder, *, n_docs=24, n_held=0, optimizer="adagrad", precision="float32", dropout=0.0, freeze=0, keep=3,
    labels=None, resumable=False, short=32, **settings,
):  # fmt: skip
    """A training run; its last documents are held out. Everything in it follows from the arguments."""
    texts, known = make_lists(n_docs)
    encoder = tiny("bert", texts, layers=2, width=16)
    encoder.set_dropout(dropout)
    encoder.freeze(freeze)
    tree = LabelTree(np.random.default_rng(1).permutation(N_LABELS), (np.array([0, 2, 5, 9, 12]),))
    rng = np.random.default_rng(2)
    heads = [
        Head.random(size, 16, rng, optimizer=optimizer, precision=precision, decay=0.01, threads=1)
        for size in tree.sizes
    ]
    work = Checkpoint(folder, "run")
    return CascadeTraining(
        reader=Reader(encoder, ((1,), (2,)), "mean"),
        cascade=Cascade(tree, heads, (keep,), threads=1),
        tokens=TokenStore.of(texts, encoder.tokenizer, 32),
        short=TokenStore.of(texts, encoder.tokenizer, short),
        relevance=tree.relevance(relevance_of(labels or known)),
        docs=np.arange(n_docs - n_held),
        held=np.arange(n_docs - n_held, n_docs),
        settings=TrainingSettings(**({"batch": 4, "rate": 1e-3} | settings)),
        dropouts=(dropout, dropout),
        powers=(0.0, 1.0),
        seed=3,
        best=work,
        kept=work if resumable else None,
        title="test",
    )


def nothing():
    """A start that leaves the heads as they are."""


def learnt(run):
    """All that was learnt, as bytes by name."""
    arrays, _, _ = run.reader.encoder.state()
    parts = {f"encoder.{name}": array.tobytes() for name, array in arrays.items()}
    for t, head in enumerate(run.cascade.heads):
        parts |= {f"head.{t}.{name}": array.tobytes() for name, array in head.to_arrays().items()}
    return parts


def answers(run):
    """Scores of every label for every document, by label id."""
    xs = run.reader.encode(run.tokens)
    every = sp.csr_matrix(np.ones((len(run.tokens), N_LABELS)))
    return run.cascade.score(xs, (1.0, 1.0), every).reshape(-1, N_LABELS)


def kept_step(run):
    """The step that the checkpoint of a run holds."""
    return run.kept.load(TRAIN)[1]["step"]
