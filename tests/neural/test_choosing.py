"""A cascade tried on held-out documents: which state is kept, and what is chosen after training."""

import numpy as np
import pytest

from neural.runs import learnt, make_run, nothing
from xmcascade.neural import CascadeTraining, choosing, torch_threads


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


def test_more_clusters_go_on_until_few_true_ones_are_missed(tmp_path):
    run = make_run(tmp_path, n_docs=60, n_held=20, keep=1)
    run.run(2, nothing)
    xs = run.held_features()
    before = run.cascade.recall(xs, run._known_truths())[-1]
    recall = run.widen(xs)
    assert before < choosing.ENOUGH_RECALL <= recall
    assert run.cascade.keeps in [(2,), (4,)] and recall == run.cascade.recall(xs, run._known_truths())[-1]


@pytest.mark.parametrize(("worse", "most", "keeps"), [(0.0, 16384, (2,)), (0.1, 16384, (1,)), (0.0, 5, (1,))])
def test_no_more_clusters_go_on_where_that_is_worse_or_too_many(tmp_path, monkeypatch, worse, most, keeps):
    run = make_run(tmp_path, n_docs=60, n_held=20, keep=1)
    monkeypatch.setattr(choosing, "MOST_SCORED", most)
    monkeypatch.setattr(
        choosing,
        "ENOUGH_RECALL",
        1.1 if most < 10 else run.cascade.recall(run.held_features(), run._known_truths())[-1] + 1e-6,
    )
    monkeypatch.setattr(CascadeTraining, "_quality", lambda self, xs, powers: -worse * self.cascade.keeps[0])
    run.widen(run.held_features())
    assert run.cascade.keeps == keeps
