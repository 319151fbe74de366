"""Quantized products: MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv as products in float32.

q = QLinearMatMul(a, sa, za, b, sb, zb, s, z)
->  p = MatMul(a - za, b - zb)   q = Min(Max(Round(p * (sa * sb / s)) + z, 0), 255)

float32 holds every integer up to 2^24. A sum is cut in pieces that stay below that for any numbers of 8 bits, or for
the constant that is there; the pieces are added in int32. So every sum is exact, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_ep_tensorrt.lowering.editing import Editor, Results
from ort_ep_tensorrt.lowering.integer_emulation import BOUNDS

_LARGEST = 255  # of a difference of two integers of 8 bits, in size
_WHOLE_IN_FLOAT32 = 1 << 24  # up to here float32 holds every integer
MAX_PIECES = 64  # of one sum; each is a product of its own


def mat_mul_integer(editor: Editor) -> Results | Rejection:
    """MatMulInteger(a, B, za, zb) -> the sum in int32 of MatMul(a - za, B - zb) over pieces of the inner axis."""
    found = _product(editor, (0, 2), (1, 3))
    return found if isinstance(found, Rejection) else {0: found}


def q_linear_mat_mul(editor: Editor) -> Results | Rejection:
    """QLinearMatMul -> that sum times the ratio of the scales, rounded, moved and clipped."""
    sums = _product(editor, (0, 2), (3, 5))
    if isinstance(sums, Rejection):
        return sums
    left = editor.add("Mul", [_wide(editor, _rows(editor, 1)), _wide(editor, editor.input(4))])
    ratio = editor.add("Div", [left, _wide(editor, _rows(editor, 6))])
    return _requantized(editor, sums, ratio, _rows(editor, 7))


def conv_integer(editor: Editor) -> Results | Rejection:
    """ConvInteger(x, w, zx, zw) -> the sum in int32 of Conv(x - zx, w - zw) over pieces of the channels."""
    found = _convolved(editor, (0, 2), (1, 3))
    return found if isinstance(found, Rejection) else {0: found}


def q_linear_conv(editor: Editor) -> Results | Rejection:
    """QLinearConv -> that sum and its bias, times the ratio of the scales, rounded, moved and clipped."""
    sums = _convolved(editor, (0, 2), (3, 5))
    if isinstance(sums, Rejection):
        return sums
    bias = editor.node.input(8)
    if bias is not None:
        sums = editor.add("Add", [sums, _channels(editor, bias)], like=sums)
    scales = editor.add("Mul", [_single(editor, editor.input(1)), _channels(editor, editor.input(4))])
    ratio = editor.add("Div", [scales, _single(editor, editor.input(6))])
    return _requantized(editor, sums, ratio, _single(editor, editor.input(7)))


def _product(editor: Editor, left: tuple[int, int], right: tuple[int, int]) -> Value | Rejection:
    node, a, b = editor.node, editor.input(left[0]), editor.input(right[0])
    inner = a.shape[-1] if a.shape else None
    fixed = _fixed_difference(editor, *right)
    if not isinstance(inner, int):
        inner = None if fixed is None or fixed.ndim < 1 else int(fixed.shape[max(0, fixed.ndim - 2)])
    if inner is None or b.rank is None:
        return Rejection(f"how many products {node.op_type} adds up is open", node)
    step = max(1, int(_WHOLE_IN_FLOAT32 // (_LARGEST * (_LARGEST if fixed is None else _size(fixed)))))
    if inner > step * MAX_PIECES:
        return Rejection(f"{node.op_type} adds up {inner} products: too many for exact sums in float32", node)
    offset = node.input(left[1])
    rows = _centered(editor, a, None if offset is None else _rows(editor, left[1]))
    columns = editor.constant(fixed) if fixed is not None else _centered(editor, b, node.input(right[1]))
    bounds = [(start, min(start + step, inner)) for start in range(0, inner, step)]
    axis = max(-2, -b.rank)  # of the columns: a vector has one
    products = (
        editor.add("MatMul", [_cut(editor, rows, -1, each, inner), _cut(editor, columns, axis, each, inner)])
        for each in bounds
    )
    return _added(editor, products)


def _convolved(editor: Editor, image: tuple[int, int], kernel: tuple[int, int]) -> Value | Rejection:
    node, x, w = editor.node, editor.input(image[0]), editor.input(kernel[0])
    fixed, sizes = _fixed_difference(editor, *kernel), w.shape
    if sizes is None or any(not isinstance(size, int) for size in sizes[1:]):
        return Rejection(f"how many products {node.op_type} adds up is open", node)
    channels, *window = (size for size in sizes[1:] if isinstance(size, int))
    of_channel = _LARGEST * int(np.prod(window)) * (_LARGEST if fixed is None else _size(fixed))
    step = int(_WHOLE_IN_FLOAT32 // max(1, of_channel))
    is_grouped = node.int_attribute("group", 1) != 1
    if step < 1 or (is_grouped and step < channels) or channels > step * MAX_PIECES:
        return Rejection(f"{node.op_type} adds up too many products for exact sums in float32", node)
    offset, center = node.input(image[1]), node.input(kernel[1])
    pixels = _centered(editor, x, None if offset is None else _single(editor, offset))
    weights = (
        editor.constant(fixed)
        if fixed is not None
        else _centered(editor, w, None if center is None else _kernels(editor, center, len(sizes)))
    )
    attributes = {name: each.value for name, each in node.attributes.items()}
    bounds = [(start, min(start + step, channels)) for start in range(0, channels, step)]
    parts = (
        editor.add("Conv", [_cut(editor, each, 1, bound, channels) for each in (pixels, weights)], attributes)
        for bound in bounds
    )
    return _added(editor, parts)


def _added(editor: Editor, parts: Iterable[Value]) -> Value:
    """Return the sum of whole numbers in float32, in int32."""
    total: Value | None = None
    for part in parts:
        whole = editor.cast(part, DataType.INT32)
        total = whole if total is None else editor.add("Add", [total, whole], like=whole)
    assert total is not None, "no sum is empty"
    return total


def _requantized(editor: Editor, sums: Value, ratio: Value, zero: Value) -> Results | Rejection:
    target = dtype_of(zero)
    if target is None or target not in BOUNDS:
        return Rejection(f"{editor.node.op_type} makes {zero.type}, which TensorRT lacks", editor.node)
    steps = editor.add("Round", [editor.add("Mul", [editor.cast(sums, DataType.FLOAT), ratio])])
    low, high = (editor.constant(np.array(bound, np.float32)) for bound in BOUNDS[target])
    moved = editor.add("Add", [steps, editor.cast(zero, DataType.FLOAT)])
    clipped = editor.add("Min", [editor.add("Max", [moved, low]), high])
    clipped.type = TensorType(DataType.FLOAT, editor.node.output.shape)
    return {0: editor.cast(clipped, target)}


def _centered(editor: Editor, value: Value, zero: Value | None) -> Value:
    wide = editor.cast(value, DataType.FLOAT)
    return wide if zero is None else editor.add("Sub", [wide, editor.cast(zero, DataType.FLOAT)], like=wide)


def _fixed_difference(editor: Editor, index: int, zero: int) -> np.ndarray | None:
    """Return a constant without its zero points in float32, ``None`` where one of the two is none."""
    value, offset = editor.fixed(index), editor.fixed(zero)
    if value is None or (editor.node.input(zero) is not None and offset is None):
        return None
    if offset is None or offset.size == 1:
        return (value.astype(np.int32) - (0 if offset is None else int(offset.reshape(())))).astype(np.float32)
    is_kernel = editor.node.op_type in ("ConvInteger", "QLinearConv")
    spread = offset.reshape(-1, *([1] * (value.ndim - 1))) if is_kernel else offset
    return np.asarray(value.astype(np.int32) - spread.astype(np.int32)).astype(np.float32)


def _size(weights: np.ndarray) -> float:
    return max(1.0, float(np.abs(weights).max(initial=0)))


def _cut(editor: Editor, value: Value, axis: int, bounds: tuple[int, int], count: int) -> Value:
    if bounds == (0, count):
        return value
    ends = [editor.constant(np.array([number], np.int64)) for number in (*bounds, axis)]
    return editor.add("Slice", [value, *ends])


def _rows(editor: Editor, index: int) -> Value:
    """Return a scale or zero point, those of rows as a column."""
    value = editor.input(index)
    if value.rank != 1 or value.shape == (1,):
        return value
    return _reshaped(editor, value, -1, 1)


def _single(editor: Editor, value: Value) -> Value:
    return value if value.rank == 0 else _reshaped(editor, value)


def _channels(editor: Editor, value: Value) -> Value:
    """Return one number for each output channel, or one for all, so that it broadcasts over images."""
    if value.rank == 0:
        return value
    rank = editor.input(3 if editor.node.op_type == "QLinearConv" else 1).rank or 4
    return _reshaped(editor, value, -1, *([1] * (rank - 2)))


def _kernels(editor: Editor, value: Value, rank: int) -> Value:
    return value if value.rank == 0 else _reshaped(editor, value, -1, *([1] * (rank - 1)))


def _reshaped(editor: Editor, value: Value, *sizes: int) -> Value:
    made = editor.add("Reshape", [value, editor.constant(np.array(sizes, np.int64))])
    known = tuple(None if size == -1 else size for size in sizes)
    made.type = TensorType(dtype_of(value) or DataType.FLOAT, known)
    return made


def _wide(editor: Editor, value: Value) -> Value:
    return value if dtype_of(value) is DataType.FLOAT else editor.cast(value, DataType.FLOAT)
