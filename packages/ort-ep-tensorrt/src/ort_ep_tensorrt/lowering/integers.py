"""Integers: shifts, remainders and choices among truth values, in arithmetic that TensorRT has.

y = BitShift<direction="RIGHT">(x, n)   ->   y = floor(x / 2^n)                           in int64
y = Mod(x, d)                           ->   r = Mod<fmod=1>(x, d)   y = r, or r + d where the signs differ
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_ep_tensorrt.lowering.editing import Editor, Results

_WIDTHS = {DataType.INT32: 32, DataType.INT64: 64}
_LARGEST_POWER = 62  # 2^63 is no int64


def bit_shift(editor: Editor) -> Results | Rejection:
    """BitShift -> a product with, or a quotient by, a power of two; by less than 0 or all bits: the sign alone."""
    node, x, amount = editor.node, editor.input(0), editor.input(1)
    dtype = dtype_of(x)
    if dtype not in _WIDTHS:
        return Rejection(f"BitShift of {x.type} is written in parts for int32 and int64 alone", node)
    is_left = node.string_attribute("direction", "") == "LEFT"
    if is_left and dtype is DataType.INT64:
        return Rejection(
            "BitShift to the left leaves the range of int64, and what TensorRT makes of that is unknown", node
        )
    wide = x if dtype is DataType.INT64 else editor.cast(x, DataType.INT64)
    n = amount if dtype is DataType.INT64 else editor.cast(amount, DataType.INT64)
    zero, bits = _whole(editor, 0), _whole(editor, min(_WIDTHS[dtype], _LARGEST_POWER + 1))
    is_outside = editor.add("Or", [editor.add("Less", [n, zero]), editor.add("Not", [editor.add("Less", [n, bits])])])
    powers = editor.constant(np.left_shift(np.int64(1), np.arange(_LARGEST_POWER + 1, dtype=np.int64)))
    power = editor.add("Gather", [powers, editor.add("Where", [is_outside, zero, n])], {"axis": 0})
    if is_left:
        shifted, beyond = _wrapped(editor, editor.add("Mul", [wide, power])), zero
    else:
        is_negative = editor.add("Less", [wide, zero])
        shifted, beyond = _floored(editor, wide, power), editor.add("Where", [is_negative, _whole(editor, -1), zero])
    found = editor.add("Where", [is_outside, beyond, shifted])
    return {0: found if dtype is DataType.INT64 else editor.cast(found, DataType.INT32)}


def _floored(editor: Editor, x: Value, divisor: Value) -> Value:
    """Return ``floor(x / divisor)`` in int64, of which Div cuts off what is behind the point."""
    quotient = editor.add("Div", [x, divisor])
    rest = editor.add("Sub", [x, editor.add("Mul", [quotient, divisor])])
    is_below = editor.add("Less", [rest, _whole(editor, 0)])
    return editor.add("Sub", [quotient, editor.cast(is_below, DataType.INT64)])


def _wrapped(editor: Editor, x: Value) -> Value:
    """Return the number of int32 that the low 32 bits of an int64 are."""
    span, half = _whole(editor, 1 << 32), _whole(editor, 1 << 31)
    turns = _floored(editor, editor.add("Add", [x, half]), span)
    return editor.add("Sub", [x, editor.add("Mul", [turns, span])])


def _whole(editor: Editor, number: int) -> Value:
    return editor.constant(np.array(number, np.int64))


def bitwise_not(editor: Editor) -> Results | Rejection:
    """BitwiseNot(x) -> -1 - x."""
    x = editor.input(0)
    if dtype_of(x) not in _WIDTHS:
        return Rejection(f"BitwiseNot of {x.type} is written in parts for int32 and int64 alone", editor.node)
    return {0: editor.add("Sub", [editor.number(-1, x), x], like=editor.node.output)}


def mod(editor: Editor) -> Results | Rejection:
    """Mod whose result has the divisor's sign, of floats -> that whose result has the other sign, mended."""
    x, divisor = editor.input(0), editor.input(1)
    if editor.node.int_attribute("fmod", 0):
        return Rejection("Mod whose result has the sign of the dividend has no other words", editor.node)
    rest = editor.add("Mod", [x, divisor], {"fmod": 1}, like=editor.node.output)
    zero = editor.number(0, x)
    differ = editor.add("Xor", [editor.add("Less", [rest, zero]), editor.add("Less", [divisor, zero])])
    is_mended = editor.add("And", [differ, editor.add("Not", [editor.add("Equal", [rest, zero])])])
    mended = editor.add("Add", [rest, divisor], like=editor.node.output)
    return {0: editor.add("Where", [is_mended, mended, rest], like=editor.node.output)}


def reduce_of_bool(editor: Editor) -> Results | Rejection:
    """ReduceMax and ReduceMin of truth values -> those of int32."""
    node, x = editor.node, editor.input(0)
    if dtype_of(x) is not DataType.BOOL:
        return Rejection(f"{node.op_type} of {x.type} has no other words", node)
    attributes = {name: each.value for name, each in node.attributes.items()}
    reduced = editor.add(node.op_type, [editor.cast(x, DataType.INT32), *node.inputs[1:]], attributes)
    reduced.type = TensorType(DataType.INT32, node.output.shape)
    is_largest = node.op_type == "ReduceMax"  # of no elements: the least number of int32, which is to be False
    bounded = editor.add("Max" if is_largest else "Min", [reduced, editor.number(0 if is_largest else 1, reduced)])
    return {0: editor.cast(bounded, DataType.BOOL)}
