"""Unfinished work: whole pieces of one run, never another's, and nothing deleted that is not ours.

Kills are in test_crash.py.
"""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from xmcascade.errors import ModelFolderError
from xmcascade.store import Checkpoint, Strings, fingerprint, load_folder, save_folder

ARRAYS = {"weights": np.arange(12, dtype=np.float32).reshape(3, 4), "bits": np.arange(5, dtype=np.uint16)}


def content(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()
    }


@pytest.fixture
def kept(tmp_path):
    made = Checkpoint(tmp_path / "work", "run a")
    made.save("level-0", ARRAYS, {"loss": 0.5, "names": ["x", None]})
    return made


def save_model(folder):
    save_folder(
        folder,
        kind="toy",
        settings={},
        n_labels=1,
        arrays={"a": np.ones(3)},
        strings={"s": Strings.of(["x"])},
    )


def test_a_piece_comes_back_bit_for_bit_to_who_comes_later(kept):
    arrays, values = Checkpoint(kept.folder, "run a").load("level-0")
    assert values == {"loss": 0.5, "names": ["x", None]}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


def test_a_piece_that_was_not_kept_is_none(kept):
    assert kept.load("level-1") is None
    assert Checkpoint(str(kept.folder), "run a").load("level-1") is None


def test_folders_are_made_as_needed(tmp_path):
    assert Checkpoint(tmp_path / "a" / "b", "run").load("piece") is None
    assert Checkpoint(tmp_path / "a" / "b", "run").folder == tmp_path / "a" / "b"
    (tmp_path / "empty").mkdir()
    Checkpoint(tmp_path / "empty", "run").save("piece", {}, {"n": 1})
    assert Checkpoint(tmp_path / "empty", "run").load("piece") == ({}, {"n": 1})


def test_the_work_of_another_run_is_refused_and_untouched(kept):
    before = content(kept.folder)
    with pytest.raises(ModelFolderError) as caught:
        Checkpoint(kept.folder, "run b")
    assert str(caught.value) == (
        f"{kept.folder}: holds unfinished work with other documents, settings or version. "
        "Remedy: use the same again, another folder, or delete this one"
    )
    assert content(kept.folder) == before
    assert kept.load("level-0") is not None


@pytest.mark.parametrize("name", ["thesis.tex", ".hidden", "run", "notes/today.txt", "run/today.txt"])
def test_a_folder_with_other_files_is_refused_and_untouched(tmp_path, name):
    path = tmp_path / "home" / name
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(ModelFolderError) as caught:
        Checkpoint(tmp_path / "home", "run")
    said = f"{tmp_path / 'home'}: is not empty, and not unfinished work. Remedy: use another folder"
    assert str(caught.value) == said
    assert content(tmp_path / "home") == {name: b"precious"}


@pytest.mark.parametrize("inside", ["", "run"])  # the second: a folder of models, one of them called run
def test_models_are_refused_and_untouched(tmp_path, inside):
    save_model(tmp_path / "models" / inside)
    before = content(tmp_path / "models")
    with pytest.raises(ModelFolderError, match=r"models: is not empty, and not unfinished work"):
        Checkpoint(tmp_path / "models", "run")
    assert content(tmp_path / "models") == before


def test_a_file_is_refused(tmp_path):
    (tmp_path / "work").write_text("precious")
    with pytest.raises(ModelFolderError, match=r"work: is a file\. Remedy: use another folder"):
        Checkpoint(tmp_path / "work", "run")
    assert (tmp_path / "work").read_text() == "precious"


def test_a_newer_piece_takes_the_place_of_the_old_one(kept):
    old, _ = kept.load("level-0")
    kept.save("level-0", {"other": np.zeros(2)}, {"loss": 0.25})
    arrays, values = kept.load("level-0")
    assert list(arrays) == ["other"]
    assert values == {"loss": 0.25}
    assert sorted(path.name for path in kept.folder.iterdir()) == ["level-0", "run"]
    assert old["weights"].tobytes() == ARRAYS["weights"].tobytes()  # who uses the old one goes on


def test_a_piece_that_cannot_be_saved_leaves_the_old_one(kept, monkeypatch):
    before = content(kept.folder)
    real = os.fsync
    for nth in range(1, 100):
        left = iter(range(nth, 0, -1))

        def failing(handle, left=left):
            if next(left, 0) == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            try:
                kept.save("level-0", {"other": np.zeros(2)}, {"loss": 0.25})
            except ModelFolderError as error:
                assert "level-0: No space left on device" in str(error)
            else:
                break
        assert content(kept.folder) == before
    assert nth > 3
    assert kept.load("level-0")[1] == {"loss": 0.25}


@pytest.mark.parametrize("name", ["arrays.safetensors", "manifest.json"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_damaged_piece_is_an_error_that_says_what_to_do(kept, name, share):
    path = kept.folder / "level-0" / name
    raw = bytearray(path.read_bytes())
    raw[int(share * len(raw))] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ModelFolderError) as caught:
        kept.load("level-0")
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(f"Remedy: delete {kept.folder} and begin anew")


def test_a_missing_file_of_a_piece_is_an_error(kept):
    (kept.folder / "level-0" / "arrays.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"the file is missing\. Remedy: delete .*work and begin anew"):
        kept.load("level-0")


def test_a_folder_that_no_longer_says_whose_work_it_is_is_refused(kept):
    path = kept.folder / "run" / "manifest.json"
    path.write_text(path.read_text().replace("run a", "run b"))
    for run in ("run a", "run b"):
        with pytest.raises(ModelFolderError, match=r"SHA-256 differs.*Remedy: delete .*work and begin anew"):
            Checkpoint(kept.folder, run)


def test_a_piece_is_not_a_model_and_a_model_not_a_piece(kept):
    save_model(kept.folder / "level-1")
    with pytest.raises(ModelFolderError, match="kind 'toy', not 'checkpoint'"):
        kept.load("level-1")
    with pytest.raises(ModelFolderError, match="kind 'checkpoint', not 'toy'"):
        load_folder(kept.folder / "level-0", kind="toy")


# The end


def test_remove_deletes_the_folder_and_nothing_beside_it(kept):
    (kept.folder.parent / "work2").mkdir()
    (kept.folder / ".level-0.saving-0123456789ab").mkdir()  # of a killed save
    kept.remove()
    assert [path.name for path in kept.folder.parent.iterdir()] == ["work2"]
    kept.remove()  # gone already
    assert Checkpoint(kept.folder, "run b").load("level-0") is None


def test_remove_leaves_what_others_put_there(kept):
    (kept.folder / "thesis.tex").write_text("precious")
    (kept.folder / "notes").mkdir()
    save_model(kept.folder / "model")
    kept.remove()
    assert sorted(path.name for path in kept.folder.iterdir()) == ["model", "notes", "thesis.tex"]
    load_folder(kept.folder / "model", kind="toy")


def test_an_interrupted_remove_leaves_work_that_can_go_on(kept, monkeypatch):
    kept.save("level-1", {}, {})
    real = shutil.rmtree
    for done in range(3):
        left = iter(range(done))

        def interrupted(path, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(path)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(shutil, "rmtree", interrupted)
            kept.remove()
        kept = Checkpoint(kept.folder, "run a")
        for name in ("level-0", "level-1"):
            kept.save(name, {}, {})


# Fingerprints


def test_the_same_run_has_the_same_fingerprint():
    facts, arrays = {"a": 1, "b": {"c": [2.5, None]}}, [np.arange(6).reshape(2, 3), np.zeros(0, np.float32)]
    run = fingerprint(facts, arrays)
    assert run == fingerprint({"b": {"c": [2.5, None]}, "a": 1}, iter([array.copy() for array in arrays]))
    turned = np.asfortranarray(arrays[0])  # the same numbers in another order in memory
    spread = np.repeat(arrays[0], 2, axis=1)[:, ::2]
    for same in (turned, spread):
        assert run == fingerprint(facts, [same, arrays[1]])


def test_any_difference_gives_another_fingerprint():
    numbers = np.arange(6, dtype=np.int64)
    changed = numbers.copy()
    changed[-1] ^= 1
    runs = [
        ({"k": 5}, [numbers]),
        ({"k": 6}, [numbers]),
        ({"k": 5.5}, [numbers]),
        ({"k": "5"}, [numbers]),
        ({"k": [5]}, [numbers]),
        ({"k": None}, [numbers]),
        ({"j": 5}, [numbers]),
        ({}, [numbers]),
        ({"k": 5}, [changed]),
        ({"k": 5}, [numbers.reshape(2, 3)]),
        ({"k": 5}, [numbers.reshape(3, 2)]),
        ({"k": 5}, [numbers.view(np.uint64)]),
        ({"k": 5}, [numbers.view(np.float64)]),
        ({"k": 5}, [numbers.astype(np.int32)]),
        ({"k": 5}, [numbers[:-1]]),
        ({"k": 5}, [numbers[:3], numbers[3:]]),
        ({"k": 5}, [numbers[:2], numbers[2:]]),
        ({"k": 5}, [numbers[3:], numbers[:3]]),
        ({"k": 5}, [numbers, numbers[:0]]),
        ({"k": 5}, []),
    ]
    found = [fingerprint(facts, arrays) for facts, arrays in runs]
    assert len(set(found)) == len(runs)


def test_another_version_gives_another_fingerprint(monkeypatch):
    now = fingerprint({}, [])
    monkeypatch.setattr("xmcascade.store.checkpoint.__version__", "0.0.0")
    assert fingerprint({}, []) != now
