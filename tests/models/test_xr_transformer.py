"""What is particular to XR-Transformer: stages, their candidates and first rows, what linear models read."""

import numpy as np
import pytest

from neural.runs import N_LABELS, make_lists
from neural.tiny import save_tiny
from xmcascade import XRLinear, XRTransformer, XTransformer, load
from xmcascade.errors import SettingError
from xmcascade.models import xr_transformer
from xmcascade.models.xr_transformer import PRESETS
from xmcascade.neural import Stage, Training

LABELS = [f"label {i:02}" for i in range(N_LABELS)]
QUICK = {"epochs": 2.0, "batch": 16, "rate": 1e-3}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny(folder, texts=make_lists(120)[0])
    return str(folder)


@pytest.fixture(scope="module")
def lists():
    texts, labels = make_lists(120)
    return texts, [[LABELS[label] for label in own] for own in labels]


def make(encoder, **values):
    how = {"tree": {"levels": [2, 4]}, "shortlist": 1, "training": QUICK} | values
    return XRTransformer(encoder=encoder, threads=1, **how)


@pytest.fixture
def stages(monkeypatch):
    """The stages that were trained, as they were when training began, and their epochs."""
    seen, run = [], Training.run

    def watched(self, epochs, start):
        def started():
            start()
            seen.append((self.cascade, epochs, self.cascade.head.rows.copy(), self.relevance[0]))

        return run(self, epochs, started)

    monkeypatch.setattr(Training, "run", watched)
    return seen


def quality(model, lists):
    return model.evaluate({"text": lists[0], "labels": lists[1]}, ks=[1]).metrics["P@1"]


def test_it_learns_level_by_level(encoder, lists, stages):
    model = make(encoder).fit(*lists)
    assert model.derived["stages"]["value"] == [2, 4, N_LABELS]
    assert [len(stage.head.rows) for stage, *_ in stages] == [2, 4, N_LABELS]
    assert [epochs for _, epochs, *_ in stages] == pytest.approx([2 / 3] * 3)
    assert quality(model, lists) > 80


def test_candidates_are_what_was_found_above_and_what_is_true(encoder, lists, stages, monkeypatch):
    found, inner = [], Stage.found
    monkeypatch.setattr(
        Stage, "found", lambda self, xs, keep: found.append(inner(self, xs, keep)) or found[-1]
    )
    make(encoder).fit(*lists)
    assert (np.diff(stages[0][0].reached.indptr) == 1).all()
    for number in (1, 2):
        true, own = stages[number - 1][3] > 0, found[number - 1]
        assert (np.diff(own.indptr) == 1).all()  # the shortlist is 1
        assert ((stages[number][0].reached > 0) != (own + true > 0)).nnz == 0
    assert (np.diff(stages[2][0].reached.indptr) > 1).any()


def test_rows_start_as_asked(encoder, lists, stages):
    for how in ("linear", "inherit", "none"):
        make(encoder, bootstrap=how).fit(*lists)
    make(encoder, bootstrap_root=False).fit(*lists)
    rows = [[stages[3 * i + t][2] for t in range(3)] for i in range(4)]
    linear, inherited, none, paper = rows
    small = 0.1
    assert all(np.abs(part).max() > small for part in linear)
    assert all(np.abs(part).max() < small for part in none)
    assert np.abs(paper[0]).max() < small < np.abs(paper[1]).max()
    stage = stages[4][0]
    parents = np.repeat(np.arange(2), np.diff(stage.offsets))
    learnt = stages[3][0].head.rows
    assert inherited[1].tolist() == learnt[parents].tolist() and np.abs(inherited[0]).max() < small


def test_first_rows_are_solved_for_the_documents_that_reach_them(encoder, lists, stages):
    """With plain costs true children have higher scores than other candidates at once."""
    make(encoder, cost_sensitive=False, training=QUICK | {"epochs": 0.0}).fit(*lists)
    model = make(encoder, fine_tune=False, use="embedding").fit(*lists)
    (x,) = model._learnt.state.text.read(lists[0], 1)
    for stage, _, rows, relevance in stages:
        z = x @ rows.T + stage.head.biases
        short = stage.shortlist(np.arange(120))
        entry = np.repeat(short.docs, np.diff(short.starts)), short.rows
        true = np.asarray(relevance[entry] > 0).ravel()
        assert z[entry][true].mean() > z[entry][~true].mean() + 0.1


@pytest.mark.parametrize("sensitive", [True, False])
def test_costs(encoder, lists, stages, sensitive):
    make(encoder, cost_sensitive=sensitive, alpha=0.3).fit(*lists)
    for stage, _, _, relevance in stages:
        assert stage.alpha == (0.3 if sensitive else 1.0)
        sums = np.asarray(relevance.sum(axis=1)).ravel()
        wanted = np.ones(120) if sensitive else np.diff(relevance.indptr)
        np.testing.assert_allclose(sums, wanted, rtol=1e-5)


def test_one_shot_and_small_stages(encoder, lists, stages):
    make(encoder, one_shot=True).fit(*lists)
    assert [(len(stage.head.rows), epochs) for stage, epochs, *_ in stages] == [(N_LABELS, 2.0)]
    stages.clear()
    make(encoder, most_nodes=4).fit(*lists)
    assert [len(stage.head.rows) for stage, *_ in stages] == [2, 4]


@pytest.mark.parametrize("use", ["both", "embedding", "tfidf"])
def test_what_linear_models_read(encoder, lists, use, tmp_path):
    model = make(encoder, use=use).fit(*lists)
    state = model._learnt.state
    weights = state.ranker.members[0].weights
    assert weights.dense.shape[1] == (0 if use == "tfidf" else 16)
    assert bool(len(weights.weights)) == (use != "embedding")
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", threads=1)
    assert loaded.predict(lists[0][:9], k=4) == model.predict(lists[0][:9], k=4)
    assert loaded.score(lists[0][:2], LABELS) == model.score(lists[0][:2], LABELS)


def test_words_alone_are_xr_linear(encoder, lists):
    ours = make(encoder, use="tfidf").fit(*lists)
    theirs = XRLinear(negatives="teacher+matcher").fit(*lists)
    assert ours.predict(lists[0][:20]) == theirs.predict(lists[0][:20])


def test_an_encoder_that_is_not_trained_stays_as_it_came(encoder, lists, stages):
    model = make(encoder, fine_tune=False).fit(*lists)
    trained = make(encoder).fit(*lists)
    ours, theirs = (m._learnt.state.text.reader.encoder.state()[0] for m in (model, trained))
    from xmcascade.neural import Encoder

    fresh = Encoder.load(encoder).state()[0]
    assert all(ours[name].tobytes() == fresh[name].tobytes() for name in ours)
    assert any(theirs[name].tobytes() != fresh[name].tobytes() for name in theirs)
    assert len(stages) == 3  # of the other


def test_a_killed_run_goes_on_to_the_same_model(encoder, lists, tmp_path, monkeypatch):
    how = {"training": QUICK | {"checkpoint_minutes": 0.0}}
    wanted = make(encoder, **how).fit(*lists).predict(lists[0][:20])
    inner, calls = Training._step, []

    def failing(self, parts):
        calls.append(1)
        if len(calls) in (3, 12):
            raise KeyboardInterrupt
        inner(self, parts)

    monkeypatch.setattr(Training, "_step", failing)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            make(encoder, **how).fit(*lists, checkpoint=tmp_path / "work")
    model = make(encoder, **how).fit(*lists, checkpoint=tmp_path / "work")
    assert model.predict(lists[0][:20]) == wanted
    assert len(calls) == 3 * 5 + 2  # of 8 batches 5 are 2/3 of an epoch; and the two that failed


def test_presets_are_the_papers():
    trees = {name: (s.tree.levels, s.ranker.tree.levels) for name, s in PRESETS.items()}
    assert trees["eurlex-4k"] == ((16, 256), (4, 32, 256))
    assert trees["wiki-500k"] == ((64, 512, 4096, 32768), (8, 256, 8192))
    for name, settings in PRESETS.items():
        assert settings.training.batch * settings.training.accumulate == 256, name
        assert settings.ranker.cost_sensitive == settings.cost_sensitive == (name != "amazon-670k")
        assert settings.alpha == settings.ranker.alpha
    steps = PRESETS["amazon-3m"].training.epochs * 1_717_899 / 256
    assert steps == pytest.approx(30_000)
    assert PRESETS["wiki10-31k"].ranker.linear.cost == pytest.approx(2.0)
    assert XRTransformer.presets is xr_transformer.PRESETS


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"shortlist": 0}, "shortlist is 0"),
        ({"alpha": 0.0}, "alpha is 0"),
        ({"most_nodes": 0}, "most_nodes is 0"),
        ({"use": "all"}, "use is 'all'"),
        ({"bootstrap": "yes"}, "bootstrap is 'yes'"),
    ],
)
def test_settings_out_of_range(values, says):
    with pytest.raises(SettingError, match=says):
        XRTransformer(**values)


def test_x_transformer_learns_clusters_and_then_linear_models(encoder, stages):
    texts = [f"the w{i % 12}a w{i % 7}b" for i in range(2100)]
    model = XTransformer(encoder=encoder, training=QUICK | {"epochs": 0.1}, most_nodes=100, threads=1)
    model.fit(texts, [[f"{i}"] for i in range(2100)])
    assert [len(stage.head.rows) for stage, *_ in stages] == [32]
    assert np.abs(stages[0][2]).max() < 0.2 and stages[0][0].alpha == 1.0
    assert model.predict(texts[:1], k=2)[0][0].score > 0
