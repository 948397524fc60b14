"""Labels added later: what the kept documents are for, and where new labels are put."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade import Ensemble, Parabel, XRLinear, load, make_synthetic
from xmcascade.errors import ModelFolderError
from xmcascade.features import MixedRows
from xmcascade.linear import LinearSettings, score_labels
from xmcascade.models.background import Background, home_clusters
from xmcascade.models.fitting import FitRun
from xmcascade.store import load_folder, save_folder
from xmcascade.tree import LabelTree

TREE = {"max_leaf": 4, "arity": 4}


@pytest.fixture(scope="module")
def corpus():
    return make_synthetic(600, 40, seed=5)


def test_a_sample_is_kept_and_stored_as_it_is_used():
    words = sp.random(50, 30, 0.2, "csr", np.float32, rng=np.random.default_rng(0))
    dense = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    kept = Background.of(words, dense, 20, seed=0)
    assert (len(kept.rows), kept.rows.n_sparse, kept.rows.n_dense) == (20, 30, 3)
    again = Background.from_arrays(kept.to_arrays(), 30, 3)
    np.testing.assert_array_equal(again.rows.dense, kept.rows.dense)
    assert (again.rows.sparse != kept.rows.sparse).nnz == 0
    for n_sparse, n_dense in ((29, 3), (30, 4)):
        with pytest.raises(ValueError):
            Background.from_arrays(kept.to_arrays(), n_sparse, n_dense)


def test_new_rows_tell_their_documents_from_the_kept_ones():
    rng = np.random.default_rng(0)
    seen = sp.csr_matrix(np.hstack([np.eye(8), np.zeros((8, 2))]).astype(np.float32))
    documents = sp.csr_matrix(np.hstack([np.zeros((3, 8)), np.eye(2)[[0, 0, 1]]]).astype(np.float32))
    labels = sp.csr_matrix(np.eye(2, dtype=np.float32)[[0, 0, 1]])
    weights = Background(MixedRows.of(seen)).learn(
        MixedRows.of(documents), labels, LinearSettings(), FitRun(rng, 1), "test"
    )
    every = sp.csr_matrix(np.ones((11, 2), np.float32))
    whole = sp.vstack([documents, seen], format="csr")
    scores = score_labels(whole, LabelTree.flat(2), weights, every, "log-l1-hinge").reshape(11, 2)
    assert (scores[:2, 0] > scores[2:, 0].max()).all()
    assert (scores[2, 1] > np.delete(scores[:, 1], 2)).all()


def test_a_label_goes_where_its_documents_are():
    labels = sp.csr_matrix([[1.0, 0], [1.0, 0], [0, 1.0]])
    found = np.array([[3, 1], [1, -1], [0, 2]], np.int32)
    chances = np.array([[0.9, 0.5], [0.6, 0.0], [0.2, 0.3]])
    assert home_clusters(found, chances, labels).tolist() == [1, 2]


def test_labels_that_come_back_are_found_again(corpus):
    held = [corpus.label_names[label] for label in np.argsort(-corpus.label_counts())[:6].tolist()]
    names = list(corpus.label_names)
    texts = [corpus.texts[doc] for doc in range(corpus.n_docs)]
    sets = [corpus.label_set(doc) for doc in range(corpus.n_docs)]
    rest = [[label for label in own if label not in held] for own in sets]
    shown = {
        label: [text for text, own in zip(texts[:500], sets[:500], strict=True) if label in own]
        for label in held
    }
    test = corpus.take(np.arange(500, 600))

    def quality(model):
        return model.evaluate(test, ks=[3], replicates=0).metrics["P@3"]

    for model in (XRLinear(), XRLinear(tree=TREE), Parabel(tree=TREE)):
        without = quality(model.fit(texts[:500], rest[:500]))
        added = quality(model.add_labels(held, examples=shown))
        assert sorted(model.label_names) == sorted(names)
        assert added > without + 2
    assert quality(XRLinear().fit(texts[:500], rest[:500]).add_labels(held, examples=shown)) > (
        quality(XRLinear().fit(texts[:500], sets[:500])) - 2
    )  # where no cluster is in between


def test_an_ensemble_learns_and_forgets_labels_in_all_its_members(corpus, tmp_path):
    model = Ensemble(members=("xr-linear", "parabel"), average="geometric").fit(corpus)
    names = list(model.label_names)
    queries = [corpus.texts[doc] for doc in range(20)]
    before = model.score(queries, names[2:])
    model.remove_labels(names[:2]).add_labels(["new"], examples=[["zzz unheard word"] * 2 + queries[:1]])
    assert list(model.label_names) == [*names[2:], "new"]
    assert model.score(queries, names[2:]) == before
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").predict(queries) == model.predict(queries)


def test_kept_documents_that_do_not_fit_are_refused(corpus, tmp_path):
    XRLinear().fit(corpus).save(tmp_path / "model")
    manifest, arrays, strings = load_folder(tmp_path / "model")
    arrays = {**arrays, "background.indices": arrays["background.indices"] + 10**6}
    what = {"kind": manifest.kind, "settings": manifest.settings, "n_labels": manifest.n_labels}
    save_folder(tmp_path / "bad", **what, arrays=arrays, strings=strings, values=manifest.values)
    with pytest.raises(ModelFolderError, match=r"do not fit together.*Remedy"):
        load(tmp_path / "bad")


def test_a_label_of_unknown_words_says_no(caplog):
    model = XRLinear().fit(["red apple", "blue sky", "red sky"], [["fruit"], ["weather"], ["weather"]])
    model.add_labels(["animals", "colours"], texts=["cats and dogs", "red blue"])
    assert "of 1 new labels no word is known" in caplog.text
    for row in model.predict(["red apple", "cats", "nothing"], k=4):
        assert row[-1].label == "animals" or row[-1].score == row[-2].score
