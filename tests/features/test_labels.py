"""Label features against dense sums, label by label."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xmcascade.errors import DataError, SettingError
from xmcascade.features import label_features, normalise_rows


def unit(row):
    length = np.linalg.norm(row)
    return row / length if length else row


def pifa(documents, labels):
    """Twin: add up the documents of each label, then scale."""
    sums = [documents[column != 0].sum(axis=0) for column in labels.T]
    return np.array([unit(row) for row in sums]).reshape(labels.shape[1], documents.shape[1])


values = st.sampled_from([0, 0, 0, 0.5, 1, 3])


@st.composite
def corpora(draw):
    n_docs, n_labels, width = (draw(st.integers(0, 5)) for _ in range(3))
    documents = draw(hnp.arrays(np.float32, (n_docs, width), elements=values))
    return documents, draw(hnp.arrays(np.float32, (n_docs, n_labels), elements=values))


@given(corpora())
@settings(max_examples=150, deadline=None)
def test_pifa(corpus):
    documents, labels = corpus
    found = label_features("pifa", documents=sp.csr_matrix(documents), labels=sp.csr_matrix(labels))
    assert found.dtype == np.float32 and found.has_sorted_indices
    np.testing.assert_allclose(found.toarray(), pifa(documents, labels), atol=1e-6)


@given(corpora(), st.data())
@settings(max_examples=100, deadline=None)
def test_text_and_both(corpus, data):
    documents, labels = corpus
    texts = data.draw(hnp.arrays(np.float64, (labels.shape[1], 3), elements=values))
    given_ = {
        "documents": sp.csr_matrix(documents),
        "labels": sp.csr_matrix(labels),
        "texts": sp.csr_matrix(texts),
    }
    own = np.array([unit(row) for row in texts]).reshape(texts.shape)
    np.testing.assert_allclose(label_features("text", texts=given_["texts"]).toarray(), own, atol=1e-6)
    sides = np.hstack([pifa(documents, labels), own])
    expected = np.array([unit(row) for row in sides]).reshape(sides.shape)
    found = label_features("both", **given_)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-6)
    assert found.dtype == np.float32
    ordered = found.copy()
    ordered.has_sorted_indices = False
    ordered.sort_indices()
    assert np.array_equal(ordered.indices, found.indices)
    assert np.array_equal(given_["documents"].toarray(), documents)  # nothing given is changed
    assert np.array_equal(given_["texts"].toarray(), texts)


def test_weights_of_labels_do_not_matter():
    documents = sp.csr_matrix(np.eye(2, dtype=np.float32))
    plain, weighted = (sp.csr_matrix([[w, 0.0], [1.0, 1.0]]) for w in (1.0, 9.0))
    found = [label_features("pifa", documents=documents, labels=labels) for labels in (plain, weighted)]
    assert (found[0] != found[1]).nnz == 0


def test_any_sparse_format_of_labels():
    documents, labels = sp.csr_matrix(np.eye(3, 4)), sp.csr_matrix([[1.0, 0], [1, 1], [0, 0]])
    expected = label_features("pifa", documents=documents, labels=labels)
    for form in ("csc", "coo", "lil"):
        found = label_features("pifa", documents=documents, labels=labels.asformat(form))
        assert (found != expected).nnz == 0


def test_memory_is_that_of_the_answer():
    n = 100_000  # dense, n x n, this would be 40 GB
    eye = sp.identity(n, dtype=np.float32, format="csr")
    tracemalloc.start()
    found = label_features("both", documents=eye, labels=eye, texts=eye)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.nnz == 2 * n
    assert peak < 40 * (found.data.nbytes + found.indices.nbytes + found.indptr.nbytes)


@pytest.mark.parametrize(
    ("kind", "missing"), [("pifa", "documents"), ("pifa", "labels"), ("text", "texts"), ("both", "texts")]
)
def test_what_is_missing_is_said(kind, missing):
    one = sp.csr_matrix([[1.0]])
    given_ = {"documents": one, "labels": one, "texts": one} | {missing: None}
    with pytest.raises(DataError, match=rf"{kind!r} need.*{missing}.*Remedy"):
        label_features(kind, **given_)


def test_parts_must_fit():
    one, two = sp.csr_matrix([[1.0]]), sp.csr_matrix([[1.0], [1.0]])
    with pytest.raises(DataError, match=r"2 documents for 1 rows of labels"):
        label_features("pifa", documents=two, labels=one)
    with pytest.raises(DataError, match=r"2 label texts for 1 labels"):
        label_features("both", documents=one, labels=one, texts=two)
    with pytest.raises(SettingError, match=r"'words'.*allowed: pifa, text, both"):
        label_features("words", documents=one, labels=one)


@given(hnp.arrays(np.float32, (4, 3), elements=st.sampled_from([0, 0, 1e-42, 1e-20, 0.5, -2, 1e30])))
@settings(max_examples=150, deadline=None)
def test_normalise_rows(dense):
    matrix = sp.csr_matrix(dense)
    assert normalise_rows(matrix) is matrix
    assert np.isfinite(matrix.data).all()
    expected = [unit(row) for row in dense.astype(np.float64)]
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-6)
