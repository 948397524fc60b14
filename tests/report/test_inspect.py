"""An inspection works for every model, writes its folder whole, and lets nothing but text out of the data."""

import json
import sys
from functools import cache

import numpy as np
import pytest

from contract.suite import fitted, make
from contract.world import ODD_NAMES, hashes, make_corpus, make_lists, text_of
from report.test_page import Seen
from xmcascade import Corpus, Tfidf
from xmcascade.errors import DataError, NotFittedError, SettingError
from xmcascade.models import MODELS
from xmcascade.neural import Truth
from xmcascade.report import inspect_model, inspected

ENCODERS = {"cascadexml", "cascadexml-tfidf", "lightxml", "xr-transformer", "x-transformer"}
CLUSTERS = {"cascadexml", "cascadexml-tfidf", "lightxml"}
WORDS = set(MODELS) - {"cascadexml", "lightxml", "attentionxml", "xml-cnn"}
IN_PAGE = "cascadexml-tfidf", "attentionxml", "xr-linear", "ensemble"


def documents(n=60):
    return make_corpus(n, seed=1)


@cache
def found_in(name):
    return inspected(fitted(name), documents())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_shows_what_it_has(name):
    found = found_in(name)
    told = fitted(name).evaluate(documents())
    assert found.evaluation.metrics == told.metrics and found.evaluation.slices.keys() == told.slices.keys()
    assert 0 <= found.reliability.error <= 1 and found.reliability.counts.sum() > 0
    assert bool(found.recalls) == (name in CLUSTERS)
    assert bool(found.looking) == (name in ENCODERS or name == "attentionxml")
    assert bool(found.words) == (name in WORDS)
    assert found.examples and not found.notes
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_levels_of_a_cascade(name):
    (level,) = found_in(name).recalls
    state = fitted(name)._fitted().state
    assert level.clusters == state.cascade.tree.sizes[0] == 4
    assert level.going_on == min(state.cascade.keeps[0], 4)
    (looking,) = found_in(name).looking
    assert looking.similarity.values.shape == looking.attention.overlap.shape == (2, 2)
    assert looking.before is not None and looking.entropy.shape == (60, 2)
    if name == "lightxml":  # all levels read the same layers
        np.testing.assert_allclose(looking.similarity.values, 1, atol=1e-6)


def test_recall_is_what_the_cascade_itself_says():
    model = make("cascadexml", shortlists=[1]).fit(make_corpus())
    corpus = documents()
    (level,) = inspected(model, corpus).recalls
    state = model._fitted().state
    truth = corpus.over_labels(model.label_names).labels
    truths = [Truth.of(own, np.arange(60)) for own in state.cascade.tree.relevance(truth)]
    recall = state.cascade.recall(model._read(state, corpus), truths)
    assert level.recall == pytest.approx(100 * recall[0]) and level.recall < 100
    assert level.going_on == 1


def test_recall_of_a_beam():
    narrow, wide = (
        make("xr-linear", tree={"levels": [2, 4]}, beam=beam).fit(make_corpus()) for beam in (1, 20)
    )
    found = inspected(narrow, documents()).recalls
    assert [(own.level, own.clusters, own.going_on) for own in found] == [(0, 2, 1), (1, 4, 1)]
    assert 100 > found[0].labels >= found[1].labels > 0
    assert [own.recall for own in inspected(wide, documents()).recalls] == [100, 100]


def test_words_that_won_are_the_labels_own():
    names = list(fitted("xr-linear").label_names)
    for won in found_in("xr-linear").words:
        own = f"word{ODD_NAMES.index(won.label)}"
        assert won.words[0][0].startswith(own) and won.right <= won.documents and won.label in names


@pytest.mark.parametrize("name", IN_PAGE)
def test_a_folder_has_a_page_plots_and_numbers(name, tmp_path):
    found = inspect_model(fitted(name), documents(), tmp_path / "report")
    files = {path.name for path in (tmp_path / "report").iterdir()}
    plots = {"slices", "calibration"}
    plots |= {"recall", "self-attention", "entropy", "similarity"} if name in CLUSTERS else set()
    plots |= {"entropy"} if name == "attentionxml" else set()
    assert files == {"index.html", "inspection.json"} | {
        f"{p}.{kind}" for p in plots for kind in ("png", "svg")
    }
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    numbers = json.loads((tmp_path / "report" / "inspection.json").read_text())
    assert numbers == json.loads(json.dumps(found.to_dict()))
    html = (tmp_path / "report" / "index.html").read_text()
    seen = Seen(html)
    assert not {"script", "img", "link", "iframe"} & set(seen.tags)
    assert not [attribute for attribute in seen.attributes if attribute.startswith("on")]
    assert "<script>alert(1)</script>" in seen.words and "default-src 'none'" in html
    assert html.count("<svg") == len(plots)
    assert html.count("<section") == len(set(html.split('<section id="')[1:]))


def test_the_same_inspection_is_the_same_bytes(tmp_path):
    for part in "ab":
        inspect_model(fitted("cascadexml-tfidf"), documents(), tmp_path / part, documents=30)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


def test_an_earlier_inspection_is_replaced_and_nothing_else(tmp_path):
    folder = tmp_path / "report"
    inspect_model(fitted("cascadexml"), documents(), folder)
    inspect_model(fitted("nearest"), documents(), folder)
    assert not (folder / "entropy.png").exists() and "Inside nearest" in (folder / "index.html").read_text()
    (folder / "thesis.tex").write_text("...")
    before = hashes(tmp_path)
    for bad in (folder, folder / "thesis.tex"):
        with pytest.raises(DataError, match="Remedy"):
            inspect_model(fitted("nearest"), documents(), bad)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "recall.png").write_text("mine")
    with pytest.raises(DataError, match="no part of an inspection"):
        inspect_model(fitted("nearest"), documents(), tmp_path / "pictures")
    assert before.items() <= hashes(tmp_path).items()


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    inspect_model(fitted("nearest"), documents(), tmp_path / "report")
    before = hashes(tmp_path)

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("xmcascade.report.inspectpage.save_figure", fail)
    with pytest.raises(OSError, match="full"):
        inspect_model(fitted("nearest"), documents(), tmp_path / "report")
    assert hashes(tmp_path) == before


def test_documents_are_bounded_and_chosen_by_seed():
    one, same, other = (
        inspected(fitted("nearest"), documents(), documents=20, looked_at=5, seed=seed) for seed in (0, 0, 1)
    )
    assert one.n_docs == 20 and one.n_given == 60
    assert one.to_dict() == same.to_dict() != other.to_dict()


def test_a_given_text_is_explained():
    found = inspected(fitted("xr-linear"), documents(), text=text_of(4))
    (example,) = found.examples
    assert example.what == "your text" and example.explanation.text == text_of(4)
    assert example.explanation.labels[0].name == ODD_NAMES[4]


def test_labels_that_were_never_seen_count_as_missed():
    texts, labels = make_lists(30, seed=1)
    found = inspected(fitted("cascadexml"), Corpus.from_lists(texts, [[*own, "new"] for own in labels]))
    assert found.evaluation.unseen_share > 30
    assert found.recalls[0].recall > 50


def test_documents_without_labels_are_left_out():
    texts, labels = make_lists(30, seed=1)
    found = inspected(fitted("nearest"), Corpus.from_lists([*texts, "extra"], [*labels, []]))
    assert found.n_docs == found.n_given == 30


def test_a_model_of_features():
    corpus = make_corpus()
    features = Tfidf().fit_transform(corpus.texts)
    plain = Corpus(labels=corpus.labels, label_names=corpus.label_names, features=features)
    found = inspected(make("xr-linear").fit(plain), plain)
    assert not found.examples and found.words[0].words[0][0].startswith("feature ")
    with pytest.raises(DataError, match="features in place of texts"):
        inspected(make("xr-linear").fit(plain), plain, text="a text")


def test_an_encoder_that_is_gone_is_not_compared_with(tmp_path):
    model = make("cascadexml").fit(make_corpus())
    object.__setattr__(model.settings, "encoder", str(tmp_path / "gone"))
    found = inspected(model, documents())
    assert found.looking[0].before is None and found.looking[0].similarity_before is None
    assert "before training" in found.notes[0] and "gone" in found.notes[0]
    inspect_model(model, documents(), tmp_path / "report")
    assert "What is missing here" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    "bad", [{"documents": 0}, {"documents": 2.5}, {"looked_at": True}, {"seed": -1}, {"documents": "many"}]
)
def test_bad_numbers_are_refused(bad):
    with pytest.raises(SettingError, match="Remedy"):
        inspected(fitted("nearest"), documents(), **bad)


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(DataError, match="none of the 1 documents has a label"):
        inspected(fitted("nearest"), Corpus.from_lists(["a"], [[]]))
    with pytest.raises(NotFittedError):
        inspected(make("nearest"), documents())
    with pytest.raises(DataError, match="text"):
        inspected(fitted("nearest"), documents(), text=3)


def test_whether_plots_can_be_drawn_is_known_first(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(MODELS["nearest"], "rank", None)
    with pytest.raises(SettingError, match=r"xmcascade\[report\]"):
        inspect_model(fitted("nearest"), documents(), tmp_path / "report")
    assert not list(tmp_path.iterdir())
