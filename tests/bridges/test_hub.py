"""Models in the hub's form: folders with cards, and a hub of our own that the real client talks to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridges.hub_server import serving
from contract.world import hashes, make_lists
from xmcascade import Corpus, XRLinear, from_pretrained, load
from xmcascade.bridges import save_pretrained
from xmcascade.errors import ModelFolderError

pytest.importorskip("huggingface_hub")

NAMES = ["apple", "cloud", "dog"]
TEXTS, LABELS = make_lists(20, names=NAMES)


def model(**settings):
    return XRLinear(threads=1, **settings).fit(TEXTS, LABELS)


def test_a_folder_with_a_card_is_a_model_folder(tmp_path):
    learnt = model()
    save_pretrained(learnt, tmp_path / "tagger")
    learnt.save(tmp_path / "plain")
    kept = hashes(tmp_path / "tagger")
    assert kept.pop("README.md")
    assert kept == hashes(tmp_path / "plain")
    for again in (load(tmp_path / "tagger"), from_pretrained(tmp_path / "tagger", threads=1)):
        assert again.predict(TEXTS) == learnt.predict(TEXTS)


def test_the_hub_understands_the_card(tmp_path):
    from huggingface_hub import ModelCard

    learnt = model()
    corpus = Corpus.from_lists(TEXTS, LABELS)
    odd = 'all: of "them", {even} \\these\n- é'
    save_pretrained(learnt, tmp_path / "tagger", metrics=learnt.evaluate(corpus), dataset=odd)
    card = ModelCard.load(tmp_path / "tagger" / "README.md")
    assert card.data.library_name == "xmcascade"
    assert card.data.pipeline_tag == "text-classification"
    assert "xr-linear" in card.data.tags
    found = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert found["P@1"] == learnt.evaluate(corpus).metrics["P@1"]
    assert card.data.eval_results[0].dataset_name == odd
    assert card.data.model_name == "tagger"
    assert "3 labels" in card.text and "20 documents" in card.text and "from_pretrained" in card.text


def test_without_metrics_the_card_claims_nothing(tmp_path):
    from huggingface_hub import ModelCard

    save_pretrained(model(), tmp_path / "tagger")
    card = ModelCard.load(tmp_path / "tagger" / "README.md")
    assert card.data.eval_results is None
    assert "How good" not in card.text


def test_a_card_stays_when_the_model_is_saved_again(tmp_path):
    save_pretrained(model(), tmp_path / "tagger")
    (tmp_path / "tagger" / "README.md").write_text("my own words")
    save_pretrained(model(beam=3), tmp_path / "tagger")
    assert (tmp_path / "tagger" / "README.md").read_text() == "my own words"
    assert load(tmp_path / "tagger").settings.beam == 3
    save_pretrained(model(), tmp_path / "tagger", card="other words")
    assert (tmp_path / "tagger" / "README.md").read_text() == "other words"
    assert [path.name for path in tmp_path.iterdir()] == ["tagger"]


def test_other_peoples_folders_are_refused(tmp_path):
    save_pretrained(model(), tmp_path / "tagger")
    before = hashes(tmp_path / "tagger")
    (tmp_path / "tagger" / "thesis.tex").write_text("precious")
    with pytest.raises(ModelFolderError, match=r"holds 'thesis\.tex'"):
        save_pretrained(model(beam=3), tmp_path / "tagger")
    (tmp_path / "tagger" / "thesis.tex").unlink()
    assert hashes(tmp_path / "tagger") == before


def test_a_failed_save_leaves_the_old_model_and_card(tmp_path, monkeypatch):
    from xmcascade.bridges import hub

    save_pretrained(model(), tmp_path / "tagger")
    before = hashes(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hub, "write_file", full)
    with pytest.raises(ModelFolderError, match=r"cannot be saved .*No space left.* Remedy: check the folder"):
        save_pretrained(model(beam=3), tmp_path / "tagger")
    assert hashes(tmp_path) == before


def test_nothing_there_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(ModelFolderError, match="is no folder here, and cannot be fetched") as error:
        from_pretrained("me/nothing", cache_dir=tmp_path, local_files_only=True)
    assert "\n" not in str(error.value)
    with pytest.raises(ModelFolderError, match="is no folder here"):
        from_pretrained(tmp_path / "no" / "such" / "folder", local_files_only=True)


# The real client in a process of its own, because it reads the hub's address when it is imported.
ROUND_TRIP = """
import json, sys
from pathlib import Path
from xmcascade import XRLinear, from_pretrained, push_to_hub
texts, labels, cache = json.loads(sys.argv[1])
first = XRLinear(threads=1).fit(texts, labels)
url = push_to_hub(first, "me/tagger", token="hf_secret", metrics={"P@1": 50.0}, dataset="fruit")
fetched = from_pretrained("me/tagger", cache_dir=cache, threads=1)
assert fetched.predict(texts) == first.predict(texts)
files = sorted(path.name for path in Path(cache).rglob("snapshots/*/*"))
second = XRLinear(threads=1, beam=2).fit(texts, labels)
push_to_hub(second, "me/tagger", token="hf_secret")
old = from_pretrained("me/tagger", cache_dir=cache, revision=url.rpartition("/")[2])
new = from_pretrained("me/tagger", cache_dir=cache)
print(json.dumps({"url": url, "files": files, "beams": [old.settings.beam, new.settings.beam]}))
"""

OFFLINE = """
import json, sys
from xmcascade import from_pretrained
print(from_pretrained("me/tagger", cache_dir=sys.argv[1], local_files_only=True).settings.beam)
"""


def run(code, argument, endpoint, home):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment = {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    source = Path(__file__).parents[2] / "src"
    environment["PYTHONPATH"] = os.pathsep.join([str(source), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_to_the_hub_and_back(tmp_path):
    with serving() as hub:
        hub.repos["me/tagger"] = [{".gitattributes": b"", "stale.arrow": b"...", "train.py": b"evil()"}]
        told = run(ROUND_TRIP, json.dumps([TEXTS, LABELS, str(tmp_path / "cache")]), hub.address, tmp_path)
    assert told["url"] == f"{hub.address}/me/tagger/commit/{2:040x}"
    assert told["beams"] == [20, 2]
    # One commit a push: the whole model, without what an older one left, other people's files untouched.
    assert len(hub.repos["me/tagger"]) == 3
    model().save(tmp_path / "plain")
    own = {path.name for path in (tmp_path / "plain").iterdir()}
    assert set(hub.files("me/tagger")) == own | {".gitattributes", "train.py", "README.md"}
    assert b'"P@1"' in hub.files("me/tagger")["README.md"]  # the first card stays
    # Only files of a model are fetched, and only a push needs the token.
    assert set(told["files"]) == own
    assert {path for _, path, _ in hub.requests if "train.py" in path or "README.md" in path} == set()
    assert {token for method, _, token in hub.requests if method == "POST"} == {"Bearer hf_secret"}
    assert {token for _, path, token in hub.requests if "/resolve/" in path} == {None}
    # With the hub gone, what was fetched is still there.
    assert run(OFFLINE, str(tmp_path / "cache"), hub.address, tmp_path) == 2
