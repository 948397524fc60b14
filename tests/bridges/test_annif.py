"""The backend in the real Annif, where it is installed: by its projects, and by its command line."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.world import make_lists, text_of
from xmcascade import load

corpus = pytest.importorskip("annif.corpus")
errors = pytest.importorskip("annif.exception")
registry = pytest.importorskip("annif.registry")
vocab = pytest.importorskip("annif.vocab")
importlib.import_module("xmcascade.bridges.annif")  # adds the backend

NAMES = ["apple", "cloud", "dog", "engine", "fern", "glass"]
TEXTS, LABELS = make_lists(60, names=NAMES)
VOCABULARY = "".join(f"<http://example.org/{name}>\t{name}\n" for name in [*reversed(NAMES), "hat"])
PROJECT = {
    **{"name": "A tagger", "language": "en", "backend": "xmcascade", "vocab": "things"},
    "settings": "beam=7 background=0",
}


def configuration(**more):
    return "".join(["[tagger]\n", *(f"{name}={value}\n" for name, value in {**PROJECT, **more}.items())])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "things.tsv").write_text(VOCABULARY)
    (tmp_path / "projects.cfg").write_text(configuration())
    rows = zip(TEXTS, LABELS, strict=True)
    lines = [f"{text}\t{' '.join(f'<http://example.org/{name}>' for name in own)}\n" for text, own in rows]
    (tmp_path / "train.tsv").write_text("".join(lines))
    return tmp_path


def project(folder, **more):
    (folder / "projects.cfg").write_text(configuration(**more))
    known = registry.AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), init_projects=False)
    found = known.get_project("tagger")
    found.vocab.load_vocabulary(vocab.VocabFileTSV(str(folder / "things.tsv"), "en"))
    return found


def documents(found, texts=TEXTS, labels=LABELS):
    uris = [[f"http://example.org/{name}" for name in own] for own in labels]
    sets = [corpus.SubjectSet(found.subjects.by_uri(uri) for uri in own) for own in uris]
    return corpus.DocumentList(
        [corpus.Document(text=text, subject_set=own) for text, own in zip(texts, sets, strict=True)]
    )


def best(found, texts, **params):
    batch = found.suggest([corpus.Document(text=text) for text in texts], {"xmcascade": params})
    return [[found.subjects[s.subject_id].labels["en"] for s in result] for result in batch]


def test_train_and_suggest(folder):
    trained = project(folder)
    assert not trained.is_trained
    trained.train(documents(trained))
    again = project(folder)
    assert again.is_trained and again.modification_time is not None
    again.initialize()
    for found in (trained, again):
        answers = best(found, [text_of(i) for i in range(6)])
        assert [own[0] for own in answers] == NAMES
        assert best(found, [text_of(2)], limit="1") == [["dog"]]
    model = load(folder / "data" / "projects" / "tagger" / "xmcascade-model")
    assert model.settings.beam == 7
    assert "http://example.org/apple" in model.label_names


def test_scores_are_probabilities(folder):
    found = project(folder)
    found.train(documents(found))
    [result] = found.suggest([corpus.Document(text=text_of(3))])
    [wanted] = load(folder / "data" / "projects" / "tagger" / "xmcascade-model").predict([text_of(3)], k=100)
    wanted = {p.label: p.probability for p in wanted if p.probability > 0}
    assert {found.subjects[s.subject_id].uri: s.score for s in result} == pytest.approx(wanted)


def test_a_text_without_words_gets_no_suggestions(folder):
    found = project(folder)
    found.train(documents(found, ["", *TEXTS], [["apple"], *LABELS]))
    assert best(found, ["", text_of(1), " "], limit=1) == [[], ["cloud"], []]
    assert best(found, ["", " "]) == [[], []]


def test_subjects_that_left_the_vocabulary_or_are_excluded_are_not_suggested(folder):
    found = project(folder)
    found.train(documents(found))
    assert {"dog", "fern"} <= set(best(found, [f"{text_of(2)} {text_of(4)}"])[0])
    (folder / "things.tsv").write_text(
        "".join(line for line in VOCABULARY.splitlines(True) if "dog" not in line)
    )
    rest = project(folder, vocab="things(exclude=http://example.org/fern)")
    assert set(best(rest, [f"{text_of(2)} {text_of(4)}"])[0]) == {*NAMES} - {"dog", "fern"}


def test_subjects_without_documents_are_found_by_their_names(folder):
    (folder / "things.tsv").write_text(VOCABULARY.replace("\that\n", "\tstraw hat\n"))
    found = project(folder, settings="label_documents=true")
    found.train(documents(found))
    assert best(found, ["a hat of straw"], limit=1) == [["straw hat"]]


def test_what_cannot_be_done_is_said_as_annif_says_it(folder):
    found = project(folder)
    with pytest.raises(errors.NotInitializedException, match="not trained"):
        best(found, ["a text"])
    with pytest.raises(errors.NotInitializedException, match="xmcascade-model not found"):
        found.backend.initialize()
    with pytest.raises(errors.NotSupportedException, match="no documents"):
        found.train(documents(found, [], []))
    with pytest.raises(errors.NotSupportedException, match="cached"):
        found.train("cached")
    with pytest.raises(errors.ConfigurationException, match="there is no setting 'beem'"):
        found.train(documents(found), {"xmcascade": {"settings": "beem=3"}})
    with pytest.raises(errors.ConfigurationException, match="method is 'pecos'"):
        found.train(documents(found), {"xmcascade": {"method": "pecos"}})
    with pytest.raises(errors.OperationFailedException, match="none of the 1 documents has a label"):
        found.train(documents(found, ["a text"], [[]]))
    with pytest.raises(errors.NotSupportedException, match="Learning not supported"):
        found.learn(documents(found))


def test_a_damaged_model_is_said_in_one_line(folder):
    found = project(folder)
    found.train(documents(found))
    arrays = folder / "data" / "projects" / "tagger" / "xmcascade-model" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1])
    with pytest.raises(errors.OperationFailedException, match="Remedy: copy the model folder again"):
        project(folder).backend.initialize()


def run(folder, *arguments, text=None):
    command = [str(Path(sys.executable).with_name("annif")), *arguments]
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "ANNIF_CONFIG": "xmcascade.bridges.annif.Config", "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line(folder):
    run(folder, "load-vocab", "--language", "en", "things", "things.tsv")
    run(folder, "train", "tagger", "train.tsv", "--jobs", "1", "--backend-param", "xmcascade.method=parabel")
    assert "True" in run(folder, "list-projects")
    assert "<http://example.org/fern>\tfern" in run(
        folder, "suggest", "tagger", "--limit", "1", text=text_of(4)
    )
    run(folder, "eval", "tagger", "train.tsv", "--metrics-file", "metrics.json", "--jobs", "2")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["Precision@1"] > 0.95
    assert metrics["Documents_evaluated"] == 60
