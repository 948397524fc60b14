"""Label-wise attention on one level: losses, derivatives, steps, and scores in parts."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from neural.tiny import TEXTS, tiny
from xmcascade.neural import (
    AttentionStage,
    Head,
    LstmNetwork,
    Reader,
    Shortlist,
    TokenStore,
    Truth,
    attention,
)

OFFSETS = np.array([0, 2, 5, 6])
REACHED = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0]], np.float32)
TRUE = np.array([[0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]], np.float32)
DOCS = np.arange(4)


def make(optimizer="sgd", seed=0):
    network = LstmNetwork.over(tiny(), seed, hidden=8, shared=4)
    rng = np.random.default_rng(seed)
    head = Head.random(6, 8, rng, optimizer=optimizer, threads=1)
    head.biases[:] = rng.normal(size=6)
    stage = AttentionStage(network, head, sp.csr_matrix(REACHED), OFFSETS)
    return stage, TokenStore.of(TEXTS, network.tokenizer, 32)


def states_of(stage, tokens, docs):
    return Reader(stage.network, ((1,),), "mean").batch(tokens, docs)[0].detach()


def twin(stage, states, queries, biases, docs):
    """The mean loss, from attention to one token after another, and one candidate after another."""
    total = 0.0
    for state, doc in zip(states, docs, strict=True):
        nodes = [n for c in np.flatnonzero(REACHED[doc]) for n in range(OFFSETS[c], OFFSETS[c + 1])]
        scores = stage.network.attend(state[None], queries[nodes][None])[0] + biases[nodes]
        total += torch.nn.functional.binary_cross_entropy_with_logits(
            scores, torch.from_numpy(TRUE[doc, nodes])
        )
    return total / len(docs)


def test_loss_derivatives_and_step_are_those_of_a_slow_twin():
    stage, tokens = make()
    states = states_of(stage, tokens, DOCS).requires_grad_()
    queries = torch.from_numpy(stage.head.rows.copy()).requires_grad_()
    biases = torch.from_numpy(stage.head.biases.copy()).requires_grad_()
    loss = twin(stage, states, queries, biases, DOCS)
    loss.backward()
    expected = stage.network.model["shared"].weight.grad.clone()
    stage.network.model.zero_grad()

    truth = [Truth.of(sp.csr_matrix(TRUE), DOCS)]
    levels = stage.forward([states.detach().numpy()], truth, DOCS, 4)
    (back,) = stage.backward(levels, 0.5, 0)
    assert levels[0].loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(back, states.grad, atol=1e-6)
    np.testing.assert_allclose(stage.head.rows, (queries - 0.5 * queries.grad).detach(), atol=1e-6)
    np.testing.assert_allclose(stage.head.biases, (biases - 0.5 * biases.grad).detach(), atol=1e-6)
    torch.testing.assert_close(stage.network.model["shared"].weight.grad, expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "row-adam", "adam"])
def test_parts_of_a_step_equal_one_batch(optimizer):
    (whole, tokens), (parts, _) = make(optimizer), make(optimizer)
    relevance = sp.csr_matrix(TRUE)
    x = states_of(whole, tokens, DOCS).numpy()
    whole.backward(whole.forward([x], [Truth.of(relevance, DOCS)], DOCS, 4), 0.1, 0)
    for docs in (DOCS[:1], DOCS[1:]):
        own = states_of(parts, tokens, docs).numpy()
        levels = parts.forward([own], [Truth.of(relevance, docs)], docs, 4)
        parts.backward(levels, 0.1, 0, hold=True)
    parts.backward([], 0.1, 0)
    np.testing.assert_allclose(parts.head.rows, whole.head.rows, atol=1e-5)
    np.testing.assert_allclose(parts.head.biases, whole.head.biases, atol=1e-5)


def test_rows_that_no_document_asks_for_stay():
    stage, tokens = make("adam")
    before, docs = stage.head.rows.copy(), np.array([2])
    truth = [Truth.of(sp.csr_matrix(TRUE), docs)]
    stage.backward(stage.forward([states_of(stage, tokens, docs).numpy()], truth, docs, 1), 0.1, 0)
    changed = (stage.head.rows != before).any(axis=1)
    assert changed.tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize(("scores", "docs"), [(1, 64), (3, 64), (4, 2), (100, 1), (100, 64)])
def test_scores_do_not_depend_on_the_parts_they_are_made_in(monkeypatch, scores, docs):
    stage, tokens = make()
    short = stage.shortlist(np.array([0, 3, 1]))
    expected = stage.logits(tokens, np.array([0, 3, 1]), short)
    assert len(expected) == 3 + 5 + 6
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", scores)
    monkeypatch.setattr(attention, "DOCS_AT_ONCE", docs)
    np.testing.assert_allclose(stage.logits(tokens, np.array([0, 3, 1]), short), expected, atol=1e-6)


def test_what_nodes_take_of_one_document():
    stage, tokens = make()
    one = TokenStore.of(TEXTS[1:2], stage.network.tokenizer, 32)
    scores, shares = stage.attention(one, np.array([4, 0]))
    assert shares.shape == (2, len(one.ids))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    every = Shortlist(np.array([0, 6]), np.arange(6), np.arange(7))
    np.testing.assert_allclose(scores, stage.logits(tokens, np.array([1]), every)[[4, 0]], atol=1e-5)
    states = states_of(stage, one, np.array([0]))[0][: len(one.ids)]
    likeness = states @ torch.from_numpy(stage.head.rows[[4, 0]]).T
    np.testing.assert_allclose(shares, torch.softmax(likeness, 0).T, atol=1e-5)
