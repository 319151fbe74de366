"""Gather along any axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.products.chosen_matrices import matrices_for_product
from ort_core.cpu.lowering.products.quantized import (
    QuantizedConstant,
    as_float,
    quantized_constant,
    quantized_value,
    set_quantized,
)
from ort_core.cpu.lowering.rules.indexing.byte_tables import looked_up_bytes
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import HALVES, axis_place, tensor_type
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import cast, element


def gather(lowering: Lowering, node: Node) -> None:
    """Gather: each index copies one row of the table; what is stored in fewer bits is made real behind it."""
    found = looked_up_bytes(lowering, node)
    if found is not None:
        lowering.set(node.output, found)
        return
    quantized = quantized_value(lowering, node.input(0))
    if quantized is not None:
        table = quantized.view(lowering)
        rows = _gathered(lowering, node, table if table.is_contiguous else lowering.copied(table))
        set_quantized(lowering, node.output, rows, quantized.grid)
        return
    stored = quantized_constant(lowering, node.input(0))
    if stored is not None and stored.integers.ndim and stored.integers.dtype.itemsize <= 2:
        _gather_by_channels(lowering, node, stored)
        return
    halves = _stored_halves(lowering, node.input(0))
    if halves is not None:
        rows = _gathered(lowering, node, halves)
        real = cast(element(0, halves.dtype), DataType.FLOAT)
        lowering.set(node.output, PendingElementwise(real, (rows,), rows.shape, ("Cast",)))
        return
    matrices = None
    if node.int_attribute("axis", 0) in (0, -3):  # the first one of a stack of matrices
        matrices = matrices_for_product(
            lowering, node, lambda: _indices(lowering, node), lambda: _copied(lowering, node)
        )
    lowering.set(node.output, matrices or _copied(lowering, node))


def _copied(lowering: Lowering, node: Node) -> View:
    """Write the step that copies what indices choose of any table, and return it."""
    table = lowering.contiguous(node.input(0))
    return _gathered(lowering, node, table, lowering.result_view(node.output))


def _gather_by_channels(lowering: Lowering, node: Node, table: QuantizedConstant) -> None:
    """Gather integers, and the scale and zero point of each where they lie along the axis; real numbers follow."""
    integers = table.integers
    rows = _gathered(lowering, node, lowering.constant_view(integers, DataType.from_numpy(integers.dtype)))
    axis, rank = axis_place(node.int_attribute("axis", 0), integers.ndim), len(rows.shape)

    def spread(numbers: np.ndarray) -> View:
        view = lowering.constant_view(np.ascontiguousarray(numbers, np.float32), DataType.FLOAT)
        if numbers.size == 1:
            return view.reshaped(())
        behind = integers.ndim - table.axis - 1
        if table.axis == axis:
            view = _along(lowering, node, view, 0, lowering.view(node.input(1)).shape)
        elif table.axis < axis:
            behind = rank - table.axis - 1
        return view.reshaped((*view.shape, *[1] * behind))

    real, inputs = as_float(element(0, rows.dtype)), [rows]
    if table.zero_points.any():
        inputs.append(spread(table.zero_points))
        real = real - element(len(inputs) - 1, DataType.FLOAT)
    inputs.append(spread(table.scales))
    real = real * element(len(inputs) - 1, DataType.FLOAT)
    for view in inputs[1:]:
        known_strides(view, rows.shape)
    lowering.set(node.output, PendingElementwise(real, tuple(inputs), rows.shape, (node,)))


def _gathered(lowering: Lowering, node: Node, table: View, target: View | None = None) -> View:
    """Write the step that copies rows of a table, and return them."""
    axis = axis_place(node.int_attribute("axis", 0), len(table.shape))
    return _along(lowering, node, table, axis, tensor_type(node.output)[1], target)


def _along(
    lowering: Lowering, node: Node, table: View, axis: int, shape: Sequence[KnownDim], target: View | None = None
) -> View:
    """Write the step that copies what the node's indices say of an axis, and return the result of a shape."""
    indices = _indices(lowering, node)
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


def _indices(lowering: Lowering, node: Node) -> View:
    indices = lowering.contiguous(node.input(1))
    if indices.dtype not in (DataType.INT64, DataType.INT32):
        raise NotLowered(f"indices of type {indices.dtype.text} are not generated")
    return indices


def _stored_halves(lowering: Lowering, value: Value | None) -> View | None:
    """Return a constant table of float16 or bfloat16 as it is stored, ``None`` for any other.

    Widened as a whole, the embeddings of a language model would take twice the memory for a few rows of each run.
    """
    array = lowering.constant_of(value)
    dtype = None if array is None else DataType.from_numpy(array.dtype)
    return lowering.constant_view(array, dtype) if array is not None and dtype in HALVES else None
