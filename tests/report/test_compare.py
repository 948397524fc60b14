"""Methods are compared in processes of their own; what is finished is kept, what fails stops nothing else."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from report.small import TEST, TRAIN
from xmcascade import Corpus, XRLinear, load
from xmcascade.corpus import near_duplicate_key
from xmcascade.errors import DataError, SettingError
from xmcascade.report import compare
from xmcascade.report.peers import ENVIRONMENTS, PEERS, _installed
from xmcascade.store import Strings
from xmcascade.store.files import user_cache

METHODS = ["xr-linear", "xr-linear label_features=text", "nearest neighbours=3"]  # labels have no texts here


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    return folder, compare(TRAIN, TEST, METHODS, folder, singles=10, threads=1)


def results(folder):
    """When each method's result was written."""
    files = sorted(Path(folder, "methods").glob("*/result.json"))
    return {re.sub("-[0-9a-f]{8}$", "", file.parent.name): file.stat().st_mtime_ns for file in files}


def test_methods_are_measured_and_judged(done):
    _, found = done
    first = found.rows[0].measured
    assert (
        first["train"]["seconds"] > 0 and first["train"]["cpu_seconds"] > 0 and first["train"]["stops"] == 0
    )
    assert first["peak_mb"] > 20 and first["model_mb"] > 0 and first["singles"] == 10
    assert first["single_ms_p95"] >= first["single_ms"] > 0 and first["documents_per_second"] > 0
    assert first["derived"]["levels"] == [20]
    assert found.baseline == max(found.finished, key=lambda row: row.metrics["P@1"]).method
    assert [row.reads for row in found.finished] == ["features", "texts"]


def test_the_numbers_are_those_of_the_model_itself(done):
    own = XRLinear(threads=1).fit(TRAIN).evaluate(TEST)
    metrics = done[1].rows[0].metrics
    assert metrics == {name: own.metrics[name] for name in metrics}
    assert len(metrics) > 15


def test_a_method_that_fails_is_a_row_with_its_error(done):
    failed = done[1].rows[1]
    assert failed.error.startswith("label features 'text' need texts of the labels. Remedy: ")
    assert not failed.metrics and not failed.measured
    assert failed.method not in done[1].tested


def test_a_model_that_reads_texts_is_kept_and_answers(done):
    folder, found = done
    assert [bool(row.model) for row in found.rows] == [False, False, True]
    model = load(folder / found.rows[2].model)
    assert model.evaluate(TEST).metrics["P@1"] == found.rows[2].metrics["P@1"]


def test_files_of_the_report(done, tmp_path):
    _, found = done
    found.write(tmp_path)
    read = json.loads((tmp_path / "comparison.json").read_text())
    assert [row["method"] for row in read["rows"]] == METHODS
    assert read["data"]["train_documents"] == TRAIN.n_docs and read["machine"]["cores"] == os.cpu_count()
    assert "nearest neighbours=3" in (tmp_path / "comparison.md").read_text()
    assert (tmp_path / "index.html").read_text().count("<svg") == 3


def test_what_is_finished_is_not_run_again(done):
    folder, found = done
    before = results(folder)
    again = compare(TRAIN, TEST, [*METHODS, "xr-linear seed=1"], folder, singles=10, threads=1)
    after = results(folder)
    unchanged = [name for name in before if after[name] == before[name]]
    assert unchanged == ["nearest-neighbours=3", "xr-linear"]  # the one that failed was tried again
    assert len(after) == len(before) + 1
    assert again.rows[0] == found.rows[0] and again.rows[2] == found.rows[2]


def test_other_documents_settings_or_damage_are_run_again(tmp_path):
    def renewed(**options):
        before = results(tmp_path)
        found = compare(TRAIN, options.pop("test", TEST), ["nearest"], tmp_path, **{"singles": 5} | options)
        assert not found.rows[0].error
        return results(tmp_path) != before

    own = tmp_path / "data" / "mine.txt"
    own.parent.mkdir()
    own.write_text("of somebody else")
    assert renewed()
    assert not renewed()
    other = TEST.take(np.arange(50))
    assert renewed(test=other)
    assert len(list((tmp_path / "data").iterdir())) == 2 and own.exists()
    assert renewed(test=other, singles=6)
    next(tmp_path.glob("methods/*/ranking.npz")).write_bytes(b"not an archive")
    assert renewed(test=other, singles=6)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_comparison_goes_on(tmp_path, how):
    script = (
        "from report.small import TEST, TRAIN\nfrom xmcascade.report import compare\n"
        f"compare(TRAIN, TEST, ['xr-linear', 'nearest'], {str(tmp_path)!r}, singles=5)"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths}) as process:
        until(lambda: len(list(tmp_path.glob("methods/*/job.json"))) == 2)  # the second has begun
        process.send_signal(how)
    until(lambda: not running(tmp_path))
    before = results(tmp_path)
    assert list(before) == ["xr-linear"]
    found = compare(TRAIN, TEST, ["xr-linear", "nearest"], tmp_path, singles=5)
    assert len(found.finished) == 2
    assert results(tmp_path)["xr-linear"] == before["xr-linear"]


def until(holds):
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def running(folder):
    """Processes that work for this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += [process.name] * (str(folder).encode() in (process / "cmdline").read_bytes())
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_a_process_that_dies_is_a_row_too(tmp_path, monkeypatch):
    dying = tmp_path / "worker.py"
    dying.write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr("xmcascade.report.worker.__file__", str(dying))
    found = compare(TRAIN, TEST, ["xr-linear"], tmp_path / "a")
    assert "ended by signal 9, as happens when memory runs out" in found.rows[0].error
    assert found.baseline == ""
    found.write(tmp_path / "a")
    dying.write_text("raise SystemExit('no numpy here')\n")
    assert "code 1: no numpy here" in compare(TRAIN, TEST, ["xr-linear"], tmp_path / "b").rows[0].error


def test_without_test_documents_some_are_split_off_with_their_near_duplicates(tmp_path):
    twice = Corpus.from_lists([*TRAIN.texts, *(f"{text}!" for text in TRAIN.texts)], labels_of(TRAIN) * 2)
    found = compare(twice, None, ["xr-linear"], tmp_path, test_share=0.2, singles=5)
    data = found.facts["data"]
    assert data["train_documents"] + data["test_documents"] == twice.n_docs
    assert data["split"].startswith("20% of the documents")
    folder = next((tmp_path / "data").iterdir())
    kept = {near_duplicate_key(text) for text in twice.take(~twice.split_mask(0.2)).texts}
    assert kept.isdisjoint(near_duplicate_key(text) for text in twice.take(twice.split_mask(0.2)).texts)
    assert len((folder / "labels.jsonl").read_text().splitlines()) == twice.n_labels


def labels_of(corpus):
    return [corpus.label_set(doc) for doc in range(corpus.n_docs)]


def test_documents_as_features_and_without_labels(tmp_path):
    rng = np.random.default_rng(0)
    train, test = (on_features(corpus, rng) for corpus in (TRAIN, TEST))
    found = compare(train, test, ["xr-linear", "nearest"], tmp_path, singles=5)
    assert [row.reads for row in found.finished] == ["features", "features"]
    assert found.facts["data"]["test_documents"] == TEST.n_docs - 1
    assert "seconds" not in found.facts["features"]


def on_features(corpus, rng):
    """The labels themselves as features, so that they can be learnt; the first document has none."""
    labels = corpus.labels.tolil()
    labels[0] = 0
    return Corpus(labels=labels.tocsr(), label_names=corpus.label_names, features=corpus.labels)


@pytest.mark.parametrize(
    ("methods", "options", "says"),
    [
        ([], {}, "no method is named"),
        (["xr-linaer"], {}, "there is no model 'xr-linaer'"),
        (["xr-linear beem=3"], {}, "there is no setting 'beem'"),
        (["peer:pecos"], {}, "there is no peer 'pecos'.*peer:pecos-xrlinear"),
        (["xr-linear"], {"baseline": "nearest"}, "baseline 'nearest' is not compared.*use: xr-linear"),
        (["xr-linear"], {"threads": 0}, "threads is 0"),
    ],
)
def test_wrong_calls_are_refused_before_anything_runs(tmp_path, methods, options, says):
    with pytest.raises(SettingError, match=says):
        compare(TRAIN, TEST, methods, tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_documents_that_cannot_be_compared_on(tmp_path):
    empty = Corpus.from_lists(["a text"], [[]])
    with pytest.raises(DataError, match="none of the 1 test documents has a label"):
        compare(TRAIN, empty, ["xr-linear"], tmp_path)
    with pytest.raises(DataError, match="in the same form"):
        compare(TRAIN, on_features(TEST, None), ["xr-linear"], tmp_path)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "pecos-xrtransformer"])
def test_peers_find_labels(name, tmp_path):
    environment = PEERS[name].environment
    home = user_cache()
    if home is None or _installed(home / "peers" / environment) != ENVIRONMENTS[environment]:
        pytest.skip(f"the environment of {environment} is not made")
    names = Strings.of(f"{label} <&> 'é'" for label in TRAIN.label_names)
    train, test = (
        Corpus(labels=corpus.labels, label_names=names, texts=corpus.texts) for corpus in (TRAIN, TEST)
    )
    (row,) = compare(train, test, [f"peer:{name}"], tmp_path, singles=5).rows
    assert not row.error
    assert row.metrics["P@1"] > 40 and row.measured["model_mb"] > 0
    assert not list(tmp_path.glob("methods/*/model"))
