"""Neighbours and votes against dense sums and full sorts; numbers are small fractions, so ties abound."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import neighbours as twin
from xmcascade.kernels import neighbours

FEW_VALUES = [0.0, 0.0, 0.25, 0.5, 1.0]


def matrices(n_columns, values=FEW_VALUES, max_rows=8):
    rows = st.lists(
        st.lists(st.sampled_from(values), min_size=n_columns, max_size=n_columns), max_size=max_rows
    )
    return rows.map(lambda found: np.array(found, np.float32).reshape(-1, n_columns))


def kernel_nearest(queries, documents, k):
    q, d = sp.csr_matrix(queries), sp.csc_matrix(documents)
    ids, similar = neighbours.nearest(
        q.indptr, q.indices, q.data, d.indptr, d.indices, d.data, documents.shape[0], k
    )
    assert ids.shape == similar.shape == (len(queries), k)
    assert ((ids >= 0) == (similar > 0)).all()
    return [
        [(i, s) for i, s in zip(*pair, strict=True) if i >= 0]
        for pair in zip(ids.tolist(), similar.tolist(), strict=True)
    ]


@given(queries=matrices(4), documents=matrices(4, [*FEW_VALUES, -0.5]), k=st.integers(1, 10))
@settings(max_examples=200, deadline=None)
def test_nearest(queries, documents, k):
    assert kernel_nearest(queries, documents, k) == twin.nearest(queries, documents, k)


@given(queries=matrices(5, [0.0, 0.1, 0.3, 0.7]), documents=matrices(5, [0.0, 0.2, 0.6]))
@settings(max_examples=100, deadline=None)
def test_nearest_is_the_same_alone_and_in_a_batch(queries, documents):
    alone = [kernel_nearest(queries[i : i + 1], documents, 3)[0] for i in range(len(queries))]
    assert kernel_nearest(queries, documents, 3) == alone


def test_equals_go_to_the_lower_document_and_missing_ones_are_marked():
    documents = np.array([[0.5, 0], [1, 0], [0.5, 0], [0, 1], [1, 0], [0.5, 0]], np.float32)
    query = np.array([[1.0, 0]], np.float32)
    for k, expected in [(1, [1]), (2, [1, 4]), (3, [1, 4, 0]), (4, [1, 4, 0, 2]), (9, [1, 4, 0, 2, 5])]:
        q, d = sp.csr_matrix(query), sp.csc_matrix(documents)
        ids, _ = neighbours.nearest(q.indptr, q.indices, q.data, d.indptr, d.indices, d.data, 6, k)
        assert ids.tolist() == [expected + [-1] * (k - len(expected))]


@st.composite
def elections(draw):
    """Label sets of documents, priors (many alike), and each query's neighbours with their weights."""
    n_labels, n_docs = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    labels = st.lists(st.integers(0, n_labels - 1), unique=True, max_size=n_labels)
    label_sets = draw(st.lists(labels, min_size=n_docs, max_size=n_docs))
    prior = draw(st.lists(st.sampled_from([0.0, 0.125, 0.25]), min_size=n_labels, max_size=n_labels))
    voter = st.tuples(st.integers(0, n_docs - 1), st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.0]))
    ballots = draw(st.lists(st.lists(voter, max_size=5, unique_by=lambda v: v[0]), max_size=4))
    return label_sets, prior, ballots


def arrays(label_sets, prior, ballots):
    ids, weights = np.full((len(ballots), 6), -1, np.int32), np.zeros((len(ballots), 6))
    for query, ballot in enumerate(ballots):
        for i, (doc, weight) in enumerate(ballot):
            ids[query, i], weights[query, i] = doc, weight
    label_rows = np.cumsum([0, *map(len, label_sets)])
    labels = np.array([label for each in label_sets for label in each], np.int32)
    return ids, weights, label_rows, labels, np.array(prior, np.float64)


@given(election=elections(), k=st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_votes_top(election, k):
    label_sets, prior, ballots = election
    k = min(k, len(prior))
    given_ = arrays(*election)
    by_prior = np.argsort(-given_[-1], kind="stable").astype(np.int32)
    top, votes, total = neighbours.votes_top(*given_, by_prior, k)
    for query, ballot in enumerate(ballots):
        expected, weights = twin.votes(ballot, label_sets, prior)
        best = twin.top(expected, k)
        assert top[query].tolist() == best
        assert votes[query].tolist() == [expected[label] for label in best]
        assert total[query] == weights


@given(election=elections(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_votes_for(election, data):
    label_sets, prior, ballots = election
    asked = [data.draw(st.lists(st.integers(0, len(prior) - 1), max_size=5)) for _ in ballots]
    asked_rows = np.cumsum([0, *map(len, asked)])
    flat = np.array([label for each in asked for label in each], np.int32)
    votes, total = neighbours.votes_for(*arrays(*election), asked_rows, flat)
    for query, ballot in enumerate(ballots):
        expected, weights = twin.votes(ballot, label_sets, prior)
        found = votes[asked_rows[query] : asked_rows[query + 1]].tolist()
        assert found == [expected[label] for label in asked[query]]
        assert total[query] == weights


def test_votes_that_weigh_nothing_name_no_label_twice():
    # Many neighbours too far away to count once filled the list of labels beyond its end.
    label_sets = [[0, 1]] * 6
    ballot = [(doc, 0.0) for doc in range(6)]
    given_ = arrays(label_sets, [0.25, 0.5], [ballot])
    top, votes, total = neighbours.votes_top(*given_, np.array([1, 0], np.int32), 2)
    assert (top.tolist(), votes.tolist(), total.tolist()) == ([[1, 0]], [[0.5, 0.25]], [0.0])
