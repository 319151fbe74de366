"""Embedding tables of com.microsoft: the summed and normalised ones of BERT, and tables of few bits in blocks."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering, tensor_type
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.quantized import F32
from ort_core.cpu.lowering.reducing import combined, reduce_operand
from ort_core.cpu.lowering.rules.rows import normalized_rows
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar, binary, cast

I32 = DataType.INT32
INDICES = frozenset({I32, DataType.INT64})


def embed_layer_normalization(lowering: Lowering, node: Node) -> None:
    """EmbedLayerNormalization: rows of two or three tables, summed, normalised; also counts of a mask."""
    ids = lowering.contiguous(_required(node, 0))
    if len(ids.shape) != 2:
        raise NotLowered("the ids are no matrix")
    tables = [lowering.contiguous(_required(node, index)) for index in (2, 3)]
    rows = [gather_rows(lowering, node, tables[0], ids)]
    given = node.input(8)
    positions = lowering.iota(ids.shape[1]) if given is None else lowering.contiguous(given)
    rows.append(gather_rows(lowering, node, tables[1], positions))
    if node.input(1) is not None and node.input(4) is not None:
        segments = lowering.contiguous(node.input(1))
        rows.append(gather_rows(lowering, node, lowering.contiguous(node.input(4)), segments))
    _count_mask(lowering, node, ids)
    total = node.outputs[2] if len(node.outputs) > 2 else None
    if total is not None:
        rows = [_stored_sum(lowering, node, rows, total)]
    normalized_rows(
        lowering, node, rows, node.input(5), node.input(6), node.float_attribute("epsilon", 9.999999960041972e-13)
    )


def _stored_sum(lowering: Lowering, node: Node, rows: list[View], output: Value) -> View:
    total = combined(tensor_type(output)[1], lambda *each: sum(each[1:], each[0]), *rows)
    target = lowering.result_view(output)
    lowering.store_elementwise(PendingElementwise(total.expression, total.inputs, total.shape, (node,)), target)
    lowering.set(output, target)
    return target


def _count_mask(lowering: Lowering, node: Node, ids: View) -> None:
    """Set the second output: how many elements of each row of the mask are 1; 0 without a mask."""
    output = node.outputs[1] if len(node.outputs) > 1 else None
    if output is None:
        return
    if node.input(7) is None:
        zeros = lowering.constant_view(np.zeros((), np.int32), I32)
        count = combined((ids.shape[0],), lambda x: x, zeros)
        target = lowering.result_view(output)
        lowering.store_elementwise(PendingElementwise(count.expression, count.inputs, count.shape, (node,)), target)
    else:
        mask = lowering.contiguous(node.input(7))
        ones = combined(mask.shape, lambda x: cast(binary("eq", x, 1), I32), mask)
        target = reduce_operand(lowering, ones, [1], "sum", operators=(node,)).reshaped((mask.shape[0],))
    lowering.set(output, target)


def gather_rows(lowering: Lowering, node: Node, table: View, indices: View) -> View:
    """Write the step that copies a row of a contiguous table for each index; return ``[*indices, *row]``."""
    if indices.dtype not in INDICES:
        raise NotLowered(f"indices of type {indices.dtype.text}")
    name, function = gather_kernel(indices.dtype.bits)
    target = lowering.new_view(table.dtype, (*indices.shape, *table.shape[1:]))
    row = count_of(table.shape[1:]) * table.buffer.itemsize
    error = Pointer(lowering.error_buffer())
    words = (pointer(target), pointer(table), pointer(indices), error, 1, count_of(indices.shape), table.shape[0], row)
    moved = moved_nbytes([indices]) + 2 * count_of(target.shape) * table.buffer.itemsize
    reads = (table.buffer, indices.buffer)
    lowering.emit(
        KernelText(name, function), words, reads, (target.buffer,), count_of(target.shape), (node,), 0, moved
    )  # fmt: skip
    return target


def gather_block_quantized(lowering: Lowering, node: Node) -> None:
    """GatherBlockQuantized of bytes: rows of a table whose last axis has 4 or 8 bits in blocks with a scale each."""
    data, scales = lowering.contiguous(_required(node, 0)), lowering.contiguous(_required(node, 2))
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 128)
    axes = (node.int_attribute("gather_axis", 0), node.int_attribute("quantize_axis", 1))
    if data.dtype is not DataType.UINT8 or len(data.shape) != 2 or axes[0] != 0 or axes[1] not in (1, -1):
        raise NotLowered("only rows of bytes with blocks along them are gathered natively")
    if bits not in (4, 8) or scales.dtype is not F32 or scales.shape[0] != data.shape[0]:
        raise NotLowered(f"{bits} bits with scales of {scales.dtype.text}")
    width, blocks = data.shape[1], scales.shape[1]
    if not isinstance(width, int) or not isinstance(blocks, int) or width * (8 // bits) != blocks * block:
        raise NotLowered("rows are not whole blocks")
    indices = lowering.contiguous(_required(node, 1))
    packed, scale = (gather_rows(lowering, node, table, indices) for table in (data, scales))
    zero = None
    if node.input(3) is not None:
        zero = gather_rows(lowering, node, lowering.contiguous(node.input(3)), indices)
    count = count_of(indices.shape)
    target = lowering.result_view(node.output)
    parts = 8 // bits
    out = target.reshaped((count, blocks, block // parts, parts))
    levels = packed.reshaped((count, blocks, block // parts))
    for part in range(parts):
        place = View(out.buffer, out.shape[:3], out.strides[:3], out.offset + part)
        _store_part(lowering, node, place, levels, scale.reshaped((count, blocks, 1)), zero, bits * part, bits)
    lowering.set(node.output, target)


def _store_part(
    lowering: Lowering, node: Node, place: View, levels: View, scale: View, zero: View | None, shift: int, bits: int
) -> None:  # fmt: skip
    """Write the weights that stand at one shift in their bytes."""
    if zero is not None and bits < 8:
        raise NotLowered("zero points of 4 bits")
    middle = float(1 << (bits - 1))

    def real(level: Scalar, factor: Scalar, *offset: Scalar) -> Scalar:
        whole = binary("and", binary("lshr", cast(level, I32), shift), (1 << bits) - 1)
        return (cast(whole, F32) - (cast(offset[0], F32) if offset else middle)) * factor

    zeros = () if zero is None else (zero.reshaped(scale.shape),)
    weights = combined(place.shape, real, levels, scale, *zeros)
    lowering.store_elementwise(PendingElementwise(weights.expression, weights.inputs, place.shape, (node,)), place)


def _required(node: Node, index: int) -> Value:
    value = node.input(index)
    if value is None:
        raise NotLowered("a required input is missing")
    return value
