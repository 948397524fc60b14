"""Packed strings: they behave as the list they were made from, and cross Arrow and slices unharmed."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmcascade.store import Strings, StringsBuilder

anything = st.lists(st.text(max_size=12), max_size=12)
LISTS = [[], [""], ["", "", ""], ["cat"], ["a", "", "élan", "日本", "🦊 fox", "", "\0", "line\nline"]]


@pytest.mark.parametrize("strings", LISTS)
def test_round_trip_through_arrow(strings):
    packed = Strings.of(strings)
    assert list(packed) == strings
    assert list(Strings.from_arrow(packed.to_arrow())) == strings
    assert Strings.from_arrow(packed.to_arrow()) == packed
    packed.to_arrow().validate(full=True)


@given(anything, st.integers(-14, 14), st.integers(-14, 14), st.sampled_from([None, 1, 2, -1, -3]))
def test_a_slice_is_the_slice_of_the_list(strings, start, stop, step):
    part = Strings.of(strings)[start:stop:step]
    assert list(part) == strings[start:stop:step]
    assert len(part) == len(strings[start:stop:step])
    assert part == Strings.of(strings[start:stop:step])
    assert list(Strings.from_arrow(part.to_arrow())) == strings[start:stop:step]


@given(anything)
def test_single_strings_and_take(strings):
    packed = Strings.of(strings)
    n = len(strings)
    assert [packed[i] for i in range(-n, n)] == [strings[i] for i in range(-n, n)]
    assert list(packed.take(np.arange(n)[::-1])) == strings[::-1]
    assert packed.n_bytes == sum(len(string.encode()) for string in strings)


@pytest.mark.parametrize("key", [3, -4])
def test_outside_is_an_index_error(key):
    with pytest.raises(IndexError):
        Strings.of(["a", "b", "c"])[key]


def test_arrow_of_a_slice_takes_only_its_own_bytes():
    packed = Strings.of(["x" * 100_000, "cat", "dog", "y" * 100_000])
    _, offsets, data = packed[1:3].to_arrow().buffers()
    assert data.size == 6
    assert np.frombuffer(offsets, np.int64).tolist() == [0, 3, 6]


def test_arrow_shares_the_bytes():
    packed = Strings.of(["cat", "dog"])
    _, offsets, data = packed.to_arrow().buffers()
    assert data.address == packed.data.ctypes.data
    assert offsets.address == packed.offsets.ctypes.data
    back = Strings.from_arrow(packed.to_arrow())
    assert back.data.ctypes.data == packed.data.ctypes.data


def test_strings_from_arrow_keep_the_buffers_alive():
    packed = Strings.from_arrow(pa.array([f"string {i}" for i in range(10_000)], pa.large_string()))
    gc.collect()
    rest = [np.ones(100_000) for _ in range(20)]  # overwrites memory that was given back too early
    assert list(packed) == [f"string {i}" for i in range(10_000)]
    assert len(rest) == 20


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_from_any_kind_of_arrow_strings(kind):
    array = pa.array(["a", "bc", "", "é"], kind)
    assert list(Strings.from_arrow(array)) == ["a", "bc", "", "é"]
    assert list(Strings.from_arrow(array[1:3])) == ["bc", ""]
    assert list(Strings.from_arrow(pa.chunked_array([array[:1], array[2:]]))) == ["a", "", "é"]
    assert list(Strings.from_arrow(pa.chunked_array([], kind))) == []


def test_lone_surrogates_survive_in_memory():
    assert list(Strings.of(["a\ud800b"])) == ["a\ud800b"]


def test_a_builder_starts_empty_again():
    builder = StringsBuilder()
    builder.append("cat")
    first = builder.build()
    builder.append("dog")
    assert (list(first), list(builder.build()), len(builder)) == (["cat"], ["dog"], 0)


def test_packed_strings_cannot_be_written_to():
    packed = Strings.of(["cat"])
    with pytest.raises(ValueError, match="read-only"):
        packed.data[0] = 0
