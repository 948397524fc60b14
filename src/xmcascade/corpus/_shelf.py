"""Results that took a while, kept in the user's cache folder: checked when read, and never in the way.

A file starts with the SHA-256 of what follows, an Arrow stream. It is written under another name and renamed,
so readers see all of it or nothing, and builders side by side do not disturb one another.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xmcascade.store.files import user_cache

__all__ = ["Row", "Shelf"]

log = logging.getLogger("xmcascade")

_HASH_BYTES = 32


class Row(NamedTuple):
    """One document of a built-in corpus."""

    is_test: bool
    id: str
    text: str
    labels: list[str]


class Shelf:
    """A folder of stored results; every failure is a warning, since the result can be made again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Shelf(Path(folder)).save("a.arrow", [Row(False, "1", "a text", ["x", "y"])])
    ...     Shelf(Path(folder)).load("a.arrow")
    [Row(is_test=False, id='1', text='a text', labels=['x', 'y'])]
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> Shelf | None:
        """In the user's cache folder; None when there is no home."""
        folder = user_cache()
        if folder is None:
            log.warning("no home folder: results are not kept. Set XMCASCADE_CACHE to keep them")
            return None
        return cls(folder)

    def load(self, name: str) -> list[Row] | None:
        """The stored rows; None when there are none, or they are not what was written."""
        import pyarrow as pa

        file = self.folder / name
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read (%s); building anew", file, error)
            return None
        content = memoryview(raw)[_HASH_BYTES:]
        try:
            if hashlib.sha256(content).digest() != raw[:_HASH_BYTES]:
                raise ValueError("the content does not fit its hash")
            columns = pa.ipc.open_stream(content).read_all().to_pydict()
            return [Row(*values) for values in zip(*(columns[field] for field in Row._fields), strict=True)]
        except (ValueError, KeyError, pa.ArrowException) as error:
            log.warning("%s is damaged (%s); building anew", file, error)
            return None

    def save(self, name: str, rows: Sequence[Row]) -> None:
        """Keep rows under a name."""
        import pyarrow as pa

        kinds = [pa.bool_(), pa.large_string(), pa.large_string(), pa.large_list(pa.large_string())]
        arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        table = pa.table(arrays, names=list(Row._fields))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_table(table)
        content = sink.getvalue().to_pybytes()
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=f"{name}.", delete=False) as stream:
                temporary = stream.name
                stream.write(hashlib.sha256(content).digest())
                stream.write(content)
            Path(temporary).replace(self.folder / name)
        except OSError as error:
            log.warning("the result cannot be kept in %s (%s)", self.folder, error)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
