"""What is particular to NearestNeighbours: its numbers, its one choice, and folders made to break it."""

import numpy as np
import pytest

import xmcascade
from contract.world import make_corpus, make_lists
from xmcascade import Corpus, NearestNeighbours
from xmcascade.corpus.synthetic import make_synthetic
from xmcascade.errors import ModelFolderError
from xmcascade.store import Strings, load_folder, save_folder


def test_scores_are_votes_and_probabilities_their_shares():
    texts, labels = ["red apple", "red pear", "blue sky"], [["apple", "fruit"], ["fruit"], ["sky"]]
    model = NearestNeighbours(neighbours=2, sharpness=1.0, prior=0.3).fit(texts, labels)
    found = {p.label: p for p in model.predict(["red apple"], k=3)[0]}
    similar = model._neighbours(model._learnt.state, model._learnt.state.tfidf.transform(["red apple"]))[1][0]
    far = float(similar[1] / similar[0])
    expected = {"apple": 1 + 0.1, "fruit": 1 + far + 0.2, "sky": 0.1}
    for label, score in expected.items():
        assert found[label].score == pytest.approx(score, rel=1e-6)
        assert found[label].probability == pytest.approx(score / (1 + far + 0.3), rel=1e-6)


def test_a_text_without_known_words_gets_the_most_frequent_labels():
    model = NearestNeighbours().fit(["aa", "bb", "cc"], [["rare", "often"], ["often"], ["even"]])
    found = model.predict(["unheard"], k=3)[0]
    assert [p.label for p in found] == ["often", "even", "rare"]  # equals by name
    assert [p.probability for p in found] == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_neighbours_too_far_to_vote_are_no_votes():
    texts = ["aa " + " ".join(f"w{i}x{j}" for j in range(60)) for i in range(30)] + ["aa"]
    model = NearestNeighbours(neighbours=30, sharpness=100.0).fit(texts, [["x", "y"]] * 30 + [["z"]])
    found = model.predict(["aa"], k=3)[0]
    assert sorted(p.label for p in found) == ["x", "y", "z"]
    assert found[0].label == "z" and found[0].probability > 0.98


def test_the_sharpness_is_chosen_and_the_reason_kept():
    corpus = make_synthetic(1200, 20)
    model = NearestNeighbours().fit(corpus)
    assert model.derived["sharpness"]["value"] in (1.0, 2.0, 4.0, 8.0, 16.0)
    assert "held back" in model.derived["sharpness"]["reason"]
    assert "sharpness" not in NearestNeighbours(sharpness=2.0).fit(corpus).derived
    assert NearestNeighbours().fit(make_corpus()).derived["sharpness"]["value"] == 4.0


@pytest.mark.parametrize("text", ["the same", "the same {}"])
def test_a_large_corpus_that_cannot_be_split_is_learnt_all_the_same(text):
    texts = [text.format(i) for i in range(1000)]  # alike but for digits, so no part of it can be held back
    model = NearestNeighbours().fit(texts, [["x"], ["y"]] * 500)
    assert "alike" in model.derived["sharpness"]["reason"]


def test_common_and_rare_words_are_dropped_only_in_large_corpora():
    small = NearestNeighbours().fit(["the cat", "the dog"], [["cat"], ["dog"]])
    assert list(small._learnt.state.tfidf.terms) == ["cat", "dog", "the", "the cat", "the dog"]
    texts = [f"the w{i % 100} once{i}" for i in range(1000)]
    large = NearestNeighbours(features={"ngrams": [1, 1]}).fit(texts, [["x"]] * 1000)
    assert list(large._learnt.state.tfidf.terms) == sorted(f"w{i}" for i in range(100))


def test_hashed_features(tmp_path):
    texts, labels = make_lists()
    model = NearestNeighbours(features={"hashed": 4096}).fit(texts, labels)
    assert [row[0].label for row in model.predict(texts[:13], k=1)] == [row[0] for row in labels[:13]]
    model.save(tmp_path / "model")
    assert xmcascade.load(tmp_path / "model").predict(texts) == model.predict(texts)


# A folder whose hashes are right and whose parts do not fit: it must be refused, not read past its end.


def tamper(folder, arrays=None, values=None, strings=None, settings=None):
    manifest, old_arrays, old_strings = load_folder(folder)
    arrays = {name: array.copy() for name, array in old_arrays.items()} | (arrays or {})
    kept = {name: array for name, array in arrays.items() if array is not None}
    strings = {name: packed for name, packed in (old_strings | (strings or {})).items() if packed is not None}
    save_folder(
        folder.with_name("tampered"),
        kind="nearest",
        settings=manifest.settings | (settings or {}),
        n_labels=manifest.n_labels,
        arrays=kept,
        strings=strings,
        values=manifest.values | (values or {}),
    )
    return folder.with_name("tampered")


@pytest.fixture
def folder(tmp_path):
    NearestNeighbours().fit(["red apple", "blue sky"], [["fruit"], ["weather", "blue"]]).save(
        tmp_path / "model"
    )
    return tmp_path / "model"


def test_an_untampered_folder_is_fine(folder):
    assert xmcascade.load(tamper(folder)).predict(["sky"], k=1)[0][0].label in ("weather", "blue")


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": {"documents.indices": np.full(6, 2**31 - 1, np.int32)}},
        {"arrays": {"documents.indices": np.full(6, -1, np.int32)}},
        {"arrays": {"documents.indptr": np.array([0, 9, 2, 3, 4, 5, 6], np.int32)}},
        {"arrays": {"documents.indptr": np.array([0, 1, 2, 3, 4, 5, 600], np.int32)}},
        {"arrays": {"documents.data": np.zeros(2, np.float32)}},
        {"arrays": {"documents.data": np.zeros(6, np.float64)}},
        {"arrays": {"documents.data": np.zeros((6, 1), np.float32)}},
        {"arrays": {"documents.data": None}},
        {"arrays": {"labels": np.array([0, 1, 99], np.int32)}},
        {"arrays": {"labels": np.array([0, 1, -1], np.int32)}},
        {"arrays": {"label_rows": np.array([0, 1, 3000], np.int64)}},
        {"arrays": {"label_rows": np.array([0, 3], np.int64)}},
        {"arrays": {"idf": np.ones(2)}},
        {"arrays": {"idf": np.ones((6, 1))}},
        {"arrays": {"label_counts": np.ones(1, np.int64)}},
        {"strings": {"terms": Strings.of([f"t{i}" for i in range(9)])}, "arrays": {"idf": np.ones(9)}},
        {"strings": {"terms": None}},
        {"strings": {"terms": None}, "values": {"n_features": 600}},
        {"values": {"n_features": 6}},
        {"values": {"shape": [2, 600]}},
        {"values": {"shape": [2**40, 6]}},
        {"values": {"shape": "wide"}},
        {"values": {"shape": None}},
        {"values": {"sharpness": "sharp"}},
        {"values": {"n_docs": None}},
        {"strings": {"label_names": Strings.of(["x", "x", "x"])}},
        {"strings": {"label_names": Strings.of(["x"])}},
        {"settings": {"features": {"hashed": 2}}},
        {"settings": {"neighbours": -1}},
        {"settings": {"no_such": 1}},
    ],
)
def test_parts_that_do_not_fit_are_refused(folder, change):
    with pytest.raises(ModelFolderError, match=r"do not fit together.*Remedy"):
        xmcascade.load(tamper(folder, **change))


def test_a_folder_of_features_refuses_another_width(tmp_path):
    corpus = make_corpus(30)
    features = xmcascade.Tfidf().fit_transform(corpus.texts)
    given = Corpus(labels=corpus.labels, label_names=corpus.label_names, features=features)
    NearestNeighbours().fit(given).save(tmp_path / "model")
    assert xmcascade.load(tmp_path / "model").predict(features[:2], k=1)
    for wrong in (features.shape[1] + 1, None, "many"):
        with pytest.raises(ModelFolderError, match=r"do not fit together"):
            xmcascade.load(tamper(tmp_path / "model", values={"n_features": wrong}))


def test_crowded_documents_are_scaled_down_as_the_dense_twin_says(monkeypatch):
    import numpy as np

    from xmcascade import make_synthetic
    from xmcascade.models import nearest

    monkeypatch.setattr(nearest, "SMALL_CORPUS", 100)
    corpus = make_synthetic(300, 20, seed=3)
    plain = NearestNeighbours(crowding=0, sharpness=1).fit(corpus)._learnt.state
    scaled = NearestNeighbours(crowding=0.5, sharpness=1).fit(corpus)._learnt.state
    rows = plain.documents.toarray().astype(np.float64)
    similar = rows @ rows.T
    np.fill_diagonal(similar, 0)
    crowd = np.sort(similar, axis=1)[:, -nearest.CROWD :].mean(axis=1)
    expected = rows / np.sqrt(np.maximum(crowd, 0.01))[:, None]
    np.testing.assert_allclose(scaled.documents.toarray(), expected, rtol=1e-4, atol=1e-6)


def test_crowds_are_searched_among_a_sample_of_a_large_corpus(monkeypatch):
    import numpy as np

    from xmcascade import make_synthetic
    from xmcascade.models import nearest

    monkeypatch.setattr(nearest, "SMALL_CORPUS", 100)
    monkeypatch.setattr(nearest, "CROWD_DOCS", 50)
    corpus = make_synthetic(300, 20, seed=3)
    first, second = (NearestNeighbours(sharpness=1).fit(corpus)._learnt.state for _ in range(2))
    assert np.array_equal(first.documents.data, second.documents.data)
    assert not np.array_equal(
        first.documents.data,
        NearestNeighbours(crowding=0, sharpness=1).fit(corpus)._learnt.state.documents.data,
    )
