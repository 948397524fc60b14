"""Lines out of files, compressed or not, with bounded memory and the line's number for every complaint."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from xmcascade.errors import DataError, Place
from xmcascade.progress import tracker

__all__ = ["COMPRESSED", "Line", "first_lines", "open_bytes", "place", "read_lines", "read_whole", "suffixes"]

COMPRESSED = (".gz", ".xz", ".zst")
MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
MAX_LINE_BYTES = 32 << 20
"""A longer line is far more likely to be a file of another kind than a document."""
MAX_WHOLE_BYTES = 1 << 30
"""What a compressed file that must be read as a whole may unpack to."""

BARE_RETURN = "the line has a bare carriage return: convert the line ends (tr '\\r' '\\n')"
REPORT_BYTES = 1 << 20


class Line:
    """One line: its number, and its text or what is wrong with it."""

    __slots__ = ("number", "problem", "remedy", "text")

    def __init__(self, number: int, text: str, problem: str = "", remedy: str = "") -> None:
        self.number, self.text, self.problem, self.remedy = number, text, problem, remedy


def suffixes(path: Path) -> tuple[str, str]:
    """The file type's suffix and the compression's, in lower case.

    >>> suffixes(Path("Train.JSONL.xz"))
    ('.jsonl', '.xz')
    """
    names = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = names.pop() if names and names[-1] in COMPRESSED else ""
    return (names[-1] if names else ""), packed


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file's bytes, decompressed, and the raw file below (its position tells how far reading got).

    Every way in which a file can be unreadable becomes a DataError that names it.
    """
    try:
        if "\0" in str(path):
            raise FileNotFoundError
        with path.open("rb") as raw, _decompressed(raw, suffixes(path)[1]) as stream:
            yield stream, raw
    except FileNotFoundError:
        raise DataError("there is no such file", where=str(path), remedy="check the path") from None
    except IsADirectoryError:
        raise DataError("this is a folder", where=str(path), remedy="name the file in it") from None
    except PermissionError:
        raise DataError("may not be read", where=str(path), remedy="change its permissions") from None
    except (OSError, EOFError, MemoryError, lzma.LZMAError, zlib.error) as error:
        remedy = "the file is damaged or not what its name says: make or fetch it again"
        raise DataError(f"cannot be read to its end ({error})", where=str(path), remedy=remedy) from error


def _decompressed(raw: IO[bytes], packed: str) -> Any:
    below: Any = raw  # closed with the reader that is returned
    if packed == ".gz":
        below = gzip.GzipFile(fileobj=raw)
    elif packed == ".xz":
        below = lzma.LZMAFile(raw, format=lzma.FORMAT_XZ)  # noqa: SIM115
    elif packed == ".zst":
        import pyarrow as pa

        below = pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
    return io.BufferedReader(below, 1 << 18)


def read_whole(path: Path) -> io.BytesIO:
    """A compressed file's bytes, for formats whose readers jump about in a file."""
    with open_bytes(path) as (stream, _):
        content = stream.read(MAX_WHOLE_BYTES + 1)
    if len(content) > MAX_WHOLE_BYTES:
        what = f"unpacks to more than {MAX_WHOLE_BYTES:,} bytes"
        raise DataError(what, where=str(path), remedy="unpack it first; this format is compressed inside")
    return io.BytesIO(content)


def read_lines(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    r"""The lines of a UTF-8 file without their ends, be these \n or \r\n.

    A line that is too long, or not UTF-8, comes with its problem said, so that the reader can skip it.
    """
    with (
        open_bytes(path) as (stream, raw),
        tracker(f"reading {path.name}", path.stat().st_size, "bytes") as seen,
    ):
        number = unreported = 0
        while chunk := stream.readline(max_line_bytes + 2):  # two more for the line's end
            number += 1
            if number == 1:
                chunk = _without_mark(chunk, path)
            unreported += len(chunk)
            if (
                unreported >= REPORT_BYTES
            ):  # bytes out of a decompressor say little of how far the file was read
                seen.advance(raw.tell() - seen.done)
                unreported = 0
            whole = chunk.endswith(b"\n")
            line = chunk[: -2 if chunk.endswith(b"\r\n") else -1] if whole else chunk
            if len(line) > max_line_bytes:
                while not whole and (rest := stream.readline(REPORT_BYTES)):
                    whole = rest.endswith(b"\n")
                problem = f"the line is longer than {max_line_bytes:,} bytes"
                yield Line(number, "", problem, "check the file's line breaks, or raise max_line_bytes")
                continue
            try:
                yield Line(number, line.decode())
            except UnicodeDecodeError as error:
                problem = f"byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8"
                yield Line(number, "", problem, "save the file as UTF-8, for example with iconv -t utf-8")


def _without_mark(chunk: bytes, path: Path) -> bytes:
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("the file is UTF-16", where=str(path), remedy="save it as UTF-8")
    for magic, suffix in MAGIC.items():
        if chunk.startswith(magic):
            raise DataError("the file is compressed", where=str(path), remedy=f"let its name end in {suffix}")
    return chunk.removeprefix(b"\xef\xbb\xbf")


def first_lines(path: Path, n: int) -> list[str]:
    """Up to n lines from the top that are not blank, for guessing what the file is."""
    found: list[str] = []
    with open_bytes(path) as (stream, _):
        for _ in range(100):
            chunk = stream.readline(1 << 16)
            if not chunk or len(found) == n:
                break
            if chunk.strip():
                found.append(chunk.decode("utf-8", "replace").strip("\r\n\ufeff"))
    return found


def place(path: Path, line: int = 0, field: str = "") -> Place:
    """Where in a file."""
    return Place(path.name, line, field)
