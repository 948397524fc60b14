"""Probabilities held against the truth, in bins of equal width."""

import numpy as np
import pytest

from xmcascade.errors import SettingError
from xmcascade.evaluate.calibration import reliability


def slow(probabilities, right, bins):
    """Bin by bin."""
    error, n = 0.0, len(probabilities)
    for b in range(bins):
        own = [i for i in range(n) if min(int(probabilities[i] * bins), bins - 1) == b]
        if own:
            gap = abs(np.mean([probabilities[i] for i in own]) - np.mean([right[i] for i in own]))
            error += len(own) / n * gap
    return error


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_the_mean_gap(bins):
    rng = np.random.default_rng(bins)
    p = rng.random(500)
    y = rng.random(500) < p**2
    found = reliability(p, y, bins)
    assert found.error == pytest.approx(slow(p, y, bins))
    assert found.counts.sum() == 500 and len(found.counts) == bins


def test_true_probabilities_have_a_small_error():
    rng = np.random.default_rng(0)
    p = rng.random(100_000)
    assert reliability(p, rng.random(100_000) < p).error < 0.01


def test_sure_and_wrong_is_the_worst():
    assert reliability([1.0, 1.0], [False, False]).error == 1
    assert reliability([0.0, 1.0], [False, True]).error == 0


def test_the_edges_are_inside_and_empty_bins_are_not_numbers():
    found = reliability([[0.0, 1.0]], [[True, True]], bins=4)
    assert found.counts.tolist() == [1, 0, 0, 1]
    assert np.isnan(found.confidence[1]) and np.isnan(found.accuracy[2])
    assert found.accuracy[[0, 3]].tolist() == [1, 1]


@pytest.mark.parametrize("arguments", [([0.5], [True, False]), ([0.5], [True], 0)])
def test_what_does_not_fit_is_refused(arguments):
    with pytest.raises(SettingError, match="Remedy"):
        reliability(*arguments)
