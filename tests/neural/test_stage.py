"""One level learnt with candidates made beforehand."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.neural import Head, Stage, Truth

OFFSETS = np.array([0, 2, 5, 6])


def make(rng, n_docs=7, width=4, **how):
    reached = sp.csr_matrix((rng.random((n_docs, 3)) < 0.6).astype(np.float32))
    head = Head.random(6, width, rng, optimizer="sgd", threads=1)
    head.biases[:] = rng.normal(size=6)
    return Stage(head, reached, OFFSETS, **how), rng.normal(size=(n_docs, width)).astype(np.float32)


def candidates(stage, doc):
    return [n for c in stage.reached[doc].indices for n in range(OFFSETS[c], OFFSETS[c + 1])]


def truths(stage, rng):
    """Some of the candidates of each document, with weights."""
    dense = np.zeros((stage.reached.shape[0], 6), np.float32)
    for doc in range(len(dense)):
        for node in candidates(stage, doc):
            dense[doc, node] = rng.choice([0, 0.5, 2.0])
    return sp.csr_matrix(dense)


def test_the_loss_is_over_a_documents_own_candidates():
    rng = np.random.default_rng(0)
    stage, x = make(rng, alpha=0.25)
    relevance, docs = truths(stage, rng), np.array([4, 0, 5])
    (level,) = stage.forward([x[docs]], [Truth.of(relevance, docs)], docs, 3)
    total = 0.0
    for doc in docs:
        for node in candidates(stage, doc):
            weight = relevance[doc, node]
            z = x[doc] @ stage.head.rows[node] + stage.head.biases[node]
            total += (weight or 0.25) * max(0, 1 - (z if weight else -z)) ** 2 / 3
    assert level.loss == pytest.approx(total, rel=1e-5)


def test_the_derivatives_are_those_of_the_loss():
    rng = np.random.default_rng(1)
    stage, x = make(rng, alpha=0.5)
    relevance, docs = truths(stage, rng), np.arange(7)
    truth = [Truth.of(relevance, docs)]
    levels = stage.forward([x], truth, docs, 7)
    (back,) = stage.backward(levels, 0.0, 0, hold=True)
    for doc, d in ((0, 1), (3, 2), (6, 0)):
        losses = []
        for step in (1e-3, -1e-3):
            moved = x.copy()
            moved[doc, d] += step
            losses.append(stage.forward([moved], truth, docs, 7)[0].loss)
        assert back[doc, d] == pytest.approx((losses[0] - losses[1]) / 2e-3, abs=1e-3)


def test_steps_make_the_loss_smaller():
    rng = np.random.default_rng(2)
    stage, x = make(rng, n_docs=12)
    relevance, docs = truths(stage, rng), np.arange(12)
    truth, losses = [Truth.of(relevance, docs)], []
    for seed in range(60):
        levels = stage.forward([x], truth, docs, 12)
        losses.append(levels[0].loss)
        stage.backward(levels, 0.05, seed)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("keep", [1, 2, 10])
def test_the_best_are_found_among_candidates(keep):
    stage, x = make(np.random.default_rng(3), n_docs=300)
    found = stage.found([x], keep)
    scores = x @ stage.head.rows.T + stage.head.biases
    for doc in range(300):
        own = sorted(candidates(stage, doc), key=lambda node: -scores[doc, node])[:keep]
        assert found[doc].indices.tolist() == sorted(own)
