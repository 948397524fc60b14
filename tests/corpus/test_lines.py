"""Lines: ends, marks, compression, lines too long or not UTF-8, and files that cannot be read at all."""

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.files import packed
from xmcascade.corpus import lines
from xmcascade.corpus.lines import COMPRESSED, first_lines, read_lines, read_whole, suffixes
from xmcascade.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lines")


def read(path, data, **values):
    path.write_bytes(data)
    return [(line.number, line.text or line.problem) for line in read_lines(path, **values)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb\r\nc", ["a", "b", "c"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"\n", [""]),
        (b"\r\n\r\n", ["", ""]),
        (b"a\rb\n", ["a\rb"]),  # a bare carriage return ends no line
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        ("a\u2028b\x85c\x0bd".encode(), ["a\u2028b\x85c\x0bd"]),
        (b"a\0b\n", ["a\0b"]),
    ],
)
def test_ends_and_marks(tmp_path, data, expected):
    assert read(tmp_path / "a.txt", data) == list(enumerate(expected, 1))


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"]))),
    st.booleans(),
)
def test_lines_come_back_whatever_is_in_them(folder, texts, windows):
    end = "\r\n" if windows else "\n"
    data = "".join(text + end for text in texts).encode()
    assert [text for _, text in read(folder / "a.txt", data)] == texts


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files_read_alike_also_when_appended_to(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix.upper()}"
    assert read(path, packed(b"a\nb\n", suffix)) == [(1, "a"), (2, "b")]
    assert read(path, packed(b"a\n", suffix) + packed(b"b\n", suffix)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "flip", "other", "empty start"])
def test_damaged_compressed_files_are_named(tmp_path, suffix, damage):
    data = packed(bytes(range(32, 127)) * 500, suffix)
    broken = {
        "cut": data[: len(data) // 2],
        "flip": data[:20] + bytes(255 - byte for byte in data[20:]),
        "other": b"plain text\n",
        "empty start": b"\0" * 100 + data,
    }[damage]
    with pytest.raises(DataError) as caught:
        read(tmp_path / f"a.txt{suffix}", broken)
    assert f"a.txt{suffix}: cannot be read to its end" in str(caught.value)
    assert "make or fetch it again" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a".encode("utf-16"), "a.txt: the file is UTF-16. Remedy: save it as UTF-8"),
        (b"\xfe\xff\0a", "a.txt: the file is UTF-16"),
        (packed(b"a", ".gz"), "a.txt: the file is compressed. Remedy: let its name end in .gz"),
        (packed(b"a", ".xz"), "a.txt: the file is compressed. Remedy: let its name end in .xz"),
        (packed(b"a", ".zst"), "a.txt: the file is compressed. Remedy: let its name end in .zst"),
    ],
)
def test_other_kinds_of_files_are_named(tmp_path, data, message):
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.txt", data)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    closed = tmp_path / "closed.txt"
    closed.touch()
    table = {
        tmp_path / "none.txt": "there is no such file. Remedy: check the path",
        tmp_path: "this is a folder. Remedy: name the file in it",
        tmp_path / "a\0b": "there is no such file",
        tmp_path / ("a" * 5000): "File name too long",
    }
    for path, message in table.items():
        with pytest.raises(DataError) as caught:
            list(read_lines(path))
        assert str(path) in str(caught.value)
        assert message in str(caught.value)


def test_a_file_without_permission_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DataError, match=r"a\.txt: may not be read. Remedy: change its permissions"):
        list(read_lines(tmp_path / "a.txt"))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("size", [4, 5, 6, 7, 8, 30])
def test_a_line_may_have_its_limit_and_not_one_byte_more(tmp_path, end, size):
    found = read(tmp_path / "a.txt", b"x" * size + end + b"y\n" * bool(end), max_line_bytes=5)
    first = "x" * size if size <= 5 else "the line is longer than 5 bytes"
    assert found == [(1, first), (2, "y")][: 1 + bool(end)]


def test_a_line_that_is_not_utf8_says_which_byte(tmp_path):
    found = read(tmp_path / "a.txt", b"good\nbad \xff byte\ncut \xc3\nmore")
    assert found == [
        (1, "good"),
        (2, "byte 5 of the line (0xff) is not UTF-8"),
        (3, "byte 5 of the line (0xc3) is not UTF-8"),
        (4, "more"),
    ]


def test_a_line_of_50_mb_is_passed_over_with_little_memory(tmp_path):
    path = tmp_path / "a.txt"
    with path.open("wb") as out:
        for _ in range(50):
            out.write(b"x" * (1 << 20))
        out.write(b"\nshort\n")
    tracemalloc.start()
    found = [(line.number, line.text or line.problem) for line in read_lines(path, 1 << 20)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(1, "the line is longer than 1,048,576 bytes"), (2, "short")]
    assert peak < 8 << 20


def test_many_lines_stream_with_little_memory(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"x" * 99_999 + b"\n") * 500)
    tracemalloc.start()
    assert sum(len(line.text) for line in read_lines(path)) == 500 * 99_999
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_progress_counts_the_bytes_of_the_file_not_of_what_it_unpacks_to(tmp_path, monkeypatch):
    seen = []

    class Shown:
        done = 0

        def advance(self, n):
            self.done += n
            seen.append(self.done)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(
        lines, "tracker", lambda title, total, unit: seen.append((title, total, unit)) or Shown()
    )
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"x" * 99_999 + b"\n") * 100)
    assert len(list(read_lines(path))) == 100
    size = path.stat().st_size
    assert seen[0] == ("reading a.txt.gz", size, "bytes")
    assert 5 <= len(seen) <= 12
    assert seen[1:] == sorted(seen[1:])
    assert size / 2 < seen[-1] <= size


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\n \n a\nb\nc", [" a", "b"]),
        (b"\xef\xbb\xbfa\r\n", ["a"]),
        (b"", []),
        (b"\n" * 1000 + b"a", []),
        (b"\xff\xfe\n", ["\ufffd\ufffd"]),
    ],
)
def test_first_lines_are_those_not_blank(tmp_path, data, expected):
    path = tmp_path / "a"
    path.write_bytes(data)
    assert first_lines(path, 2) == expected


def test_first_lines_of_a_binary_file_are_bounded(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(11, 256)) * 100_000)
    assert sum(map(len, first_lines(path, 2))) <= 2 << 16


def test_a_whole_file_may_not_unpack_to_more_than_its_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.npz.gz"
    path.write_bytes(gzip.compress(b"x" * 1000))
    assert read_whole(path).read() == b"x" * 1000
    monkeypatch.setattr(lines, "MAX_WHOLE_BYTES", 999)
    with pytest.raises(
        DataError, match=r"a\.npz\.gz: unpacks to more than 999 bytes. Remedy: unpack it first"
    ):
        read_whole(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", (".jsonl", "")),
        ("A.Csv.GZ", (".csv", ".gz")),
        ("a.gz", ("", ".gz")),
        ("a", ("", "")),
        ("a.v1.2.txt.zst", (".txt", ".zst")),
        (".gz", ("", "")),
    ],
)
def test_suffixes(tmp_path, name, expected):
    assert suffixes(tmp_path / name) == expected
