import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from reference.linear import dense_weights
from xmcascade.errors import SettingError
from xmcascade.features import MixedRows
from xmcascade.kernels import solver
from xmcascade.linear import BlockWeights, LinearSettings, machine, train_level
from xmcascade.store import Checkpoint


def level_of(n_labels=300, threads=1, n_dense=0, earlier=None, checkpoint=None, seed=0, **settings):
    rng = np.random.default_rng(0)
    documents = sp.random(120, 40, 0.2, "csr", np.float32, rng=rng)
    targets = sp.csc_matrix((rng.random((120, n_labels)) < 0.1).astype(np.float32))
    beside = rng.normal(size=(120, n_dense))
    offsets = np.array([0, n_labels])
    level = train_level(
        MixedRows.of(documents, beside), sp.csc_matrix(np.ones((120, 1), np.float32)), targets, offsets,
        LinearSettings(**settings), threads=threads, earlier=earlier, checkpoint=checkpoint, seed=seed,
    )  # fmt: skip
    return level, offsets


def assert_equal(one, two):
    for a, b in zip(one.arrays(), two.arrays(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_dense", [0, 3])
def test_threads_and_with_them_the_size_of_a_job_change_nothing(n_dense):
    first, offsets = level_of(n_dense=n_dense)
    first.check(offsets, 40, n_dense)
    for threads in (2, 7):
        assert_equal(level_of(threads=threads, n_dense=n_dense)[0], first)


def test_more_labels_than_a_panel_holds():
    level, offsets = level_of(n_labels=300)
    assert len(level.panel_rows) == 3
    few, of_few = level_of(n_labels=1)
    assert dense_weights(level, offsets, 40).shape == (40, 300)
    assert (dense_weights(level, offsets, 40)[:, 256:] != 0).any()
    few.check(of_few, 40)


@pytest.mark.parametrize("settings", [{"solver": "newton"}, {"loss": "logistic"}])
def test_other_solvers(settings):
    plain, offsets = level_of(n_labels=20, threshold=0.0, tolerance=1e-3)
    other, _ = level_of(n_labels=20, threshold=0.0, tolerance=1e-3, **settings)
    plain, other = dense_weights(plain, offsets, 40), dense_weights(other, offsets, 40)
    assert np.allclose(plain, other, atol=0.01) == ("solver" in settings)
    assert np.corrcoef(plain.ravel(), other.ravel())[0, 1] > 0.9


def test_half_the_bytes_are_nearly_the_same_weights():
    plain, offsets = level_of(n_dense=2)
    short, _ = level_of(n_dense=2, precision="bfloat16")
    short.check(offsets, 40, 2)
    assert short.weights.dtype == short.dense.dtype == np.uint16
    np.testing.assert_allclose(
        dense_weights(short, offsets, 40), dense_weights(plain, offsets, 40), rtol=2**-8
    )


def test_weights_to_start_from():
    found, offsets = level_of(n_labels=300, n_dense=3, threshold=0.0, tolerance=1e-4)
    again, _ = level_of(n_labels=300, n_dense=3, threshold=0.0, tolerance=1e-4, max_sweeps=1, earlier=found)
    cold, _ = level_of(n_labels=300, n_dense=3, threshold=0.0, tolerance=1e-4, max_sweeps=1)
    wanted = dense_weights(found, offsets, 40)
    near = np.abs(dense_weights(again, offsets, 40) - wanted).max()
    far = np.abs(dense_weights(cold, offsets, 40) - wanted).max()
    assert near < far / 10
    for labels in (range(8), range(250, 262), range(296, 300)):  # across lanes and panels
        assert np.abs(again.biases - found.biases)[labels].max() < 0.05


def test_whole_numbers_do_not_make_another_kernel():
    whole = {"cost": 2, "negative_cost": 3, "bias": 1, "tolerance": 1, "threshold": 0}
    floats = {name: float(value) for name, value in whole.items()}
    for more in ({}, {"loss": "logistic"}):
        one, two = LinearSettings(**whole, **more).how(), LinearSettings(**floats, **more).how()
        assert one == two
        assert [type(value) for value in (*one[0], *one[1:])] == [
            type(value) for value in (*two[0], *two[1:])
        ]


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    whole, _ = level_of(n_labels=1000)
    monkeypatch.setattr(machine, "KEEP_SECONDS", 0.0)
    trained = []
    real = solver.train_labels

    def counted(*args):
        trained.append(args[3])
        if len(trained) == stop:
            raise Killed
        return real(*args)

    monkeypatch.setattr(solver, "train_labels", counted)
    stop = 7  # of 16 jobs, four a panel
    with pytest.raises(Killed):
        level_of(n_labels=1000, checkpoint=Checkpoint(tmp_path / "work", "run"))
    stop, done = 0, len(trained)
    resumed, _ = level_of(n_labels=1000, checkpoint=Checkpoint(tmp_path / "work", "run"))
    assert_equal(resumed, whole)
    assert min(trained[done:]) == 256  # the first panel was finished, the second was not


def test_a_piece_that_does_not_go_on_where_the_last_one_ends_is_not_used(tmp_path, monkeypatch):
    """As when some pieces are deleted, and the run after that keeps other ones and is killed too."""
    whole, _ = level_of(n_labels=1000)
    monkeypatch.setattr(machine, "KEEP_SECONDS", 0.0)
    kept = Checkpoint(tmp_path / "work", "run")
    assert_equal(level_of(n_labels=1000, checkpoint=kept)[0], whole)
    names = sorted(path.name for path in kept.folder.iterdir())
    assert names == ["run", "training-0", "training-1", "training-2", "training-3"]
    shutil.rmtree(kept.folder / "training-1")
    (kept.folder / "training-2").rename(kept.folder / "training-1")
    assert_equal(level_of(n_labels=1000, checkpoint=Checkpoint(kept.folder, "run"))[0], whole)
    assert_equal(level_of(n_labels=1000, checkpoint=Checkpoint(kept.folder, "run"))[0], whole)


def test_finished_work_is_not_done_again(tmp_path, monkeypatch):
    kept = Checkpoint(tmp_path / "work", "run")
    whole, _ = level_of(n_labels=1000, checkpoint=kept)
    monkeypatch.setattr(solver, "train_labels", None)
    assert_equal(level_of(n_labels=1000, checkpoint=kept)[0], whole)


def test_the_largest_weights_are_kept():
    every, offsets = level_of(threshold=0.0)
    few, _ = level_of(threshold=0.0, max_weights=3)
    assert ((dense_weights(few, offsets, 40) != 0).sum(axis=0) <= 3).all()
    assert len(few.weights) < len(every.weights)


BROKEN = {
    "children too large": lambda w: {"children": np.full_like(w.children, 255)},
    "features too large": lambda w: {"row_features": w.row_features + 1000},
    "features negative": lambda w: {"row_features": w.row_features - 1000},
    "ends do not rise": lambda w: {"row_ends": w.row_ends[::-1].copy()},
    "ends too large": lambda w: {"row_ends": w.row_ends + np.uint32(1)},
    "panels do not fit": lambda w: {"panel_rows": w.panel_rows[:-1]},
    "panels' rows do not rise": lambda w: {"panel_rows": w.panel_rows[[0, 2, 1]]},
    "entries do not fit": lambda w: {"panel_entries": w.panel_entries // 2},
    "entries moved between panels": lambda w: {"panel_entries": w.panel_entries - np.array([0, 5, 0])},
    "biases missing": lambda w: {"biases": w.biases[:-1]},
    "weights missing": lambda w: {"weights": w.weights[:-1]},
    "dense weights missing": lambda w: {"dense": w.dense[:-1]},
    "dense weights for no features": lambda w: {"dense": np.zeros((300, 2), np.float32)},
    "children that may be negative": lambda w: {"children": w.children.astype(np.int32)},
    "ends that may be negative": lambda w: {"row_ends": w.row_ends.astype(np.int64)},
    "weights of another type": lambda w: {"weights": w.weights.astype(np.float64)},
    "too many dimensions": lambda w: {"biases": w.biases[:, None]},
}


@pytest.mark.parametrize("case", BROKEN)
def test_weights_that_do_not_fit_are_refused(case):
    level, offsets = level_of()
    values = {name: getattr(level, name) for name in BlockWeights.__dataclass_fields__}
    with pytest.raises(ValueError):
        BlockWeights(**{**values, **BROKEN[case](level)}).check(offsets, 40)


@pytest.mark.parametrize(
    "bad",
    [
        {"cost": 0},
        {"tolerance": 0},
        {"max_sweeps": 0},
        {"threshold": -1},
        {"max_weights": -1},
        {"bias": -1},
        {"solver": "dual", "loss": "logistic"},
    ],
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=next(iter(bad))):
        LinearSettings(**bad)


@pytest.mark.parametrize("n_dense", [0, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nodes_in_other_blocks_have_the_same_weights(n_dense, precision):
    level, offsets = level_of(n_labels=300, n_dense=n_dense, precision=precision)
    rng = np.random.default_rng(1)
    nodes = rng.permutation(300)[:290]
    for cuts in ([0, 290], [0, 3, 3 + 270, 290], [0, 1, 2, 289, 290]):
        moved = level.rearranged(offsets, nodes, np.array(cuts))
        moved.check(np.array(cuts), 40, n_dense)
        before, after = dense_weights(level, offsets, 40), dense_weights(moved, np.array(cuts), 40)
        np.testing.assert_array_equal(after, before[:, nodes])
        np.testing.assert_array_equal(moved.biases, level.biases[nodes])
        np.testing.assert_array_equal(moved.dense, level.dense[nodes])
    again = moved.rearranged(np.array(cuts), np.argsort(nodes), np.array([0, 290]))
    assert_equal(again, level.rearranged(offsets, np.sort(nodes), np.array([0, 290])))
    assert_equal(level.rearranged(offsets, np.arange(300), offsets), level)


def test_labels_without_weights_can_be_moved():
    level, offsets = level_of(n_labels=4, threshold=1e2)
    moved = level.rearranged(offsets, np.array([3, 1]), np.array([0, 1, 2]))
    moved.check(np.array([0, 1, 2]), 40)
    assert not len(moved.weights)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_weights_of_one_node(precision):
    level, offsets = level_of(n_labels=300, precision=precision)
    cuts = np.array([0, 3, 270, 300])
    level = level.rearranged(offsets, np.random.default_rng(1).permutation(300), cuts)
    every = dense_weights(level, cuts, 40)
    for node in (0, 2, 3, 258, 259, 269, 270, 299):  # about the borders of blocks and panels
        features, weights = level.of_node(cuts, node)
        assert weights.dtype == np.float32 and (np.diff(features) > 0).all()
        found = np.zeros(40)
        found[features] = weights
        np.testing.assert_array_equal(found, every[:40, node])
