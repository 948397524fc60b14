"""The same numbers from napkinxc and from the slow twins."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import xmcascade.evaluate as ev

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import metrics as twin


def matrix(truth, n_labels):
    rows = [doc for doc, true in enumerate(truth) for _ in true]
    columns = [label for true in truth for label in true]
    return sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(truth), n_labels))


def padded(ranked, width):
    return np.array([labels + [-1] * (width - len(labels)) for labels in ranked], dtype=np.int32).reshape(
        -1, width
    )


def ranking(labels, probabilities=None):
    return ev.Ranking(
        labels, np.zeros(labels.shape), np.zeros(labels.shape) if probabilities is None else probabilities
    )


@pytest.mark.parametrize("batch", range(10))
def test_500_random_cases_agree_with_napkinxc(batch):
    witness = pytest.importorskip("napkinxc.metrics")
    for seed in range(50 * batch, 50 * batch + 50):
        rng = np.random.default_rng(seed)
        n_docs, n_labels, width = rng.integers(1, 30), rng.integers(1, 40), rng.integers(1, 9)
        # Frequent and rare labels; some documents without labels, some rankings shorter than others.
        popularity = 1 / np.arange(1, n_labels + 1) ** rng.uniform(0, 2)
        truth = [
            np.flatnonzero(rng.random(n_labels) < popularity * rng.random()).tolist() for _ in range(n_docs)
        ]
        truth[0] = truth[0] or [0]
        ranked = [rng.permutation(n_labels)[: rng.integers(0, width + 1)].tolist() for _ in range(n_docs)]
        train = sp.csr_matrix(rng.random((rng.integers(3, 50), n_labels)) < popularity, dtype=np.int64)
        a, b = rng.uniform(0, 1), rng.uniform(0.1, 3)
        inverse = witness.Jain_et_al_inverse_propensity(train, a, b)
        counts = np.asarray(train.sum(axis=0)).ravel()
        n_train = train.shape[0]
        np.testing.assert_allclose(ev.Propensity(a, b).inverse(counts, n_train), inverse, rtol=1e-12)

        options = {
            "label_counts": counts,
            "n_train_docs": n_train,
            "propensity": ev.Propensity(a, b),
            "replicates": 0,
        }
        ks = range(1, 8)
        got = ev.evaluate_ranking(
            matrix(truth, n_labels), ranking(padded(ranked, width)), ks=ks, **options
        ).metrics
        unnormalised = ev.evaluate_ranking(
            matrix(truth, n_labels), ranking(padded(ranked, width)), ks=ks, normalisation="none", **options
        ).metrics
        # napkinxc counts documents without a true label, as zeros; we do not count them.
        kept = [doc for doc in range(n_docs) if truth[doc]]
        y, p = [truth[doc] for doc in kept], [ranked[doc] for doc in kept]
        expected = {
            "P": witness.precision_at_k(y, p, k=7),
            "R": witness.recall_at_k(y, p, k=7),
            "nDCG": witness.ndcg_at_k(y, p, k=7),
            "coverage": witness.coverage_at_k(y, p, k=7),
            "PSP": witness.psprecision_at_k(y, p, inverse, k=7, normalize=True),
            "PSnDCG": witness.psndcg_at_k(y, p, inverse, k=7, normalize=True),
        }
        for name, values in expected.items():
            assert [got[f"{name}@{k}"] for k in ks] == pytest.approx(100 * values, abs=1e-9), (seed, name)
        for name, function in {"PSP": witness.psprecision_at_k, "PSnDCG": witness.psndcg_at_k}.items():
            values = 100 * function(y, p, inverse, k=7, normalize=False)
            assert [unnormalised[f"{name}@{k}"] for k in ks] == pytest.approx(values, abs=1e-9), (seed, name)


@st.composite
def cases(draw):
    """(truth as sets, ranked label ids with -1 anywhere, number of labels, training counts)."""
    n_labels = draw(st.integers(1, 10))
    width = draw(st.integers(1, 6))
    label = st.integers(0, n_labels - 1)
    n_docs = draw(st.integers(1, 7))
    truth = [draw(st.sets(label, max_size=5)) for _ in range(n_docs)]
    if not any(truth):
        truth[draw(st.integers(0, n_docs - 1))] = {draw(label)}
    ranked = []
    for _ in range(n_docs):
        labels = draw(st.permutations(range(n_labels)))[:width]
        kept = draw(st.lists(st.booleans(), min_size=width, max_size=width))
        labels = [*labels, *[-1] * width][:width]
        ranked.append([i if keep else -1 for i, keep in zip(labels, kept, strict=True)])
    counts = draw(st.lists(st.integers(0, 9), min_size=n_labels, max_size=n_labels))
    return truth, ranked, n_labels, counts


@settings(max_examples=400, deadline=None)
@given(case=cases(), normalisation=st.sampled_from(ev.NORMALISATIONS), n_train=st.integers(9, 10**6))
def test_every_metric_agrees_with_its_twin(case, normalisation, n_train):
    truth, ranked, n_labels, counts = case
    labels = padded(ranked, len(ranked[0]))
    got = ev.evaluate_ranking(
        matrix(truth, n_labels),
        ranking(labels),
        ks=(1, 2, 4, 9),
        label_counts=counts,
        n_train_docs=n_train,
        propensity="amazon",
        normalisation=normalisation,
        replicates=0,
        n_known_labels=max(1, n_labels - 2),
    )
    docs = twin.labelled(truth, ranked)
    inverse = [twin.inverse_propensity(count, n_train, a=0.6, b=2.6) for count in counts]
    slices = twin.slice_of_labels(counts)
    for k in (1, 2, 4, 9):
        expected = {
            "P": twin.precision(docs, k),
            "R": twin.recall(docs, k),
            "RP": twin.r_precision(docs, k),
            "nDCG": twin.ndcg(docs, k),
            "coverage": twin.coverage(docs, k),
            "PSP": twin.propensity_scored(docs, twin.psp_gain, inverse, k, normalisation),
            "PSnDCG": twin.propensity_scored(docs, twin.psndcg_gain, inverse, k, normalisation),
        }
        for name, value in expected.items():
            assert got.metrics[f"{name}@{k}"] == pytest.approx(100 * value, abs=1e-9), name
    assert ev.slice_of_labels(counts).tolist() == slices
    for i, name in enumerate(ev.SLICES):
        expected_recall = twin.slice_recall(docs, slices, i, 9)
        if expected_recall is not None:
            assert got.slices[name]["R@9"] == pytest.approx(100 * expected_recall)
    true = [label for labels, _ in docs for label in labels]
    assert got.unseen_share == pytest.approx(100 * sum(i >= max(1, n_labels - 2) for i in true) / len(true))
    assert (got.n_docs, got.n_unlabelled) == (len(docs), len(truth) - len(docs))


@settings(max_examples=300, deadline=None)
@given(case=cases(), data=st.data())
def test_f1_agrees_with_its_twin_and_with_scikit_learn(case, data):
    from sklearn.metrics import f1_score

    truth, ranked, n_labels, _ = case
    labels = padded(ranked, len(ranked[0]))
    tenths = st.lists(st.integers(0, 10), min_size=labels.size, max_size=labels.size)
    probabilities = np.array(data.draw(tenths)).reshape(labels.shape) / 10
    threshold = data.draw(st.integers(0, 10)) / 10
    got = ev.evaluate_ranking(
        matrix(truth, n_labels), ranking(labels, probabilities), threshold=threshold, replicates=0
    ).metrics
    predicted = [
        [label for label, p in zip(row, ps, strict=True) if label >= 0 and p >= threshold]
        for row, ps, true in zip(ranked, probabilities.tolist(), truth, strict=True)
        if true
    ]
    docs = twin.labelled(truth, ranked)
    assert (got["micro-F1"], got["macro-F1"]) == pytest.approx([100 * v for v in twin.f1(docs, predicted)])

    # One column more, because scikit-learn reads a single column as something else.
    y, p = (np.zeros((len(docs), n_labels + 1), dtype=int) for _ in range(2))
    for doc, (true, _) in enumerate(docs):
        y[doc, list(true)] = 1
        p[doc, predicted[doc]] = 1
    used = np.flatnonzero(y.any(axis=0) | p.any(axis=0))
    for average in ("micro", "macro"):
        expected = f1_score(y, p, labels=used, average=average, zero_division=0)
        assert got[f"{average}-F1"] == pytest.approx(100 * expected)
