"""The classifier against the real scikit-learn: its own checks, then texts and labels as users have them."""

import io
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from contract.world import make_lists, text_of, tiny_encoder
from xmcascade import XRLinear
from xmcascade.bridges import XMCClassifier, precision_at
from xmcascade.errors import DataError, SettingError
from xmcascade.models.xr_linear import XRLinearSettings
from xmcascade.tree import TreeSettings

NAMES = ["apple", "cloud", "dog", "engine", "fern", "glass"]
TEXTS, LABELS = make_lists(60, names=NAMES)
SPARSE = MultiLabelBinarizer(sparse_output=True).fit_transform(LABELS)
FEW = {"settings": {"background": 0}, "threads": 1}

# All of scikit-learn's checks hand over numbers, none hands over text. One does not apply: it asks for
# probabilities strictly below 1, and what a margin above 1 tells is exactly 1.
NOT_OURS = {"check_classifiers_multilabel_output_format_predict_proba": "a probability may be exactly 1"}


@parametrize_with_checks([XMCClassifier(threads=1)], expected_failed_checks=lambda _: NOT_OURS)
def test_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its checks cast infinity
        check(estimator)


# Forms of X and y ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [TEXTS, tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), pd.Series(TEXTS, index=range(60, 0, -1))],
)
@pytest.mark.parametrize("labels", [LABELS, [set(own) for own in LABELS], pd.Series(LABELS)])
def test_texts_and_label_lists_in_any_container(texts, labels):
    tagger = XMCClassifier(k=1, **FEW).fit(texts, labels)
    assert tagger.predict([text_of(i) for i in range(6)]) == [[name] for name in NAMES]
    assert tagger.classes_.tolist() == NAMES
    assert not hasattr(tagger, "n_features_in_")


def test_answers_have_the_form_of_y():
    lists = XMCClassifier(k=2, **FEW).fit(TEXTS, LABELS)
    sparse = XMCClassifier(k=2, **FEW).fit(TEXTS, SPARSE)
    dense = XMCClassifier(k=2, **FEW).fit(TEXTS, SPARSE.toarray())
    single = XMCClassifier(k=2, **FEW).fit(TEXTS, [own[0] for own in LABELS])
    queries = [text_of(3), text_of(0)]
    assert [set(own) for own in lists.predict(queries)] == [
        {NAMES[i] for i in row.indices} for row in sparse.predict(queries)
    ]
    assert sp.issparse(sparse.predict(queries)) and sparse.predict(queries).shape == (2, 6)
    assert isinstance(dense.predict(queries), np.ndarray)
    assert (dense.predict(queries) == sparse.predict(queries).toarray()).all()
    assert single.predict(queries).tolist() == ["engine", "apple"]


def test_probabilities_and_scores_have_the_form_of_y():
    queries = TEXTS[:5]
    sparse = XMCClassifier(k=2, **FEW).fit(TEXTS, SPARSE)
    dense = XMCClassifier(k=2, **FEW).fit(TEXTS, SPARSE.toarray())
    for method in ("predict_proba", "decision_function"):
        best, every = getattr(sparse, method)(queries), getattr(dense, method)(queries)
        assert best.shape == every.shape == (5, 6)
        assert np.diff(best.indptr).tolist() == [2] * 5
        assert (best[best.nonzero()] == every[best.nonzero()]).all()
        assert (np.argsort(-every, axis=1, kind="stable")[:, 0] == best.toarray().argmax(axis=1)).all()
    single = XMCClassifier(**FEW).fit(TEXTS, [own[0] for own in LABELS])
    assert np.allclose(single.predict_proba(queries).sum(axis=1), 1)
    assert (single.classes_[single.predict_proba(queries).argmax(axis=1)] == single.predict(queries)).all()


def test_columns_of_a_matrix_stay_in_place():
    marks = np.zeros((60, 12), int)
    marks[:, [11, 2, 10, 1, 9, 4]] = (
        SPARSE.toarray()
    )  # ten sorts before two, as a word; others have no document
    tagger = XMCClassifier(k=1, **FEW).fit(TEXTS, marks)
    assert tagger.classes_.tolist() == list(range(12))
    assert tagger.predict([text_of(0), text_of(2)]).argmax(axis=1).tolist() == [11, 10]


def test_features_in_place_of_texts():
    tagger = Pipeline([("words", TfidfVectorizer()), ("tagger", XMCClassifier(k=1, **FEW))]).fit(
        TEXTS, LABELS
    )
    assert tagger.predict([text_of(4)]) == [["fern"]]
    assert tagger.named_steps["tagger"].n_features_in_ == len(tagger.named_steps["words"].vocabulary_)


def test_features_of_an_earlier_fit_are_forgotten():
    tagger = XMCClassifier(**FEW).fit(SPARSE.toarray(), LABELS)
    assert tagger.n_features_in_ == 6
    assert not hasattr(tagger.fit(TEXTS, LABELS), "n_features_in_")


def test_a_threshold_leaves_out_the_improbable():
    every = XMCClassifier(k=6, **FEW).fit(TEXTS, LABELS)
    sure = clone(every).set_params(threshold=0.5).fit(TEXTS, LABELS)
    assert [len(own) for own in every.predict(TEXTS[:9])] == [6] * 9
    assert {len(own) for own in sure.predict(TEXTS)} <= {0, 1, 2}
    assert sure.predict(["nothing known here"]) == [[]]


def test_what_is_refused():
    tagger = XMCClassifier(**FEW)
    with pytest.raises(NotFittedError):
        tagger.predict(TEXTS)
    with pytest.raises(SettingError, match="there is no setting 'beem'"):
        XMCClassifier(settings={"beem": 3}).fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="method is 'xr'"):
        XMCClassifier(method="xr").fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="settings is 7"):
        XMCClassifier(settings=7).fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="threshold is 2"):
        XMCClassifier(threshold=2).fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="threshold is 'high'"):
        XMCClassifier(threshold="high").fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match="k is 0"):
        XMCClassifier(k=0).fit(TEXTS, LABELS)
    with pytest.raises(DataError, match="the text is missing"):
        tagger.fit([None, *TEXTS[1:]], LABELS)
    with pytest.raises(DataError, match="is a number"):
        tagger.fit(TEXTS, [*LABELS[1:], [7]])
    with pytest.raises(ValueError, match="inconsistent numbers"):
        tagger.fit(TEXTS[1:], LABELS)
    with pytest.raises(DataError, match="trained on texts"):
        tagger.fit(TEXTS, LABELS).predict(SPARSE)
    with pytest.raises(SettingError, match="y has 5 columns for 6 labels"):
        tagger.score(TEXTS, SPARSE[:, 1:])


# Settings --------------------------------------------------------------------------------------------------


def test_every_setting_has_a_name():
    tagger = XMCClassifier(settings={"tree": {"arity": 4}})
    params = tagger.get_params()
    assert params["settings__tree__arity"] == 4
    assert params["settings__beam"] == 20
    assert tagger.set_params(**params).get_params() == params | {"settings": tagger.settings}
    assert set(tagger.get_params(deep=False)) == {"method", "settings", "threads", "k", "threshold"}


def test_single_settings_are_set_without_touching_the_others():
    given = {"beam": 7, "tree": {"arity": 4}}
    tagger = XMCClassifier(settings=given).set_params(settings__tree__max_leaf=9, settings__linear__cost=2.0)
    assert tagger.settings == {"beam": 7, "tree": {"arity": 4, "max_leaf": 9}, "linear": {"cost": 2.0}}
    assert given == {"beam": 7, "tree": {"arity": 4}}
    whole = XMCClassifier(settings={"tree": TreeSettings(arity=4)}).set_params(settings__tree=TreeSettings())
    assert whole.settings == {"tree": TreeSettings()}
    typed = XMCClassifier(settings=XRLinearSettings(beam=7)).set_params(settings__tree__arity=4)
    assert typed.settings == XRLinearSettings(beam=7).with_values({"tree": {"arity": 4}})
    assert clone(typed).settings == typed.settings
    with pytest.raises(SettingError, match="there is no setting 'beem'"):
        tagger.set_params(settings__beem=3)
    with pytest.raises(ValueError, match="Invalid parameter 'beam'"):
        tagger.set_params(beam=3)


def test_a_method_and_its_settings_together():
    tagger = XMCClassifier(threads=1).set_params(settings__neighbours=1, method="nearest")
    assert tagger.fit(TEXTS, LABELS).model_.settings.neighbours == 1


# Searches --------------------------------------------------------------------------------------------------


def test_grid_search_through_a_pipeline():
    steps = [("lower", FunctionTransformer(_lowered)), ("tagger", XMCClassifier(**FEW))]
    grid = {"tagger__settings__beam": [1, 4], "tagger__settings__tree__arity": [2, 8]}
    found = GridSearchCV(Pipeline(steps), grid, cv=3).fit(TEXTS, SPARSE)
    assert len(found.cv_results_["params"]) == 4
    best = found.best_estimator_.named_steps["tagger"]
    assert best.model_.settings.beam == found.best_params_["tagger__settings__beam"]
    assert best.model_.settings.background == 0  # what is not searched stays
    assert found.best_score_ > 0.9
    assert found.score(TEXTS, SPARSE) == found.best_estimator_.score(TEXTS, SPARSE) > 0.9


def _lowered(texts):
    return [text.lower() for text in texts]


def test_grid_search_over_methods_and_thresholds_by_f1():
    grid = [{"method": ["nearest", "dismec"], "threshold": [0.2, 0.99], "k": [6]}]
    search = GridSearchCV(
        XMCClassifier(threads=1), grid, scoring="f1_micro", cv=3, n_jobs=1, error_score="raise"
    )
    found = search.fit(TEXTS, SPARSE)
    assert found.best_score_ > 0.9
    chosen = found.best_estimator_.predict(TEXTS)
    assert f1_score(SPARSE, chosen, average="micro") > 0.9


@pytest.mark.parametrize("scoring", ["average_precision", "roc_auc", "neg_log_loss"])
def test_scorers_that_want_probabilities(scoring):
    tagger, dense = XMCClassifier(settings={"combine": "sigmoid"}, threads=1), SPARSE.toarray()
    labels = np.array([own[0] for own in LABELS])[dense.sum(axis=1) > 0]
    y = labels if scoring == "neg_log_loss" else dense
    assert np.isfinite(
        cross_val_score(tagger, TEXTS, y, scoring=scoring, cv=KFold(2), error_score="raise")
    ).all()


@pytest.mark.parametrize(("y", "cv"), [(LABELS, KFold(3)), ([set(own) for own in LABELS], 3), (SPARSE, 3)])
def test_precision_at_k_of_a_search_is_the_same_for_every_form(y, cv):
    how = {"scoring": precision_at(2), "error_score": "raise"}
    wanted = cross_val_score(XMCClassifier(**FEW), TEXTS, SPARSE.toarray(), cv=3, **how)
    found = GridSearchCV(XMCClassifier(**FEW), {"settings__beam": [20]}, cv=cv, **how).fit(TEXTS, y)
    assert [found.cv_results_[f"split{i}_test_score"][0] for i in range(3)] == wanted.tolist()


def test_precision_agrees_with_evaluate():
    train, test = slice(0, 40), slice(40, 60)
    tagger = XMCClassifier(**FEW).fit(TEXTS[train], LABELS[train])
    unseen = [*LABELS[test][:-1], ["never seen"]]
    model = XRLinear(background=0, threads=1).fit(TEXTS[train], LABELS[train])
    wanted = model.evaluate({"text": TEXTS[test], "labels": unseen}, ks=[1, 3]).metrics
    assert 100 * tagger.score(TEXTS[test], unseen) == pytest.approx(wanted["P@1"])
    for k in (1, 3):
        assert 100 * precision_at(k)(tagger, TEXTS[test], unseen) == pytest.approx(wanted[f"P@{k}"])


def test_precision_at_k_judges_other_classifiers():
    linear = Pipeline([("words", TfidfVectorizer()), ("one", OneVsRestClassifier(LinearSVC()))])
    assert precision_at(1)(linear.fit(TEXTS, SPARSE), TEXTS, SPARSE) > 0.9
    first = ["a" if "apple" in own else "b" for own in LABELS]
    two = Pipeline([("words", TfidfVectorizer()), ("one", LinearSVC())]).fit(TEXTS, first)
    assert precision_at(1)(two, TEXTS, first) == two.score(TEXTS, first) == 1
    constant = DummyClassifier(strategy="constant", constant="b").fit(TEXTS, first)
    assert precision_at(1)(constant, TEXTS, first) == first.count("b") / 60


def test_precision_at_k_needs_k_labels():
    tagger = XMCClassifier(k=2, **FEW).fit(TEXTS, LABELS)
    with pytest.raises(SettingError, match=r"XMCClassifier\(k=3\)"):
        precision_at(3)(tagger, TEXTS, LABELS)
    with pytest.raises(SettingError, match="k is 0"):
        precision_at(0)


# Pickles ---------------------------------------------------------------------------------------------------


def through_joblib(thing):
    kept = io.BytesIO()
    joblib.dump(thing, kept)
    kept.seek(0)
    return joblib.load(kept)


@pytest.mark.parametrize("y", [LABELS, SPARSE])
def test_joblib_keeps_what_was_learnt(y):
    tagger = XMCClassifier(**FEW).fit(TEXTS, y)
    again = through_joblib(tagger)
    assert again.get_params() == tagger.get_params()
    assert again.model_.threads == 1
    assert (again.predict_proba(TEXTS) != tagger.predict_proba(TEXTS)).nnz == 0
    assert again.classes_.tolist() == tagger.classes_.tolist()
    assert isinstance(tagger.model_, XRLinear)  # what is kept is a copy


def test_joblib_keeps_a_transformer():
    pytest.importorskip("torch")
    settings = {"encoder": tiny_encoder(), "max_tokens": 16, "training": {"epochs": 1}}
    tagger = XMCClassifier("cascadexml", settings, threads=1).fit(TEXTS, LABELS)
    again = through_joblib(tagger)
    assert (again.predict_proba(TEXTS[:5]) != tagger.predict_proba(TEXTS[:5])).nnz == 0


def test_joblib_keeps_a_search_with_its_scorer():
    search = GridSearchCV(XMCClassifier(**FEW), {"settings__beam": [1, 4]}, scoring=precision_at(1), cv=2)
    again = through_joblib(through_joblib(search).fit(TEXTS, SPARSE))
    assert again.score(TEXTS, SPARSE) == again.best_estimator_.score(TEXTS, SPARSE) > 0.9
