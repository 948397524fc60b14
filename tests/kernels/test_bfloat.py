import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from reference import bfloat as reference
from xmcascade.kernels import bfloat
from xmcascade.kernels.bfloat import narrowed, wide

LARGEST = float(np.finfo(np.float32).max)
FINITE = np.array([bits for bits in range(2**16) if bits & 0x7F80 != 0x7F80], np.uint16)


@njit
def first(numbers):
    return wide(numbers[0])


@njit
def widened(numbers, out):
    for i in range(len(numbers)):
        out[i] = wide(numbers[i])


@njit
def doubled(numbers, out):
    for i in range(len(numbers)):
        out[i] = wide(numbers[i]) * np.float32(2)


def bits_of(number):
    return struct.unpack("<I", struct.pack("<f", number))[0]


def as_float32(stored):
    return (stored.astype(np.uint32) << 16).view(np.float32)


numbers32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
# Halfway between two bfloat16, and one bit beside: where rounding goes wrong.
halfway = st.tuples(st.sampled_from(FINITE.tolist()), st.sampled_from([0x7FFF, 0x8000, 0x8001])).map(
    lambda pair: struct.unpack("<f", struct.pack("<I", pair[0] << 16 | pair[1]))[0]
)


@settings(max_examples=1000, deadline=None)
@given(st.one_of(numbers32, halfway))
@example(0.0)
@example(-0.0)
@example(1.401298464324817e-45)  # the smallest subnormal
@example(-5.877471754111438e-39)
@example(1.1754942106924411e-38)  # the largest subnormal
@example(LARGEST)  # rounds to what would come next: infinity's bits
@example(-LARGEST)
def test_rounding_is_to_the_nearest_and_to_even(number):
    found = narrowed(np.array([number], np.float32))
    assert found.dtype == np.uint16
    assert found.tolist() == [reference.narrowed(bits_of(number))]


def test_what_is_bfloat16_already_stays():
    assert narrowed(as_float32(FINITE)).tolist() == FINITE.tolist()


@pytest.mark.parametrize("shape", [(0,), (3,), (0, 4), (4, 0), (3, 4)])
def test_any_shape_and_layout(shape):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = [reference.narrowed(bits_of(value)) for value in values.ravel()]
    assert narrowed(values).shape == shape
    assert narrowed(values).ravel().tolist() == expected
    assert narrowed(np.asfortranarray(values)).ravel().tolist() == expected
    assert narrowed(values[::-1])[::-1].ravel().tolist() == expected


def test_the_error_is_at_most_one_part_in_256():
    values = np.random.default_rng(1).normal(size=10_000).astype(np.float32)
    values *= np.float32(10) ** np.random.default_rng(2).integers(-30, 30, 10_000).astype(np.float32)
    error = np.abs(as_float32(narrowed(values)) - values) / np.abs(values)
    assert 2.0**-10 < error.max() <= 2.0**-8


def test_every_stored_number_is_read_in_kernels():
    out = np.empty(len(FINITE), np.float32)
    widened(FINITE, out)
    assert out.view(np.uint32).tolist() == (FINITE.astype(np.uint32) << 16).tolist()  # bits: -0.0 is not 0.0


@settings(max_examples=300, deadline=None)
@given(numbers32)
def test_float32_is_read_as_it_is(number):
    out = np.empty(1, np.float32)
    widened(np.array([number], np.float32), out)
    assert bits_of(out[0]) == bits_of(number)


@pytest.mark.parametrize("stored", [np.array([0x4049], np.uint16), np.array([3.140625], np.float32)])
def test_a_number_read_is_a_float32_to_compute_with(stored):
    out = np.empty(1, np.float32)
    doubled(stored, out)
    assert first(stored) == 3.140625
    assert out.tolist() == [6.28125]


def test_whole_arrays_are_widened():
    bits = bfloat.widened(FINITE.reshape(2, -1)).view(np.uint32)
    assert bits.ravel().tolist() == (FINITE.astype(np.uint32) << 16).tolist()
    wide_already = np.ones(3, np.float32)
    assert bfloat.widened(wide_already) is wide_already
