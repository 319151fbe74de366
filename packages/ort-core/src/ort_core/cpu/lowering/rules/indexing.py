"""Gather along any axis."""

from __future__ import annotations

from ort_core.cpu.codegen.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import count_of, moved_nbytes
from ort_core.plugin.ir import DataType, Node


def gather(lowering: Lowering, node: Node) -> None:
    """Gather: each index copies one row of the table."""
    table = lowering.contiguous(node.input(0))
    indices = lowering.contiguous(node.input(1))
    if indices.dtype not in (DataType.INT64, DataType.INT32):
        raise NotLowered(f"indices of type {indices.dtype.text}")
    axis = node.int_attribute("axis", 0) % max(len(table.shape), 1)
    target = lowering.result_view(node.output)
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
    lowering.set(node.output, target)
