"""Eight labels at once: sparse rows against eight columns of weights, in one vector register.

Siblings share their documents, so their weights are solved side by side: w[f] holds feature f's weight for
eight labels; or two centres lie side by side. Left to itself the compiler turns these loops into gathers,
several times slower; hence the few lines of LLVM below. The twins are one line of numpy each.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "add_rows", "dot_pairs", "dot_rows", "dual_step"]

LANES = 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_PAIR = ir.VectorType(ir.FloatType(), 2)
_INDEX = ir.IntType(64)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def _walk(context: Any, builder: Any, signature: Any, args: Any, step: Any, vector: Any = _VECTOR) -> None:
    """Call step(address of w[f], value as a vector) for each entry start..stop of a sparse row."""
    w, columns, values = (_data(context, builder, signature.args[i], args[i]) for i in range(3))
    weights = builder.bitcast(w, vector.as_pointer())
    start, stop = args[3], args[4]
    with cgutils.for_range_slice(builder, start, stop, ir.Constant(_INDEX, 1), _INDEX) as (j, _):
        column = builder.load(builder.gep(columns, [j]))
        value = builder.load(builder.gep(values, [j]))
        nothing = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        spread = builder.shuffle_vector(one, nothing, lanes)
        step(builder.gep(weights, [builder.zext(column, _INDEX)]), spread)


def _dot(vector: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = builder.bitcast(_data(context, builder, signature.args[5], args[5]), vector.as_pointer())
        total = cgutils.alloca_once_value(builder, builder.load(target, align=4))

        def step(address: Any, value: Any) -> None:
            product = builder.fmul(builder.load(address, align=4), value, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)

        _walk(context, builder, signature, args, step, vector)
        builder.store(builder.load(total), target, align=4)
        return context.get_dummy_value()

    return generate


@intrinsic
def dot_rows(typing: Any, w: Any, columns: Any, values: Any, start: Any, stop: Any, out: Any) -> Any:
    """out[:] += sum over j in start..stop of values[j] * w[columns[j]]; w is [D, 8], out [8], float32."""
    return types.void(w, columns, values, types.int64, types.int64, out), _dot(_VECTOR)


@intrinsic
def dot_pairs(typing: Any, w: Any, columns: Any, values: Any, start: Any, stop: Any, out: Any) -> Any:
    """As `dot_rows`, with w [D, 2] and out [2]."""
    return types.void(w, columns, values, types.int64, types.int64, out), _dot(_PAIR)


@intrinsic
def add_rows(typing: Any, w: Any, columns: Any, values: Any, start: Any, stop: Any, factor: Any) -> Any:
    """w[columns[j]] += values[j] * factor for j in start..stop; w is [D, 8], factor [8], float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = builder.bitcast(_data(context, builder, signature.args[5], args[5]), _VECTOR.as_pointer())
        factors = builder.load(given, align=4)

        def step(address: Any, value: Any) -> None:
            product = builder.fmul(value, factors, flags=("contract",))
            added = builder.fadd(builder.load(address, align=4), product, flags=("contract",))
            builder.store(added, address, align=4)

        _walk(context, builder, signature, args, step)
        return context.get_dummy_value()

    return types.void(w, columns, values, types.int64, types.int64, factor), generate


@intrinsic
def dual_step(
    typing: Any, own: Any, score: Any, limit: Any, done: Any, length: Any, high: Any, low: Any, step: Any
) -> Any:
    """One document's coordinate step for eight labels (kernels/solver.py); all arrays are float32.

    own [24]: the document's duals, which are renewed, its +1 or -1, and 1 / (2 cost), eight each. score [8]:
    its scores. Lanes with done [8] above 0, or with a dual of 0 and a gradient above limit [8], stay. high
    and low [8] grow to the violations seen; step [8] receives what times the document the weights move.
    Returns 1 if any lane was looked at, plus 2 if any moved.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def lanes(argument: int, part: int = 0) -> Any:
            data = _data(context, builder, signature.args[argument], args[argument])
            vectors = builder.bitcast(data, _VECTOR.as_pointer())
            return builder.gep(vectors, [ir.Constant(_INDEX, part)])

        def load(argument: int, part: int = 0) -> Any:
            return builder.load(lanes(argument, part), align=4)

        def spread(value: Any) -> Any:
            one = builder.insert_element(
                ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
            )
            every = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), every)

        zero, one = (ir.Constant(_VECTOR, [value] * LANES) for value in (0.0, 1.0))
        dual, sign, half = load(0, 0), load(0, 1), load(0, 2)
        gradient = builder.fsub(builder.fmul(sign, load(1)), one)
        gradient = builder.fadd(gradient, builder.fmul(dual, half))
        idle = builder.and_(
            builder.fcmp_ordered("==", dual, zero), builder.fcmp_ordered(">", gradient, load(2))
        )
        idle = builder.or_(idle, builder.fcmp_ordered(">", load(3), zero))
        downhill = builder.select(builder.fcmp_ordered("<", gradient, zero), gradient, zero)
        violation = builder.select(builder.fcmp_ordered(">", dual, zero), gradient, downhill)
        for bound, sense in ((5, ">"), (6, "<")):
            before = load(bound)
            beyond = builder.and_(builder.fcmp_ordered(sense, violation, before), builder.not_(idle))
            builder.store(builder.select(beyond, violation, before), lanes(bound), align=4)
        fresh = builder.fsub(dual, builder.fdiv(gradient, builder.fadd(spread(args[4]), half)))
        fresh = builder.select(builder.fcmp_ordered(">", fresh, zero), fresh, zero)
        fresh = builder.select(idle, dual, fresh)
        builder.store(fresh, lanes(0), align=4)
        builder.store(builder.fmul(builder.fsub(fresh, dual), sign), lanes(7), align=4)
        byte = ir.IntType(LANES)
        looked = builder.icmp_unsigned("!=", builder.bitcast(idle, byte), ir.Constant(byte, 255))
        moved = builder.fcmp_unordered("!=", fresh, dual)
        moved = builder.icmp_unsigned("!=", builder.bitcast(moved, byte), ir.Constant(byte, 0))
        seen = builder.zext(looked, _INDEX)
        return builder.add(seen, builder.shl(builder.zext(moved, _INDEX), ir.Constant(_INDEX, 1)))

    arrays = own, score, limit, done
    return types.int64(*arrays, types.float32, high, low, step), generate
