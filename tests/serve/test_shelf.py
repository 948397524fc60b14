"""Models that come and go while they are served."""

import shutil
import threading
import time

import numpy as np
import pytest

from serve.small import LABELS, TEXTS, asked, saved
from xmcascade import XRLinear, load
from xmcascade.errors import ModelFolderError
from xmcascade.models.canary import canary_of
from xmcascade.serve import Client, Running
from xmcascade.serve.shelf import Shelf, Shelved
from xmcascade.store import read_manifest

OTHER = [["other"], ["things"]] * 12


def until(condition, seconds=30.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_one_folder_or_several(tmp_path):
    saved(tmp_path / "many" / "b")
    saved(tmp_path / "many" / "a", labels=OTHER)
    (tmp_path / "many" / "notes").mkdir()
    shelf = Shelf(tmp_path / "many")
    shelf.load()
    assert shelf.names == ["a", "b"]
    assert shelf.get().name == "a"
    with Running(tmp_path / "many") as server:
        client = Client(server.url)
        assert client.predict(["apple"], 1, model="b")[0][0].label == "fruit"
        assert client.predict(["apple"], 1)[0][0].label in ("other", "things")
        assert client.about()["models"] == ["a", "b"]


def test_nothing_to_serve(tmp_path):
    with pytest.raises(ModelFolderError, match="no model in this folder"):
        Shelf(tmp_path).load()
    with pytest.raises(ModelFolderError, match="no model folder here"):
        Shelf(tmp_path / "nope").load()


def test_a_new_model_takes_the_place_of_the_old_without_losing_a_request(tmp_path):
    saved(tmp_path / "m")
    with Running(tmp_path / "m") as server:
        stop, failures, said = threading.Event(), [], set()

        def ask():
            client = Client(server.url)
            while not stop.is_set():
                try:
                    said.add(client.predict(["an apple"], 1)[0][0].label)
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for labels in (OTHER, LABELS, OTHER):
            saved(tmp_path / "m", labels=labels)
            names = {label for row in labels for label in row}
            until(lambda names=names: set(server.service.shelf.get().model.label_names) == names)
        time.sleep(0.2)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert "fruit" in said
    assert said & {"other", "things"}


def test_a_broken_new_model_is_not_used(tmp_path, caplog):
    saved(tmp_path / "m")
    with Running(tmp_path / "m") as server:
        client = Client(server.url)
        saved(tmp_path / "next", labels=OTHER)
        (tmp_path / "next" / "arrays.safetensors").write_bytes(b"junk")
        shutil.rmtree(tmp_path / "m")
        (tmp_path / "next").rename(tmp_path / "m")
        until(lambda: "is not used" in caplog.text)
        assert client.predict(["an apple"], 1)[0][0].label == "fruit"
        assert 'result="failed"} 1.0' in asked(server.port, "GET", "/metrics")[2].decode()
        saved(tmp_path / "m2", labels=OTHER)
        shutil.rmtree(tmp_path / "m")
        (tmp_path / "m2").rename(tmp_path / "m")
        until(lambda: client.predict(["an apple"], 1)[0][0].label in ("other", "things"))


def test_what_could_not_be_loaded_is_tried_again(tmp_path, monkeypatch, caplog):
    saved(tmp_path / "m")
    whole = (tmp_path / "m" / "arrays.safetensors").read_bytes()
    with Running(tmp_path) as server:
        saved(tmp_path / "n", labels=OTHER)
        arrays = (tmp_path / "n" / "arrays.safetensors").read_bytes()
        (tmp_path / "n" / "arrays.safetensors").write_bytes(whole[:100])  # a copy that is under way
        until(lambda: "is not used" in caplog.text)
        (tmp_path / "n" / "arrays.safetensors").write_bytes(arrays)
        until(lambda: server.service.shelf.names == ["m", "n"])


def test_a_folder_that_is_away_for_a_moment_takes_no_model_with_it(tmp_path):
    saved(tmp_path / "all" / "a")
    saved(tmp_path / "all" / "b", labels=OTHER)
    shelf = Shelf(tmp_path / "all")
    shelf.load()
    (tmp_path / "all").rename(tmp_path / "away")
    for _ in range(5):
        shelf.look()
    assert shelf.names == ["a", "b"]


def test_models_appear_and_vanish(tmp_path):
    saved(tmp_path / "a")
    with Running(tmp_path) as server:
        assert server.service.shelf.names == ["a"]
        saved(tmp_path / "b", labels=OTHER)
        until(lambda: server.service.shelf.names == ["a", "b"])
        shutil.rmtree(tmp_path / "b")
        until(lambda: server.service.shelf.names == ["a"])
        shutil.rmtree(tmp_path / "a")  # the last one stays
        time.sleep(5)
        assert Client(server.url).predict(["an apple"], 1)[0][0].label == "fruit"


def test_a_model_keeps_an_answer_and_has_to_give_it_again(tmp_path):
    saved(tmp_path / "m")
    canary = read_manifest(tmp_path / "m").values["canary"]
    assert canary == canary_of(load(tmp_path / "m"))
    assert len(canary["labels"]) == len(canary["probabilities"]) == 5


def test_a_model_that_answers_differently_is_refused(tmp_path, monkeypatch):
    saved(tmp_path / "m")
    rank = XRLinear.rank

    def other(self, *args, **how):
        ranking = rank(self, *args, **how)
        return type(ranking)(ranking.labels, ranking.scores, 1 - ranking.probabilities)

    monkeypatch.setattr(XRLinear, "rank", other)
    with pytest.raises(ModelFolderError, match="does not answer as it did"):
        Shelf(tmp_path / "m").load()


def test_an_older_model_without_an_answer_is_served(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("xmcascade.models.base.canary_of", lambda model: None)
    saved(tmp_path / "m")
    Shelf(tmp_path / "m").load()
    assert "keeps no answer" in caplog.text


def test_a_model_of_features_is_refused(tmp_path):
    import scipy.sparse as sp

    from xmcascade import Corpus

    texts = Corpus.from_lists(TEXTS, LABELS)
    features = sp.csr_matrix(np.eye(len(TEXTS), dtype=np.float32))
    corpus = Corpus(labels=texts.labels, label_names=texts.label_names, features=features)
    XRLinear().fit(corpus).save(tmp_path / "m")
    assert read_manifest(tmp_path / "m").values["canary"] is None
    with pytest.raises(ModelFolderError, match="features in place of texts"):
        Shelf(tmp_path / "m").load()


def test_a_model_is_tried_where_it_will_answer_before_it_takes_its_place(tmp_path, monkeypatch):
    seen, predict = [], Shelved.predict

    def noted(self, texts, *more):
        seen.append((threading.current_thread().name, server.service.shelf.names, len(set(map(len, texts)))))
        return predict(self, texts, *more)

    monkeypatch.setattr(Shelved, "predict", noted)
    server = Running(saved(tmp_path / "m"))
    with server:
        assert seen == [("xmcascade-batcher", [], n_lengths) for _, _, n_lengths in seen]
        assert len(seen) == 4 and seen[-1][2] > 5


def test_a_model_that_fails_on_a_trial_is_not_used(tmp_path, monkeypatch, caplog):
    with Running(saved(tmp_path / "m")) as server:
        monkeypatch.setattr(Shelved, "trials", lambda self, tokens: 1 / 0)
        saved(tmp_path / "m", labels=OTHER)
        until(lambda: "the new one is not used" in caplog.text)
        monkeypatch.undo()
        assert Client(server.url).predict(["apple"], 1)[0][0].label == "fruit"


@pytest.mark.parametrize("tokens", [1, 1024, 10**12])
def test_trials_are_bounded(tmp_path, tokens):
    shelf = Shelf(saved(tmp_path / "m"))
    shelf.load()
    own = shelf.get()
    for texts in own.trials(tokens):
        total = sum(own.sizes(texts))
        assert min(tokens, 1 << 16) <= total <= (1 << 17) + 100
