"""How heads start, and how they learn alone from stored features."""

import numpy as np
import pytest
import scipy.sparse as sp

from neural.runs import learnt, make_run
from xmcascade.kernels.bfloat import narrowed
from xmcascade.neural import TorchHead, Truth, learn_heads, new_rows, start_biases, start_rows


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "work", n_docs=40, n_held=8)


def what(run):
    return run.cascade, run.relevance, run.docs


def dense(run, t):
    """Documents to learn from x nodes: what is true."""
    return run.relevance[t][run.docs].toarray() > 0


def test_biases_say_how_frequent_a_node_is(run):
    start_biases(*what(run))
    for t, head in enumerate(run.cascade.heads):
        counts = np.maximum(dense(run, t).sum(axis=0), 0.5)  # never seen: half a document
        np.testing.assert_allclose(np.exp(head.biases), counts / len(run.docs), rtol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rows_point_from_the_mean_to_the_nodes_mean(tmp_path, precision):
    run = make_run(tmp_path / "work", n_docs=40, n_held=8, precision=precision)
    xs = run.reader.encode(run.tokens, run.docs)
    start_biases(*what(run))
    before = [head.biases.copy() for head in run.cascade.heads]
    start_rows(*what(run), xs, pull=3.0)
    for t, (head, x, biases) in enumerate(zip(run.cascade.heads, xs, before, strict=True)):
        apart = x - x.mean(axis=0)
        scale = 3.0 / (apart**2).sum(axis=1).mean()
        own = dense(run, t)
        rows = np.array([apart[true].mean(axis=0) * scale if true.any() else 0 * apart[0] for true in own.T])
        found = head.rows if precision == "float32" else (head.rows.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(found, rows, atol=1e-2 if precision == "bfloat16" else 1e-4)
        np.testing.assert_allclose(head.biases, biases - rows @ x.mean(axis=0), atol=1e-4)


def losses(run, xs):
    truths = [Truth.of(level, run.docs) for level in run.relevance]
    return [level.loss for level in run.cascade.forward([np.asarray(x, np.float32) for x in xs], truths)]


def test_heads_learn_alone_and_always_the_same(tmp_path, run):
    encoder = {name: part for name, part in learnt(run).items() if name.startswith("encoder.")}
    runs = [run, make_run(tmp_path / "other", n_docs=40, n_held=8)]
    for one in runs:
        xs = one.reader.encode(one.tokens, one.docs, folder=tmp_path)
        start_biases(*what(one))
        before = losses(one, xs)
        learn_heads(*what(one), xs, epochs=400, rate=0.2, seed=1, title="heads")
        assert all(now < 0.8 * then for now, then in zip(losses(one, xs), before, strict=True))
    assert learnt(runs[0]) == learnt(runs[1])
    assert encoder.items() <= learnt(run).items()


def test_no_epochs_of_heads_change_nothing(run):
    before = learnt(run)
    xs = run.reader.encode(run.tokens, run.docs)
    learn_heads(*what(run), xs, epochs=0, rate=0.1, seed=1, title="heads")
    assert learnt(run) == before


@pytest.mark.parametrize("rows", [False, True])
def test_heads_in_torch_start_alike(run, rows):
    xs, plain = run.reader.encode(run.tokens, run.docs), run.cascade.heads
    other = [TorchHead(head.rows.copy(), head.biases.copy(), "sgd", device="cpu") for head in plain]
    for heads in (plain, other):
        run.cascade.heads = heads
        start_biases(*what(run))
        if rows:
            start_rows(*what(run), xs)
    for one, two in zip(plain, other, strict=True):
        for name, array in two.to_arrays().items():
            assert array.tobytes() == one.to_arrays()[name].tobytes()


def test_bfloat16_rows_are_rounded_to_the_nearest():
    assert narrowed(np.array([1 + 2**-8 + 2**-10], np.float32)).tolist() == [0x3F81]


def test_new_rows_are_calibrated_for_all_documents_that_the_others_stand_for():
    """The fewer the documents with the label among all, the less likely it is for a document like any."""
    rng = np.random.default_rng(0)
    x, others = rng.normal(size=(20, 8)).astype(np.float32) + 1, rng.normal(size=(200, 8)).astype(np.float32)
    labels = sp.csr_matrix(np.ones((20, 1), np.float32))
    chances = []
    for n_docs in (200, 20_000):
        rows, biases = new_rows(x, labels, others, n_docs, seed=0, threads=1, title="new")
        chances.append(1 / (1 + np.exp(-(others @ rows.T + biases))))
        assert (x @ rows.T).mean() > (others @ rows.T).mean() + 1
    assert chances[0].mean() == pytest.approx(20 / 200, rel=0.5)
    assert chances[1].mean() < chances[0].mean() / 10
