"""What would be chosen, told before; and a budget in minutes."""

import numpy as np
import pytest

from contract.world import tiny_encoder
from xmcascade import CascadeXML, Ensemble, XRLinear, XRTransformer, make_synthetic
from xmcascade.errors import SettingError
from xmcascade.neural import Reader

SMALL = {"tree": {"levels": [8]}, "training": {"batch": 32, "head_epochs": 0.0}}


@pytest.fixture(scope="module")
def corpus():
    return make_synthetic(400, 40, seed=0)


@pytest.fixture
def settings():
    return {**SMALL, "encoder": tiny_encoder(), "threads": 1}


@pytest.mark.parametrize("kind", [CascadeXML, XRTransformer])
def test_fit_does_what_the_plan_says(kind, corpus, settings, monkeypatch):
    model = kind(**settings, effort="fast")
    planned = model.plan(corpus)
    assert planned["documents"]["value"] == 400 and planned["labels"]["value"] == corpus.n_labels
    assert planned["minutes"]["value"] >= 0 and planned["memory_gib"]["value"] > 0
    assert all(fact["reason"] for fact in planned.values())
    with pytest.raises(Exception, match="not learnt"):
        model.predict(["a"])
    done = model.fit(corpus).derived
    same = planned.keys() & done.keys()
    assert {"epochs", "max_tokens"} <= same
    for name in same - {"epochs"}:  # which is told from documents held out too
        assert planned[name]["value"] == done[name]["value"], name
    assert planned["epochs"]["value"] == pytest.approx(done["epochs"]["value"], rel=0.1)


def test_more_effort_reads_more(corpus, settings):
    epochs = [
        CascadeXML(**settings, effort=effort).plan(corpus)["epochs"]["value"]
        for effort in ("fast", "balanced", "best")
    ]
    assert epochs == sorted(epochs)


def test_minutes_decide_how_far_training_goes(corpus, settings, monkeypatch):
    monkeypatch.setattr(Reader, "pace", lambda self, tokens, docs, batch: 1e4)
    epochs = []
    for minutes in (0.1, 0.2):
        model = CascadeXML(**settings).fit(corpus, minutes=minutes)
        epochs.append(model.derived["epochs"]["value"])
        assert f"{minutes} minutes" in model.derived["epochs"]["reason"]
    assert 1.5 < epochs[1] / epochs[0] < 3
    settings["training"] = {**SMALL["training"], "epochs": 0.5}
    assert "epochs" not in CascadeXML(**settings).fit(corpus, minutes=0.04).derived  # what is said is done


def test_a_run_that_goes_on_keeps_to_what_it_began_with(corpus, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(Reader, "pace", lambda self, tokens, docs, batch: 1e4)
    first = CascadeXML(**settings).fit(corpus, minutes=0.02, checkpoint=tmp_path / "work")
    monkeypatch.setattr(Reader, "pace", lambda self, tokens, docs, batch: 9e9)
    again = CascadeXML(**settings).fit(corpus, minutes=0.02, checkpoint=tmp_path / "work")
    assert again.derived["epochs"] == first.derived["epochs"]


def test_the_pace_is_measured_and_leaves_no_trace(corpus, settings, monkeypatch):
    plain = CascadeXML(**settings).fit(corpus.take(np.arange(250)))
    paces, real = [], Reader.pace

    def pace(self, tokens, docs, batch):
        paces.append(real(self, tokens, docs, batch))
        return paces[-1]

    monkeypatch.setattr(Reader, "pace", pace)
    monkeypatch.setattr("xmcascade.neural.reader.PACE_SECONDS", 0.05)
    monkeypatch.setattr(
        "xmcascade.models.reading.Amount.epochs_in",
        lambda self, minutes, pace: plain.derived["epochs"]["value"],
    )
    timed = CascadeXML(**settings).fit(corpus.take(np.arange(250)), minutes=1.0)
    assert paces[0] > 0
    texts = list(corpus.texts)[:20]
    assert timed.predict(texts) == plain.predict(texts)


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_bad_minutes_are_refused(corpus, minutes):
    with pytest.raises(SettingError, match="minutes is"):
        XRLinear().fit(corpus, minutes=minutes)


def test_members_of_an_ensemble_share_the_time(corpus, settings, monkeypatch):
    monkeypatch.setattr(Reader, "pace", lambda self, tokens, docs, batch: 1e4)
    told = " ".join(
        ["cascadexml", f"encoder={settings['encoder']}", "tree.levels=[8]", "training.head_epochs=0"]
    )
    model = Ensemble(members=(told, f"{told} seed=1"), threads=1).fit(corpus, minutes=0.04)
    assert "0.02 minutes" in model.derived["0.epochs"]["reason"]
