"""What is found along an axis: extremes' indices, running sums and products."""

from __future__ import annotations

from ort_core.cpu.codegen.nests.scans import Scan, scan_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rows.reducing import combined, extreme_index, operand_of, store_operand
from ort_core.cpu.lowering.rules.rows.rows import required, taken_operand
from ort_core.cpu.lowering.steps import KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum
from ort_core.plugin.loops import binary, cast

F32, F64, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT64


def arg_extreme(lowering: Lowering, node: Node) -> None:
    """ArgMax and ArgMin: a reduction that keeps the best element and its index."""
    value = required(node, 0)
    _, shape = tensor_type(value)
    if not shape:
        raise NotLowered(f"{node.op_type} of a scalar is not generated")
    axis = axis_place(node.int_attribute("axis", 0), len(shape))
    lowering.require_equal(minimum(shape[axis], 1), 1)  # nothing has no extreme
    target = lowering.result_view(node.output)
    extreme_index(
        lowering, taken_operand(lowering, value), axis, largest=node.op_type == "ArgMax",
        last=bool(node.int_attribute("select_last_index", 0)), target=target, operators=(node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def hardmax(lowering: Lowering, node: Node) -> None:
    """Hardmax: one at the first of the largest elements, zero elsewhere."""
    view = lowering.contiguous(required(node, 0))
    dtype, shape = tensor_type(node.output)
    opset = lowering.opset_of(node)
    axis = axis_place(node.int_attribute("axis", -1 if opset >= 13 else 1), len(shape))
    if opset < 13:
        view, axis = view.reshaped((count_of(shape[:axis]), count_of(shape[axis:]))), 1
    flat = view.shape
    lowering.require_equal(minimum(flat[axis], 1), 1)
    best = lowering.new_view(I64, tuple(1 if a == axis else s for a, s in enumerate(flat)))
    extreme_index(lowering, operand_of(view), axis, largest=True, last=False, target=best, operators=(node,))
    along = lowering.iota(flat[axis]).reshaped((flat[axis], *(1 for _ in flat[axis + 1 :])))
    marks = combined(flat, lambda i, b: cast(binary("eq", i, b), dtype), along, best)
    if len(flat) != len(shape):
        lowering.set(node.output, store_operand(lowering, marks, (node,)).reshaped(shape))
    else:
        lowering.set(node.output, PendingElementwise(marks.expression, marks.inputs, marks.shape, (node,)))


def cumulative(lowering: Lowering, node: Node) -> None:
    """CumSum and CumProd: scans; backwards with negative strides."""
    value = required(node, 0)
    dtype, shape = tensor_type(value)
    axes = lowering.constant_of(node.input(1))
    if axes is None or axes.size != 1 or not shape:
        raise NotLowered("the axis is not constant")
    if dtype not in (F32, F64, DataType.INT32, I64):
        raise NotLowered(f"running sums of {dtype.text} are not generated")
    axis = axis_place(int(axes.reshape(-1)[0]), len(shape))
    source = lowering.contiguous(value)
    target = lowering.result_view(node.output)
    inner, length = count_of(shape[axis + 1 :]), shape[axis]
    operation = "add" if node.op_type == "CumSum" else "mul"
    state = F64 if dtype is F32 else dtype
    scan = Scan(operation, dtype, state, bool(node.int_attribute("exclusive", 0)), inner != 1)
    name, function = scan_kernel(scan, lowering.target)
    step: KnownDim = inner
    start: KnownDim = 0
    if node.int_attribute("reverse", 0):
        start, step = (length - 1) * inner, -inner
    strides = (length * inner, step, 1)
    moved = [View(v.buffer, v.shape, v.strides, v.offset + start) for v in (target, source)]
    lowering.emit(
        KernelText(name, function),
        (pointer(moved[0]), pointer(moved[1]), count_of(shape[:axis]), length, inner, *strides, *strides),
        (source.buffer,), (target.buffer,), count_of(shape), (node,), count_of(shape),
    )  # fmt: skip
    lowering.set(node.output, target)
