"""Rows of caches as they are stored: floats, half floats, or integers of 8 bits with a scale; read as floats.

int8 -> float    level * scale, the scale of the whole cache or of an element of a head
"""

from __future__ import annotations

import enum
from functools import partial

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, store_vector
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element

ROW_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8})
"""What a cache may hold."""
_FLOAT_BYTES = 4


class Scales(enum.Enum):
    """What the integers of a cache are multiplied by."""

    NONE = "none"
    TENSOR = "tensor"
    CHANNEL = "channel"


def copy_stored(e: Emitter, lanes: int, dtype: DataType, source: IRValue, target: IRValue, count: IRValue) -> None:
    """Copy ``count`` elements that are no floats, as they are; nothing beside them is read or written."""
    type_ = STORED[dtype]
    width = lanes * _FLOAT_BYTES * 8 // dtype.bits
    whole = e.sub(count, e.urem(count, width))
    for first, stop, step in ((0, whole, width), (whole, count, 1)):
        with e.loop(first, stop, step, unroll=False, hint="j") as j:
            value = e.load(vector_type(step, type_), e.element(source, j, type_), dtype.bits // 8)
            e.store(value, e.element(target, j, type_), dtype.bits // 8)


def clear_stored(e: Emitter, dtype: DataType, target: IRValue, count: IRValue) -> None:
    """Store ``count`` zeros of a type that is not a float: all of their bits are zeros."""
    with e.loop(0, count, unroll=False, hint="j") as j:
        place = e.element(target, j, STORED[dtype])
        e.store(IRValue(f"i{dtype.bits}", "0"), place, dtype.bits // 8)


def widen_row(
    e: Emitter, lanes: int, dtype: DataType, scales: Scales, source: IRValue, scale: IRValue, target: IRValue,
    count: IRValue,
) -> None:  # fmt: skip
    """Store ``count`` elements as floats; ``scale`` points to the head's scales, or to the only one."""
    type_ = STORED[dtype]
    wide = cast(element(0, dtype), DataType.FLOAT)
    whole = e.sub(count, e.urem(count, lanes))
    for first, stop, width in ((0, whole, lanes), (whole, count, 1)):
        with e.loop(first, stop, width, unroll=False, hint="j") as j:
            found = e.load(vector_type(width, type_), e.element(source, j, type_), dtype.bits // 8)
            value = ScalarPrinter(e, width, partial(_given, found)).print(wide)
            if scales is not Scales.NONE:
                value = e.binary("fmul", value, _scales(e, scales, scale, j, width))
            if width == 1:
                e.store(value, e.element(target, j), _FLOAT_BYTES)
            else:
                store_vector(e, value, e.element(target, j))


def _given(value: IRValue, _: int) -> IRValue:
    return value


def _scales(e: Emitter, scales: Scales, scale: IRValue, j: IRValue, width: int) -> IRValue:
    if scales is Scales.CHANNEL and width > 1:
        return load_vector(e, e.element(scale, j), width)
    one = e.load("float", e.element(scale, j) if scales is Scales.CHANNEL else scale, _FLOAT_BYTES)
    return one if width == 1 else e.splat(one, width)
