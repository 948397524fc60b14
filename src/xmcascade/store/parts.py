"""The files of a model folder: arrays as one safetensors file, strings as one Arrow file each.

Both are plain data, the same bytes for the same content, and are read in place: a reader gets read-only views
of the mapped file, so that a model larger than memory opens at once and processes share its pages.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import safetensors

from xmcascade.errors import ModelFolderError
from xmcascade.store.manifest import DAMAGED, MAX_JSON, FileEntry, parse_json
from xmcascade.store.strings import Strings

__all__ = ["read_arrays", "read_strings", "write_file"]

Array = npt.NDArray[Any]

# What safetensors calls the types; bfloat16, which numpy does not have, is read as its 16 bits.
_DTYPES = {
    **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4"},
    **{"U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"},
}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items() if name != "BF16"}


class _Sink:
    """A new file that counts and hashes what is written to it; Arrow takes it for a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash, self.n_bytes, self.closed = file, hashlib.sha256(), 0, False

    def write(self, data: Any) -> int:
        self.file.write(data)
        self.hash.update(data)
        self.n_bytes += memoryview(data).nbytes
        return memoryview(data).nbytes

    def flush(self) -> None: ...

    def close(self) -> None: ...


def write_file(path: Path, content: bytes | Strings | Mapping[str, Array]) -> FileEntry:
    """Write bytes, strings (as Arrow) or arrays (as safetensors) to a new file, to the disk, and hash them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder) / "file", b"abc")["sha256"][:8]
    'ba7816bf'
    """
    with path.open("xb") as file:
        sink = _Sink(file)
        if isinstance(content, bytes):
            sink.write(content)
        elif isinstance(content, Strings):
            _write_strings(sink, content, path.name)
        else:
            _write_arrays(sink, content, path.name)
        file.flush()
        os.fsync(file.fileno())
    return {"sha256": sink.hash.hexdigest(), "bytes": sink.n_bytes}


def _write_arrays(sink: _Sink, arrays: Mapping[str, Array], where: str) -> None:
    # Not safetensors' own writer, which holds a copy of all arrays in memory.
    for name, array in arrays.items():
        if array.dtype.newbyteorder("<") not in _NAMES:
            raise ModelFolderError(
                f"array {name!r} has dtype {array.dtype}",
                where=where,
                remedy=f"use one of {', '.join(str(dtype) for dtype in _NAMES)}",
            )
    # The widest types first, so that every array starts at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    at = 0
    for name in order:
        array = arrays[name]
        dtype, span = _NAMES[array.dtype.newbyteorder("<")], [at, at + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
        at += array.nbytes
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-(len(raw) + 8) % 64)  # the data then starts on a cache line
    if len(raw) > MAX_JSON:
        raise ModelFolderError(f"{len(arrays):,} arrays are too many for one file", where=where)
    sink.write(struct.pack("<Q", len(raw)) + raw)
    for name in order:
        plain = np.asarray(arrays[name], dtype=arrays[name].dtype.newbyteorder("<"), order="C")
        sink.write(plain.reshape(-1).view(np.uint8))


def _write_strings(sink: _Sink, strings: Strings, where: str) -> None:
    column = strings.to_arrow()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        for i, raw in enumerate(strings.iter_bytes()):
            try:
                raw.decode()
            except UnicodeDecodeError:
                raise ModelFolderError(
                    f"string {i:,} is not valid Unicode: {raw[:100]!r}",
                    where=where,
                    remedy="replace its lone surrogates: text.encode('utf-8', 'replace').decode()",
                ) from error
        raise ModelFolderError(f"the strings are not valid: {error}", where=where) from error
    batch = pa.record_batch([column], names=["strings"])
    with pa.ipc.new_file(pa.PythonFile(sink, "w"), batch.schema) as writer:
        writer.write_batch(batch)


def read_arrays(handle: int, path: Path) -> dict[str, Array]:
    """Read-only views of the arrays in an open safetensors file; the path is for messages.

    The views keep the file mapped. A mapped file must not be cut short or written to while they are in use;
    saving does neither, it puts a new file in the old one's place.
    """
    size = os.fstat(handle).st_size
    mapped = _map(handle, path)
    length = struct.unpack_from("<Q", mapped)[0] if size >= 8 else 0
    if not 2 <= length <= min(size - 8, MAX_JSON):
        raise ModelFolderError(f"its header claims {length:,} bytes", where=str(path), remedy=DAMAGED)
    header = parse_json(mapped[8 : 8 + length], str(path))
    header.pop("__metadata__", None)
    # safetensors checks its format best (overlaps, holes, sizes), but its numpy arrays are copies: we let it
    # check and view the arrays ourselves. Through /dev/fd it sees this very file even if its folder is gone.
    same = Path(f"/dev/fd/{handle}")
    try:
        with safetensors.safe_open(same if same.exists() else path, framework="numpy"):
            pass
        return {name: _view(mapped, 8 + length, entry) for name, entry in header.items()}
    except (safetensors.SafetensorError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelFolderError(
            f"not a valid safetensors file: {error}", where=str(path), remedy=DAMAGED
        ) from error


def _map(handle: int, path: Path) -> mmap.mmap:
    if os.fstat(handle).st_size == 0:
        raise ModelFolderError("the file is empty", where=str(path), remedy=DAMAGED)
    return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)


def _view(mapped: mmap.mmap, start: int, entry: dict[str, Any]) -> Array:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"dtype {entry['dtype']!r} is not supported")
    view: Array = np.ndarray(
        entry["shape"], _DTYPES[entry["dtype"]], mapped, start + entry["data_offsets"][0]
    )
    if not view.flags.aligned:  # never in a file that we wrote; the kernels rely on it
        raise ValueError("an array does not start at a multiple of its item size")
    if view.dtype == bool and view.size and view.view(np.uint8).max() > 1:
        raise ValueError("a bool is neither 0 nor 1")
    return view


def read_strings(handle: int, path: Path) -> Strings:
    """The strings of an open Arrow file, in place; the path is for messages."""
    data = pa.py_buffer(_map(handle, path))
    try:
        if data.slice(0, 8).to_pybytes() != b"ARROW1\0\0":
            raise ValueError("it does not start as one")
        found = list(islice(pa.ipc.MessageReader.open_stream(pa.BufferReader(data.slice(8))), 3))
        if [message.type for message in found] != ["schema", "record batch"] or _is_compressed(found[1]):
            raise ValueError("its strings are not stored plainly, in one batch")
        schema = pa.ipc.read_schema(found[0])
        if schema.types != [pa.large_string()]:
            kinds = ", ".join(str(kind) for kind in schema.types)
            raise ValueError(f"its columns are [{kinds}], not one of large strings")
        batch = pa.ipc.read_record_batch(found[1], schema)
        batch.validate(full=True)
        column = batch.column(0)
        if column.null_count:
            raise ValueError(f"{column.null_count:,} of its strings are null")
        strings = Strings.from_arrow(column)
        if not strings.offsets.flags.aligned:
            raise ValueError("its offsets do not start at a multiple of eight bytes")
    except (pa.ArrowException, ValueError, OSError, struct.error) as error:
        first = re.split(r"[\r\n]", f"{error}")[0]
        raise ModelFolderError(f"not a valid Arrow file: {first}", where=str(path), remedy=DAMAGED) from error
    return strings


def _is_compressed(message: Any) -> bool:
    """Whether a record batch is compressed: a few compressed bytes could ask for all the memory there is."""
    # Arrow has checked this flatbuffer but does not tell. A table starts with the distance back to its list
    # of field offsets, which starts with two sizes. A message's field 2 is the batch, whose 3 is compression.
    raw = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int:
        fields = table - struct.unpack_from("<i", raw, table)[0]
        inside = 4 + 2 * number < struct.unpack_from("<H", raw, fields)[0]
        offset = struct.unpack_from("<H", raw, fields + 4 + 2 * number)[0] if inside else 0
        return table + offset if offset else 0

    batch = field(struct.unpack_from("<I", raw)[0], 2)
    batch += struct.unpack_from("<I", raw, batch)[0]
    return bool(field(batch, 3))
