"""Linear rows on tf-idf beside a cascade: what they add, what they learn from, how much they count."""

import numpy as np
import pytest
import scipy.sparse as sp

from neural.runs import N_LABELS, make_lists
from neural.tiny import save_tiny
from xmcascade import CascadeXML, XRLinear, load
from xmcascade.errors import ModelFolderError, SettingError
from xmcascade.features import MixedRows, Tfidf, TfidfSettings
from xmcascade.linear import LinearSettings
from xmcascade.models import linear_stage
from xmcascade.models.cascadexml import CascadeXMLTfidf
from xmcascade.models.fitting import FitRun
from xmcascade.models.linear_stage import LinearStage, beside
from xmcascade.store import load_folder, save_folder
from xmcascade.tree import LabelTree

LABELS = [f"label {i:02}" for i in range(N_LABELS)]
QUICK = {"epochs": 0.5, "head_epochs": 1.0, "batch": 16}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny(folder, texts=make_lists(240)[0])
    return str(folder)


@pytest.fixture(scope="module")
def lists():
    texts, labels = make_lists(240)
    return texts, [[LABELS[label] for label in own] for own in labels]


def make(encoder, **values):
    how = {"tree": {"levels": [4]}, "shortlists": (2,), "training": QUICK} | values
    return CascadeXML(encoder=encoder, threads=1, **how)


def quality(model, lists):
    return model.evaluate({"text": lists[0], "labels": lists[1]}, ks=[1, 3]).metrics["P@1"]


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["words", "both"])
def both(request, encoder, lists):
    return make(encoder, tfidf=True, embedding=request.param).fit(*lists)


def test_words_help_an_encoder_that_has_hardly_learnt(both, encoder, lists):
    assert quality(both, lists) > quality(make(encoder).fit(*lists), lists) + 10
    fact = both.derived["linear_share"]
    assert fact["value"] > 0 and "held-out" in fact["reason"]


def test_the_cascade_is_the_same_with_and_without(both, encoder, lists):
    plain = make(encoder).fit(*lists)._learnt.state.cascade
    for one, other in zip(plain.heads, both._learnt.state.cascade.heads, strict=True):
        assert one.rows.tobytes() == other.rows.tobytes()


def test_a_score_is_the_mix_of_both(both, lists):
    state = both._learnt.state
    stage, texts = state.second, lists[0][:7]
    every = sp.csr_matrix(np.ones((7, N_LABELS), np.float32))
    xs = both._read(state, both_corpus(texts))
    ours = state.cascade.score(xs, stage.powers, every).reshape(7, N_LABELS)
    words = stage.tfidf.transform(texts).toarray()
    rows = np.concatenate([words, stage.embedding * xs[-1] / np.linalg.norm(xs[-1], axis=1)[:, None]], axis=1)
    power = int(stage.hinge[5])
    linear = -(np.maximum(0, 1 - values_of(stage, rows)) ** power)
    mixed = (1 - stage.share) * ours + stage.share * linear
    for doc, found in enumerate(both.score(texts, LABELS)):
        wanted = mixed[doc][[list(both.label_names).index(p.label) for p in found]]
        np.testing.assert_allclose([p.score for p in found], wanted, rtol=1e-4, atol=1e-4)
    for doc, found in enumerate(both.predict(texts, k=3)):
        best = np.sort(mixed[doc])[::-1][:3]
        np.testing.assert_allclose([p.score for p in found], best, rtol=1e-4, atol=1e-4)


def both_corpus(texts):
    from xmcascade.models.inputs import checked_documents

    return checked_documents(texts, None)


def values_of(stage, rows):
    """Every label's value for every document, from all weights as one matrix."""
    w, n_words = stage.weights, stage.tfidf.n_features
    offsets = stage.tree.offsets[-1] if stage.tree.n_levels > 1 else np.array([0, stage.tree.n_labels])
    matrix = np.zeros((rows.shape[1] if stage.embedding else n_words, stage.tree.n_labels), np.float32)
    for panel, node in enumerate(offsets[:-1]):
        first, base, start = w.panel_rows[panel], w.panel_entries[panel], 0
        for r in range(first, w.panel_rows[panel + 1]):
            for e in range(base + start, base + w.row_ends[r]):
                matrix[w.row_features[r], node + w.children[e]] = w.weights[e]
            start = int(w.row_ends[r])
    if stage.embedding:
        matrix[n_words:] = w.dense.T
    values = rows[:, : len(matrix)] @ matrix + w.biases
    return values[:, stage.tree.positions]


def test_rows_learn_from_documents_for_which_their_cluster_is_opened():
    words = sp.csr_matrix(np.eye(4, dtype=np.float32))
    tree = LabelTree(np.arange(4), (np.array([0, 2, 4]),))
    opened = sp.csr_matrix(np.array([[1, 0], [1, 0], [1, 1], [0, 1]], np.float32))
    run = FitRun(np.random.default_rng(0), 1)
    how = LinearSettings(threshold=0.0, cost=10.0), 0.0, run, "test"
    stage = LinearStage.learn(None, MixedRows.of(words), sp.identity(4, format="csr"), tree, opened, *how)
    used = [set(stage.weights.row_features[a:b]) for a, b in zip([0, 3], [3, 5], strict=True)]
    assert used == [{0, 1, 2}, {2, 3}]


def test_a_label_without_documents_is_not_found():
    words = MixedRows.of(sp.csr_matrix(np.eye(2, 3, dtype=np.float32)))
    tree, opened = LabelTree(np.arange(4), (np.array([0, 2, 4]),)), sp.csr_matrix((2, 2), dtype=np.float32)
    labels = sp.csr_matrix(np.eye(2, 4, dtype=np.float32))
    how = LinearSettings(), 0.0, FitRun(np.random.default_rng(0), 1), "test"
    stage = LinearStage.learn(None, words, labels, tree, opened, *how)
    every = sp.csr_matrix(np.ones((2, 4), np.float32))
    scores = stage.mixed(words, every, np.full(8, -1, np.float32), 1).reshape(2, 4)
    assert (scores[:, :2].min() > scores[:, 2:]).all()


def test_a_share_of_nothing_where_words_say_nothing():
    """Labels that do not depend on the words: the cascade's own scores are best."""
    rng = np.random.default_rng(0)
    tree, truth = LabelTree.flat(6), rng.integers(0, 6, 80)
    labels = sp.csr_matrix((np.ones(80, np.float32), truth, np.arange(81)), shape=(80, 6))
    words = MixedRows.of(sp.csr_matrix(rng.random((80, 5)).astype(np.float32)))
    run = FitRun(rng, 1)
    every = sp.csr_matrix(np.ones((40, 1), np.float32))
    stage = LinearStage.learn(None, words[:40], labels[:40], tree, every, LinearSettings(), 0.0, run, "test")
    candidates = sp.csr_matrix(np.ones((40, 6), np.float32))
    scores = np.where(labels[40:].toarray() > 0, -0.1, -0.2).ravel().astype(np.float32)
    noise = rng.normal(size=240).astype(np.float32)
    found = {(0.5,): (candidates, noise), (1.0,): (candidates, scores)}
    chosen = stage.chosen(words[40:], found, labels[40:], np.ones(labels.shape[1]), run)
    assert chosen.share == 0.0 and chosen.powers == (1.0,)


def test_it_is_saved_and_loaded(both, lists, tmp_path):
    both.save(tmp_path / "model")
    loaded = load(tmp_path / "model", threads=1)
    assert loaded.predict(lists[0][:9], k=4) == both.predict(lists[0][:9], k=4)
    assert loaded.score(lists[0][:2], LABELS) == both.score(lists[0][:2], LABELS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hinge", "log-sigmoid"), ("share", 1.5), ("hinge", 3), ("powers", [1.0]), ("powers", [-1.0, 1.0])],
)
def test_a_folder_with_other_values_is_refused(both, tmp_path, name, value):
    both.save(tmp_path / "model")
    manifest, arrays, strings = load_folder(tmp_path / "model")
    values = {**manifest.values, "second": {**manifest.values["second"], name: value}}
    parts = {"kind": manifest.kind, "settings": manifest.settings, "n_labels": manifest.n_labels}
    save_folder(tmp_path / "bad", **parts, arrays=arrays, strings=strings, values=values)
    with pytest.raises(ModelFolderError, match="do not fit"):
        load(tmp_path / "bad")


def test_without_a_tree_every_document_teaches_every_label(encoder, lists):
    model = CascadeXML(encoder=encoder, threads=1, training=QUICK, tfidf=True).fit(*lists)
    assert model._learnt.state.cascade.tree.n_levels == 1
    assert quality(model, lists) > 60


def test_without_held_out_documents_both_count_alike(encoder, lists):
    model = make(encoder, tfidf=True).fit(lists[0][:60], lists[1][:60])
    assert model._learnt.state.second.share == 0.5 and "linear_share" not in model.derived


def test_the_command_line_has_its_own_name_for_it():
    assert CascadeXMLTfidf.name == "cascadexml-tfidf" and CascadeXMLTfidf().settings.tfidf
    assert not CascadeXML().settings.tfidf


def test_few_labels_are_found_among_all_that_are_asked_for(both, lists):
    allowed = LABELS[3:6]
    for found in both.predict(lists[0][:5], k=9, allowed_labels=allowed):
        assert sorted(p.label for p in found) == allowed


def test_what_rows_read_has_the_asked_length():
    words = Tfidf(TfidfSettings()).fit(["red apple", "blue sky"]).transform(["red sky"])
    x = np.array([[0.0, 3.0, 4.0]], np.float32)
    assert beside(words, x, 0.0).n_dense == 0
    np.testing.assert_allclose(np.linalg.norm(beside(words, x, 0.7).dense), 0.7, rtol=1e-6)
    assert not beside(words, 0 * x, 1.0).dense.any()


def test_settings_out_of_range():
    with pytest.raises(SettingError, match=r"embedding is -1.*0 to 1000"):
        CascadeXML(embedding=-1.0)
    assert linear_stage.RESCORED >= 100


@pytest.mark.parametrize("make_one", [
    lambda encoder, **how: make(encoder, tfidf=True, shortlists=None, **how),
    lambda encoder, **how: XRLinear(linear={"cost": 0.1}, **how),
], ids=["rows", "linear"])  # fmt: skip
def test_rare_labels_can_weigh_more(encoder, make_one):
    """One label in twenty documents, with words of another: rare it is not found, unless it weighs more."""
    rng = np.random.default_rng(0)
    rare = rng.random(400) < 0.08
    texts = [f"the w1a w1b {'w2a' if r else 'w1c'}" for r in rare]
    labels = [["rare" if r and i % 2 else "frequent", "every"] for i, r in enumerate(rare)]
    scores = [
        np.mean([p.probability for found in make_one(encoder, propensity=how).fit(texts, labels).score(
            ["the w1a w1b w2a"], ["rare"]) for p in found])
        for how in (False, True)
    ]  # fmt: skip
    assert scores[1] > scores[0]


def test_long_documents_are_read_in_pairs_of_words(encoder, lists, tmp_path):
    texts = [" ".join([text] * (1 + 2000 // len(text))) for text in lists[0]]
    model = make(encoder, tfidf=True).fit(texts, lists[1])
    stage = model._learnt.state.second
    assert stage.tfidf.settings.ngrams == (1, 2)
    assert stage.linear.cost == model.derived["linear"]["value"]["cost"] == 4.0
    assert "bytes" in model.derived["linear_features"]["reason"]
    assert any(" " in term for term in stage.tfidf.terms)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.predict(texts[:20], 3) == model.predict(texts[:20], 3)
    assert again._learnt.state.second.linear == stage.linear


@pytest.mark.parametrize(
    "own", [{"linear": {"cost": 2.0}}, {"features": {"ngrams": (1, 3)}}, {"features": {"min_df": 3}}], ids=str
)
def test_what_is_set_by_hand_stays(encoder, lists, own):
    texts = [" ".join([text] * (1 + 2000 // len(text))) for text in lists[0]]
    model = make(encoder, tfidf=True, **own).fit(texts, lists[1])
    stage = model._learnt.state.second
    assert stage.linear == model.settings.linear
    if "features" in own:
        assert stage.tfidf.settings == model.settings.features
    assert "linear" not in model.derived
