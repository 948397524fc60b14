"""What a view tells is what the model computes: parts add up to scores, and paths to answers."""

from itertools import pairwise

import numpy as np
import pytest

from contract.suite import fitted, make
from contract.world import ODD_NAMES, make_corpus, make_lists
from neural.tiny import save_tiny
from xmcascade import Corpus, Tfidf
from xmcascade.errors import NotFittedError
from xmcascade.models import MODELS
from xmcascade.models.inputs import as_documents
from xmcascade.models.views import LinearView, look_inside

TEXT = "word3a the word3b of word4c and word3d unheard"
LABELS = np.arange(5, dtype=np.int32)


def told(model, text=TEXT, labels=LABELS):
    return [(view, view.told(as_documents([text]), labels)) for view in look_inside(model).views]


def names(labels):
    return [ODD_NAMES[i] for i in labels]


def ids(model, labels):
    return np.array([list(model.label_names).index(name) for name in names(labels)], np.int32)


def probabilities(model, labels=LABELS, text=TEXT):
    return np.array([p.probability for p in model.score([text], names(labels))[0]])


def product(paths):
    return np.array([np.prod([step.probability for step in path]) for path in paths])


@pytest.mark.parametrize("name", sorted(MODELS))
class TestEveryModel:
    def test_shares_add_up(self, name):
        assert sum(view.share for view in look_inside(fitted(name)).views) == pytest.approx(1)

    def test_parts_add_up_to_scores(self, name):
        for view, (tokens, paths) in told(fitted(name)):
            for step in (step for path in paths for step in path):
                assert 0 <= step.probability <= 1
                assert len(step.tokens) == len(tokens)
                if view.how == "attention":
                    assert step.tokens.sum() == pytest.approx(1, abs=1e-4)
                    continue
                parts = step.bias + sum(part for _, part in step.words) + float(step.tokens.sum())
                assert parts == pytest.approx(step.score, abs=1e-4)

    def test_paths_lead_to_the_labels(self, name):
        model = fitted(name)
        for view, (_, paths) in told(model):
            for label, path in zip(LABELS, paths, strict=True):
                last = path[-1].node
                assert (view.tree.order[last] if view.tree is not None else last) == label
                for above, below in pairwise(path):
                    assert below.node in view.tree.children(above.level, above.node)

    def test_tokens_stand_where_they_say(self, name):
        for _, (tokens, _) in told(fitted(name)):
            for text, start, end in tokens:
                assert start == end or text == "[UNK]" or TEXT[start:end] == text.removeprefix("##")

    def test_words_are_of_the_text(self, name):
        for _, (_, paths) in told(fitted(name)):
            found = {word for path in paths for step in path for word, _ in step.words}
            assert all(set(word.split()) <= set(TEXT.split()) for word in found)

    @pytest.mark.parametrize("text", ["", "😀", "a" * 5000])
    def test_any_text(self, name, text):
        assert all(len(paths) == len(LABELS) for _, (_, paths) in told(fitted(name), text))

    def test_clusters_that_go_on(self, name):
        documents = make_corpus(20, seed=1)
        for view in look_inside(fitted(name)).views:
            for t, level in enumerate(view.opened(documents)):
                assert level.shape == (20, view.tree.sizes[t])
                assert (np.diff(level.indptr) > 0).all()


@pytest.mark.parametrize("name", ["cascadexml", "lightxml", "xml-cnn"])
def test_levels_of_a_cascade_make_its_answer(name):
    model = fitted(name)
    labels = ids(model, LABELS)
    (view, (_, paths)), *_ = told(model, labels=labels)
    powers = model._fitted().state.powers
    logs = [sum(p * np.log(step.probability) for p, step in zip(powers, path, strict=True)) for path in paths]
    np.testing.assert_allclose(np.exp(logs), probabilities(model), atol=1e-5)
    assert view.name == ("network" if name == "xml-cnn" else "encoder")


@pytest.mark.parametrize("name", ["xr-linear", "parabel", "dismec", "xr-transformer"])
def test_paths_of_linear_models_make_their_answers(name):
    model = fitted(name)
    labels = ids(model, LABELS)
    each = [view.share * product(paths) for view, (_, paths) in told(model, labels=labels)]
    np.testing.assert_allclose(np.sum(each, axis=0), probabilities(model), atol=1e-5)


def test_the_networks_of_attentionxml_make_its_answer():
    model = fitted("attentionxml")
    ((_, (_, paths)),) = told(model, labels=ids(model, LABELS))
    np.testing.assert_allclose(product(paths), probabilities(model), atol=1e-5)


def test_votes_of_neighbours_make_the_answer():
    model = fitted("nearest")
    ((_, (_, paths)),) = told(model, labels=ids(model, LABELS))
    np.testing.assert_allclose(product(paths), probabilities(model), atol=1e-5)


def test_linear_rows_beside_a_cascade():
    model = fitted("cascadexml-tfidf")
    second = model._fitted().state.second
    labels = ids(model, LABELS)
    (encoder, (_, paths)), (words, (tokens, rows)) = told(model, labels=labels)
    assert isinstance(words, LinearView) and not tokens
    assert (encoder.share, words.share) == (1 - second.share, second.share)
    assert all(len(path) == 1 and path[0].level == words.tree.n_levels - 1 for path in rows)
    cascade = [
        sum(p * np.log(s.probability) for p, s in zip(second.powers, path, strict=True)) for path in paths
    ]
    linear = [np.log(path[0].probability) for path in rows]
    mixed = (1 - second.share) * np.array(cascade) + second.share * np.array(linear)
    np.testing.assert_allclose(np.exp(mixed), probabilities(model), atol=1e-5)


def test_the_output_of_an_encoder_beside_words_is_shared_among_tokens():
    model = make("cascadexml-tfidf", embedding=0.5).fit(make_corpus())
    _, (words, (tokens, rows)) = told(model)
    assert words.text is not None and len(tokens) > 2
    assert any(np.abs(path[0].tokens).max() > 0 for path in rows)
    for step in (path[0] for path in rows):
        parts = step.bias + sum(part for _, part in step.words) + float(step.tokens.sum())
        assert parts == pytest.approx(step.score, abs=1e-4)


@pytest.mark.parametrize("name", ["cascadexml", "xr-transformer"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "xlnet"])
def test_a_summary_token_pays_attention(name, family, tmp_path):
    save_tiny(tmp_path, family, texts=make_lists()[0], layers=2, width=16)
    training = {"epochs": 0.2, "head_epochs": 1.0, "batch": 16}
    model = make(name, encoder=str(tmp_path), pooling="cls", training=training).fit(make_corpus())
    for view, (tokens, paths) in told(model, labels=ids(model, LABELS)):
        assert view.how == "attention"
        for step in (step for path in paths for step in path):
            assert len(step.tokens) == len(tokens) and (step.tokens >= 0).all()
            assert step.tokens.sum() == pytest.approx(1, abs=1e-4)


def test_the_words_that_speak_for_a_label():
    model = fitted("xr-linear")
    (view,) = look_inside(model).views
    label = ids(model, [3])[0]
    words = view.speaking(view.tree.n_levels - 1, int(view.tree.positions[label]), 4)
    assert {word for word, _ in words} == {"word3a", "word3b", "word3c", "word3d"}
    assert [weight for _, weight in words] == sorted((weight for _, weight in words), reverse=True)


def test_a_model_of_features_tells_their_numbers():
    corpus = make_corpus()
    features = Tfidf().fit_transform(corpus.texts)
    for name in ("xr-linear", "nearest"):
        plain = Corpus(labels=corpus.labels, label_names=corpus.label_names, features=features)
        model = make(name).fit(plain)
        (view,) = look_inside(model).views
        _, paths = view.told(as_documents(features[:1]), np.arange(len(ODD_NAMES)))
        assert any(word.startswith("feature ") for path in paths for step in path for word, _ in step.words)


def test_members_of_an_ensemble_are_told_apart():
    views = look_inside(fitted("ensemble")).views
    assert len({view.name for view in views}) == len(views) > 1


def test_what_an_unfitted_model_says():
    with pytest.raises(NotFittedError):
        look_inside(make("xr-linear"))
