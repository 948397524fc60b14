"""bfloat16: the upper half of a float32, kept in a uint16, since numpy has no such type.

Two bytes a number with float32's range; arithmetic stays float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from xmcascade.kernels.parallel import blocks

__all__ = ["SUMS", "dot_wide", "narrowed", "stored", "wide", "widened"]

AT_ONCE = 65536  # rows
SUMS = {"reassoc", "nsz", "contract"}  # lets dense products use all lanes; NaN and infinity stay


def narrowed(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """float32 as bfloat16, rounded to the nearest, to even on a tie; finite numbers only.

    >>> narrowed(np.array([1.0, -2.5], np.float32)).tolist()
    [16256, 49184]
    """
    out = np.empty(values.shape, np.uint16)
    for low, high in blocks(len(values), AT_ONCE):  # what is needed on the way stays small
        bits = np.ascontiguousarray(values[low:high], np.float32).view(np.uint32)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        out[low:high] = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return out


def widened(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Stored numbers as float32, be they float32 already or bfloat16 in a uint16.

    >>> widened(np.array([16256, 49184], np.uint16)).tolist()
    [1.0, -2.5]
    """
    if values.dtype == np.float32:
        return values
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


@intrinsic
def wide(typing: Any, number: Any) -> Any:
    """In kernels: a stored number as float32, be it float32 already or bfloat16 in a uint16."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] == types.float32:
            return args[0]
        bits = builder.shl(builder.zext(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(number), generate


@intrinsic
def stored(typing: Any, number: Any, noise: Any, like: Any) -> Any:
    """In kernels: a finite float32 as an array keeps it: as it is, or as bfloat16 in a uint16.

    Rounded up or down at random by the lower 16 bits of noise (uint32), so that sums of small steps are right
    on average.
    """
    word = ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.return_type == types.float32:
            return args[0]
        low = builder.and_(args[1], ir.Constant(word, 0xFFFF))
        bits = builder.add(builder.bitcast(args[0], word), low)
        return builder.trunc(builder.lshr(bits, ir.Constant(word, 16)), ir.IntType(16))

    kept = types.float32 if like.dtype == types.float32 else types.uint16
    return kept(types.float32, types.uint32, like), generate


@njit(nogil=True, cache=True, fastmath=SUMS)
def dot_wide(one: Any, rows: Any, row: Any) -> Any:
    """In kernels: the product of a float32 vector and a stored row."""
    total = np.float32(0.0)
    for i in range(len(one)):
        total += one[i] * wide(rows[row, i])
    return total
