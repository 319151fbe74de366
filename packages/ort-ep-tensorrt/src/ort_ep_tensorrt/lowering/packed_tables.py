"""Packed tables: embeddings of narrow integers, of which TensorRT gathers none.

y = GatherBlockQuantized(table, i, scales, zeros)
->  w = Gather(words, i)          words [rows, k] of int32, each 16 bits of a row
    c = Mod(Div(w, powers), 2^bits)
    y = (c - Gather(zeros, i)) * Gather(scales, i)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, TensorType, Value
from ort_ep_tensorrt.lowering.editing import Editor, Results

_WORD_BITS = 16  # of an int32, so that no word is negative: quotients are cut off toward 0
_NARROW = frozenset({DataType.UINT8, DataType.INT4, DataType.UINT4})


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of unsigned codes.

    Attributes:
        codes: uint8 ``[rows, ..., width]``, each below ``2 ** bits``.
        bits: of a code.
        middle: the code that stands for 0 where no zero points are given.
        block: how many codes along the last axis share a scale.
    """

    codes: np.ndarray
    bits: int
    middle: int
    block: int


def gather_block_quantized(editor: Editor) -> Results | Rejection:
    """GatherBlockQuantized of a constant table -> Gather of its rows, as words, and arithmetic."""
    table = _table_of(editor)
    if isinstance(table, Rejection):
        return table
    scales = editor.fixed(2)
    zeros = _unsigned(editor, 3, table.bits) if editor.node.input(3) is not None else None
    if scales is None or (editor.node.input(3) is not None and zeros is None):
        return Rejection(
            "TensorRT needs the scales and zero points of GatherBlockQuantized when it builds", editor.node
        )
    blocks = (*table.codes.shape[:-1], table.codes.shape[-1] // table.block)
    if scales.shape != blocks or (zeros is not None and zeros.shape[:-1] != blocks[:-1]):
        return Rejection(f"scales of the sizes {list(scales.shape)} are not written in parts for GatherBlockQuantized")
    inside, rows = _rows(editor, len(table.codes))
    head = [0] * (editor.input(1).rank or 0) + [0] * (table.codes.ndim - 2)  # Reshape copies these
    codes = editor.cast(_gathered_codes(editor, table, rows, head), DataType.FLOAT)
    apart = editor.add("Reshape", [codes, _ints(editor, [*head, -1, table.block])])
    if zeros is None:
        shifted = editor.add("Sub", [apart, editor.constant(np.array(table.middle, np.float32))])
    else:
        taken = _taken(editor, zeros[..., : blocks[-1], None].astype(np.float32), rows)
        shifted = editor.add("Sub", [apart, taken])
    product = editor.add("Mul", [shifted, _taken(editor, scales[..., None].astype(np.float32), rows)])
    joined = editor.add("Reshape", [product, _ints(editor, [*head, -1])])
    kept = editor.add(
        "Reshape", [inside, _ints(editor, [0] * (editor.input(1).rank or 0) + [1] * (table.codes.ndim - 1))]
    )
    found = editor.add("Where", [kept, joined, editor.constant(np.array(0, np.float32))])
    found.type = TensorType(DataType.FLOAT, editor.node.output.shape)
    dtype = dtype_of(editor.input(2))
    return {0: found if dtype in (None, DataType.FLOAT) else editor.cast(found, dtype)}


def _table_of(editor: Editor) -> _Table | Rejection:
    node, data = editor.node, editor.input(0)
    dtype, rank = dtype_of(data), data.rank or 0
    bits = node.int_attribute("bits", 4) if dtype is DataType.UINT8 else 4
    block, along = node.int_attribute("block_size", 128), node.int_attribute("quantize_axis", 1)
    if dtype not in _NARROW or bits not in (2, 4, 8):
        return Rejection(f"a table of {data.type} with codes of {bits} bits is not written in parts", node)
    if rank < 2 or node.int_attribute("gather_axis", 0) % rank or along % rank != rank - 1:
        return Rejection("rows along another axis than the first, or blocks along another than the last", node)
    codes = _unsigned(editor, 0, bits)
    if codes is None:
        return Rejection("TensorRT needs the table of GatherBlockQuantized when it builds", node)
    if not codes.size or not block or codes.shape[-1] % block:
        return Rejection("a row that ends inside of a block is not written in parts", node)
    return _Table(codes, bits, 0 if dtype is DataType.UINT4 else 1 << (bits - 1), block)


def _unsigned(editor: Editor, index: int, bits: int) -> np.ndarray | None:
    """Return the codes of a constant input, a byte each and none negative."""
    array, dtype = editor.fixed(index), dtype_of(editor.node.input(index))
    if array is None:
        return None
    if dtype is not DataType.UINT8:
        return (array.astype(np.int8) + (8 if dtype is DataType.INT4 else 0)).astype(np.uint8)
    parts = (array[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    return parts.reshape(*array.shape[:-1], -1)


def _gathered_codes(editor: Editor, table: _Table, rows: Value, head: list[int]) -> Value:
    """Return int32 codes of some rows."""
    in_word, width = _WORD_BITS // table.bits, table.codes.shape[-1]
    padding = [(0, 0)] * (table.codes.ndim - 1) + [(0, -width % in_word)]
    codes = np.pad(table.codes, padding).reshape(*table.codes.shape[:-1], -1, in_word)
    powers = 1 << (table.bits * np.arange(in_word, dtype=np.int32))
    words = np.zeros(codes.shape[:-1], np.int32)
    for place, power in enumerate(powers):
        words += codes[..., place] * power
    taken = _taken(editor, words[..., None], rows)
    shifted = editor.add("Div", [taken, editor.constant(powers.astype(np.int32))])
    low = editor.add("Mod", [shifted, editor.constant(np.array(1 << table.bits, np.int32))])
    low.type = TensorType(DataType.INT32, (None,) * (len(head) + 2))
    flat = editor.add("Reshape", [low, _ints(editor, [*head, -1])])
    flat.type = TensorType(DataType.INT32, (None,) * (len(head) + 1))
    if not padding[-1][1]:
        return flat
    ends = [_ints(editor, [number]) for number in (0, width, -1)]
    kept = editor.add("Slice", [flat, *ends])
    kept.type = flat.type
    return kept


def _rows(editor: Editor, length: int) -> tuple[Value, Value]:
    """Return which indices lie in the first axis, and indices that do; elsewhere results are 0."""
    indices = editor.input(1)
    none, end, last = (editor.number(number, indices) for number in (0, length, length - 1))
    wanted = editor.add(
        "Where", [editor.add("Less", [indices, none]), editor.add("Add", [indices, end]), indices], like=indices
    )
    is_below, is_beyond = editor.add("Less", [wanted, none]), editor.add("Less", [last, wanted])
    inside = editor.add("Not", [editor.add("Or", [is_below, is_beyond])])
    return inside, editor.add("Min", [editor.add("Max", [wanted, none], like=indices), last], like=indices)


def _taken(editor: Editor, table: np.ndarray, rows: Value) -> Value:
    made = editor.add("Gather", [editor.constant(Constant.of(np.ascontiguousarray(table), _dtype_of(table))), rows])
    made.type = TensorType(_dtype_of(table), (*(rows.shape or ()), *table.shape[1:]))
    return made


def _dtype_of(array: np.ndarray) -> DataType:
    return DataType.INT32 if array.dtype == np.int32 else DataType.FLOAT


def _ints(editor: Editor, numbers: list[int]) -> Value:
    return editor.constant(np.array(numbers, np.int64))
