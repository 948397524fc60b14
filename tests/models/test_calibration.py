"""Calibrated probabilities: right on documents never seen, the same ranking, kept with the model."""

import numpy as np
import pytest
import scipy.sparse as sp

from contract.world import tiny_encoder
from xmcascade import CascadeXML, Ensemble, NearestNeighbours, XRLinear, XRTransformer, load, make_synthetic
from xmcascade.evaluate import Ranking, hits, reliability
from xmcascade.models.calibration import Calibration
from xmcascade.models.fitting import FitRun


def run():
    return FitRun(np.random.default_rng(0), 1)


def pretended(n_docs, distorted, seed=0, k=10):
    """Rankings of n_docs documents by true chances that the model tells distorted."""
    rng = np.random.default_rng(seed)
    true = -np.sort(-(rng.random((n_docs, k)) ** 2), axis=1)
    labels = np.tile(np.arange(k, dtype=np.int32), (n_docs, 1))
    right = rng.random(true.shape) < true
    truth = sp.csr_matrix(right.astype(np.float32))
    return Ranking(labels, true, distorted(true)), truth, right, true


SHAPES = {
    "bold": lambda p: p**4 / (p**4 + (1 - p) ** 4),  # a temperature
    "shifted": lambda p: p * 0.3,
    "kinked": lambda p: np.where(p < 0.5, p / 10, 0.05 + 1.9 * (p - 0.5)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_was_distorted_is_set_right(name):
    found, truth, _, _ = pretended(2000, SHAPES[name])
    learnt = run()
    calibration = Calibration.of(found, truth, learnt)
    fresh, _, right, true = pretended(20_000, SHAPES[name], seed=1)
    before, after = (
        reliability(p, right).error for p in (fresh.probabilities, calibration(fresh.probabilities))
    )
    assert before > 0.05 and after < 0.012
    assert np.abs(calibration(fresh.probabilities) - true).mean() < 0.025
    assert learnt.derived["calibration"]["value"] == ("temperature" if name == "bold" else "isotonic")


@pytest.mark.parametrize("name", SHAPES)
def test_the_curve_rises_and_stays_between_0_and_1(name):
    found, truth, _, _ = pretended(300, SHAPES[name])
    p = Calibration.of(found, truth, run())(np.linspace(0, 1, 5000))
    assert (np.diff(p) >= 0).all() and p.min() >= 0 and p.max() <= 1


def test_the_threshold_has_the_highest_f1():
    found, truth, right, _ = pretended(500, lambda p: p)
    calibration = Calibration.of(found, truth, run())
    p = calibration(found.probabilities)

    def f1(threshold):
        told = p >= threshold
        return 2 * (right & told).sum() / (told.sum() + truth.nnz)

    assert f1(calibration.threshold) == pytest.approx(max(map(f1, np.unique(p))))


def test_where_nothing_can_be_learnt_there_is_none():
    found, _, _, _ = pretended(5, lambda p: p)
    assert Calibration.of(found, sp.csr_matrix((5, 10)), run()) is None
    assert Calibration.of(found, sp.csr_matrix(np.ones((5, 10))), run()) is None


def test_few_documents_are_not_chosen_on():
    assert Calibration.of(*pretended(4, lambda p: p)[:2], run()) is None
    assert Calibration.of(*pretended(6, lambda p: p)[:2], run()) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"calibration": np.array([[0.0, 0.0], [1.0, 2.0]])},
        {"calibration": np.array([[0.0, 1.0], [2.0, 1.0]])},
        {"calibration": np.array([[0.0, np.nan], [1.0, 2.0]])},
        {"calibration": np.zeros((2, 0))},
        {"calibration": np.zeros((3, 2))},
        {"threshold": np.array([1.5])},
        {"threshold": np.array([np.nan])},
        {"threshold": np.zeros(2)},
    ],
)
def test_curves_from_a_folder_are_checked(change):
    arrays = Calibration(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).to_arrays()
    assert Calibration.from_arrays(arrays)(np.array([0.6]))[0] > 0.5
    with pytest.raises(ValueError):
        Calibration.from_arrays({**arrays, **change})


# Of models ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora():
    whole = make_synthetic(2400, 60, seed=0)
    return whole.take(np.arange(1600)), whole.take(np.arange(1600, 2400))


def error_of(model, corpus):
    found = model.rank(corpus, 5)
    return reliability(
        found.probabilities, hits(corpus.over_labels(model.label_names).labels, found.labels)
    ).error


@pytest.mark.parametrize("kind", [XRLinear, NearestNeighbours])
def test_quick_models_learn_from_all_documents_all_the_same(kind, corpora, tmp_path):
    train, test = corpora
    plain, model = kind(calibrate=False).fit(train), kind().fit(train)
    before, after = plain.rank(test, 5), model.rank(test, 5)
    assert (before.labels == after.labels).all() and (before.scores == after.scores).all()
    assert error_of(model, test) < min(error_of(plain, test), 0.05)
    assert model.evaluate(test).metrics["ECE@5"] == pytest.approx(100 * error_of(model, test))
    asked = [name for name in model.label_names][:7]
    scored = model.score(test.take([0]), asked)[0]
    told = {p.label: p.probability for p in model.predict(test.take([0]), k=60)[0]}
    assert all(told.get(p.label, p.probability) == p.probability for p in scored)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.rank(test, 5).probabilities == after.probabilities).all()
    auto = again.predict(test, threshold="auto")
    assert {len(row) for row in auto} != {5}
    least = min(p.probability for row in auto for p in row)
    assert least >= again.derived["threshold"]["value"] - 1e-4


SMALL = {
    "encoder": None,
    "tree": {"levels": [8]},
    "training": {"epochs": 2.0, "rate": 0.005, "token_rate": 0.02, "batch": 32},
}


@pytest.mark.parametrize("kind", [CascadeXML, XRTransformer])
def test_encoders_are_calibrated_on_documents_they_did_not_learn_from(kind, corpora):
    train, encoder = corpora[0].take(np.arange(500)), tiny_encoder()
    model = kind(**{**SMALL, "encoder": encoder}, threads=1).fit(train)
    assert model.derived["held_out"]["value"] > 0
    assert model.derived["calibration"]["value"] in ("isotonic", "temperature")
    plain = kind(**{**SMALL, "encoder": encoder}, calibrate=False, threads=1).fit(train)
    assert "calibration" not in plain.derived
    assert ("held_out" in plain.derived) == (kind is CascadeXML)  # which chooses on them in any case


def test_an_ensemble_is_calibrated_as_a_whole(corpora):
    train, test = corpora
    model = Ensemble(members=("xr-linear", "nearest")).fit(train)
    assert "0.calibration" not in model.derived
    assert error_of(model, test) < 0.06
    members = [XRLinear().fit(train), NearestNeighbours().fit(train)]
    alone, chosen = Ensemble.of(members), Ensemble.of(members, choose_on=test)
    assert "calibration" in chosen.derived and "calibration" not in alone.derived
    assert error_of(chosen, test) < error_of(alone, test)


def test_labels_added_later_share_the_curve(corpora):
    train, test = corpora
    model = XRLinear().fit(train)
    before = model.predict(test.take([0, 1]), k=5, allowed_labels=list(model.label_names))
    names = list(model.label_names)
    model.add_labels(["new"], examples=[["entirely new words"]])
    assert model.predict(test.take([0, 1]), k=5, allowed_labels=names) == before
    assert model.remove_labels(["new"]).predict(test.take([0, 1]), k=5) == before
