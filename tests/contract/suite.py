"""What every model must do. A new model runs all of it as soon as it is in xmcascade.models.MODELS.

`CASES` has, for models that need it, small settings and the few things that differ.
"""

import copy
import os
import pickletools
import signal
import threading
import time
import typing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import xmcascade
from contract.world import ODD_NAMES, hashes, make_corpus, make_lists, text_of, tiny_encoder
from xmcascade import Corpus, Prediction
from xmcascade.errors import DataError, ModelFolderError, NotFittedError, SettingError, XmcError
from xmcascade.features import Tfidf
from xmcascade.models import MODELS, answers
from xmcascade.settings import Settings
from xmcascade.store import Strings


@dataclass(frozen=True)
class Case:
    """How one model is tested."""

    settings: dict = field(default_factory=dict)
    encoder: bool = False
    """Whether it trains an encoder: it gets a tiny one, and one thread, since more only slow that down."""
    tolerance: float = 0.0
    """How far scores may differ between a batch and one by one; labels may not."""
    features: bool = True
    """Whether it learns from feature matrices in place of texts."""
    grows: bool = True
    """Whether labels can be added and removed after it has learnt."""
    any_sign: frozenset = frozenset()
    """Settings that a large negative number is allowed for."""


CASCADE = Case(
    {
        "tree": {"levels": [4]},
        "training": {"epochs": 12.0, "head_epochs": 20.0, "rate": 0.01, "token_rate": 0.05, "batch": 16},
    },
    encoder=True,
    tolerance=1e-5,
    features=False,
)
STAGES = Case(CASCADE.settings | {"shortlist": 2}, encoder=True, tolerance=1e-5, features=False)
CASES = {
    "nearest": Case({"neighbours": 5}, grows=False),
    "cascadexml": CASCADE,
    "cascadexml-tfidf": CASCADE,
    "lightxml": CASCADE,
    "xr-transformer": STAGES,
    "x-transformer": STAGES,
    "attentionxml": Case(
        {
            "hidden": 32,
            "shared": 16,
            "dropout": 0.0,
            "encoder_dropout": 0.0,
            "training": {"epochs": 20.0, "rate": 0.02, "token_rate": 0.02, "head_rate": 0.05, "batch": 16},
        },
        encoder=True,
        tolerance=1e-5,
        features=False,
        grows=False,
    ),
    "xml-cnn": Case(
        {
            "filters": 32,
            "hidden": 64,
            "encoder_dropout": 0.0,
            "training": {"epochs": 15.0, "rate": 0.005, "token_rate": 0.05, "batch": 16},
        },
        encoder=True,
        tolerance=1e-5,
        features=False,
    ),
    "ensemble": Case(
        {"members": ("xr-linear", "nearest neighbours=5", "xr-linear seed=1 beam=3")}, grows=False
    ),
}

QUERIES = [*map(text_of, range(len(ODD_NAMES))), "the word0a and word1b", "", "unheard of", "word2a " * 30]
HARD_TEXTS = [
    "",
    " ",
    "\n\t\r",
    "😀",
    "😀👩‍👧",
    "\0",
    "a",
    ".",
    "unheard",
    "שלום",
    "\u202e",
    "word0a\0word0b",
    "Σ",
    "İ",
]


def case_of(name):
    return CASES.get(name, Case())


def settings_of(name):
    case = case_of(name)
    return case.settings | ({"encoder": tiny_encoder()} if case.encoder else {})


def make(name, **values):
    threads = {"threads": 1} if case_of(name).encoder else {}
    return MODELS[name](**(settings_of(name) | threads | values))


@cache
def fitted(name):
    """One fitted model for the tests that only ask it."""
    return make(name).fit(make_corpus())


def close(found, expected, tolerance):
    """The same labels in the same order; scores and probabilities as near as the model promises."""
    assert [[p.label for p in row] for row in found] == [[p.label for p in row] for row in expected]
    numbers = [
        np.array([[p.score, p.probability] for row in rows for p in row]).reshape(-1, 2)
        for rows in (found, expected)
    ]
    if tolerance:
        np.testing.assert_allclose(*numbers, atol=tolerance, rtol=tolerance)
    else:
        assert found == expected


def reloaded(model, folder):
    model.save(folder)
    return xmcascade.load(folder, threads=model.threads)


def saved(model, folder):
    model.save(folder)
    return hashes(folder)


@pytest.fixture(params=sorted(MODELS))
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return fitted(name)


class ContractSuite:
    # Answers ----------------------------------------------------------------------------------------------

    def test_fit_returns_the_model(self, name):
        model = make(name)
        assert model.fit(*make_lists(20)) is model

    def test_the_right_answer(self, model):
        found = model.predict([text_of(i) for i in range(len(ODD_NAMES))], k=1)
        assert [row[0].label for row in found] == ODD_NAMES

    def test_shapes_and_types(self, model):
        found = model.predict(QUERIES, k=4)
        assert isinstance(found, list) and len(found) == len(QUERIES)
        for row in found:
            assert isinstance(row, list) and 1 <= len(row) <= 4
            for prediction in row:
                assert isinstance(prediction, Prediction)
                assert type(prediction.label) is str and prediction.label in ODD_NAMES
                assert type(prediction.score) is float and np.isfinite(prediction.score)
                assert type(prediction.probability) is float and 0 <= prediction.probability <= 1
            scores = [prediction.score for prediction in row]
            assert scores == sorted(scores, reverse=True)
            assert len({prediction.label for prediction in row}) == len(row)

    def test_rank_says_the_same_in_arrays(self, model):
        ranking, found = model.rank(QUERIES, k=3), model.predict(QUERIES, k=3)
        assert ranking.labels.dtype == np.int32 and ranking.labels.shape == (len(QUERIES), 3)
        for doc, row in enumerate(found):
            for place, prediction in enumerate(row):
                assert model.label_names[ranking.labels[doc, place]] == prediction.label
                assert ranking.scores[doc, place] == np.float32(prediction.score)
                assert ranking.probabilities[doc, place] == np.float32(prediction.probability)

    @pytest.mark.parametrize("k", [1, 2, len(ODD_NAMES), len(ODD_NAMES) + 1, 10**9, np.int64(3)])
    def test_k(self, model, k):
        most = min(int(k), len(ODD_NAMES))
        found = model.predict(QUERIES, k=k)
        assert all(1 <= len(row) <= most for row in found)
        assert len(found[0]) == most or k > 5  # a shortlist may hold fewer than all labels
        longest = model.predict(QUERIES, k=len(ODD_NAMES))
        close(found, [row[:most] for row in longest], case_of(model.name).tolerance)

    @pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", float("nan"), [3]])
    def test_bad_k_is_refused(self, model, k):
        with pytest.raises(SettingError, match=r"k is .*Remedy"):
            model.predict(["the"], k=k)

    def test_threshold(self, model):
        every = model.predict(QUERIES, k=100)
        chances = sorted(prediction.probability for row in every for prediction in row)
        for least in (0, chances[len(chances) // 2], 1.0):
            found = model.predict(QUERIES, threshold=least)
            told = [[p for p in row if p.probability >= least] for row in every]
            close(found, told, case_of(model.name).tolerance)
        assert all(len(row) <= 1 for row in model.predict(QUERIES, k=1, threshold=0.0))

    @pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "0.5", True, [0.5], "auto"])
    def test_bad_threshold_is_refused(self, model, threshold):
        with pytest.raises(SettingError, match=r"threshold.*Remedy"):  # trained on too few for its own
            model.predict(["the"], threshold=threshold)

    def test_no_texts(self, model):
        assert model.predict([]) == []
        assert model.score([], ODD_NAMES) == []
        assert model.rank([], k=3).labels.shape == (0, 3)

    @pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
    def test_any_text_gets_an_answer(self, model, text):
        assert 1 <= len(model.predict([text], k=2)[0]) <= 2

    def test_a_long_text(self, model):
        [row] = model.predict(["word3a word3b word3c " * 50_000], k=1)  # 1 MB
        assert row[0].label == ODD_NAMES[3]

    @pytest.mark.parametrize(
        "form",
        [
            tuple,
            iter,
            np.array,
            Strings.of,
            lambda texts: np.array(texts, dtype=object),
            lambda texts: pd.Series(texts, index=range(100, 100 + len(texts))),
        ],
        ids=["tuple", "iterator", "numpy", "Strings", "objects", "Series"],
    )
    def test_any_iterable_of_strings(self, model, form):
        assert model.predict(form(QUERIES), k=2) == model.predict(QUERIES, k=2)

    def test_a_corpus_can_be_asked(self, model):
        texts, labels = make_lists(20, seed=1)
        assert model.predict(Corpus.from_lists(texts, labels), k=2) == model.predict(texts, k=2)

    # Nothing but the text decides -------------------------------------------------------------------------

    def test_batch_equals_one_by_one(self, model):
        alone = [model.predict([text], k=5)[0] for text in QUERIES]
        close(model.predict(QUERIES, k=5), alone, case_of(model.name).tolerance)

    def test_order_of_texts_does_not_matter(self, model):
        order = np.random.default_rng(0).permutation(len(QUERIES))
        found = model.predict([QUERIES[i] for i in order], k=5)
        expected = model.predict(QUERIES, k=5)
        close(found, [expected[i] for i in order], case_of(model.name).tolerance)

    @pytest.mark.parametrize("size", [1, 3])
    def test_batch_size_does_not_matter(self, model, monkeypatch, size):
        expected = model.predict(QUERIES, k=5), model.score(QUERIES, ODD_NAMES)
        monkeypatch.setattr(answers, "BATCH_DOCS", size)
        tolerance = case_of(model.name).tolerance
        close(model.predict(QUERIES, k=5), expected[0], tolerance)
        close(model.score(QUERIES, ODD_NAMES), expected[1], tolerance)

    def test_same_seed_same_bytes(self, name, tmp_path):
        first, second = (saved(make(name, seed=3).fit(make_corpus()), tmp_path / part) for part in "ab")
        assert first == second

    def test_threads_change_nothing(self, name, tmp_path):
        models = {n: make(name, threads=n).fit(make_corpus()) for n in (1, 2, 8)}
        folders = [saved(model, tmp_path / str(n)) for n, model in models.items()]
        assert folders[0] == folders[1] == folders[2]
        answers = [model.predict(QUERIES * 20, k=5) for model in models.values()]
        assert answers[0] == answers[1] == answers[2]

    def test_many_threads_may_ask_at_once(self, model):
        expected = [model.predict([text], k=3) for text in QUERIES]
        start = threading.Barrier(16)

        def ask(i):
            start.wait(20)
            return [model.predict([text], k=3) for text in QUERIES[i:] + QUERIES[:i]]

        with ThreadPoolExecutor(16) as pool:
            for i, found in enumerate(pool.map(ask, range(16))):
                i %= len(QUERIES)
                for one, other in zip(found, expected[i:] + expected[:i], strict=True):
                    close(one, other, case_of(model.name).tolerance)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_answers(self, name):
        model = make(name, threads=2).fit(make_corpus())
        expected = model.predict(QUERIES * 20, k=3)
        child = os.fork()
        if child == 0:
            right = False
            try:
                right = model.predict(QUERIES * 20, k=3) == expected
            finally:
                os._exit(0 if right else 1)
        until = time.monotonic() + 30
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                pytest.fail("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(done[1]) == 0

    # Fitting ----------------------------------------------------------------------------------------------

    def test_one_label(self, name):
        model = make(name).fit(["red apple", "green apple", "apple pie"], [["fruit"]] * 3)
        assert [[p.label for p in row] for row in model.predict(["apple", "car", ""], k=5)] == [["fruit"]] * 3

    def test_one_document(self, name):
        model = make(name).fit(["red apple"], [["fruit", "red"]])
        assert {p.label for p in model.predict(["apple"], k=5)[0]} == {"fruit", "red"}

    def test_documents_without_labels_teach_nothing(self, name, tmp_path):
        texts, labels = make_lists(40)
        mixed = make(name).fit(["word0a nothing", *texts, "word1b none"], [[], *labels, []])
        assert saved(mixed, tmp_path / "a") == saved(make(name).fit(texts, labels), tmp_path / "b")

    @pytest.mark.parametrize("labels", [[[], []], []], ids=["unlabelled", "no documents"])
    def test_no_labelled_document_is_refused(self, name, labels):
        with pytest.raises(DataError, match=r"none of the .* documents has a label.*Remedy"):
            make(name).fit(["one", "two"][: len(labels)], labels)

    def test_texts_without_any_word(self, name):
        model = make(name).fit(["😀", "...", "!"], [["a"], ["b"], ["a"]])
        assert len(model.predict(["😀", "word", ""], k=1)) == 3

    def test_labels_of_a_series_go_by_place(self, name, tmp_path):
        texts, labels = make_lists(40)
        shuffled = pd.DataFrame({"text": texts, "labels": labels}, index=range(39, -1, -1))
        model = make(name).fit(shuffled["text"], shuffled["labels"])
        assert saved(model, tmp_path / "a") == saved(make(name).fit(texts, labels), tmp_path / "b")

    def test_fit_on_a_table(self, name, tmp_path):
        texts, labels = make_lists(40)
        table = make(name).fit(pd.DataFrame({"text": texts, "labels": labels}))
        assert saved(table, tmp_path / "a") == saved(make(name).fit(texts, labels), tmp_path / "b")

    def test_fitting_twice_is_fitting_afresh(self, name, tmp_path):
        again = make(name).fit(["another world"], [["gone"]]).fit(make_corpus())
        assert saved(again, tmp_path / "a") == saved(make(name).fit(make_corpus()), tmp_path / "b")

    @pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, DataError("bad")], ids=repr)
    def test_a_failed_fit_leaves_the_model_as_it_was(self, name, monkeypatch, tmp_path, failure):
        model = make(name).fit(make_corpus())
        before, answers = saved(model, tmp_path / "a"), model.predict(QUERIES)

        def fail(*_):
            raise failure

        with monkeypatch.context() as patched:
            patched.setattr(type(model), "_fit", fail)
            with pytest.raises((KeyboardInterrupt, MemoryError, DataError)):
                model.fit(["new"], [["new"]])
        for bad in [(["text"], [[]]), (["text"], ["label"]), ([None], [["x"]])]:
            with pytest.raises(XmcError):
                model.fit(*bad)
        assert model.predict(QUERIES) == answers
        assert saved(model, tmp_path / "b") == before

    def test_inputs_are_not_changed(self, name):
        texts, labels = make_lists(30)
        given = copy.deepcopy((texts, labels))
        model = make(name).fit(texts, labels)
        assert (texts, labels) == given
        corpus = make_corpus(30)
        arrays = {
            "data": corpus.labels.data,
            "indices": corpus.labels.indices,
            "indptr": corpus.labels.indptr,
            "text": corpus.texts.data,
            "offsets": corpus.texts.offsets,
        }
        before = {part: array.tobytes() for part, array in arrays.items()}
        candidates = [list(row) for row in labels]
        model.fit(corpus).predict(corpus)
        model.score(corpus, candidates)
        model.evaluate(corpus, replicates=0)
        assert {part: array.tobytes() for part, array in arrays.items()} == before
        assert candidates == labels

    def test_settings_are_not_changed(self, name):
        kind = MODELS[name].settings_type
        settings = kind().with_values(settings_of(name))
        before = copy.deepcopy(settings)
        model = MODELS[name](settings)
        model.fit(make_corpus()).predict(QUERIES)
        assert model.settings == settings == before

    # Refusals ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "use",
        [
            lambda m, _: m.predict(["x"]),
            lambda m, _: m.rank(["x"]),
            lambda m, _: m.score(["x"], ["y"]),
            lambda m, f: m.save(f),
            lambda m, _: m.label_names,
            lambda m, _: m.n_labels,
            lambda m, _: m.derived,
            lambda m, _: m.evaluate(make_corpus(5)),
        ],
        ids=["predict", "rank", "score", "save", "label_names", "n_labels", "derived", "evaluate"],
    )
    def test_before_fit(self, name, use, tmp_path):
        with pytest.raises(NotFittedError, match=r"has not learnt anything yet. Remedy: call fit"):
            use(make(name), tmp_path / "model")
        assert "not fitted" in repr(make(name))

    @pytest.mark.parametrize(
        "documents",
        [
            "one text",
            b"bytes",
            None,
            3,
            {"text": ["x"]},
            {"x"},
            object(),
            pd.DataFrame({"text": ["x"]}),
            np.array("x"),
        ],
        ids=lambda value: type(value).__name__,
    )
    @pytest.mark.parametrize("ask", ["predict", "score", "fit"])
    def test_what_is_no_list_of_texts_is_refused(self, model, name, documents, ask):
        calls = {
            "predict": lambda: model.predict(documents),
            "score": lambda: model.score(documents, ODD_NAMES),
            "fit": lambda: make(name).fit(documents, [["x"]]),
        }
        with pytest.raises(XmcError, match=r"the texts are .*Remedy"):
            calls[ask]()

    @pytest.mark.parametrize("bad", [None, 3, float("nan"), b"bytes", ["nested"], True, "\ud800"], ids=repr)
    def test_a_bad_text_is_refused_by_its_place(self, model, name, bad):
        for ask in (
            lambda: model.predict(["fine", bad]),
            lambda: model.score(["fine", bad], ODD_NAMES),
            lambda: make(name).fit(["fine", bad], [["x"], ["y"]]),
        ):
            with pytest.raises(XmcError, match=r"document 2.*text.*Remedy"):
                ask()

    @pytest.mark.parametrize(
        "labels",
        [["x", "y"], [["x"], None], [["x"], [None]], [["x"], [1]], [["x"], [""]], [["x"], ["y", "y"]]],
        ids=repr,
    )
    def test_bad_labels_are_refused_by_their_place(self, name, labels):
        with pytest.raises(XmcError, match=r"document [12].*label.*Remedy"):
            make(name).fit(["one", "two"], labels)

    @pytest.mark.parametrize("labels", [None, "xy", 3, [["x"]], [["x"]] * 3, {"x": 1}, sp.eye(2)], ids=str)
    def test_labels_that_do_not_fit_are_refused(self, name, labels):
        with pytest.raises(XmcError, match=r"label.*Remedy"):
            make(name).fit(["one", "two"], labels)

    def test_unknown_settings_are_refused(self, name):
        with pytest.raises(SettingError, match=r"no setting 'beem'.*the settings are: .*seed"):
            MODELS[name](beem=3)
        for bad in ({"seed": 1}, 3, "seed=1", Settings()):
            with pytest.raises(SettingError, match=r"settings is"):
                MODELS[name](bad)
        for threads in (0, -1, 1.5, "2", True):
            with pytest.raises(SettingError, match=r"threads is"):
                MODELS[name](threads=threads)

    def test_every_bad_setting_is_named(self, name):
        tried = 0
        for path, hint in all_settings(MODELS[name].settings_type()):
            for value in bad_values(hint, path[-1] in case_of(name).any_sign):
                values = value
                for part in reversed(path):
                    values = {part: values}
                with pytest.raises(SettingError, match=rf"^{path[-1]} is .*Remedy: allowed: "):
                    MODELS[name](**values)
                tried += 1
        assert tried > 5

    # Candidates -------------------------------------------------------------------------------------------

    def test_score_agrees_with_predict(self, model):
        found = model.predict(QUERIES, k=len(ODD_NAMES))
        scored = model.score(QUERIES, [[p.label for p in row] for row in found])
        close(scored, found, case_of(model.name).tolerance)

    def test_candidates_for_all_or_each(self, model):
        for_all = model.score(QUERIES, ODD_NAMES[::-1])
        assert [[p.label for p in row] for row in for_all] == [ODD_NAMES[::-1]] * len(QUERIES)
        for_each = model.score(QUERIES, [ODD_NAMES[::-1]] * len(QUERIES))
        assert for_each == for_all == model.score(QUERIES, tuple(ODD_NAMES[::-1]))
        different = [ODD_NAMES[i % 3 : i % 5] for i in range(len(QUERIES))]
        scored = model.score(QUERIES, different)
        assert [[p.label for p in row] for row in scored] == different
        known = [{p.label: p for p in row} for row in for_all]
        close(scored, [[known[i][label] for label in row] for i, row in enumerate(different)],
              case_of(model.name).tolerance)  # fmt: skip

    def test_no_candidates(self, model):
        assert model.score(["the", "of"], []) == [[], []]
        assert model.score(["the", "of"], [[], []]) == [[], []]
        assert [len(row) for row in model.score(["the", "of"], [[], ODD_NAMES[:1]])] == [0, 1]

    def test_a_candidate_given_twice_is_answered_twice(self, model):
        one, two = ODD_NAMES[:2]
        [row] = model.score([text_of(0)], [one, two, one])
        assert [p.label for p in row] == [one, two, one]
        assert row[0] == row[2] and row[0].score > row[1].score

    @pytest.mark.parametrize(
        "candidates",
        [
            *("one label", None, 3, {ODD_NAMES[0]: 1}),
            *(["no such label"], [["no such label"], []], [[None], []], [[["x"]], []]),
            *([None, None], [1, 2], [ODD_NAMES[0], ["x"]], [[]], [[], [], []]),
        ],
        ids=repr,
    )
    def test_bad_candidates_are_refused(self, model, candidates):
        with pytest.raises(DataError, match=r"(candidates|label).*Remedy"):
            model.score(["the", "of"], candidates)

    # Folders ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("verify", [True, False])
    def test_loading_changes_nothing(self, model, tmp_path, verify):
        before = saved(model, tmp_path / "model")
        for loaded in (
            type(model).load(tmp_path / "model", verify=verify),
            xmcascade.load(tmp_path / "model", verify=verify, threads=2),
        ):
            assert type(loaded) is type(model)
            assert loaded.settings == model.settings
            assert loaded.label_names == model.label_names
            assert loaded.derived == model.derived
            assert loaded.predict(QUERIES, k=5) == model.predict(QUERIES, k=5)
            assert loaded.score(QUERIES, ODD_NAMES) == model.score(QUERIES, ODD_NAMES)
            test = make_corpus(20, seed=5)
            assert loaded.evaluate(test, replicates=0) == model.evaluate(test, replicates=0)
            assert saved(loaded, tmp_path / "again") == before

    def test_a_loaded_model_can_learn_again(self, model, tmp_path):
        before = saved(model, tmp_path / "model")
        loaded = type(model).load(tmp_path / "model").fit(["red apple"], [["fruit"]])
        assert list(loaded.label_names) == ["fruit"]
        assert hashes(tmp_path / "model") == before

    def test_another_kind_of_model_is_refused(self, model, tmp_path):
        other = type("Other", (type(model),), {"name": "other"})
        model.save(tmp_path / "model")
        with pytest.raises(ModelFolderError, match=rf"kind {model.name!r}, not 'other'"):
            other.load(tmp_path / "model")
        other(model.settings).fit(make_corpus(20)).save(tmp_path / "other")
        with pytest.raises(ModelFolderError, match=r"unknown kind 'other'"):
            xmcascade.load(tmp_path / "other")

    def test_no_file_is_a_pickle(self, model, tmp_path):
        model.save(tmp_path / "model")
        for path in (tmp_path / "model").iterdir():
            assert path.suffix in (".json", ".safetensors", ".arrow")
            with pytest.raises(ValueError):  # what genops raises differs by byte
                list(pickletools.genops(path.read_bytes()))

    # Feature matrices -------------------------------------------------------------------------------------

    def test_features_in_place_of_texts(self, name, tmp_path):
        corpus = make_corpus()
        tfidf = Tfidf()
        with_features = Corpus(
            labels=corpus.labels, label_names=corpus.label_names, features=tfidf.fit_transform(corpus.texts)
        )
        if not case_of(name).features:
            with pytest.raises(DataError, match=r"needs texts.*Remedy: give texts"):
                make(name).fit(with_features)
            return
        raw = with_features.features.data.tobytes()
        model = make(name).fit(with_features)
        asked = tfidf.transform([text_of(i) for i in range(len(ODD_NAMES))])
        found = model.predict(asked, k=1)
        assert [row[0].label for row in found] == ODD_NAMES
        assert model.predict(asked.tocsc(), k=1) == model.predict(asked.tocoo(), k=1) == found
        assert with_features.features.data.tobytes() == raw
        model.save(tmp_path / "model")
        assert xmcascade.load(tmp_path / "model").predict(asked, k=1) == found
        assert model.evaluate(with_features, ks=[1], replicates=0).metrics["P@1"] > 90
        for bad in (QUERIES, asked[:, :-1], corpus):
            with pytest.raises(DataError, match=r"trained on .* features.*Remedy"):
                model.predict(bad)
        asked.data[0] = np.nan
        with pytest.raises(DataError, match=r"NaN"):
            model.predict(asked)

    def test_a_model_of_texts_refuses_features(self, model):
        with pytest.raises(DataError, match=r"trained on texts.*Remedy"):
            model.predict(sp.csr_matrix((1, 7)))

    # Labels that come and go ------------------------------------------------------------------------------

    @pytest.fixture
    def own(self, name, model):
        """A model that may be changed."""
        if not case_of(name).grows:
            pytest.skip("is refused, see below")
        return copy.copy(model)

    def test_removed_labels_are_gone_and_the_others_as_before(self, own, name, tmp_path):
        gone, others = ODD_NAMES[:2], [label for label in own.label_names if label not in ODD_NAMES[:2]]
        before, ranked = own.score(QUERIES, others), own.predict(QUERIES, k=len(ODD_NAMES))
        assert own.remove_labels(gone) is own
        assert list(own.label_names) == others
        close(own.score(QUERIES, others), before, case_of(name).tolerance)
        left = [[p for p in row if p.label in others] for row in ranked]
        close(own.predict(QUERIES, k=len(ODD_NAMES)), left, case_of(name).tolerance)
        with pytest.raises(DataError, match=r"no label .*Remedy"):
            own.score(QUERIES, gone)
        assert reloaded(own, tmp_path / "model").predict(QUERIES) == own.predict(QUERIES)
        assert set(fitted(name).label_names) == set(ODD_NAMES)  # the other model is not touched

    def test_an_added_label_is_found_and_the_others_are_as_before(self, own, name, tmp_path):
        texts, labels = make_lists()
        new, at = ODD_NAMES[1], 1
        shown = [text for text, own_labels in zip(texts, labels, strict=True) if new in own_labels]
        own.remove_labels([new])
        others = list(own.label_names)
        before = own.score(QUERIES, others)
        again = reloaded(own, tmp_path / "without")
        for model in (own, again):
            assert model.add_labels([new], examples={new: shown}, texts=[text_of(at)]) is model
        assert list(own.label_names) == [*others, new]
        close(own.score(QUERIES, others), before, case_of(name).tolerance)
        found = own.predict([text_of(at), text_of(5)], k=1)
        assert [row[0].label for row in found] == [new, ODD_NAMES[5]]
        assert again.predict(QUERIES) == own.predict(QUERIES)
        assert reloaded(own, tmp_path / "with").predict(QUERIES) == own.predict(QUERIES)
        found = own.evaluate(make_corpus(30, seed=3), ks=[1], replicates=0)
        assert found.metrics["P@1"] > 80

    def test_many_labels_at_once_some_told_by_text_alone(self, own):
        own.add_labels(
            ["n0", "n1", "n2"],
            texts={"n0": "word0a word1a", "n2": text_of(2)},
            examples=[[], ["word3a word4b"], []],
        )
        assert {p.label for p in own.predict(["word3a word4b"], k=3)[0]} >= {"n1"}
        assert own.n_labels == len(ODD_NAMES) + 3
        left, *gone = own.label_names
        assert [p.label for p in own.remove_labels(gone).predict(["word3a"], k=5)[0]] == [left]

    def test_what_cannot_be_added_or_removed_changes_nothing(self, own):
        before = own.predict(QUERIES)
        for names, given, message in (
            ([], {}, "no label is named"),
            (["n", "n"], {"texts": ["a", "b"]}, "twice"),
            ([ODD_NAMES[0]], {"texts": ["a"]}, "already"),
            (["n"], {}, "nothing tells"),
            (["n"], {"texts": [" "]}, "nothing tells"),
            (["n"], {"examples": [[1]]}, "is a int"),
            (["n"], {"examples": ["text"]}, "one string"),
            (["n"], {"texts": ["a", "b"]}, "2 texts for 1 labels"),
            (["n"], {"texts": {"m": "a"}}, "not among the names"),
            ("n", {"texts": ["a"]}, "one string"),
            ([3], {"texts": ["a"]}, "name is 3"),
        ):
            with pytest.raises(DataError, match=rf"{message}.*Remedy"):
                own.add_labels(names, **given)
        for bad in (["no such label"], [], "text", list(own.label_names)):
            with pytest.raises(DataError, match=r"Remedy"):
                own.remove_labels(bad)
        assert own.predict(QUERIES) == before

    def test_without_kept_documents_labels_cannot_be_added(self, name, own):
        if case_of(name).encoder:
            pytest.skip("is the same code, and slow")
        model = make(name, background=0).fit(make_corpus())
        with pytest.raises(SettingError, match=r"kept no documents.*Remedy"):
            model.add_labels(["n"], texts=["word0a"])

    def test_models_that_cannot_say_so(self, name, model):
        if case_of(name).grows:
            pytest.skip("this one can")
        with pytest.raises(SettingError, match=r"cannot learn labels later.*Remedy: fit it again"):
            model.add_labels(["n"], texts=["word0a"])
        with pytest.raises(SettingError, match=r"cannot forget labels.*Remedy: fit it again"):
            model.remove_labels([ODD_NAMES[0]])

    def test_label_texts_as_documents(self, name):
        if case_of(name).encoder:
            pytest.skip("is the same code, and slow")
        texts, labels = make_lists()
        told = {label: f"unheard{i}" for i, label in enumerate(ODD_NAMES)}
        corpus = Corpus.from_lists(texts, labels, label_texts=told)
        found = make(name, label_documents=True).fit(corpus).predict(["unheard3"], k=1)
        assert found[0][0].label == ODD_NAMES[3]
        with pytest.raises(DataError, match=r"labels have no texts.*Remedy"):
            make(name, label_documents=True).fit(make_corpus())

    # Evaluation -------------------------------------------------------------------------------------------

    def test_better_than_the_most_frequent_labels(self, model):
        test = make_corpus(60, seed=7)
        frequent = np.argsort(-make_corpus().label_counts(), kind="stable")[:3]
        guess = xmcascade.evaluate.Ranking(
            np.tile(frequent, (60, 1)), np.ones((60, 3)), np.full((60, 3), 0.5)
        )
        truth = test.over_labels(model.label_names)
        guessed = xmcascade.evaluate.evaluate_ranking(truth.labels, guess, replicates=0).metrics
        learnt = model.evaluate(test, replicates=0).metrics
        for metric in ("P@1", "R@3", "nDCG@3"):
            assert learnt[metric] > guessed[metric] + 20

    def test_unseen_labels_are_missed_and_unlabelled_documents_not_counted(self, model):
        known = ODD_NAMES[0]
        test = Corpus.from_lists(
            [text_of(0), text_of(0), text_of(0), "nothing"], [[known], ["unseen"], [known, "unseen too"], []]
        )
        found = model.evaluate(test, ks=[1])
        assert (found.n_docs, found.n_unlabelled, found.unseen_share) == (3, 1, 50.0)
        assert found.metrics["P@1"] == pytest.approx(200 / 3)
        assert found.metrics["R@1"] == pytest.approx(50)
        assert model.evaluate(test, ks=1).metrics == found.metrics
        known_ranking = model.rank(test.take([0, 1, 2]), k=3)
        assert model.evaluate(test, ks=[1], ranking=known_ranking).to_dict() == found.to_dict()

    def test_evaluation_needs_labels(self, model):
        with pytest.raises(DataError, match=r"none of the 1 documents has a label"):
            model.evaluate(Corpus.from_lists(["a text"], [[]]))
        for bad in (["a text"], "text", None):
            with pytest.raises(XmcError, match=r"labels are missing.*Remedy"):
                model.evaluate(bad)
        for ks in ([], [0], [1.5], 0, ["1"], True):
            with pytest.raises(SettingError, match=r"ks? is .*Remedy"):
                model.evaluate(make_corpus(5), ks=ks)


def all_settings(settings):
    """Every setting's path and type, nested settings too."""
    hints = typing.get_type_hints(type(settings))
    for each in fields(settings):
        value = getattr(settings, each.name)
        yield (each.name,), hints[each.name]
        if isinstance(value, Settings):
            yield from (((each.name, *path), hint) for path, hint in all_settings(value))


def bad_values(hint, any_sign):
    """Values that a setting of this type must refuse."""
    args = typing.get_args(hint) or (hint,)
    if typing.get_origin(hint) in (tuple, typing.Literal):
        args = (hint,)
    yield from (object(), b"bytes", {1, 2})
    if str not in args:
        yield "no such value"
    if type(None) not in args:
        yield None
    if bool not in args:
        yield True
    if int in args or float in args:
        yield float("nan")
        yield [1, 2]
        if not any_sign:
            yield -(10**9)
    if int in args and float not in args:
        yield 1.5
