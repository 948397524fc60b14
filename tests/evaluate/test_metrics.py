"""Three documents, five labels, worked by hand; and the rules at the edges."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.errors import SettingError
from xmcascade.evaluate import coverage, f1, judge, ndcg, precision, r_precision, recall

# document 0: true 0 2 4, ranked 2 1 0: hit, miss, hit
# document 1: true 1,     ranked 0 1 -: miss, hit, nothing
# document 2: no true label: not counted
# document 3: true 0 3,   ranked 4 2 1: three misses
TRUTH = sp.csr_matrix([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0]])
LABELS = np.array([[2, 1, 0], [0, 1, -1], [0, 1, 2], [4, 2, 1]])
JUDGED = judge(TRUTH, LABELS)
D2 = 0.6309297535714575  # 1 / log2(3), what a hit counts at rank 2; at rank 3 it counts 1 / log2(4) = 0.5


@pytest.mark.parametrize(
    ("metric", "k", "expected"),
    [
        (precision, 1, [1, 0, 0]),
        (precision, 3, [2 / 3, 1 / 3, 0]),
        (precision, 5, [2 / 5, 1 / 5, 0]),  # the ranking has 3 ranks: ranks 4 and 5 are misses
        (recall, 1, [1 / 3, 0, 0]),
        (recall, 3, [2 / 3, 1, 0]),
        (recall, 5, [2 / 3, 1, 0]),
        (r_precision, 1, [1, 0, 0]),
        (r_precision, 2, [1 / 2, 1 / 1, 0 / 2]),
        (r_precision, 5, [2 / 3, 1 / 1, 0 / 2]),
        (ndcg, 1, [1, 0, 0]),
        (ndcg, 2, [1 / (1 + D2), D2 / 1, 0]),
        (ndcg, 3, [1.5 / (1 + D2 + 0.5), D2 / 1, 0]),  # 1.5 / 2.1309297535714578 = 0.7039180890341347
        (
            ndcg,
            5,
            [0.7039180890341347, D2, 0],
        ),  # document 0 has 3 true labels: the best is the same as for k = 3
    ],
)
def test_by_hand(metric, k, expected):
    np.testing.assert_allclose(metric(JUDGED, k), expected, rtol=0, atol=1e-15)


def test_coverage_by_hand():
    # the true labels are 0 1 2 3 4; rank 1 hits 2; ranks 1..3 hit 2, 0 and 1
    assert [coverage(JUDGED, k) for k in (1, 2, 3, 9)] == [1 / 5, 2 / 5, 3 / 5, 3 / 5]


def test_f1_by_hand():
    # predicted: document 0: 2 1 0; document 1: 0; document 3: 4. 5 predicted, 6 true, 2 both.
    # label 0: predicted twice, true twice, both once: 2/4. label 2: 2/2. labels 1, 3, 4: 0.
    predicted = np.array([[True, True, True], [True, False, True], [True, False, False]])
    assert f1(JUDGED, predicted) == (4 / 11, (2 / 4 + 2 / 2) / 5)


def test_f1_of_no_prediction_is_zero_and_ignores_labels_of_nobody():
    judged = judge(sp.csr_matrix([[1, 0, 0, 0]]), [[0, 3]])
    assert f1(judged, np.array([[False, False]])) == (0.0, 0.0)
    assert f1(judged, np.array([[True, False]])) == (1.0, 1.0)
    assert f1(judged, np.array([[True, True]])) == (2 / 3, 1 / 2)
    with pytest.raises(SettingError, match="shape"):
        f1(judged, np.array([[True]]))


def test_a_perfect_ranking_is_perfect_even_with_fewer_labels_than_k():
    judged = judge(sp.csr_matrix([[1, 0, 0], [1, 1, 0]]), [[0, 2], [1, 0]])
    assert ndcg(judged, 5).tolist() == r_precision(judged, 5).tolist() == recall(judged, 5).tolist() == [1, 1]
    assert precision(judged, 5).tolist() == [1 / 5, 2 / 5]
    assert coverage(judged, 5) == 1


def test_the_order_given_is_judged_so_ties_are_not_resorted():
    truth = sp.csr_matrix([[0, 1, 0]])
    assert precision(judge(truth, [[1, 0]]), 1) == 1
    assert precision(judge(truth, [[0, 1]]), 1) == 0


@pytest.mark.parametrize("metric", [precision, recall, r_precision, ndcg, coverage])
def test_k_must_be_positive(metric):
    with pytest.raises(SettingError, match="k is 0"):
        metric(JUDGED, 0)
