"""Embedding tables of com.microsoft: the summed and normalized ones of BERT, and tables of few bits in blocks."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import F32
from ort_core.cpu.lowering.rows.reducing import ReductionOperand, combined, reduce_operand
from ort_core.cpu.lowering.rules.rows.rows import normalized_rows, required
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar, binary, cast

I32 = DataType.INT32
INDICES = frozenset({I32, DataType.INT64})


def embed_layer_normalization(lowering: Lowering, node: Node) -> None:
    """EmbedLayerNormalization: rows of two or three tables, summed, normalized; also counts of a mask."""
    ids = lowering.contiguous(required(node, 0))
    if len(ids.shape) != 2:
        raise NotLowered("the ids are not a matrix")
    tables = [lowering.contiguous(required(node, index)) for index in (2, 3)]
    rows = [gather_rows(lowering, node, tables[0], ids)]
    given = node.input(8)
    positions = lowering.iota(ids.shape[1]) if given is None else _as_long_as(lowering, lowering.contiguous(given), ids)
    rows.append(gather_rows(lowering, node, tables[1], positions))
    if node.input(1) is not None and node.input(4) is not None:
        segments = _as_long_as(lowering, lowering.contiguous(node.input(1)), ids)
        rows.append(gather_rows(lowering, node, lowering.contiguous(node.input(4)), segments))
    _count_mask(lowering, node, ids)
    total = node.outputs[2] if len(node.outputs) > 2 else None
    if total is not None:
        rows = [_stored_sum(lowering, node, rows, total)]
    normalized_rows(
        lowering, node, rows, node.input(5), node.input(6), node.float_attribute("epsilon", 9.999999960041972e-13)
    )


def _as_long_as(lowering: Lowering, indices: View, ids: View) -> View:
    """Return indices with the length of the ids, which is checked where it has another name.

    Positions that were cut from a longer table have the length min(table, ids).
    """
    if len(indices.shape) != 2 or indices.shape[1] == ids.shape[1]:
        return indices
    lowering.require_equal(indices.shape[1], ids.shape[1])
    return View(indices.buffer, (indices.shape[0], ids.shape[1]), indices.strides, indices.offset)


def _stored_sum(lowering: Lowering, node: Node, rows: list[View], output: Value) -> View:
    total = combined(tensor_type(output)[1], lambda *each: sum(each[1:], each[0]), *rows)
    target = lowering.result_view(output)
    lowering.stores.store_elementwise(PendingElementwise(total.expression, total.inputs, total.shape, (node,)), target)
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
        lowering.stores.store_elementwise(
            PendingElementwise(count.expression, count.inputs, count.shape, (node,)), target
        )
    else:
        mask = lowering.contiguous(node.input(7))
        ones = combined(mask.shape, lambda x: cast(binary("eq", x, 1), I32), mask)
        target = reduce_operand(lowering, ones, [1], "sum", operators=(node,)).reshaped((mask.shape[0],))
    lowering.set(output, target)


def gather_rows(lowering: Lowering, node: Node, table: View, indices: View, *, wraps: bool = False) -> View:
    """Write the step that copies a row of a contiguous table for each index; return ``[*indices, *row]``.

    Negative indices count from the end if the table ``wraps``.
    """
    if indices.dtype not in INDICES:
        raise NotLowered(f"indices of type {indices.dtype.text} are not generated")
    name, function = gather_kernel(indices.dtype.bits, wraps=wraps)
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
    data, scales = lowering.contiguous(required(node, 0)), lowering.contiguous(required(node, 2))
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 128)
    axes = (node.int_attribute("gather_axis", 0), node.int_attribute("quantize_axis", 1))
    if data.dtype is not DataType.UINT8 or len(data.shape) != 2 or axes[0] != 0 or axes[1] not in (1, -1):
        raise NotLowered("only rows of bytes with blocks along them are gathered natively")
    if bits not in (4, 8) or scales.dtype is not F32 or scales.shape[0] != data.shape[0]:
        raise NotLowered(f"{bits} bits with scales of {scales.dtype.text} are not generated")
    width, blocks = data.shape[1], scales.shape[1]
    if not isinstance(width, int) or not isinstance(blocks, int) or width * (8 // bits) != blocks * block:
        raise NotLowered("rows are not whole blocks")
    indices = lowering.contiguous(required(node, 1))
    packed, scale = (gather_rows(lowering, node, table, indices, wraps=True) for table in (data, scales))
    count, parts = count_of(indices.shape), 8 // bits
    target = lowering.result_view(node.output)
    out = target.reshaped((count, blocks, block // parts, parts))
    levels, scale = packed.reshaped((count, blocks, block // parts)), scale.reshaped((count, blocks, 1))
    zero = None if node.input(3) is None else _zero_points(lowering, node, indices, blocks, bits)
    for part in range(parts):
        place = View(out.buffer, out.shape[:3], out.strides[:3], out.offset + part)
        level = combined(place.shape, lambda x, part=part: _field(x, bits, part), levels)
        _store_weights(lowering, node, place, level, scale, zero, float(1 << (bits - 1)))
    lowering.set(node.output, target)


def _field(stored: Scalar, bits: int, part: int) -> Scalar:
    """Return the number that stands in some bits of a byte, the first in the lowest."""
    return cast(binary("and", binary("lshr", cast(stored, I32), bits * part), (1 << bits) - 1), F32)


def _zero_points(lowering: Lowering, node: Node, indices: View, blocks: int, bits: int) -> View:
    """Return the zero points of the gathered rows as floats ``[count, blocks, 1]``."""
    table = lowering.contiguous(node.input(3))
    parts = 8 // bits
    if table.dtype is not DataType.UINT8 or table.shape[1:] != (blocks // parts,) or blocks % parts:
        raise NotLowered("zero points do not fill their bytes")
    packed = gather_rows(lowering, node, table, indices, wraps=True).reshaped(
        (count_of(indices.shape), blocks // parts)
    )
    target = lowering.new_view(F32, (*packed.shape, parts))
    for part in range(parts):
        place = View(target.buffer, packed.shape, target.strides[:2], target.offset + part)
        zero = combined(place.shape, lambda x, part=part: _field(x, bits, part), packed)
        lowering.stores.store_elementwise(PendingElementwise(zero.expression, zero.inputs, zero.shape, (node,)), place)
    return target.reshaped((packed.shape[0], blocks, 1))


def _store_weights(
    lowering: Lowering, node: Node, place: View, level: ReductionOperand, scale: View, zero: View | None, middle: float
) -> None:  # fmt: skip
    """Write ``(level - zero point) * scale``."""
    state = FusionState()
    stored = state.inlined(PendingElementwise(level.expression, level.inputs, level.shape))
    offset: Scalar | float = middle if zero is None else state.add(zero)
    weights = (stored - offset) * state.add(scale)
    lowering.stores.store_elementwise(PendingElementwise(weights, tuple(state.inputs), place.shape, (node,)), place)
