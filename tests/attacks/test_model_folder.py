"""Model folders made to harm: refused by name, at once, with little memory, and without running anything."""

import ast
import contextlib
import hashlib
import json
import os
import pickle
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import xmcascade
from xmcascade.errors import ModelFolderError
from xmcascade.store import Strings, load_folder, read_manifest, save_folder
from xmcascade.store.manifest import _digest

FILES = ["manifest.json", "arrays.safetensors", "names.arrow"]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    arrays = {"w": np.ones((2, 3), np.float32)}
    strings = {"names": Strings.of(["cat", "dog"])}
    save_folder(path, kind="toy", settings={}, n_labels=2, arrays=arrays, strings=strings)
    return path


def plant(folder, name, raw):
    """Put other bytes in a file, and let the manifest vouch for them where it can."""
    (folder / name).write_bytes(raw)
    if name != "manifest.json":
        entry = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
        edit(folder, lambda manifest: manifest["files"].update({name: entry}))


def edit(folder, change):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))


def refused(folder, message="", *, seconds=2.0, megabytes=8):
    """Both ways of loading refuse it, fast and small."""
    for verify in (True, False):
        tracemalloc.start()
        start, arrow = time.monotonic(), pa.total_allocated_bytes()
        with pytest.raises(ModelFolderError, match=message) as caught:
            load_folder(folder, verify=verify)
        assert time.monotonic() - start < seconds
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
        assert pa.total_allocated_bytes() - arrow < 1 << 20
        tracemalloc.stop()
        assert caught.value.where
        assert caught.value.remedy


def shortly(value):
    return f"{len(value)} bytes" if isinstance(value, bytes) else None


class Canary:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 5])
@pytest.mark.parametrize("name", FILES)
def test_a_pickle_is_never_loaded(folder, tmp_path, name, protocol):
    raw = pickle.dumps(Canary(tmp_path / "sang"), protocol)
    plant(folder, name, raw)
    refused(folder, name)
    assert not (tmp_path / "sang").exists()
    pickle.loads(raw)
    assert (tmp_path / "sang").exists()  # the canary can sing


def test_a_pickle_in_an_arrow_extension_type_is_never_loaded(folder, tmp_path):
    raw = pickle.dumps(Canary(tmp_path / "sang"))
    extension = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": raw}
    field = pa.field("strings", pa.large_string(), metadata=extension)
    plant(folder, "names.arrow", arrow_file(pa.array(["a"], pa.large_string()), field=field))
    with contextlib.suppress(ModelFolderError):
        load_folder(folder)
    assert not (tmp_path / "sang").exists()


def test_the_source_has_no_way_to_run_what_it_loads():
    banned = {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}
    for path in (Path(xmcascade.__file__).parent / "store").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not banned & {alias.name.split(".")[0] for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in banned, path
            if isinstance(node, ast.Name):
                assert node.id not in {"eval", "exec", "compile", "__import__"}, path
            if isinstance(node, ast.keyword):
                assert node.arg not in {"allow_pickle", "trust_remote_code"}, path


# The manifest


@pytest.mark.parametrize(
    "name",
    [
        "../secret.arrow",
        "/etc/passwd",
        "sub/names.arrow",
        "..",
        "..\\secret.arrow",
        "names.arrow\0",
        "names.arrow\n",
        "C:names.arrow",
        ".arrow",
        "",
        "script.py",
        "\ud800.arrow",
    ],
)
def test_names_that_lead_elsewhere(folder, name):
    (folder.parent / "secret.arrow").write_bytes((folder / "names.arrow").read_bytes())
    edit(folder, lambda manifest: manifest["files"].update({name: manifest["files"].pop("names.arrow")}))
    refused(folder, "not a model's manifest: file ")


@pytest.mark.parametrize("name", FILES)
def test_links_are_refused(folder, name):
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to("../elsewhere")
    refused(folder, f"{name}: the file is a link")


@pytest.mark.parametrize("name", FILES)
def test_links_are_followed_only_where_that_is_asked_for(folder, name):
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to("../elsewhere")
    assert load_folder(folder, links=True)[0].kind == "toy"
    (folder.parent / "elsewhere").unlink()
    os.mkfifo(folder.parent / "elsewhere")
    with pytest.raises(ModelFolderError, match="is not a regular file"):
        load_folder(folder, links=True)


@pytest.mark.parametrize("name", FILES)
def test_pipes_and_folders_are_refused_without_waiting(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, f"{name}: is not a regular file")
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(folder, f"{name}: is not a regular file")


@pytest.mark.parametrize(
    ("raw", "message"),
    ids=shortly,
    argvalues=[
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"{}", "SHA-256 differs"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"format": NaN}', "NaN is not a finite number"),
        (b'{"format": -Infinity}', "not a finite number"),
        (b'{"format": 1e999}', "not a finite number"),
        (b'{"format": 1, "format": 1}', "'format' is there twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"format": "\xff"}', "not valid JSON"),
        (b"\xff\xfe{\0}\0", "not valid JSON"),
        (b'{"format": true}', "SHA-256 differs"),
        (b'{"format": 7, "package_version": "1; rm -rf /"}', "install the newest xmcascade$"),
    ],
)
def test_manifests_that_are_none(folder, raw, message):
    (folder / "manifest.json").write_bytes(raw)
    refused(folder, message, megabytes=200)
    with pytest.raises(ModelFolderError, match=message):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 0),
        ("format", -1),
        ("format", 1.0),
        ("format", "1"),
        ("kind", 3),
        ("kind", None),
        ("settings", []),
        ("values", "x"),
        ("n_labels", -1),
        ("n_labels", 2.5),
        ("n_labels", True),
        ("package_version", None),
        ("derived", {"x": {"value": 1}}),
        ("derived", {"x": {"value": 1, "reason": 3}}),
        ("derived", {"x": []}),
        ("files", {}),
        ("files", []),
        ("files", {"arrays.safetensors": {"sha256": "0" * 64, "bytes": -1}}),
        ("files", {"arrays.safetensors": {"sha256": "0" * 64, "bytes": True}}),
        ("files", {"arrays.safetensors": {"sha256": "0" * 63, "bytes": 1}}),
        ("files", {"arrays.safetensors": {"sha256": None, "bytes": 1}}),
        ("files", {"arrays.safetensors": 5}),
    ],
)
def test_fields_of_the_wrong_kind(folder, field, value):
    edit(folder, lambda manifest: manifest.update({field: value}))
    refused(folder, "not a model's manifest")
    edit(folder, lambda manifest: manifest.pop(field))
    refused(folder, f"'{field}' is missing")


def test_a_huge_manifest_is_not_read(folder):
    with (folder / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # takes no space on the disk
    refused(folder, "1,099,511,627,776 bytes are too many")


def test_a_huge_file_is_not_hashed(folder):
    with (folder / "arrays.safetensors").open("r+b") as file:
        file.truncate(1 << 40)
    refused(folder, "the file has 1,099,511,627,776 bytes")


# Arrays


def tensors(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(shape, start, stop, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    "raw",
    ids=shortly,
    argvalues=[
        b"",
        b"\0" * 7,
        b"\0" * 8,
        b"\0" * 100,
        tensors({}, length=2**62),
        tensors({}, length=2**64 - 1),
        tensors({}, length=65 << 20),
        tensors({}, length=3),
        tensors(b"[]"),
        tensors(b"{" * 100_000),
        tensors(b'{"w":' * 100_000),
        tensors(b'{"w":1}'),
        tensors(b'{"w":{}}'),
        tensors(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":1}', b"\0" * 4),
        tensors({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"\0" * 12),
        tensors({"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, b"\0" * 8),
        tensors({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, b"\0" * 12),
        tensors({"a": entry([2], 0, 8)}, b"\0" * 4),
        tensors({"a": entry([1], 0, 4)}, b"\0" * 8),
        tensors({"a": entry([3], 0, 8)}, b"\0" * 8),
        tensors({"a": entry([2], 8, 0)}, b"\0" * 8),
        tensors({"a": entry([-1], 0, 4)}, b"\0" * 4),
        tensors({"a": entry([2**62], 0, 4)}, b"\0" * 4),
        tensors({"a": entry([2**32, 2**32], 0, 0)}),
        tensors({"a": entry([0, 2**63], 0, 0)}),
        tensors({"a": entry([1] * 100, 0, 4)}, b"\0" * 4),
        tensors({"a": entry([1.0], 0, 4)}, b"\0" * 4),
        tensors({"a": entry([1], 0, 4, "OBJECT")}, b"\0" * 4),
        tensors({"a": entry([4], 0, 4, "F8_E4M3")}, b"\0" * 4),
        tensors({"a": entry([1], 0, 1, "BOOL")}, b"\7"),
        tensors({"a": entry([1], 0, 1, "U8"), "b": entry([1], 1, 5)}, b"\0" * 5),
        tensors({"__metadata__": {"a": 1}}),
    ],
)
def test_arrays_that_are_none(folder, raw):
    plant(folder, "arrays.safetensors", raw)
    refused(folder, r"arrays\.safetensors: ")


# Strings


def arrow_file(*columns, field=None, batches=1, options=None):
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    schema = pa.schema([field] if field else fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(pa.record_batch(list(columns), schema=schema))
    return sink.getvalue().to_pybytes()


large = pa.large_string()
not_text = pa.Array.from_buffers(large, 1, [None, pa.py_buffer(np.array([0, 2])), pa.py_buffer(b"\xff\xfe")])
bad_offsets = [[0, 5, 2], [-1, 0, 2], [0, 1, 2**40], [2**62, 2**62, 2**62]]


@pytest.mark.parametrize(
    "raw",
    ids=shortly,
    argvalues=[
        b"",
        b"ARROW1",
        b"ARROW1\0\0",
        b"ARROW1\0\0" + b"\xff" * 64,
        b"ARROW1\0\0" + struct.pack("<iI", -1, 2**31 - 8) + b"\0" * 64,
        b"PAR1" + b"\0" * 64,
        arrow_file(pa.array(["a", None], large)),
        arrow_file(pa.array([None, None], large)),
        arrow_file(pa.array(["a"], pa.string())),
        arrow_file(pa.array([b"a"], pa.large_binary())),
        arrow_file(pa.array([1])),
        arrow_file(pa.array([["a"]], pa.list_(large))),
        arrow_file(pa.array(["a", "a"], large).dictionary_encode()),
        arrow_file(pa.array(["a"], large), pa.array(["b"], large)),
        arrow_file(),
        arrow_file(pa.array(["a"], large), batches=0),
        arrow_file(not_text),
        *[
            arrow_file(pa.array(["ab", "cd"], large)).replace(
                np.array([0, 2, 4]).tobytes(), np.array(offsets).tobytes()
            )
            for offsets in bad_offsets
        ],
    ],
)
def test_strings_that_are_none(folder, raw):
    plant(folder, "names.arrow", raw)
    refused(folder, r"names\.arrow: ")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_strings_are_refused_before_they_grow(folder, codec):
    bomb = arrow_file(pa.array(["x" * (64 << 20)], large), options=pa.ipc.IpcWriteOptions(compression=codec))
    assert len(bomb) < 1 << 20
    plant(folder, "names.arrow", bomb)
    refused(folder, "its strings are not stored plainly")


def test_more_batches_than_one_are_refused(folder):
    plant(folder, "names.arrow", arrow_file(pa.array(["a"], large), batches=2))
    refused(folder, r"names\.arrow: ")
