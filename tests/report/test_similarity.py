"""PWCCA: 1 whatever linear map lies between, little between unrelated features."""

import numpy as np
import pytest

from xmcascade.errors import DataError
from xmcascade.report.similarity import pwcca, similarity_of_levels


def features(n=600, width=8, seed=0):
    return np.random.default_rng(seed).standard_normal((n, width))


def test_a_linear_map_changes_nothing():
    x, rng = features(), np.random.default_rng(1)
    assert pwcca(x, x) == pytest.approx(1)
    assert pwcca(x, -3 * x + 7) == pytest.approx(1)
    assert pwcca(x, x @ rng.standard_normal((8, 8))) == pytest.approx(1)
    assert pwcca(x @ rng.standard_normal((8, 8)), x) == pytest.approx(1)


def test_unrelated_features_are_not_alike():
    assert pwcca(features(5000), features(5000, seed=1)) < 0.1


def test_noise_makes_them_less_alike():
    x, noise = features(2000), features(2000, seed=1)
    found = [pwcca(x, x + share * noise) for share in (0, 0.5, 1, 3)]
    assert found == sorted(found, reverse=True) and found[0] > 0.99 and found[-1] < 0.6


def test_directions_count_by_what_they_carry():
    """Where only a weak direction differs, PWCCA sees little of it; where a strong one does, much."""
    x = features(2000) * np.array([10, 10, 10, 10, 0.1, 0.1, 0.1, 0.1])
    other = features(2000, seed=1)
    weak, strong = x.copy(), x.copy()
    weak[:, 4:], strong[:, :4] = other[:, 4:], other[:, :4]
    assert pwcca(x, weak) > 0.9 > 0.3 > pwcca(x, strong)


def test_wide_features_and_constant_ones():
    assert pwcca(np.ones((50, 3)), features(50)) == 0
    doubled = np.concatenate([features(), features()], axis=1)  # not of full rank
    assert pwcca(doubled, features()) == pytest.approx(1)


@pytest.mark.parametrize("shapes", [((3, 2), (4, 2)), ((1, 2), (1, 2)), ((4,), (4, 2))])
def test_what_does_not_fit_is_refused(shapes):
    with pytest.raises(DataError, match="Remedy"):
        pwcca(*(np.zeros(shape) for shape in shapes))


def test_levels():
    """Each level is the one before and something new: neighbours are more alike than the ends."""
    levels = [features(2000)]
    for t in range(1, 4):
        levels.append(levels[-1] + 0.7 * features(2000, seed=t))
    found = similarity_of_levels(levels)
    np.testing.assert_allclose(found.values, found.values.T)
    assert (found.values.diagonal() == 1).all()
    assert found.values[0, 1] > found.values[0, 2] > found.values[0, 3] > found.chance
    assert found.to_dict()["directions"] == [8] * 4


def test_few_documents_do_not_make_all_things_alike():
    """With fewer documents than features, plain CCA finds any two alike."""
    x, y = features(60, 100), features(60, 100, seed=1)
    assert pwcca(x, y) > 0.99
    assert similarity_of_levels([x, y]).values[0, 1] < 0.6
