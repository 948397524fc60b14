"""A file that appears whole or not at all, compressed as its name ends."""

import gzip
import lzma
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from xmcascade.errors import DataError
from xmcascade.store.files import alone, replacing_file

UNPACK = {
    ".txt": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(),
}


@pytest.mark.parametrize("suffix", UNPACK)
def test_what_is_written_is_there_and_nothing_else(tmp_path, suffix):
    path = tmp_path / "new" / "folder" / f"a{suffix}"
    with replacing_file(path) as out:
        out.write(b"hello ")
        out.write(b"world")
    assert UNPACK[suffix](path.read_bytes()) == b"hello world"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", UNPACK)
def test_nothing_written_is_a_valid_empty_file(tmp_path, suffix):
    with replacing_file(tmp_path / f"a{suffix}"):
        pass
    assert UNPACK[suffix]((tmp_path / f"a{suffix}").read_bytes()) == b""


@pytest.mark.parametrize("suffix", UNPACK)
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, suffix, error):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing_file(path) as out:
        out.write(b"x" * 100_000)
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", UNPACK)
def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    with replacing_file(path) as out:
        out.write(b"new")
        assert path.read_bytes() == b"old"
    assert UNPACK[suffix](path.read_bytes()) == b"new"


@pytest.mark.parametrize("suffix", UNPACK)
def test_the_same_content_gives_the_same_bytes(tmp_path, suffix):
    written = []
    for name in ("a", "b"):
        with replacing_file(tmp_path / f"{name}{suffix}") as out:
            out.write(b"hello" * 100)
        written.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert written[0] == written[1]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    table = {"file/a.txt": "File exists", "folder": "Is a directory", "x" * 300: "File name too long"}
    for name, said in table.items():
        with pytest.raises(DataError) as caught, replacing_file(tmp_path / name) as out:
            out.write(b"x")
        assert str(caught.value).startswith(f"{tmp_path / name}: cannot be written ({said})")
        assert "Remedy: check the folder's permissions and the space on the disk" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    said = r"a\.txt: cannot be written \(No space left on device\)"
    with pytest.raises(DataError, match=said), replacing_file(tmp_path / "a.txt") as out:
        out.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_links_and_devices_are_not_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    with replacing_file(tmp_path / "link") as out:
        out.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with replacing_file(tmp_path / "pipe") as out:
        out.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert not (tmp_path / "pipe").is_file()


HOLDS = """
import sys
from pathlib import Path
from xmcascade.store.files import alone
with alone(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is checked there")
def test_one_process_works_in_a_folder_until_it_ends_or_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "new")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"in\n"
        says = r"new: another process is at work here.*another folder"
        with pytest.raises(DataError, match=says), alone(tmp_path / "new"):
            pytest.fail("two at once")
        other.kill()
    with alone(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written.*Remedy"), alone(tmp_path / "file" / "new"):
        pytest.fail("there is no such folder")
