"""Many strings as two arrays: UTF-8 bytes and offsets.

A Python list of a million short strings costs more in object headers than in text. Here a string costs its
bytes and eight more, kernels read the bytes without a copy, and Arrow stores the same two arrays on disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Strings", "StringsBuilder"]

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


class Strings(Sequence[str]):
    """An immutable sequence of strings in two arrays.

    >>> names = Strings.of(["cat", "dog", "élan"])
    >>> names[2], len(names), names.n_bytes
    ('élan', 3, 11)
    >>> list(names.take([1, 0]))
    ['dog', 'cat']
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: Bytes, offsets: Offsets) -> None:
        # Read-only: strings are shared freely, and kernels are compiled for one type of array.
        self.data, self.offsets = np.asarray(data).view(), np.asarray(offsets).view()
        self.data.flags.writeable = self.offsets.flags.writeable = False

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """Pack any strings; what is packed already is returned as it is."""
        if isinstance(strings, Strings):
            return strings
        builder = StringsBuilder()
        for string in strings:
            builder.append(string)
        return builder.build()

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of all strings together."""
        return int(self.offsets[-1] - self.offsets[0])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Strings: ...
    def __getitem__(self, key: int | slice) -> str | Strings:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return Strings(self.data, self.offsets[start : max(start, stop) + 1])
        if not -len(self) <= key < len(self):
            raise IndexError(f"string {key} of {len(self)}")
        key %= len(self)
        return bytes(self.data[self.offsets[key] : self.offsets[key + 1]]).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (raw.decode("utf-8", "surrogatepass") for raw in self.iter_bytes())

    def iter_bytes(self) -> Iterator[bytes]:
        """The strings' UTF-8 bytes, one after another."""
        view = self.data.data
        for lo in range(0, len(self), 4096):  # in steps, so that the offsets never all become Python integers
            bounds = self.offsets[lo : lo + 4097].tolist()
            for start, stop in pairwise(bounds):
                yield bytes(view[start:stop])

    def take(self, indices: npt.ArrayLike) -> Strings:
        """The strings at these indices (negative ones count from the end), in this order."""
        index = np.asarray(indices, dtype=np.int64)
        if len(index) and not -len(self) <= index.min() <= index.max() < len(self):
            raise IndexError(f"strings {index.min()} to {index.max()} of {len(self)}")
        return Strings.from_arrow(self.to_arrow().take(np.where(index < 0, index + len(self), index)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        mine, theirs = self.offsets - self.offsets[0], other.offsets - other.offsets[0]
        return np.array_equal(mine, theirs) and np.array_equal(self._bytes(), other._bytes())

    def _bytes(self) -> Bytes:
        return self.data[self.offsets[0] : self.offsets[-1]]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Strings({len(self):,} strings, {self.n_bytes:,} bytes)"

    def to_arrow(self) -> Any:
        """The same strings as an Arrow array, without a copy (of a slice, the offsets are copied)."""
        import pyarrow as pa

        # A slice starts at 0 again and takes only its own bytes: saving it does not save all it was cut from.
        offsets = self.offsets - self.offsets[0] if self.offsets[0] else self.offsets
        buffers = [
            None,
            pa.py_buffer(np.ascontiguousarray(offsets)),
            pa.py_buffer(np.ascontiguousarray(self._bytes())),
        ]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    @classmethod
    def from_arrow(cls, strings: Any) -> Strings:
        """The strings of an Arrow array (or chunked array) without nulls; large strings are not copied."""
        import pyarrow as pa

        if isinstance(strings, pa.ChunkedArray):
            strings = pa.concat_arrays(strings.chunks) if strings.num_chunks else pa.array([], strings.type)
        strings = strings.cast(pa.large_string())
        _, offsets, data = strings.buffers()
        if not len(strings):
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        bounds = np.frombuffer(offsets, np.int64, len(strings) + 1, 8 * strings.offset)
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(raw, bounds)


class StringsBuilder:
    """Grows Strings one by one; peak memory is the bytes themselves and a small reserve."""

    __slots__ = ("_data", "_offsets")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets = array("q", [0])

    def append(self, string: str) -> None:
        """Add one string."""
        self._data += string.encode("utf-8", "surrogatepass")
        self._offsets.append(len(self._data))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def build(self) -> Strings:
        """Hand the arrays over; the builder starts empty again."""
        data, offsets = self._data, self._offsets
        self._data, self._offsets = bytearray(), array("q", [0])
        return Strings(np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int64))
