"""Gather along any axis."""

from __future__ import annotations

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.products.quantized import quantized_value, set_quantized
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import HALVES, axis_place, tensor_type
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import cast, element


def gather(lowering: Lowering, node: Node) -> None:
    """Gather: each index copies one row of the table; what is stored in fewer bits is made real behind it."""
    quantized = quantized_value(lowering, node.input(0))
    if quantized is not None:
        stored = quantized.view(lowering)
        rows = _gathered(lowering, node, stored if stored.is_contiguous else lowering.copied(stored))
        set_quantized(lowering, node.output, rows, quantized.grid)
        return
    halves = _stored_halves(lowering, node.input(0))
    if halves is not None:
        rows = _gathered(lowering, node, halves)
        real = cast(element(0, halves.dtype), DataType.FLOAT)
        lowering.set(node.output, PendingElementwise(real, (rows,), rows.shape, ("Cast",)))
        return
    table = lowering.contiguous(node.input(0))
    lowering.set(node.output, _gathered(lowering, node, table, lowering.result_view(node.output)))


def _gathered(lowering: Lowering, node: Node, table: View, target: View | None = None) -> View:
    """Write the step that copies rows of a table, and return them."""
    indices = lowering.contiguous(node.input(1))
    if indices.dtype not in (DataType.INT64, DataType.INT32):
        raise NotLowered(f"indices of type {indices.dtype.text} are not generated")
    axis = axis_place(node.int_attribute("axis", 0), len(table.shape))
    _, shape = tensor_type(node.output)
    target = lowering.new_view(table.dtype, shape) if target is None else target
    name, function = gather_kernel(indices.dtype.bits)
    row = count_of(table.shape[axis + 1 :]) * table.buffer.itemsize
    error = lowering.error_buffer()
    arguments = (
        pointer(target), pointer(table), pointer(indices), Pointer(error), count_of(table.shape[:axis]),
        count_of(indices.shape), table.shape[axis], row,
    )  # fmt: skip
    reads = (table.buffer, indices.buffer)
    count = count_of(target.shape)
    moved = moved_nbytes([indices]) + 2 * count * table.buffer.itemsize
    lowering.emit(KernelText(name, function), arguments, reads, (target.buffer,), count, (node,), 0, moved)
    return target


def _stored_halves(lowering: Lowering, value: Value | None) -> View | None:
    """Return a constant table of float16 or bfloat16 as it is stored, ``None`` for any other.

    Widened as a whole, the embeddings of a language model would take twice the memory for a few rows of each run.
    """
    array = lowering.constant_of(value)
    dtype = None if array is None else DataType.from_numpy(array.dtype)
    return lowering.constant_view(array, dtype) if array is not None and dtype in HALVES else None
