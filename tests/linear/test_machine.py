import numpy as np
import pytest
import scipy.sparse as sp

from reference.linear import dense_weights
from xmcascade.errors import SettingError
from xmcascade.linear import BlockWeights, LinearSettings, machine, train_level


def level_of(n_labels=150, threads=1, **settings):
    rng = np.random.default_rng(0)
    documents = sp.random(120, 40, 0.2, "csr", np.float32, rng=rng)
    targets = sp.csc_matrix((rng.random((120, n_labels)) < 0.1).astype(np.float32))
    everything = sp.csc_matrix(np.ones((120, 1), np.float32))
    offsets = np.array([0, n_labels])
    level = train_level(documents, everything, targets, offsets, LinearSettings(**settings), threads=threads)
    return level, offsets


def test_threads_and_the_size_of_a_job_change_nothing(monkeypatch):
    first, offsets = level_of()
    second, _ = level_of(threads=4)
    monkeypatch.setattr(machine, "JOB_LABELS", 152)
    whole, _ = level_of()
    for one, two, three in zip(first.arrays(), second.arrays(), whole.arrays(), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    first.check(offsets, 40)


def test_the_largest_weights_are_kept():
    every, offsets = level_of(threshold=0.0)
    few, _ = level_of(threshold=0.0, max_weights=3)
    assert ((dense_weights(few, offsets, 40) != 0).sum(axis=0) <= 3).all()
    assert len(few.weights) < len(every.weights)


BROKEN = {
    "children too large": lambda w: {"children": w.children + 1000},
    "features too large": lambda w: {"row_features": w.row_features + 1000},
    "ends do not rise": lambda w: {"row_ends": w.row_ends[::-1].copy()},
    "blocks do not fit": lambda w: {"block_rows": w.block_rows[:-1]},
    "biases missing": lambda w: {"biases": w.biases[:-1]},
    "weights missing": lambda w: {"weights": w.weights[:-1]},
}


@pytest.mark.parametrize("case", BROKEN)
def test_weights_that_do_not_fit_are_refused(case):
    level, offsets = level_of()
    values = {name: getattr(level, name) for name in BlockWeights.__dataclass_fields__}
    with pytest.raises(ValueError):
        BlockWeights(**{**values, **BROKEN[case](level)}).check(offsets, 40)


@pytest.mark.parametrize(
    "bad",
    [{"cost": 0}, {"tolerance": 0}, {"max_sweeps": 0}, {"threshold": -1}, {"max_weights": -1}, {"bias": -1}],
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=next(iter(bad))):
        LinearSettings(**bad)
