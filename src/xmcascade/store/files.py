"""A file that appears whole or not at all; a folder that one process works in; and where files are kept that
can be made again."""

from __future__ import annotations

import gzip
import lzma
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from xmcascade.errors import DataError

__all__ = ["alone", "replacing_file", "user_cache"]


def user_cache() -> Path | None:
    """$XMCASCADE_CACHE, or the place the platform keeps for such files; None when there is no home.

    >>> os.environ["XMCASCADE_CACHE"] = "somewhere"
    >>> str(user_cache()), os.environ.pop("XMCASCADE_CACHE")
    ('somewhere', 'somewhere')
    """
    chosen = os.environ.get("XMCASCADE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "xmcascade"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Meanwhile no other process that asks the same works in a folder; raises at once where one does.

    The system gives the folder free when a process ends, however it ends. (Not on Windows, where nothing is
    checked.)

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, alone(Path(folder)):
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['.lock']
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("wb")
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            what, remedy = "another process is at work here", "wait until it ends, or give another folder"
            raise DataError(what, where=str(folder), remedy=remedy) from error
        yield


def _unwritable(path: Path, error: OSError) -> DataError:
    what = f"cannot be written ({error.strerror or error})"
    return DataError(what, where=str(path), remedy="check the folder's permissions and the space on the disk")


@contextmanager
def replacing_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Give a stream to write to; on leaving, the file takes its place, on any failure nothing is left behind.

    What is written is compressed as the name ends: .gz, .xz or .zst.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing_file(Path(folder, "a.txt.gz")) as out:
    ...         _ = out.write(b"hello")
    ...     gzip.decompress(Path(folder, "a.txt.gz").read_bytes())
    b'hello'
    """
    path = Path(path).resolve()  # a link stays a link: the file behind it is replaced
    new = path.with_name(f".{path.name}.writing-{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        special = path.exists() and not path.is_file()  # a device or a pipe is not replaced but written to
        with path.open("wb") if special else new.open("xb") as raw:
            with _compressed(raw, path.suffix.lower()) as stream:
                yield stream
            raw.flush()
            if not special:
                os.fsync(raw.fileno())
        if not special:
            new.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            new.unlink()


@contextmanager
def _compressed(raw: IO[bytes], suffix: str) -> Iterator[Any]:
    if suffix == ".gz":
        # Without name and time the same content gives the same bytes.
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as stream:
            yield stream
    elif suffix == ".xz":
        with lzma.LZMAFile(raw, "wb") as packed:
            yield packed
    elif suffix == ".zst":
        import pyarrow as pa

        below = os.fdopen(os.dup(raw.fileno()), "wb")  # Arrow closes what it writes to; the raw file lives on
        with pa.CompressedOutputStream(pa.PythonFile(below, "w"), "zstd") as arrow:
            yield arrow
    else:
        yield raw
