"""A cascade tried on held-out documents: which state is kept, and what is chosen after training."""

import numpy as np
import pytest

from neural.runs import learnt, make_run, nothing
from xmcascade.neural import Cascade, Trial, choosing, torch_threads
from xmcascade.tree import LabelTree


@pytest.fixture(autouse=True)
def one_thread():
    """More only slow such small encoders down."""
    with torch_threads(1):
        yield


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize(
    ("qualities", "patience", "tries", "best"),
    [
        ([0.2, 0.5, 0.4, 0.3, 0.9, 0.9], 2, 4, 1),  # stops before it would have become better
        ([0.2, 0.5, 0.4, 0.6, 0.5, 0.1], 3, 6, 3),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1, 6, 5),
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 3, 4, 0),  # no gain is no gain
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 6, 6, 0),
    ],
)
def test_the_best_state_is_kept_and_patience_ends(
    tmp_path, monkeypatch, qualities, patience, tries, best, ema
):
    run = make_run(tmp_path / "0", n_docs=30, n_held=6, evaluations=6, patience=patience, ema=ema)
    states = []

    def judged(*_):
        states.append(learnt(run))
        return np.array([qualities[len(states) - 1]])

    monkeypatch.setattr(choosing, "ndcg", judged)
    history = run.run(2, nothing)
    assert [facts["step"] for facts in history] == [2 * (i + 1) for i in range(tries)]
    assert learnt(run) == states[best]
    assert len(set(map(str, states))) == tries


def test_evaluations_say_how_training_goes(tmp_path):
    run = make_run(tmp_path / "0", n_docs=60, n_held=20, evaluations=4, head_rate=0.3, rate=0.01, keep=4)
    history = run.run(30, nothing)
    assert [facts["step"] for facts in history] == [75, 150, 225, 300]
    assert all(len(facts["loss"]) == 2 and facts["recall"] == [100.0] for facts in history)  # all clusters
    assert history[-1]["loss"][1] < 0.5 * history[0]["loss"][1]
    assert history[-1]["P@1"] > 50


def trial_of(run):
    return run.trial(run.reader.encode(run.tokens, run.held))


def test_more_clusters_go_on_until_few_true_ones_are_missed(tmp_path):
    run = make_run(tmp_path, n_docs=60, n_held=20, keep=1)
    run.run(2, nothing)
    trial = trial_of(run)
    before = trial.recall()[-1]
    recall = trial.widen(trial.ways())
    assert before < choosing.ENOUGH_RECALL <= recall
    assert run.cascade.keeps in [(2,), (4,)] and recall == trial.recall()[-1]


@pytest.mark.parametrize(("worse", "most", "keeps"), [(0.0, 16384, (2,)), (0.1, 16384, (1,)), (0.0, 5, (1,))])
def test_no_more_clusters_go_on_where_that_is_worse_or_too_many(tmp_path, monkeypatch, worse, most, keeps):
    run = make_run(tmp_path, n_docs=60, n_held=20, keep=1)
    trial = trial_of(run)
    monkeypatch.setattr(choosing, "MOST_SCORED", most)
    monkeypatch.setattr(choosing, "ENOUGH_RECALL", 1.1 if most < 10 else trial.recall()[-1] + 1e-6)
    monkeypatch.setattr(Trial, "quality", lambda self, powers: -worse * self.cascade.keeps[0])
    trial.widen(trial.ways())
    assert run.cascade.keeps == keeps


@pytest.mark.parametrize(
    ("n_levels", "ways"),
    [
        (1, [(1,)]),
        (2, [(0, 1), (0.25, 1), (0.5, 1), (1, 1)]),
        (3, [(0, 0, 1), (0, 0.25, 1), (0, 0.5, 1), (0, 1, 1), (0.25, 0.25, 1), (0.5, 0.5, 1), (1, 1, 1)]),
    ],
)
def test_ways_to_combine_levels(n_levels, ways):
    offsets = [np.array([0, 2]), np.array([0, 2, 4])][2 - n_levels + 1 :] if n_levels > 1 else []
    cascade = Cascade(LabelTree(np.arange(4), tuple(offsets)), [], (1,) * (n_levels - 1))
    assert Trial(cascade, [], None, np.ones(4, int), 9).ways() == ways


def test_the_best_way_is_that_of_the_highest_quality(tmp_path, monkeypatch):
    trial = trial_of(make_run(tmp_path, n_docs=40, n_held=10))
    monkeypatch.setattr(Trial, "quality", lambda self, powers: -abs(powers[0] - 0.4))
    assert trial.best(trial.ways()) == ((0.5, 1.0), pytest.approx(-0.1))
