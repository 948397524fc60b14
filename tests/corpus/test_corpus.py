"""A corpus: from lists of any kind, parts of it, splits, and its numbers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from reference.files import documents
from xmcascade.corpus import Corpus, near_duplicate_key
from xmcascade.errors import DataError, SettingError
from xmcascade.store import Strings

TEXTS = ["red apple", "green pear", "blue plum"]
LABELS = [["red", "fruit"], ["fruit"], []]


@pytest.fixture
def corpus():
    weights = [[0.5, 1], [2], []]
    return Corpus.from_lists(
        TEXTS, LABELS, ids=["a", "b", "c"], weights=weights, label_texts={"red": "a colour"}
    )


@pytest.fixture
def matrix():
    return Corpus(
        labels=sp.csr_matrix(np.eye(3, 2, dtype=np.float32)),
        label_names=Strings.of(["x", "y"]),
        features=sp.csr_matrix(np.eye(3, 5, dtype=np.float32)),
    )


def test_lists_come_in_whole(corpus):
    assert documents(corpus) == [
        ("red apple", "a", {"red": 0.5, "fruit": 1}),
        ("green pear", "b", {"fruit": 2}),
        ("blue plum", "c", {}),
    ]
    assert (corpus.n_docs, len(corpus), corpus.n_labels) == (3, 3, 2)
    assert list(corpus.label_names) == ["fruit", "red"]
    assert list(corpus.label_texts) == ["", "a colour"]
    assert corpus.label_ids == {"fruit": 0, "red": 1}
    assert corpus.label_counts().tolist() == [2, 1]
    assert corpus.has_weights
    assert corpus.labels.dtype == np.float32
    assert (corpus.doc_id(1), corpus.left_out) == ("b", ())


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (tuple(TEXTS), tuple(map(tuple, LABELS))),
        (iter(TEXTS), iter(LABELS)),
        ((text for text in TEXTS), ((label for label in row) for row in LABELS)),
        (np.array(TEXTS), LABELS),
        (np.array(TEXTS, dtype=object), np.array(LABELS, dtype=object)),
        (pd.Series(TEXTS, index=[2, 0, 1]), pd.Series(LABELS, index=[7, 0, 2])),
        (Strings.of(TEXTS), [set(row) for row in LABELS]),
    ],
)
def test_lists_may_be_anything_to_iterate_over(texts, labels):
    found = Corpus.from_lists(texts, labels)
    assert documents(found) == [
        (text, None, dict.fromkeys(row, 1)) for text, row in zip(TEXTS, LABELS, strict=True)
    ]
    assert not found.has_weights


def test_labels_are_optional():
    assert Corpus.from_lists(TEXTS).n_labels == 0
    assert Corpus.from_lists([]).n_docs == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": "a text"}, "texts is a string ('a text'). Remedy: give a list of texts"),
        ({"labels": [["x"]]}, "3 texts but 1 labels. Remedy: give one for each"),
        ({"ids": iter("ab")}, "3 texts but 2 ids"),
        ({"weights": []}, "3 texts but 0 weights"),
        (
            {"labels": ["x", "y", "z"]},
            "the lists, document 1, field 'labels': 'x' is a string, not a list of labels",
        ),
        (
            {"labels": np.eye(3)},
            "the lists, document 1, field 'labels': label 1 is a number (1.0), not a string",
        ),
        ({"labels": [["x"], ["y"], None]}, "the lists, document 3, field 'labels': the labels are null"),
        ({"texts": ["a", "b", ""]}, "the lists, document 3, field 'text': the text is empty"),
        ({"ids": ["a", "b", 1.5]}, "the lists, document 3, field 'id': the id is a number (1.5)"),
    ],
)
def test_a_message_says_which_list_and_document(given, message):
    with pytest.raises(DataError) as caught:
        Corpus.from_lists(**{"texts": TEXTS, "labels": LABELS, **given})
    assert str(caught.value).startswith(message)


def test_what_was_left_out_is_reported():
    found = Corpus.from_lists(["a", "", "b", ""], [["x"], [], ["x", "x"], []], on_error="skip")
    assert [(left.reason, left.count, left.first) for left in found.left_out] == [
        ("text empty", 2, "the lists, document 2, field 'text'"),
        ("label repeated", 1, "the lists, document 3, field 'labels'"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": Strings.of(["a"])}, "1 texts for 3 documents. Remedy: give one for each"),
        ({"ids": Strings.of(["a"])}, "1 ids for 3 documents"),
        ({"label_names": Strings.of(["a"])}, "1 label names for 2 labels"),
        ({"label_texts": Strings.of(["a"])}, "1 label texts for 2 labels"),
        ({"features": sp.csr_matrix((2, 2))}, "the features have 2 rows for 3 documents"),
        ({"features": None}, "a corpus needs texts or features"),
    ],
)
def test_parts_that_do_not_fit_are_refused(matrix, change, message):
    values = {
        "labels": matrix.labels,
        "label_names": matrix.label_names,
        "features": matrix.features,
        **change,
    }
    with pytest.raises(DataError) as caught:
        Corpus(**values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("docs", "expected"),
    [
        ([2, 0], [2, 0]),
        ([], []),
        ([1, 1], [1, 1]),
        ([-1, -3], [2, 0]),
        ([True, False, True], [0, 2]),
        (np.array([False, True, False]), [1]),
        (np.array([2], np.uint8), [2]),
        (range(3), [0, 1, 2]),
        (pd.Series([False, False, True], index=[5, 6, 7]), [2]),
    ],
)
def test_take_gives_the_documents_asked_for(corpus, matrix, docs, expected):
    all_docs = documents(corpus)
    taken = corpus.take(docs)
    assert documents(taken) == [all_docs[i] for i in expected]
    assert (taken.label_names, taken.label_texts) == (corpus.label_names, corpus.label_texts)
    assert np.array_equal(matrix.take(docs).features.toarray(), matrix.features.toarray()[expected])


@pytest.mark.parametrize(
    ("docs", "error"),
    [
        ([3], IndexError),
        ([-4], IndexError),
        ([True], SettingError),
        ([True] * 4, SettingError),
        ([0.5], TypeError),
    ],
)
def test_take_refuses_what_is_not_there(corpus, docs, error):
    with pytest.raises(error):
        corpus.take(docs)


def test_split_parts_make_the_whole(corpus):
    rest, part = corpus.split(0.4)
    assert sorted(documents(rest) + documents(part), key=str) == sorted(documents(corpus), key=str)
    assert (rest.n_docs, part.n_docs) == (2, 1)


words = st.lists(
    st.sampled_from(["sea", "Sea!", "tree", "TREE 2", "moon", "cow", "ship", "été", "ÉTÉ"]), min_size=1
)


@given(st.lists(words.map(" ".join), min_size=3, max_size=60), st.integers(0, 3))
def test_near_duplicates_stay_together_in_any_order(texts, seed):
    corpus = Corpus.from_lists(texts)
    try:
        rest, part = corpus.split(0.3, seed=seed)
    except DataError as error:
        assert "cannot be cut" in str(error)
        return
    assert not set(map(near_duplicate_key, rest.texts)) & set(map(near_duplicate_key, part.texts))
    rest_moved, part_moved = Corpus.from_lists(texts[::-1]).split(0.3, seed=seed)
    assert sorted(part.texts) == sorted(part_moved.texts)
    assert sorted(rest.texts) == sorted(rest_moved.texts)


def test_the_key_may_be_a_function_a_list_the_id_or_none():
    texts = [f"{kind} {'abcdefghij'[i]}" for i in range(10) for kind in ("fish", "bird", "cow", "ant")]
    ids = [f"book {i // 8}" for i in range(40)]
    corpus = Corpus.from_lists(texts, ids=ids)

    def kinds(found):
        return {text.split()[0] for text in found.texts}

    rest, part = corpus.split(0.25, key=lambda text: text.split()[0])
    assert (len(kinds(rest)), len(kinds(part)), kinds(rest) & kinds(part)) == (3, 1, set())
    for key in ([text.split()[0] for text in texts], np.array([text.split()[0] for text in texts])):
        assert documents(corpus.split(0.25, key=key)[1]) == documents(part)
    series = pd.Series([text.split()[0] for text in texts], index=range(40, 0, -1))
    assert documents(corpus.split(0.25, key=series)[1]) == documents(part)
    rest, part = corpus.split(0.2, key="id")
    assert (len(set(rest.ids)), len(set(part.ids)), set(rest.ids) & set(part.ids)) == (4, 1, set())
    same = Corpus.from_lists(["the same"] * 40)
    assert [found.n_docs for found in same.split(0.25, key="none")] == [30, 10]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fraction": 0}, "fraction is 0. Remedy: use a number between 0 and 1"),
        ({"key": "ids"}, 'key is \'ids\'. Remedy: use "id", "none", a function or a list of keys'),
        ({"key": [1, 2]}, "2 keys for 3 documents. Remedy: give one for each"),
        (
            {"key": lambda _: 1},
            "the one group of 3 documents with the same key cannot be cut at 0.4. Remedy: use an",
        ),
    ],
)
def test_a_split_that_cannot_be_is_refused(corpus, values, message):
    with pytest.raises((SettingError, DataError)) as caught:
        corpus.split(**{"fraction": 0.4, **values})
    assert str(caught.value).startswith(message)


def test_a_split_needs_what_its_key_is_made_of(matrix):
    with pytest.raises(SettingError, match="a function as key needs texts"):
        matrix.split(0.5, key=str.lower)
    with pytest.raises(SettingError, match="the documents have no ids"):
        matrix.split(0.5, key="id")
    assert [part.n_docs for part in matrix.split(0.34)] == [2, 1]


def test_over_labels_puts_known_labels_first(corpus):
    before = documents(corpus)
    moved = corpus.over_labels(Strings.of(["sea", "red"]))
    assert list(moved.label_names) == ["sea", "red", "fruit"]
    assert documents(moved) == before
    assert documents(corpus) == before
    assert moved.labels.has_sorted_indices


def test_stats_of_texts_and_of_features(corpus, matrix):
    found = corpus.stats()
    assert found["documents without labels"] == 1
    assert found["labels per document, mean"] == 1
    assert found["labels with one document"] == 1
    assert found["words per document, mean"] == 2
    assert found["text bytes"] == sum(map(len, TEXTS))
    assert matrix.stats()["features per document, mean"] == 1
    assert Corpus.from_lists([]).stats()["labels per document, mean"] == 0


def test_corpora_can_be_compared_without_an_accident(corpus):
    assert corpus == corpus
    assert corpus != corpus.take([0])


@given(st.lists(st.text(max_size=5), min_size=1, max_size=9), st.data())
def test_packed_strings_are_taken_as_from_a_list(strings, data):
    n = len(strings)
    index = data.draw(st.lists(st.integers(-n, n - 1), max_size=12))
    assert list(Strings.of(["before", *strings])[1:].take(index)) == [strings[i] for i in index]
    for outside in (n, -n - 1):
        with pytest.raises(IndexError):
            Strings.of(strings).take([outside])


def test_texts_of_labels_from_documents_that_tell_of_them():
    corpus = Corpus.from_lists(["an apple", "a pear"], [["fruit", "x"], ["fruit"]], ids=["1", "2"])
    told = Corpus.from_lists(["of a tree", "sweet", "blows"], [["fruit"], ["fruit", "x"], ["wind"]])
    found = corpus.with_label_texts(told)
    assert list(found.label_names) == ["fruit", "wind", "x"]
    assert list(found.label_texts) == ["of a tree\nsweet", "blows", "sweet"]
    assert [found.label_set(i) for i in range(2)] == [["fruit", "x"], ["fruit"]]
    whole = found.with_label_documents()
    assert list(whole.texts) == ["an apple", "a pear", "of a tree\nsweet", "blows", "sweet"]
    assert [whole.label_set(i) for i in (2, 3, 4)] == [["fruit"], ["wind"], ["x"]]
    assert list(whole.ids) == ["1", "2", "fruit", "wind", "x"]


def test_label_documents_need_texts():
    with pytest.raises(DataError, match=r"labels have no texts.*Remedy"):
        Corpus.from_lists(["a"], [["x"]]).with_label_documents()
    empty = Corpus.from_lists(["a"], [["x"]], label_texts={"x": " "})
    assert empty.with_label_documents().n_docs == 1
