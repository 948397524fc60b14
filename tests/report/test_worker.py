"""Training that is stopped counts its time once, up to what was kept."""

import json
import time

import pytest

from xmcascade.report import worker


def kept(out):
    piece = out / "work" / "training"
    piece.mkdir(parents=True)
    (piece / "manifest.json").write_text("{}")


def test_time_up_to_a_checkpoint_is_counted_by_the_next_process(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.01)

    def stopped():
        time.sleep(0.2)
        kept(tmp_path)
        time.sleep(0.2)
        noted.update(json.loads((tmp_path / "spent.json").read_text()))
        time.sleep(0.5)  # is lost
        raise KeyboardInterrupt

    noted = {}
    with pytest.raises(KeyboardInterrupt):
        worker.trained(stopped, tmp_path)
    assert 0.2 <= noted["seconds"] < 0.4
    _, numbers = worker.trained(lambda: time.sleep(0.1), tmp_path)
    assert numbers["stops"] == 1
    assert noted["seconds"] + 0.1 <= numbers["seconds"] < noted["seconds"] + 0.4


def test_time_without_a_checkpoint_is_not(tmp_path):
    def stopped():
        raise ValueError

    with pytest.raises(ValueError):
        worker.trained(stopped, tmp_path)
    found, numbers = worker.trained(lambda: 42, tmp_path)
    assert found == 42 and numbers["stops"] == 0 and numbers["seconds"] < 1


def test_slow_methods_are_asked_for_fewer_documents_one_by_one(monkeypatch):
    monkeypatch.setattr(worker, "SINGLES_SECONDS", 0.05)
    monkeypatch.setattr(worker, "BATCH_SECONDS", 0.0)
    asked = []

    def predict(documents):
        asked.append(len(documents))
        time.sleep(0.01 if len(documents) == 1 else 0)
        return documents

    run = worker.Run(
        lambda folder: predict, lambda start, stop: list(range(start, stop)), lambda found: found
    )
    found, numbers = worker.asked(predict, run, 100, 90)
    assert found == list(range(100))
    assert asked[:2] == [20, 100] and 20 <= numbers["singles"] < 90
    assert numbers["single_ms_p95"] >= numbers["single_ms"] >= 10


def test_pairs_become_rows_best_first():
    labels, scores = worker._padded([[(4, 0.1), (2, 0.9)], [], [(1, 1.0), (0, 3.0), (5, 2.0)]], 2)
    assert labels.tolist() == [[2, 4], [-1, -1], [0, 5]]
    assert scores[2].tolist() == [3.0, 2.0]
