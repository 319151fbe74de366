"""Vectors of floats as saturated bytes, by the instructions of x86 that pack two vectors into one of narrower elements.

A conversion to 32 bits rounds as it goes, and packing saturates; so of what a cast to bytes does beside, only the upper
limit stays: beyond 31 bits, and of NaN, a conversion gives the least integer, which is right at the lower end alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, integer_range

MOST_PACKED = 2  # vectors
_LANES = 8
_HALF = 4  # elements that stay together: packing works on each half of a register by itself
_PACKED_NAMES = {DataType.UINT8: "packuswb", DataType.INT8: "packsswb"}


def packs_bytes(expression: Scalar, target: Target) -> bool:
    """Return whether a value is a cast of floats to bytes which the target packs faster than element by element."""
    if expression.operation != "cast" or expression.dtype not in _PACKED_NAMES:
        return False
    if expression.arguments[0].dtype is not DataType.FLOAT:
        return False
    return "x86_64" in target.triple and target.lanes == _LANES and target.has("avx2")


def unrounded(expression: Scalar) -> tuple[Scalar, bool]:
    """Return the floats that a cast to bytes is made of, and whether they are rounded to whole numbers first."""
    value = expression.arguments[0]
    return (value.arguments[0], True) if value.operation == "rint" else (value, False)


def packed_bytes(emitter: Emitter, values: Sequence[IRValue], dtype: DataType, is_rounded: bool) -> IRValue:
    """Return one vector of bytes of one or two of eight floats each.

    Args:
        emitter: where instructions go.
        values: the floats.
        dtype: of the bytes.
        is_rounded: whether floats are rounded to the nearest whole number; else their fractions are cut off.
    """
    words, halves, quarters = vector_type(_LANES, "i32"), vector_type(2 * _LANES, "i16"), vector_type(4 * _LANES, "i8")
    most = constant(float(integer_range(dtype)[1]), DataType.FLOAT, _LANES)
    whole = []
    for value in values:
        is_more = emitter.assign(vector_type(_LANES, "i1"), f"fcmp olt {most.typed}, {value.text}")
        limited = emitter.select(is_more, most, value)
        whole.append(emitter.call(words, f"llvm.x86.avx.{'cvt' if is_rounded else 'cvtt'}.ps2dq.256", limited))
    narrow = emitter.call(halves, "llvm.x86.avx2.packssdw", whole[0], whole[-1])
    packed = emitter.call(quarters, f"llvm.x86.avx2.{_PACKED_NAMES[dtype]}", narrow, narrow)
    first = [number * _HALF + half * 2 * _LANES for number in range(len(values)) for half in range(2)]
    places = ", ".join(f"i32 {start + i}" for start in first for i in range(_HALF))
    count = len(values) * _LANES
    return emitter.assign(
        vector_type(count, "i8"), f"shufflevector {packed.typed}, {packed.typed}, <{count} x i32> <{places}>"
    )
