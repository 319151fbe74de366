"""Gather from a constant table of 256 bytes by bytes that were cast to indices: no index is out of bounds."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.quantized.byte_table import TABLE_NBYTES, byte_table_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, pointer
from ort_core.cpu.lowering.value_types import axis_place
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes, ordered_strides
from ort_core.plugin.ir import DataType, Node, Value

BYTES = (DataType.UINT8, DataType.INT8)
_INDICES = (DataType.INT32, DataType.INT64)


def looked_up_bytes(lowering: Lowering, node: Node) -> View | None:
    """Write the step of a Gather that looks bytes up in a table, and return the result; ``None`` for any other.

    A result lies in memory as the bytes do: images between convolutions stay channels-last.
    """
    table, source = lowering.constant_of(node.input(0)), _cast_bytes(lowering, node.input(1))
    if table is None or source is None or table.shape != (TABLE_NBYTES,) or table.dtype.itemsize != 1:
        return None
    if table.dtype.kind not in "iu" or axis_place(node.int_attribute("axis", 0), 1) != 0:
        return None
    dtype, view = DataType.from_numpy(table.dtype), lowering.view(source)
    if view.order and view.strides == ordered_strides(view.shape, view.order) and not lowering.is_output(node.output):
        target = lowering.placed_view(node.output, dtype, view.shape, view.order)
    else:
        view, target = lowering.contiguous(source), lowering.result_view(node.output)
    constant = lowering.constant_view(np.ascontiguousarray(table), dtype)
    name, function = byte_table_kernel(lowering.target)
    count = count_of(view.shape)
    words = (pointer(view), pointer(constant), pointer(target), count)
    reads = (view.buffer, constant.buffer)
    lowering.emit(
        KernelText(name, function), words, reads, (target.buffer,), count, (node,), 0, moved_nbytes([view, target])
    )
    return target


def _cast_bytes(lowering: Lowering, indices: Value | None) -> Value | None:
    """Return the bytes that indices are cast from."""
    node = None if indices is None else indices.producer
    if indices is None or node is None or (node.domain, node.op_type) != ("", "Cast"):
        return None
    source = node.input(0)
    if source is None or lowering.type_of(indices)[0] not in _INDICES or lowering.type_of(source)[0] not in BYTES:
        return None
    return source
