"""Several models as one: what is averaged, over which labels, and with which weights."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade import Ensemble, NearestNeighbours, XRLinear, load, make_synthetic
from xmcascade.errors import ModelFolderError, SettingError
from xmcascade.models import ensemble
from xmcascade.store import Checkpoint, load_folder, save_folder

TWO = ("xr-linear tree.max_leaf=4 tree.arity=4 beam=3", "nearest neighbours=3")


@pytest.fixture(scope="module")
def corpus():
    return make_synthetic(500, 40, seed=3)


@pytest.fixture(scope="module")
def train(corpus):
    return corpus.take(np.arange(400))


@pytest.fixture(scope="module")
def test(corpus):
    return corpus.take(np.arange(400, 500))


def every(n_docs, n_labels):
    return sp.csr_matrix(np.ones((n_docs, n_labels), np.float32))


@pytest.mark.parametrize("average", ["probability", "geometric", "rank"])
def test_answers_are_those_of_the_average_over_all_labels(train, test, average):
    weights = (0.75, 0.25)
    both = Ensemble(members=TWO, average=average, weights=weights, candidates=40).fit(train)
    state, chances = both._learnt.state, []
    for model, own in zip(state.models, state.states, strict=True):
        _, found = model._score(own, test, every(100, 40))
        chances.append(found.reshape(100, 40))
        if average == "rank":
            order = model._rank(own, test, 40).labels
            chances[-1] = np.argsort(order, axis=1) + 1.0
    if average == "probability":
        wanted = weights[0] * chances[0] + weights[1] * chances[1]
    elif average == "geometric":
        least = [np.maximum(part, ensemble.LEAST_CHANCE) for part in chances]
        wanted = least[0] ** weights[0] * least[1] ** weights[1]
    else:
        wanted = 1 / (weights[0] * chances[0] + weights[1] * chances[1])
    found = both.rank(test, k=40)
    np.testing.assert_allclose(np.take_along_axis(wanted, found.labels, 1), found.scores, rtol=1e-4)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    few = both.rank(test, k=3)
    assert few.labels.tolist() == found.labels[:, :3].tolist()


def test_what_one_did_not_name_it_still_scores(train, test):
    both = Ensemble(members=TWO, average="probability", weights=(1, 1), candidates=2).fit(train)
    state, found = both._learnt.state, both.rank(test, k=2)
    named = [set(zip(*np.nonzero(mark(m._rank(own, test, 2).labels)), strict=True))
             for m, own in zip(state.models, state.states, strict=True)]  # fmt: skip
    alone = [(doc, label) for doc, row in enumerate(found.labels) for label in row
             if ((doc, label) in named[0]) != ((doc, label) in named[1])]  # fmt: skip
    assert alone
    parts = [m._score(own, test, every(100, 40))[1].reshape(100, 40)
             for m, own in zip(state.models, state.states, strict=True)]  # fmt: skip
    for doc, label in alone:
        at = found.labels[doc].tolist().index(label)
        np.testing.assert_allclose(found.scores[doc, at], (parts[0] + parts[1])[doc, label] / 2, rtol=1e-4)
    assert any(min(parts[0][pair], parts[1][pair]) > 0 for pair in alone)


def mark(labels):
    marks = np.zeros((len(labels), 40), bool)
    np.put_along_axis(marks, labels, True, axis=1)
    return marks


def test_weights_are_chosen_on_documents_that_nobody_learnt_from(corpus):
    model = Ensemble(members=("xr-linear", "nearest neighbours=1 features.min_df=30")).fit(corpus)
    weights, average = (model.derived[name] for name in ("weights", "average"))
    assert weights["value"][0] > weights["value"][1] and "held-out" in weights["reason"]
    assert average["value"] in ("probability", "geometric", "rank")
    assert model.n_labels == corpus.n_labels and model._learnt.n_docs == corpus.n_docs
    assert model._learnt.state.models[0]._learnt is None  # the ensemble has their states
    assert sum(model._learnt.state.weights) == pytest.approx(1)


def test_what_is_given_is_not_chosen(train):
    model = Ensemble(members=TWO, average="rank", weights=(2, 6), calibrate=False).fit(train)
    assert not {"weights", "average", "held_out"} & set(model.derived)
    assert model._learnt.state.weights == (0.25, 0.75)


def test_the_average_alone_can_be_chosen(train):
    model = Ensemble(members=TWO, weights=(0, 3)).fit(train)
    assert "average" in model.derived and model._learnt.state.weights == (0, 1)


def test_a_member_that_does_not_count_is_not_asked(train, test, monkeypatch):
    model = Ensemble(members=TWO, average="probability", weights=(1, 0), calibrate=False).fit(train)
    wanted = XRLinear(tree={"max_leaf": 4, "arity": 4}, beam=40).fit(train).rank(test, k=3)
    monkeypatch.setattr(NearestNeighbours, "_rank", None)
    monkeypatch.setattr(NearestNeighbours, "_score", None)
    assert model.rank(test, k=3).labels.tolist() == wanted.labels.tolist()


def test_processes_learn_the_same(train, test):
    one, two = (Ensemble(members=TWO, processes=n, threads=1).fit(train) for n in (1, 2))
    assert one.predict(test.texts[:20]) == two.predict(test.texts[:20])
    assert one.derived == two.derived


def test_of_models_that_have_learnt(train, test, tmp_path):
    members = [XRLinear().fit(train), NearestNeighbours().fit(train)]
    chosen = Ensemble.of(members, choose_on=test)
    assert "weights" in chosen.derived and "weights" not in Ensemble.of(members).derived
    found = [model.evaluate(test).metrics for model in (chosen, *members)]
    quality = [sum(own[name] for name in ("nDCG@1", "nDCG@5", "PSnDCG@1", "PSnDCG@5")) for own in found]
    assert quality[0] >= max(quality[1:]) - 1e-6
    chosen.save(tmp_path / "both")
    loaded = load(tmp_path / "both")
    assert loaded.predict(test.texts[:9]) == chosen.predict(test.texts[:9])


def test_members_that_have_learnt_are_told_with_their_settings(train):
    models = [XRLinear(beam=7, linear={"cost": 2.0}).fit(train), NearestNeighbours().fit(train)]
    told = Ensemble.of(models).settings.members
    assert told == ("xr-linear linear.cost=2.0 beam=7", "nearest")
    assert [ensemble._member(each, None).settings for each in told] == [model.settings for model in models]


def test_models_with_other_labels_cannot_be_one(train):
    other = train.take(np.arange(400))
    fewer = XRLinear().fit(["red apple"], [["fruit"]])
    with pytest.raises(SettingError, match=r"know other labels.*train them on the same corpus"):
        Ensemble.of([XRLinear().fit(other), fewer])
    with pytest.raises(SettingError, match="no models"):
        Ensemble.of([])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"members": ()}, "members is .*one or more"),
        ({"weights": (1.0,)}, "weights is .*one for each member"),
        ({"weights": (0, 0, 0)}, "not all 0"),
        ({"weights": (1, 1, -1)}, "from 0 up"),
        ({"candidates": 0}, "candidates is 0"),
        ({"processes": 0}, "processes is 0"),
    ],
)
def test_settings_out_of_range(values, says):
    with pytest.raises(SettingError, match=says):
        Ensemble(**values)


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("parabell", "there is no model 'parabell'.*the models are: nearest"),
        ("parabel beem=3", "there is no setting 'beem'"),
        ("parabel beam", "'beam' is not name=value"),
        ("  ", "'  ' names no model.*a model's name"),
        ("parabel 'beam=3", "names no model.*a model's name"),
    ],
)
def test_members_that_do_not_exist(train, member, says):
    with pytest.raises(SettingError, match=says):
        Ensemble(members=("nearest", member)).fit(train)


@pytest.mark.parametrize(
    "change",
    [{"average": "median"}, {"weights": [1.0]}, {"weights": [0, 0]}, {"weights": [2, -1]}, {"members": []}],
)
def test_a_folder_with_other_values_is_refused(train, tmp_path, change):
    Ensemble(members=TWO).fit(train).save(tmp_path / "model")
    manifest, arrays, strings = load_folder(tmp_path / "model")
    parts = {"kind": manifest.kind, "settings": manifest.settings, "n_labels": manifest.n_labels}
    values = {**manifest.values, **change}
    save_folder(tmp_path / "bad", **parts, arrays=arrays, strings=strings, values=values)
    with pytest.raises(ModelFolderError, match="do not fit"):
        load(tmp_path / "bad")


def test_parts_of_a_checkpoint_do_not_meet(tmp_path):
    kept = Checkpoint(tmp_path / "work", "run")
    for i in range(2):
        kept.part(f"member-{i}").save("level", {"x": np.arange(i)}, {})
    again = Checkpoint(tmp_path / "work", "run")
    assert [len(again.part(f"member-{i}").load("level")[0]["x"]) for i in range(2)] == [0, 1]
    assert again.load("level") is None and again.part("member-2").load("level") is None
    again.remove()
    assert not (tmp_path / "work").exists()
