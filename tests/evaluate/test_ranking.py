import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError
from xmcascade.evaluate import Ranking, hits, judge

TRUTH = sp.csr_matrix([[1, 0, 1], [0, 0, 0], [0, 1, 0]])


def ranking(labels):
    shape = np.shape(labels)
    return Ranking(labels, np.zeros(shape), np.zeros(shape))


def test_a_ranking_has_small_types_and_knows_its_size():
    made = ranking([[1, 2, -1], [0, 1, 2]])
    assert (made.n_docs, made.k) == (2, 3)
    assert [made.labels.dtype, made.scores.dtype, made.probabilities.dtype] == [
        np.int32,
        np.float32,
        np.float32,
    ]


def test_top_cuts_all_three_arrays_and_keeps_a_narrow_ranking():
    made = Ranking([[1, 2]], [[5, 4]], [[0.5, 0.25]])
    assert [a.tolist() for a in (made.top(1).labels, made.top(1).scores, made.top(1).probabilities)] == [
        [[1]],
        [[5.0]],
        [[0.5]],
    ]
    assert made.top(9).k == 2
    with pytest.raises(SettingError, match="k is 0"):
        made.top(0)


@pytest.mark.parametrize(
    ("labels", "scores", "probabilities", "message"),
    [
        ([1, 2], [0, 0], [0, 0], "shape"),
        ([[1.5]], [[0]], [[0]], "float64"),
        (np.zeros((3, 0), int), np.zeros((3, 0)), np.zeros((3, 0)), "shape"),
        ([[1, 2]], [[0]], [[0, 0]], "scores have shape"),
        ([[1, 2]], [[0, 0]], [[0]], "probabilities have shape"),
        ([[-2]], [[0]], [[0]], "out of range"),
        ([[2**31]], [[0]], [[0]], "out of range"),
        ([[0]], [[0]], [[1.5]], "outside 0..1"),
        ([[1]], [[0]], [[-0.1]], "outside 0..1"),
        ([[1]], [[0]], [[np.nan]], "outside 0..1"),
    ],
)
def test_a_wrong_ranking_is_refused(labels, scores, probabilities, message):
    with pytest.raises(DataError, match=message):
        Ranking(labels, scores, probabilities)


def test_what_stands_beside_no_prediction_is_not_checked():
    assert Ranking([[0, -1]], [[1, np.nan]], [[1, np.nan]]).k == 2


def test_hits_of_every_document():
    # document 0 has labels 0 and 2; document 1 none; document 2 label 1. -1 must not mean the last label.
    found = hits(TRUTH, [[2, 1, 0], [0, 1, 2], [-1, 1, -1]])
    assert found.tolist() == [[True, False, True], [False] * 3, [False, True, False]]
    assert hits(sp.csr_matrix((2, 3)), [[0], [1]]).tolist() == [[False], [False]]


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_hits_takes_any_sparse_matrix(form):
    assert hits(form(TRUTH), [[0], [0], [1]]).ravel().tolist() == [True, False, True]


def test_only_positive_stored_values_are_true():
    truth = sp.csr_matrix((np.array([1.0, 0.0, -1.0, np.nan, 0.2]), ([0] * 5, range(5))), shape=(1, 5))
    before = truth.copy()
    assert hits(truth, [[0, 1, 2, 3, 4]]).tolist() == [[True, False, False, False, True]]
    assert (truth.data.tobytes(), truth.nnz) == (before.data.tobytes(), 5), (
        "the caller's matrix is left alone"
    )


def test_unsorted_and_repeated_entries_are_one_label_each():
    truth = sp.csr_matrix((np.ones(4), np.array([3, 1, 3, 0]), np.array([0, 3, 4])), shape=(2, 4))
    judged = judge(truth, [[1, 3, 0], [0, 1, 3]])
    assert judged.n_true.tolist() == [2, 1]
    assert judged.hits.tolist() == [[True, True, False], [True, False, False]]
    assert truth.indices.tolist() == [3, 1, 3, 0]


def test_documents_without_a_true_label_are_left_out_and_counted():
    judged = judge(TRUTH, [[0], [1], [2]])
    assert (judged.docs.tolist(), judged.n_docs, judged.n_unlabelled, judged.n_labels) == ([0, 2], 2, 1, 3)
    assert judged.labels.tolist() == [[0], [2]]


@pytest.mark.parametrize("truth", [sp.csr_matrix((2, 3)), sp.csr_matrix(([0.0], ([0], [0])), shape=(2, 3))])
def test_nothing_to_evaluate_is_an_error_with_a_remedy(truth):
    with pytest.raises(DataError, match=r"nothing to evaluate\. Remedy: give"):
        judge(truth, [[0], [1]])
    with pytest.raises(DataError, match="nothing to evaluate"):
        judge(sp.csr_matrix((0, 3)), np.zeros((0, 2), int))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0], [1]], "for 3 documents"),
        ([0, 1, 2], "for 3 documents"),
        ([[0.0], [1.0], [2.0]], "float64"),
        ([[0, 1], [1, 3], [0, 1]], r"document 1, rank 2: label id 3 where the truth has 3 labels"),
        ([[0, 1], [1, 2], [-2, 1]], r"document 2, rank 1: label id -2"),
        ([[0, 1, 2], [1, 0, 1], [0, 1, 2]], r"document 1: label id 1 is ranked twice"),
    ],
)
def test_wrong_label_ids_are_refused(labels, message):
    for judging in (hits, judge):
        with pytest.raises(DataError, match=message):
            judging(TRUTH, labels)


def test_a_dense_truth_is_refused():
    with pytest.raises(DataError, match="the truth is a ndarray"):
        hits(np.eye(2), [[0], [1]])


def test_keys_do_not_overflow():
    n_labels = 2**31 - 1
    docs, last = 70_000, n_labels - 1
    truth = sp.csr_matrix(([1.0], ([docs - 1], [last])), shape=(docs, n_labels))
    labels = np.full((docs, 1), last)
    assert np.flatnonzero(hits(truth, labels)).tolist() == [docs - 1]
