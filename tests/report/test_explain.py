"""An explanation names what views tell, and is ready for JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from contract.suite import fitted, make
from contract.world import ODD_NAMES, make_corpus, text_of
from xmcascade import Corpus, Tfidf
from xmcascade.errors import DataError, NotFittedError, SettingError
from xmcascade.models import MODELS
from xmcascade.models.views import look_inside
from xmcascade.report import explain
from xmcascade.report.explain import names_of


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_explains_what_it_predicts(name):
    model = fitted(name)
    found = explain(model, text_of(3), k=4)
    told = model.predict([text_of(3)], k=4)[0]
    assert [(label.name, label.score, label.probability) for label in found.labels] == [
        tuple(p) for p in told
    ]
    assert sum(own.share for own in found.opinions) == pytest.approx(1)
    for label in found.labels:
        assert len(label.paths) == len(found.opinions)
        for path, opinion in zip(label.paths, found.opinions, strict=True):
            assert path[-1].name == label.name and path[-1].n_labels == 1
            assert all(len(stop.tokens) == len(opinion.tokens) for stop in path)
            assert [stop.level for stop in path] == sorted(stop.level for stop in path)
    json.dumps(found.to_dict(), allow_nan=False)


def test_clusters_on_the_way_are_named_and_counted():
    found = explain(fitted("cascadexml"), text_of(1), k=1)
    cluster, label = found.labels[0].paths[0]
    assert cluster.name and cluster.n_labels > 1 and label.name == ODD_NAMES[1]


def test_the_words_of_a_label_speak_for_it():
    stop = explain(fitted("xr-linear"), text_of(5), k=1).labels[0].paths[0][-1]
    assert {word for word, part in stop.words if part > 0} >= {"word5a", "word5b", "word5c", "word5d"}
    parts = [abs(part) for _, part in stop.words]
    assert parts == sorted(parts, reverse=True)


def test_a_dict_has_all_there_is():
    told = explain(fitted("cascadexml-tfidf"), "word1a word2b", k=2).to_dict()
    assert set(told) == {"text", "opinions", "labels"}
    assert [own["name"] for own in told["opinions"]] == ["encoder", "words"]
    stop = told["labels"][0]["paths"][1][0]
    assert set(stop["words"][0]) == {"word", "part"}
    assert set(told["opinions"][0]["tokens"][0]) == {"text", "start", "end"}


def test_names_are_made_once():
    inside = look_inside(fitted("cascadexml"))
    view = inside.views[0]
    assert names_of(inside, view) is names_of(look_inside(fitted("cascadexml")), replace(view))


def test_labels_that_came_later_are_explained():
    model = make("xr-linear").fit(make_corpus())
    explain(model, "anything", k=1)
    model.add_labels(["newcomer"], examples=[["word0a word7b", "word7b and word0a"]])
    found = explain(model, "word7b word0a", k=1).labels[0]
    assert found.name == found.paths[0][-1].name == "newcomer"


@pytest.mark.parametrize("text", [None, 3, ["a"], b"a"])
def test_only_a_text_is_explained(text):
    with pytest.raises(DataError, match="Remedy"):
        explain(fitted("xr-linear"), text)


def test_bad_calls_are_refused():
    with pytest.raises(SettingError, match="k is 0"):
        explain(fitted("xr-linear"), "a", k=0)
    with pytest.raises(NotFittedError):
        explain(make("xr-linear"), "a")
    corpus = make_corpus()
    features = Tfidf().fit_transform(corpus.texts).astype(np.float32)
    plain = Corpus(labels=corpus.labels, label_names=corpus.label_names, features=features)
    with pytest.raises(DataError, match="features in place of texts"):
        explain(make("xr-linear").fit(plain), "a")
