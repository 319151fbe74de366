"""Vectors of floats as saturated bytes, by the instructions of x86 that pack two vectors into one of narrower elements.

A conversion to 32 bits rounds as it goes, and packing saturates; so of what a cast to bytes does beside, only the upper
limit stays: beyond 31 bits, and of NaN, a conversion gives the least integer, which is right at the lower end alone.
Of processors with vectors of 16 floats those do so whose products of bytes are so fast that what follows them counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, integer_range

MOST_PACKED = 2  # vectors
_PART = 4  # elements that stay together: packing works on each 128 bits of a register by themselves
_PACKED_NAMES = {DataType.UINT8: "packuswb", DataType.INT8: "packsswb"}
_PACKING = {8: ("llvm.x86.avx2.", ""), 16: ("llvm.x86.avx512.", ".512")}  # before and behind the names


def packs_bytes(expression: Scalar, target: Target) -> bool:
    """Return whether a value is a cast of floats to bytes which the target packs faster than element by element."""
    if expression.operation != "cast" or expression.dtype not in _PACKED_NAMES:
        return False
    if expression.arguments[0].dtype is not DataType.FLOAT:
        return False
    if target.lanes == 16:
        return target.has("amx-int8") and target.has("avx512bw")
    return "x86_64" in target.triple and target.lanes == 8 and target.has("avx2")


def unrounded(expression: Scalar) -> tuple[Scalar, bool]:
    """Return the floats that a cast to bytes is made of, and whether they are rounded to whole numbers first."""
    value = expression.arguments[0]
    return (value.arguments[0], True) if value.operation == "rint" else (value, False)


def packed_bytes(emitter: Emitter, values: Sequence[IRValue], dtype: DataType, is_rounded: bool) -> IRValue:
    """Return one vector of bytes of one or two of floats.

    Args:
        emitter: where instructions go.
        values: the floats.
        dtype: of the bytes.
        is_rounded: whether floats are rounded to the nearest whole number; else their fractions are cut off.
    """
    narrow, lanes = _narrow(emitter, values, dtype, is_rounded), _count(values[0].type)
    packed = _packed(emitter, narrow, narrow, dtype)
    # Of each part's dwords, the first is the first vector's and the next the second one's.
    first = [number + part * _PART for number in range(len(values)) for part in range(lanes // _PART)]
    return _dwords(emitter, packed, first, vector_type(len(values) * lanes, "i8"))


def packed_pair(
    emitter: Emitter, pair: Sequence[Sequence[IRValue]], dtype: DataType, is_rounded: bool
) -> list[IRValue]:
    """Return two vectors of bytes of two of 16 floats each, as ``packed_bytes`` does, with half of its last steps."""
    first, second = (_narrow(emitter, values, dtype, is_rounded) for values in pair)
    packed = _packed(emitter, first, second, dtype)
    chosen = [part * _PART + number for number in range(_PART) for part in range(_PART)]
    both = _dwords(emitter, packed, chosen, "<64 x i8>")
    half = "<32 x i8>"
    found = []
    for start in (0, 32):
        places = ", ".join(f"i32 {start + index}" for index in range(32))
        found.append(emitter.assign(half, f"shufflevector {both.typed}, {both.typed}, <32 x i32> <{places}>"))
    return found


def _narrow(emitter: Emitter, values: Sequence[IRValue], dtype: DataType, is_rounded: bool) -> IRValue:
    """Return one or two vectors of floats as integers of 16 bits, those of each part side by side."""
    lanes = _count(values[0].type)
    before, behind = _PACKING[lanes]
    most = constant(float(integer_range(dtype)[1]), DataType.FLOAT, lanes)
    whole = []
    for value in values:
        is_more = emitter.assign(vector_type(lanes, "i1"), f"fcmp olt {most.typed}, {value.text}")
        whole.append(_converted(emitter, emitter.select(is_more, most, value), lanes, is_rounded))
    return emitter.call(vector_type(2 * lanes, "i16"), f"{before}packssdw{behind}", whole[0], whole[-1])


def _packed(emitter: Emitter, left: IRValue, right: IRValue, dtype: DataType) -> IRValue:
    """Return two vectors of integers of 16 bits as bytes, those of each part side by side."""
    count = _count(left.type)
    before, behind = _PACKING[count // 2]
    return emitter.call(vector_type(2 * count, "i8"), f"{before}{_PACKED_NAMES[dtype]}{behind}", left, right)


def _dwords(emitter: Emitter, packed: IRValue, chosen: Sequence[int], type_: str) -> IRValue:
    """Return some of a vector's dwords as a vector of bytes."""
    words = vector_type(_count(packed.type) // _PART, "i32")
    whole = emitter.assign(words, f"bitcast {packed.typed} to {words}")
    if _count(words) == 16:  # what LLVM makes of the shuffle takes four instructions
        padded = [*chosen, *[0] * (16 - len(chosen))]
        order = IRValue(words, f"<{', '.join(f'i32 {index}' for index in padded)}>")
        whole = emitter.call(words, "llvm.x86.avx512.permvar.si.512", whole, order)
        chosen = range(len(chosen))
    part = vector_type(len(chosen), "i32")
    places = ", ".join(f"i32 {index}" for index in chosen)
    few = emitter.assign(part, f"shufflevector {whole.typed}, {whole.typed}, <{len(chosen)} x i32> <{places}>")
    return emitter.assign(type_, f"bitcast {few.typed} to {type_}")


def _count(type_: str) -> int:
    return int(type_[1:].split()[0])


def _converted(emitter: Emitter, value: IRValue, lanes: int, is_rounded: bool) -> IRValue:
    words, name = vector_type(lanes, "i32"), "cvt" if is_rounded else "cvtt"
    if lanes == 8:
        return emitter.call(words, f"llvm.x86.avx.{name}.ps2dq.256", value)
    all_lanes, rounding = IRValue("i16", "-1"), IRValue("i32", "4")  # as the thread rounds
    kept = IRValue(words, "zeroinitializer")
    return emitter.call(words, f"llvm.x86.avx512.mask.{name}ps2dq.512", value, kept, all_lanes, rounding)
