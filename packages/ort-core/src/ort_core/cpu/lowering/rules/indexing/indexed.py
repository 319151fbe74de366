"""Operators that read or write elements at positions that are data, and the best elements of rows."""

from __future__ import annotations

from ort_core.cpu.codegen.indexing.indexed_access import (
    gather_elements_kernel,
    gather_nd_kernel,
    scatter_elements_kernel,
    scatter_nd_kernel,
)
from ort_core.cpu.codegen.indexing.reversal import reversal_kernel
from ort_core.cpu.codegen.indexing.sorted_top_k import held_records, scratch_words, sorted_top_k_kernel
from ort_core.cpu.codegen.indexing.top_k import is_inserted, top_k_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.products.chosen_matrices import matrices_for_product
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View, count_of, dense_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, maximum, minimum
from ort_core.plugin.loops import element

_REDUCTIONS = ("none", "add", "mul", "max", "min")


def gather_nd(lowering: Lowering, node: Node) -> None:
    """GatherND: each index tuple copies one slice."""
    matrices = None
    tuples = node.input(1)
    if tuples is not None and not node.int_attribute("batch_dims", 0) and tensor_type(tuples)[1][-1:] == (1,):
        matrices = matrices_for_product(
            lowering, node, lambda: _numbers(lowering, node), lambda: _slices(lowering, node)
        )
    lowering.set(node.output, matrices or _slices(lowering, node))


def _numbers(lowering: Lowering, node: Node) -> View:
    """Return index tuples of one number as those numbers."""
    indices = _indices(lowering, node)
    return indices.reshaped(indices.shape[:-1])


def _slices(lowering: Lowering, node: Node) -> View:
    """Write the step that copies slices, and return them."""
    data, indices = lowering.contiguous(node.input(0)), _indices(lowering, node)
    batch_dims = node.int_attribute("batch_dims", 0)
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 0 < depth <= len(data.shape) - batch_dims:
        raise NotLowered("the length of index tuples is only known at run time")
    for left, right in zip(data.shape[:batch_dims], indices.shape[:batch_dims]):
        lowering.require_equal(left, right)
    target = lowering.result_view(node.output)
    itemsize = data.buffer.itemsize
    sizes = data.shape[batch_dims : batch_dims + depth]
    strides = [s * itemsize for s in dense_strides(data.shape)[batch_dims : batch_dims + depth]]
    name, function = gather_nd_kernel(depth, indices.dtype.bits)
    arguments = (
        pointer(target), pointer(data), pointer(indices), Pointer(lowering.error_buffer()),
        count_of(data.shape[:batch_dims]), count_of(indices.shape[batch_dims:-1]),
        count_of(data.shape[batch_dims:]) * itemsize, count_of(data.shape[batch_dims + depth :]) * itemsize,
        *sizes, *strides,
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments, (data.buffer, indices.buffer), (target.buffer,), count_of(target.shape),
        (node,),
    )  # fmt: skip
    return target


def gather_elements(lowering: Lowering, node: Node) -> None:
    """GatherElements: each index reads one element along the axis."""
    data, indices = lowering.view(node.input(0)), _indices(lowering, node)
    axis = _axis(node, data)
    _require_within(lowering, indices, data, axis)
    lowering.require_equal(minimum(data.shape[axis], 1), 1)  # nothing has no element to read
    target = lowering.result_view(node.output)
    name, function = gather_elements_kernel(
        len(data.shape), axis, data.buffer.itemsize, indices.dtype.bits, is_dense=data.strides[axis] == 1
    )
    arguments = (
        pointer(target), pointer(data), pointer(indices), Pointer(lowering.error_buffer()), *indices.shape,
        data.shape[axis], *data.strides,
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments, (data.buffer, indices.buffer), (target.buffer,),
        count_of(target.shape) * 2, (node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def scatter_elements(lowering: Lowering, node: Node) -> None:
    """Scatter and ScatterElements: a copy, then updates along the axis."""
    reduction = _reduction(node)
    indices, updates = _indices(lowering, node), lowering.contiguous(node.input(2))
    source = lowering.view(node.input(0))
    axis = _axis(node, source)
    _require_within(lowering, indices, source, axis)
    for left, right in zip(indices.shape, updates.shape, strict=True):
        lowering.require_equal(left, right)
    target = _copy_of(lowering, node, source)
    name, function = scatter_elements_kernel(len(source.shape), axis, source.dtype, indices.dtype.bits, reduction)
    arguments = (
        pointer(target), pointer(updates), pointer(indices), Pointer(lowering.error_buffer()), *indices.shape,
        source.shape[axis], *target.strides,
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments, (updates.buffer, indices.buffer, target.buffer), (target.buffer,),
        count_of(indices.shape) * 2, (node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def scatter_nd(lowering: Lowering, node: Node) -> None:
    """ScatterND: a copy, then slices at index tuples replaced or combined."""
    reduction = _reduction(node)
    source, indices, updates = (
        lowering.view(node.input(0)),
        _indices(lowering, node),
        lowering.contiguous(node.input(2)),
    )
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 0 < depth <= len(source.shape):
        raise NotLowered("the length of index tuples is only known at run time")
    wanted = (*indices.shape[:-1], *source.shape[depth:])
    if len(wanted) != len(updates.shape):
        raise NotLowered("the updates have another rank")
    for left, right in zip(wanted, updates.shape):
        lowering.require_equal(left, right)
    target = _copy_of(lowering, node, source)
    name, function = scatter_nd_kernel(depth, source.dtype, indices.dtype.bits, reduction)
    arguments = (
        pointer(target), pointer(updates), pointer(indices), Pointer(lowering.error_buffer()),
        count_of(indices.shape[:-1]), count_of(source.shape[depth:]), *source.shape[:depth],
        *dense_strides(source.shape)[:depth],
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments, (updates.buffer, indices.buffer, target.buffer), (target.buffer,),
        count_of(updates.shape), (node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def reverse_sequence(lowering: Lowering, node: Node) -> None:
    """ReverseSequence: rows behind both axes are copied whole."""
    data, lengths = lowering.contiguous(node.input(0)), lowering.contiguous(node.input(1))
    rank = len(data.shape)
    time, batch = (axis_place(node.int_attribute(name, at), rank) for name, at in (("time_axis", 0), ("batch_axis", 1)))
    if rank < 2 or time == batch or len(lengths.shape) != 1 or lengths.dtype is not DataType.INT64:
        raise NotLowered("time and batch are not two axes, or the lengths are not a vector of int64")
    lowering.require_equal(lengths.shape[0], data.shape[batch])
    first, second = sorted((time, batch))
    sizes = (
        count_of(data.shape[:first]),
        data.shape[first],
        count_of(data.shape[first + 1 : second]),
        data.shape[second],
    )
    target = lowering.result_view(node.output, data.shape)
    name, function = reversal_kernel(is_time_first=time < batch)
    arguments = (
        pointer(target), pointer(data), pointer(lengths), Pointer(lowering.error_buffer()), *sizes,
        count_of(data.shape[second + 1 :]) * data.buffer.itemsize,
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments, (data.buffer, lengths.buffer), (target.buffer,), count_of(data.shape),
        (node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def top_k(lowering: Lowering, node: Node) -> None:
    """TopK along the last axis; another axis is moved there and back."""
    source = lowering.view(node.input(0))
    wanted = lowering.elements_of(node.input(1)) if node.input(1) is not None else (node.int_attribute("k", 0),)
    if not source.shape or wanted is None or len(wanted) != 1:
        raise NotLowered("k is only known at run time")
    k = wanted[0]
    if (isinstance(k, int) and k <= 0) or source.dtype is DataType.BOOL:
        raise NotLowered(f"k = {k} is not generated")
    axis = axis_place(node.int_attribute("axis", -1), len(source.shape))
    order = [*(a for a in range(len(source.shape)) if a != axis), axis]
    length = source.shape[axis]
    lowering.require_equal(minimum(length, k), k)
    rows = source.transposed(order)
    rows = rows if rows.is_contiguous else lowering.copied(rows)
    shape = (*rows.shape[:-1], k)
    views = []
    for number, dtype in enumerate((source.dtype, DataType.INT64)):
        output = node.outputs[number] if number < len(node.outputs) else None
        if output is not None and axis == len(order) - 1:
            views.append(lowering.result_view(output, shape))
        else:
            views.append(lowering.new_view(dtype, shape))
    _emit_top_k(lowering, node, rows, (views[0], views[1]))
    back = [order.index(a) for a in range(len(order))]
    for output, view in zip(node.outputs, views):
        if output is not None:
            lowering.set(output, view.transposed(back) if axis != len(order) - 1 else view)


def _emit_top_k(lowering: Lowering, node: Node, rows: View, results: tuple[View, View]) -> None:
    """Write the step that stores the best elements of contiguous rows and their indices."""
    values, indices = results
    length, k = rows.shape[-1], values.shape[-1]
    count = count_of((*values.shape[:-1], minimum(k, 1)))  # no row has a best element where k is a size of 0
    is_largest, machine = bool(node.int_attribute("largest", 1)), lowering.target
    arguments: list[Argument] = [pointer(values), pointer(indices), pointer(rows), count, length, k]
    writes = [values.buffer, indices.buffer]
    if is_inserted(length, k):
        kernel = KernelText(*top_k_kernel(rows.dtype, largest=is_largest))
    else:
        words = scratch_words(length, k)
        scratch = lowering.scratch(DataType.INT64, words)
        arguments += [held_records(length, k), Pointer(scratch), words]
        writes.append(scratch)
        kernel = kernel_text(
            "sorted_top_k", f"{rows.dtype.text} {is_largest}",
            lambda name: sorted_top_k_kernel(name, rows.dtype, machine, largest=is_largest),
        )  # fmt: skip
    lowering.emit(kernel, arguments, (rows.buffer,), writes, count_of(rows.shape) * 4, (node,))


def _copy_of(lowering: Lowering, node: Node, source: View) -> View:
    target = lowering.result_view(node.output)
    pending = PendingElementwise(element(0, source.dtype), (source,), source.shape, (node,))
    return lowering.stores.store_elementwise(pending, target)


def _indices(lowering: Lowering, node: Node) -> View:
    indices = lowering.contiguous(node.input(1))
    if indices.dtype not in (DataType.INT64, DataType.INT32) or not indices.shape:
        raise NotLowered(f"indices of type {indices.dtype.text} are not generated")
    return indices


def _axis(node: Node, view: View) -> int:
    if not view.shape:
        raise NotLowered(f"{node.op_type} of a scalar is not generated")
    return axis_place(node.int_attribute("axis", 0), len(view.shape))


def _require_within(lowering: Lowering, indices: View, data: View, axis: int) -> None:
    if len(indices.shape) != len(data.shape):
        raise NotLowered("indices and data have different ranks")
    for other, (count, size) in enumerate(zip(indices.shape, data.shape)):
        if other != axis:
            over: KnownDim = maximum(count - size, 0)
            lowering.require_equal(over, 0)


def _reduction(node: Node) -> str:
    attribute = node.attribute("reduction")
    reduction = attribute if isinstance(attribute, str) else "none"
    output = tensor_type(node.output)[0]
    if reduction not in _REDUCTIONS or (reduction != "none" and output is DataType.BOOL):
        raise NotLowered(f"the reduction {reduction!r} of {output.text} is not generated")
    return reduction
