from itertools import product

import numpy as np
import pytest

from xmcascade.errors import SettingError
from xmcascade.evaluate import bootstrap, holm, resampling, sign_flip_p_values


def test_the_interval_covers_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(5)
    covered = 0
    for i in range(400):
        gains = rng.random((80, 1)) < 0.4
        low, high = np.quantile(
            bootstrap(gains * 1.0, np.ones((80, 1)), replicates=300, seed=i), [0.025, 0.975]
        )
        covered += low <= 0.4 <= high
    # 380 expected; three standard deviations are 13, and the percentile bootstrap is a little narrow
    assert 360 <= covered <= 395


def test_the_interval_of_a_ratio_of_sums_covers_the_true_ratio():
    rng = np.random.default_rng(6)
    covered = 0
    for i in range(300):
        bases = rng.exponential(2.0, (100, 1)) + 0.5  # mean 2.5
        gains = bases * rng.random((100, 1))  # mean 1.25, so the true ratio is 0.5
        low, high = np.quantile(bootstrap(gains, bases, replicates=300, seed=i), [0.025, 0.975])
        covered += low <= 0.5 <= high
    assert 270 <= covered <= 296


def test_replicates_spread_like_the_standard_error():
    gains = np.random.default_rng(0).normal(size=(2000, 1))
    values = bootstrap(gains, np.ones_like(gains), replicates=2000, seed=1)
    assert values.mean() == pytest.approx(gains.mean(), abs=0.002)
    assert values.std() == pytest.approx(gains.std() / 2000**0.5, rel=0.08)


def test_columns_are_drawn_together():
    gains = np.random.default_rng(0).random((50, 1))
    values = bootstrap(np.hstack([gains, 2 * gains]), np.ones((50, 2)), replicates=20, seed=0)
    np.testing.assert_allclose(2 * values[:, 0], values[:, 1])


@pytest.mark.parametrize("n_docs", [37, 128, 300])
def test_blocks_do_not_change_the_answer(monkeypatch, n_docs):
    rng = np.random.default_rng(0)
    gains, bases = rng.random((n_docs, 3)), rng.random((n_docs, 3)) + 1
    options = {"replicates": 50, "seed": 9}
    whole, p_values = bootstrap(gains, bases, **options), sign_flip_p_values(gains - 0.48, **options)
    monkeypatch.setattr(resampling, "_WEIGHTS_AT_ONCE", n_docs * 7)
    monkeypatch.setattr(resampling, "_DOCS_AT_ONCE", 10)
    np.testing.assert_allclose(bootstrap(gains, bases, **options), whole, rtol=1e-12)
    assert sign_flip_p_values(gains - 0.48, **options).tolist() == p_values.tolist()


def test_the_sums_are_those_of_the_drawn_documents():
    gains, bases = np.random.default_rng(3).random((2, 300, 2))
    drawn = np.random.default_rng(8).integers(0, 300, 300)
    expected = gains[drawn].sum(axis=0) / bases[drawn].sum(axis=0)
    np.testing.assert_allclose(bootstrap(gains, bases, replicates=1, seed=8)[0], expected, rtol=1e-12)


def test_p_agrees_with_trying_every_sign():
    differences = np.array([0.5, -0.25, 1.0, 0.75, -0.5, 1.0, 0.25, 0.5, 0.0])[:, None]
    sums = [abs(np.dot(signs, differences[:, 0])) for signs in product((-1, 1), repeat=9)]
    exact = np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9)
    assert sign_flip_p_values(differences, replicates=20_000, seed=0)[0] == pytest.approx(exact, abs=0.01)


def test_p_of_no_difference_is_one_and_of_noise_is_uniform():
    assert sign_flip_p_values(np.zeros((10, 2)), replicates=9, seed=0).tolist() == [1, 1]
    noise = np.random.default_rng(1).normal(size=(100, 400))
    p = sign_flip_p_values(noise, replicates=500, seed=0)
    assert 0.02 <= (p <= 0.05).mean() <= 0.08
    assert 0.45 <= p.mean() <= 0.55


def test_the_direction_does_not_matter():
    differences = np.random.default_rng(2).normal(0.2, 1, (60, 3))
    first, second = (sign_flip_p_values(d, replicates=300, seed=0) for d in (differences, -differences))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(("replicates", "seed"), [(0, 0), (10, -1)])
def test_wrong_settings_are_refused(replicates, seed):
    with pytest.raises(SettingError, match="Remedy"):
        bootstrap(np.ones((2, 1)), np.ones((2, 1)), replicates=replicates, seed=seed)
    with pytest.raises(SettingError, match="Remedy"):
        sign_flip_p_values(np.ones((2, 1)), replicates=replicates, seed=seed)


def test_holm_against_its_definition():
    given = [0.04, 0.001, 0.03, 0.03, 0.9]
    order = sorted(range(5), key=lambda i: given[i])
    largest, expected = 0.0, [0.0] * 5
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, given[i] * (5 - place)))
        expected[i] = largest
    assert holm(given).tolist() == pytest.approx(expected)
    assert holm([]).tolist() == []
