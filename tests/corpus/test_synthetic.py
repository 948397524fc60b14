"""The synthetic corpus is the same for the same seed, has the promised shape, and can be learnt from."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.corpus.synthetic import BLOCK, _spell, make_synthetic
from xmcascade.errors import SettingError


def same(a, b):
    return a.texts == b.texts and a.label_names == b.label_names and (a.labels != b.labels).nnz == 0


def test_same_seed_same_corpus_other_seed_another():
    assert same(make_synthetic(300, 50, seed=7), make_synthetic(300, 50, seed=7))
    assert not same(make_synthetic(300, 50, seed=7), make_synthetic(300, 50, seed=8))


@pytest.mark.parametrize("n_docs", [1, 100, BLOCK, BLOCK + 1])
def test_more_documents_begin_with_the_same_documents(n_docs):
    more = make_synthetic(BLOCK + 500, 200, words_per_doc=5)
    assert same(make_synthetic(n_docs, 200, words_per_doc=5), more.take(np.arange(n_docs)))


def test_another_part_is_other_documents_of_the_same_world():
    train, test = make_synthetic(2000, 300), make_synthetic(2000, 300, part=1)
    assert train.label_names == test.label_names
    assert not set(train.texts) & set(test.texts)
    correlation = np.corrcoef(train.label_counts(), test.label_counts())[0, 1]
    assert correlation > 0.95


def test_texts_are_words_of_letters_joined_by_single_spaces():
    corpus = make_synthetic(500, 100)
    assert all(re.fullmatch("[a-z]+( [a-z]+)*", text) for text in corpus.texts)
    assert 24 < corpus.stats()["words per document, mean"] < 26


def test_every_document_has_labels_each_once_in_order():
    corpus = make_synthetic(3000, 1000, missing=1.0)
    assert np.diff(corpus.labels.indptr).min() >= 1
    for row in range(100):
        ids = corpus.labels[row].indices
        assert (np.diff(ids) > 0).all()
    assert corpus.labels.has_canonical_format
    assert corpus.labels.dtype == np.float32
    assert (corpus.labels.data == 1).all()


@pytest.mark.parametrize("wanted", [1, 2, 3, 5])
def test_labels_per_document_are_about_as_asked(wanted):
    corpus = make_synthetic(4000, 1000, labels_per_doc=wanted)
    assert corpus.labels.nnz / corpus.n_docs == pytest.approx(wanted, rel=0.1)


def test_label_names_are_unique_and_name_their_topic():
    names = list(make_synthetic(10, 5000).label_names)
    assert len(set(names)) == 5000
    assert all(re.fullmatch("[a-z]+/[a-z]+", name) for name in names)
    topics = {name.split("/")[0] for name in names}
    assert 60 < len(topics) <= 5000 // 64 + 1


def test_label_frequencies_fall_like_zipf():
    counts = np.sort(make_synthetic(60_000, 2000, words_per_doc=3).label_counts())[::-1]
    ranks = np.arange(10, 1000)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks]), 1)[0]
    assert -1.1 < slope < -0.6


def test_labels_can_be_predicted_from_words_but_not_trivially():
    train, test = make_synthetic(6000, 300), make_synthetic(1000, 300, part=1)
    word_ids: dict[str, int] = {}
    for text in train.texts:
        for word in text.split():
            word_ids.setdefault(word, len(word_ids))

    def matrix(texts):
        found = [(i, word_ids[w]) for i, text in enumerate(texts) for w in text.split() if w in word_ids]
        rows, columns = np.array(found).T
        return sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(word_ids)))

    words = matrix(train.texts)
    idf = sp.diags(np.log(train.n_docs / np.asarray((words > 0).sum(axis=0)).ravel()))
    centroids = (train.labels.T @ words @ idf).tocsr()
    lengths = np.sqrt(np.asarray(centroids.multiply(centroids).sum(axis=1)).ravel())
    scores = (matrix(test.texts) @ idf @ centroids.T).toarray() / np.maximum(lengths, 1e-9)
    rows = np.arange(test.n_docs)
    hits = np.asarray(test.labels[rows, scores.argmax(axis=1)]).mean()
    prior = np.asarray(test.labels[:, [train.label_counts().argmax()]].todense()).mean()
    assert prior < 0.25
    assert 0.5 < hits < 0.95


def test_a_small_vocabulary_and_one_of_everything_work():
    corpus = make_synthetic(1, 1, vocabulary=4, n_topics=1, labels_per_doc=1, words_per_doc=1)
    assert (corpus.n_docs, corpus.n_labels, corpus.label_set(0)) == (1, 1, [corpus.label_names[0]])
    assert corpus.texts[0]
    assert make_synthetic(50, 3, vocabulary=10, labels_per_doc=9).n_labels == 3


def test_labels_without_documents_keep_their_names():
    corpus = make_synthetic(5, 100_000)
    assert (corpus.n_labels, len(corpus.label_names)) == (100_000, 100_000)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50, unique=True))
@settings(deadline=None)
def test_words_of_different_numbers_differ(numbers):
    letters, lengths = _spell(np.array(numbers))
    words = {bytes(row[:n]) for row, n in zip(letters, lengths, strict=True)}
    assert len(words) == len(numbers)


def test_short_words_are_all_different_and_frequent_ones_short():
    letters, lengths = _spell(np.arange(20_000))
    assert len({bytes(row[:n]) for row, n in zip(letters, lengths, strict=True)}) == 20_000
    assert (np.diff(lengths) >= 0).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"n_docs": 0},
        {"n_docs": 2.5},
        {"n_docs": True},
        {"n_labels": 0},
        {"n_labels": "ten"},
        {"seed": -1},
        {"part": -1},
        {"n_topics": 0},
        {"n_topics": 11},
        {"labels_per_doc": 0.5},
        {"labels_per_doc": float("nan")},
        {"words_per_doc": 0},
        {"vocabulary": 3},
        {"label_share": 1.1},
        {"label_share": 0.8, "topic_share": 0.3},
        {"missing": -0.1},
        {"spurious": 2},
    ],
)
def test_bad_arguments_are_named(bad):
    with pytest.raises(SettingError, match=list(bad)[-1]):
        make_synthetic(**{"n_docs": 10, "n_labels": 10, **bad})


def test_shares_may_fill_the_whole_text():
    assert make_synthetic(10, 10, label_share=0.8, topic_share=0.2).n_docs == 10
