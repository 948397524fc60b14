"""Model folders: exact, byte-identical, mapped, and never half there."""

import contextlib
import errno
import hashlib
import json
import logging
import mmap
import os
import stat
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xmcascade.errors import ModelFolderError, XmcError
from xmcascade.store import Strings, atomic, check_target, load_folder, read_manifest, save_folder
from xmcascade.store.manifest import _digest

DTYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
SHAPES = [(), (0,), (1,), (3, 4), (0, 5), (2, 0, 3), (7, 1, 2)]
NAMES = ["cat", "", "élan", "日本", "🦊"]


def arrays_of_all_kinds():
    rng = np.random.default_rng(0)
    result = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            raw = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
            array = np.ascontiguousarray(raw % 2 if dtype == "?" else raw).view(dtype).reshape(shape)
            result[f"{dtype}.{'x'.join(map(str, shape))}"] = array
    return result


def save(folder, number=1, **more):
    options = {
        "kind": "toy",
        "settings": {"depth": 3, "name": "é", "sizes": [1, 2.5, None, True]},
        "n_labels": len(NAMES),
        "arrays": {"head.0.weights": np.full((5, 3), number, np.float32), "offsets": np.arange(4)},
        "strings": {"label_names": Strings.of(NAMES), "words": Strings.of([f"word {number}"])},
        "values": {"number": number},
        "derived": {"levels": {"value": 2, "reason": "5 labels"}},
    }
    return save_folder(folder, **{**options, **more})


def number_of(folder):
    manifest, arrays, strings = load_folder(folder)
    number = manifest.values["number"]
    assert (arrays["head.0.weights"] == number).all()
    assert list(strings["words"]) == [f"word {number}"]
    return number


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def base_of(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array


# Exactness


def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path):
    arrays = arrays_of_all_kinds()
    save(tmp_path / "model", arrays=arrays)
    _, loaded, _ = load_folder(tmp_path / "model")
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape), name
        assert loaded[name].tobytes() == array.tobytes(), name
        assert loaded[name].flags.aligned, name


def test_the_files_are_plain_safetensors_and_arrow(tmp_path):
    arrays = arrays_of_all_kinds()
    save(tmp_path / "model", arrays=arrays)
    witness = safetensors.numpy.load_file(tmp_path / "model" / "arrays.safetensors")
    assert {name: array.tobytes() for name, array in witness.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    with pa.memory_map(str(tmp_path / "model" / "label_names.arrow")) as file:
        assert pa.ipc.open_file(file).read_all().column(0).to_pylist() == NAMES


def test_files_of_safetensors_itself_can_be_read(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.ones(3, np.float16)}
    save(tmp_path / "model", arrays=arrays)
    replace_file(tmp_path / "model", "arrays.safetensors", safetensors.numpy.save(arrays))
    _, loaded, _ = load_folder(tmp_path / "model")
    assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)


def replace_file(folder, name, raw):
    """Put other bytes in a file and make the manifest vouch for them."""
    (folder / name).write_bytes(raw)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][name] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))


def test_bfloat16_is_read_as_its_bits(tmp_path):
    save(tmp_path / "model")
    header = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    header += b" " * (-len(header) % 8)
    raw = len(header).to_bytes(8, "little") + header + np.array([0x3F80, 0xC000], "<u2").tobytes()
    replace_file(tmp_path / "model", "arrays.safetensors", raw)
    assert load_folder(tmp_path / "model")[1]["w"].tolist() == [0x3F80, 0xC000]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(24)[::3],
        np.arange(4, dtype=">i4"),
        np.asfortranarray(np.eye(3)),
    ],
)
def test_any_memory_layout_can_be_saved(tmp_path, array):
    save(tmp_path / "model", arrays={"a": array})
    loaded = load_folder(tmp_path / "model")[1]["a"]
    assert np.array_equal(loaded, array)
    assert loaded.flags.c_contiguous


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strings=st.lists(st.text(), max_size=6), start=st.integers(0, 6))
def test_strings_come_back(tmp_path, strings, start):
    packed = Strings.of(strings)
    save(tmp_path / "model", strings={"all": packed, "part": packed[start:]})
    _, _, loaded = load_folder(tmp_path / "model")
    assert list(loaded["all"]) == strings
    assert list(loaded["part"]) == strings[start:]


def test_saving_a_slice_does_not_save_what_it_was_cut_from(tmp_path):
    packed = Strings.of(["x" * 1_000_000, "cat", "y" * 1_000_000])
    saved = save(tmp_path / "model", strings={"s": packed[1:2]})
    assert saved.files["s.arrow"]["bytes"] < 2000


def test_manifest_comes_back(tmp_path):
    saved = save(tmp_path / "model", settings={"x": np.float32(0.5), "n": np.int64(3), "pair": (1, 2)})
    assert saved == read_manifest(tmp_path / "model") == load_folder(tmp_path / "model", kind="toy")[0]
    assert saved.settings == {"x": 0.5, "n": 3, "pair": [1, 2]}
    assert saved.derived == {"levels": {"value": 2, "reason": "5 labels"}}
    assert (saved.kind, saved.n_labels, saved.format) == ("toy", 5, 1)


def test_a_model_without_anything(tmp_path):
    save_folder(tmp_path / "model", kind="", settings={}, n_labels=0, arrays={}, strings={})
    manifest, arrays, strings = load_folder(tmp_path / "model")
    assert (arrays, strings, manifest.values) == ({}, {}, {})


def test_the_same_model_gives_the_same_bytes(tmp_path):
    arrays = arrays_of_all_kinds()
    turned = dict(reversed(arrays.items()))
    one = save(tmp_path / "one", arrays=arrays, settings={"a": 1, "b": 2})
    two = save(tmp_path / "two", arrays=turned, settings={"b": 2, "a": 1})
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert one == two
    save(tmp_path / "two", arrays=arrays, settings={"a": 1, "b": 2})
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_manifest_tells_the_truth_about_the_files(tmp_path):
    saved = save(tmp_path / "model")
    for name, entry in saved.files.items():
        raw = (tmp_path / "model" / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    assert {*saved.files, "manifest.json"} == {path.name for path in (tmp_path / "model").iterdir()}


# Mapping


@pytest.mark.parametrize("verify", [True, False])
def test_arrays_and_strings_are_read_only_views_of_the_mapped_files(tmp_path, verify):
    save(
        tmp_path / "model", arrays={"w": np.ones((1000, 10)), "none": np.zeros((0, 3)), "one": np.array(2.0)}
    )
    _, arrays, strings = load_folder(tmp_path / "model", verify=verify)
    maps = {id(base_of(array)) for array in arrays.values()}
    assert len(maps) == 1
    assert isinstance(base_of(arrays["w"]), mmap.mmap)
    assert not any(array.flags.writeable for array in arrays.values())
    assert not strings["label_names"].data.flags.writeable
    assert not strings["label_names"].offsets.flags.writeable


def test_no_file_stays_open(tmp_path):
    fds = Path("/proc/self/fd")
    if not fds.exists():
        pytest.skip("needs /proc")
    save(tmp_path / "model")
    before = len(list(fds.iterdir()))
    for _ in range(5):
        load_folder(tmp_path / "model")
        read_manifest(tmp_path / "model")
        with pytest.raises(ModelFolderError):
            load_folder(tmp_path / "model", kind="other")
    assert len(list(fds.iterdir())) <= before


def test_a_loaded_model_outlives_its_folder(tmp_path):
    save(tmp_path / "model", 1)
    _, arrays, strings = load_folder(tmp_path / "model", verify=False)
    save(tmp_path / "model", 2)
    save(tmp_path / "model", 3)
    assert (arrays["head.0.weights"] == 1).all()
    assert list(strings["words"]) == ["word 1"]
    assert number_of(tmp_path / "model") == 3


def test_a_loaded_model_can_be_saved_over_itself(tmp_path):
    save(tmp_path / "model")
    before = content(tmp_path / "model")
    _, arrays, strings = load_folder(tmp_path / "model")
    save(tmp_path / "model", arrays=arrays, strings=strings)
    assert content(tmp_path / "model") == before


# Where a model may be saved


def test_parents_are_made_and_nothing_else_is_left(tmp_path):
    save(tmp_path / "a" / "b" / "model")
    save(tmp_path / "a" / "b" / "model")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["model"]
    mode = (tmp_path / "a" / "b" / "model").stat().st_mode
    assert stat.S_IMODE(mode) == stat.S_IMODE((tmp_path / "a").stat().st_mode)


def test_an_empty_folder_becomes_the_model(tmp_path):
    (tmp_path / "model").mkdir()
    save(tmp_path / "model")
    assert number_of(tmp_path / "model") == 1


@pytest.mark.parametrize("names", [["thesis.tex"], ["manifest.json", "thesis.tex"], ["a.arrow"], [".git"]])
def test_other_peoples_folders_are_refused(tmp_path, names):
    folder = tmp_path / "work"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("precious")
    with pytest.raises(ModelFolderError, match="Remedy: save to another folder"):
        save(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(names, "precious")
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_files_that_the_saver_keeps_do_not_stand_in_the_way(tmp_path):
    (tmp_path / "README.md").write_text("a card")
    check_target(tmp_path, also=["README.md"])
    with pytest.raises(ModelFolderError, match=r"holds 'README\.md'"):
        check_target(tmp_path)
    (tmp_path / "a.arrow").write_text("precious")
    with pytest.raises(ModelFolderError, match="is not a model folder"):
        check_target(tmp_path, also=["README.md"])


def test_a_file_is_refused(tmp_path):
    (tmp_path / "model").write_text("precious")
    with pytest.raises(ModelFolderError, match="is a file"):
        save(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="is a file"):
        check_target(tmp_path / "model")
    start = time.monotonic()
    with pytest.raises(ModelFolderError, match="check the path"):
        load_folder(tmp_path / "model")
    assert time.monotonic() - start < 0.5
    assert (tmp_path / "model").read_text() == "precious"


def test_files_that_appear_while_saving_are_not_lost(tmp_path, monkeypatch):
    save(tmp_path / "model", 1)
    synced = atomic._sync

    def interfere(folder):
        (tmp_path / "model" / "thesis.tex").write_text("precious")
        synced(folder)

    monkeypatch.setattr(atomic, "_sync", interfere)
    with pytest.raises(ModelFolderError, match=r"thesis\.tex"):
        save(tmp_path / "model", 2)
    assert (tmp_path / "model" / "thesis.tex").read_text() == "precious"
    assert number_of(tmp_path / "model") == 1


def test_a_damaged_model_can_be_replaced(tmp_path):
    save(tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text("{")
    save(tmp_path / "model", 2)
    assert number_of(tmp_path / "model") == 2


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    save(tmp_path / "v1", 1)
    (tmp_path / "current").symlink_to("v1")
    assert number_of(tmp_path / "current") == 1
    save(tmp_path / "current", 2)
    assert (tmp_path / "current").is_symlink()
    assert number_of(tmp_path / "v1") == 2


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("model", 4)
    assert number_of("model") == 4
    assert read_manifest("./model/").kind == "toy"


# What cannot be saved


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"arrays": {"a": np.array(["x"])}}, "dtype <U1"),
        ({"arrays": {"a": np.array([object()])}}, "dtype object"),
        ({"arrays": {"a": np.zeros(1, complex)}}, "complex128"),
        ({"arrays": {"a": [1, 2]}}, "'a' is a list"),
        ({"arrays": {"": np.zeros(1)}}, "named ''"),
        ({"arrays": {"__metadata__": np.zeros(1)}}, "named '__metadata__'"),
        ({"arrays": {"\ud800": np.zeros(1)}}, "named"),
        ({"strings": {"../up": Strings.of([])}}, r"named '\.\./up'"),
        ({"strings": {"A": Strings.of([])}}, "small letters"),
        ({"strings": {"names": Strings.of(["fine", "a\ud800b"])}}, "string 1 is not valid Unicode"),
        ({"settings": {"x": float("nan")}}, "JSON"),
        ({"settings": {"x": object()}}, "JSON"),
        ({"settings": {"x": np.zeros(2)}}, "put arrays in `arrays`"),
        ({"settings": {"x": "\ud800"}}, "JSON"),
        ({"settings": {1: 2, "1": 3}}, "JSON"),
        ({"n_labels": -1}, "n_labels"),
        ({"kind": None}, "kind"),
        ({"derived": {"x": 3}}, "derived 'x'"),
        ({"values": {"x": "y" * (65 << 20)}}, "put what is large in arrays"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, more, message):
    with pytest.raises(ModelFolderError, match=message):
        save(tmp_path / "model", **more)
    assert list(tmp_path.iterdir()) == []


# Loading


def test_a_newer_format_names_the_version_to_install(tmp_path):
    save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    path.write_text('{"format": 7, "package_version": "0.9.1", "anything": "new"}')
    with pytest.raises(ModelFolderError) as caught:
        load_folder(tmp_path / "model")
    assert str(caught.value) == (
        f"{path}: model folder format 7 is newer than this xmcascade 0.1.0 understands (1). "
        "Remedy: install xmcascade >= 0.9.1"
    )
    path.write_text('{"format": 999}')
    with pytest.raises(ModelFolderError, match="install the newest xmcascade"):
        read_manifest(tmp_path / "model")


def test_a_changed_setting_is_found(tmp_path):
    save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    raw = path.read_text()
    path.write_text(raw.replace('"depth": 3', '"depth": 4'))
    with pytest.raises(ModelFolderError, match=r"manifest\.json: .* SHA-256 differs"):
        read_manifest(tmp_path / "model")
    path.write_text(json.dumps(json.loads(raw)))  # another layout of the same facts is fine
    assert read_manifest(tmp_path / "model").settings["depth"] == 3


def test_the_wrong_kind(tmp_path):
    save(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="kind 'toy', not 'parabel'"):
        load_folder(tmp_path / "model", kind="parabel")


def test_other_files_in_the_folder_are_ignored(tmp_path):
    save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("A model")
    (tmp_path / "model" / "other.arrow").write_text("not listed")
    assert number_of(tmp_path / "model") == 1


@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors", "words.arrow"])
def test_a_missing_file_is_named(tmp_path, name):
    save(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    start = time.monotonic()
    with pytest.raises(ModelFolderError, match=f"{name}: the file is missing"):
        load_folder(tmp_path / "model")
    assert time.monotonic() - start < 0.5


def test_changed_content_is_found_when_verifying(tmp_path):
    save(tmp_path / "model")
    path = tmp_path / "model" / "arrays.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ModelFolderError, match=r"arrays\.safetensors: .* SHA-256 differs"):
        load_folder(tmp_path / "model")
    load_folder(tmp_path / "model", verify=False)


def model_content(folder, **options):
    manifest, arrays, strings = load_folder(folder, **options)
    plain = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
    return manifest, plain, {name: list(packed) for name, packed in strings.items()}


@st.composite
def damage(draw):
    kind = draw(st.sampled_from(["flip", "flip", "cut", "extend", "swap"]))
    return kind, draw(st.floats(0, 1, exclude_max=True)), draw(st.binary(min_size=1, max_size=9))


def damaged(raw, kind, where, extra):
    at = int(where * len(raw))
    if kind == "flip":
        bad = bytearray(raw)
        bad[at] ^= extra[0] or 1
        return bytes(bad)
    if kind == "cut":
        return raw[:at]
    return raw + extra if kind == "extend" else raw[:at] + extra + raw[at + len(extra) :]


@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors", "label_names.arrow"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(how=damage())
def test_a_damaged_file_is_refused_or_harmless(tmp_path, name, how):
    folder = tmp_path / "model"
    if not folder.exists():
        save(folder, derived={})
        (tmp_path / "whole").write_bytes((folder / name).read_bytes())
    whole = (tmp_path / "whole").read_bytes()
    (folder / name).write_bytes(whole)
    expected = model_content(folder)
    (folder / name).write_bytes(damaged(whole, *how))
    try:
        found = model_content(folder)
    except XmcError:
        return
    assert found == expected


@pytest.mark.parametrize("name", ["arrays.safetensors", "label_names.arrow"])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(how=damage())
def test_damage_that_the_manifest_vouches_for_never_crashes(tmp_path, name, how):
    folder = tmp_path / "model"
    if not folder.exists():
        save(folder, arrays={"a": np.ones(2), "flag": np.array([True, False]), "z": np.zeros((0, 2))})
        (tmp_path / "whole").write_bytes((folder / name).read_bytes())
    replace_file(folder, name, damaged((tmp_path / "whole").read_bytes(), *how))
    with contextlib.suppress(XmcError):
        model_content(folder)


# Failures while saving


class Failing:
    """Stands for a system call that fails at its nth use."""

    def __init__(self, real, nth, error):
        self.real, self.left, self.error = real, nth, error

    def __call__(self, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.real(*arguments, **options)


FAILURES = {
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
    "no permission": OSError(errno.EACCES, "Permission denied"),
    "broken disk": OSError(errno.EIO, "Input/output error"),
    "interrupted": KeyboardInterrupt(),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("call", ["fsync", "write", "rename", "mkdir"])
@pytest.mark.parametrize("exchange", [True, False])
def test_a_failure_at_any_step_leaves_the_old_model(tmp_path, monkeypatch, call, failure, exchange):
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    save(tmp_path / "model", 1)
    before = content(tmp_path / "model")
    error = FAILURES[failure]
    failures = 0
    for nth in range(1, 100):
        with monkeypatch.context() as patch:
            if call == "fsync":
                patch.setattr(os, "fsync", Failing(os.fsync, nth, error))
            elif call == "write":
                from xmcascade.store import parts

                patch.setattr(parts._Sink, "write", _failing_method(parts._Sink.write, nth, error))
            elif call == "rename":
                patch.setattr(Path, "rename", _failing_method(Path.rename, nth, error))
            else:
                patch.setattr(Path, "mkdir", _failing_method(Path.mkdir, nth, error))
            try:
                save(tmp_path / "model", 2)
            except KeyboardInterrupt:
                assert failure == "interrupted"
            except ModelFolderError as caught:
                assert caught.__cause__ is error
                assert caught.remedy
            else:
                break
        failures += 1
        assert content(tmp_path / "model") == before
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert number_of(tmp_path / "model") == 2
    assert failures >= {"fsync": 6, "write": 8, "rename": 0 if exchange else 3, "mkdir": 1}[call]


def _failing_method(real, nth, error):
    failing = Failing(real, nth, error)
    return lambda self, *arguments, **options: failing(self, *arguments, **options)


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_first_save_that_fails_leaves_nothing(tmp_path, monkeypatch, nth):
    error = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", Failing(os.fsync, nth, error))
    with pytest.raises(ModelFolderError, match=r"No space left on device\. Remedy: free some space"):
        save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_really_full_disk(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    with full.open("wb") as file, pytest.raises(OSError, match="No space left"):
        from xmcascade.store.parts import _Sink

        _Sink(file).write(b"x" * (1 << 20))
        file.flush()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ModelFolderError, match="ask for permission"):
        save(tmp_path / "locked" / "model")


def test_an_old_model_that_cannot_be_deleted_is_a_warning(tmp_path, monkeypatch, caplog):
    save(tmp_path / "model", 1)

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(atomic.shutil, "rmtree", refuse)
    with caplog.at_level(logging.WARNING, "xmcascade"):
        save(tmp_path / "model", 2)
    assert "could not remove" in caplog.text
    assert number_of(tmp_path / "model") == 2


def test_leftovers_of_killed_savers_go_after_a_day(tmp_path):
    save(tmp_path / "model", 1)
    made = {}
    for name, age in {
        ".model.saving-0123456789ab": 2,
        ".model.saving-0123456789ac": 0,
        ".model.replaced-0123456789ab": 2,
        ".model2.saving-0123456789ab": 2,
        ".model.saving-mine": 2,
    }.items():
        made[name] = tmp_path / name
        made[name].mkdir()
        (made[name] / "file").write_text("x")
        stamp = time.time() - age * 24 * 3600
        os.utime(made[name], (stamp, stamp))
    save(tmp_path / "model", 2)
    gone = {name for name, path in made.items() if not path.exists()}
    assert gone == {".model.saving-0123456789ab", ".model.replaced-0123456789ab"}


def test_a_save_killed_between_two_renames_tells_where_the_model_is(tmp_path, monkeypatch):
    save(tmp_path / "model", 1)
    (tmp_path / "model").rename(tmp_path / ".model.replaced-0123456789ab")
    monkeypatch.setattr("xmcascade.store.folder._PAUSES", [0.0, 0.001])
    with pytest.raises(ModelFolderError, match=r"rename .*\.model\.replaced-0123456789ab to model"):
        load_folder(tmp_path / "model")
    save(tmp_path / "model", 2)
    assert number_of(tmp_path / "model") == 2


def test_two_folders_are_exchanged_in_one_call_here(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "in a").write_text("")
    if not atomic._exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot")
    assert (tmp_path / "b" / "in a").exists()
    with pytest.raises(FileNotFoundError):
        atomic._exchange(tmp_path / "a", tmp_path / "missing")
