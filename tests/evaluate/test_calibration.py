"""Probabilities held against what was right."""

import numpy as np
import pytest

from xmcascade.errors import SettingError
from xmcascade.evaluate import reliability


def test_true_probabilities_have_no_error_and_bold_ones_have():
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    right = rng.random(len(p)) < p
    assert reliability(p, right).error < 0.01
    bold = np.where(p > 0.5, 1 - (1 - p) / 4, p / 4)
    assert reliability(bold, right).error > 0.1


def test_by_hand():
    found = reliability([0.0, 0.1, 0.6, 1.0], [0, 1, 1, 1], bins=2)
    assert found.counts.tolist() == [2, 2]
    assert found.confidence.tolist() == pytest.approx([0.05, 0.8])
    assert found.accuracy.tolist() == [0.5, 1.0]
    assert found.error == pytest.approx((2 * 0.45 + 2 * 0.2) / 4)


def test_empty_bins_are_nan_and_do_not_count():
    found = reliability([0.95], [True], bins=10)
    assert np.isnan(found.accuracy[:9]).all()
    assert found.error == pytest.approx(0.05)
    assert reliability([], []).error == 0


def test_wrong_shapes_are_refused():
    with pytest.raises(SettingError, match="one judgement a probability"):
        reliability([0.5], [True, False])
    with pytest.raises(SettingError, match="one bin"):
        reliability([0.5], [True], bins=0)
