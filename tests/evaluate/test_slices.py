import math

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.errors import DataError
from xmcascade.evaluate import judge, slice_of_labels, slice_recalls


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2, 2, 2], [0, 1, 2]),  # first assignments at 0, 2 and 4 of 6
        ([1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2]),
        ([6, 3, 2, 1, 0], [0, 1, 2, 2, 2]),  # 0, 6, 9 and 11 of 12
        ([100, 1, 1], [0, 2, 2]),  # one label has nearly everything: no torso
        ([0, 5, 0], [2, 0, 2]),
        ([0, 0], [2, 2]),
    ],
)
def test_slices_by_hand(counts, expected):
    assert slice_of_labels(counts).tolist() == expected


def test_recalls_by_hand():
    # labels 0 1 2 are head, torso, tail; true 3, 1 and 1 times; hits in the first 2: 0 twice, 2 once
    truth = sp.csr_matrix([[1, 1, 0], [1, 0, 0], [1, 0, 1]])
    judged = judge(truth, [[2, 0, 1], [0, 1, 2], [1, 2, 0]])
    assert slice_recalls(judged, [2, 2, 2], k=2) == {
        "head": {"labels": 1, "share": pytest.approx(60), "R@2": pytest.approx(100 * 2 / 3)},
        "torso": {"labels": 1, "share": pytest.approx(20), "R@2": 0},
        "tail": {"labels": 1, "share": pytest.approx(20), "R@2": 100},
    }


def test_a_slice_without_true_labels_has_no_recall():
    judged = judge(sp.csr_matrix([[1, 0]]), [[0]])
    recalls = slice_recalls(judged, np.array([9, 0]), k=1)
    assert recalls["head"] == {"labels": 1, "share": 100, "R@1": 100}
    assert recalls["torso"]["labels"] == 0
    assert math.isnan(recalls["tail"]["R@1"])


def test_counts_must_fit_the_labels():
    with pytest.raises(DataError, match="3 label_counts for 2 labels"):
        slice_recalls(judge(sp.csr_matrix([[1, 0]]), [[0]]), [1, 1, 1], k=1)
