"""Packing: matrices in the order in which the microkernels read them.

A constant B is packed once, in numpy: panels of NR columns, each k-major (``panel[k, j]``), the last padded with zeros.
An operand known only at run time is copied block by block into per-thread scratch by the generated ``copy_block``:
``void copy_block(ptr to, i64 to_row, ptr from, i64 row, i64 column, i64 rows, i64 columns, i64 padded)`` copies a
strided block to rows that are contiguous and zero from ``columns`` to ``padded`` (a multiple of the vector width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, store_vector, transpose, word_nbytes, zero
from ort_core.cpu.codegen.machine_code.target import Target

Real = TypeVar("Real", np.float32, np.float64)
COPY_BLOCK = "product_copy_block"
ALIGNMENT = 64  # bytes; a cache line, and the widest vector
_COPY = [
    ("ptr noalias", "to"),
    ("i64", "to_row"),
    ("ptr noalias readonly", "from"),
    ("i64", "row"),
    ("i64", "column"),
    ("i64", "rows"),
    ("i64", "columns"),
    ("i64", "padded"),
]


def panels_shape(shape: Sequence[int], panel: int) -> tuple[int, ...]:
    """Return the shape of ``[..., k, n]`` when it is packed."""
    *batch, depth, columns = shape
    return (*batch, -(-columns // panel), depth, panel)


def pack_panels(matrix: npt.NDArray[Real], panel: int, out: npt.NDArray[Real] | None = None) -> npt.NDArray[Real]:
    """Return ``[..., k, n]`` packed as ``[..., panels, k, panel]``, in ``out`` or in new memory, 64-byte aligned."""
    *batch, depth, columns = matrix.shape
    panels = -(-columns // panel)
    if out is None:
        out = aligned_empty(panels_shape(matrix.shape, panel), matrix.dtype)
    whole = columns // panel
    split = matrix[..., : whole * panel].reshape(*batch, depth, whole, panel)
    out[..., :whole, :, :] = split.swapaxes(-2, -3)
    if whole < panels:
        rest = columns - whole * panel
        out[..., whole, :, :rest] = matrix[..., whole * panel :]
        out[..., whole, :, rest:] = 0
    return out


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> np.ndarray:
    """Return uninitialized memory that starts on a cache line."""
    size, each = math.prod(shape), np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT // each, dtype)
    skip = -raw.__array_interface__["data"][0] % ALIGNMENT // each  # a third of what ``raw.ctypes`` takes
    return raw[skip : skip + size].reshape(shape)


def copy_block(target: Target, word: str = "float") -> Emitter:
    """Return the function that copies a strided block into contiguous, padded rows."""
    emitter = Emitter(COPY_BLOCK, _COPY, word=word)
    lanes = target.vector_nbytes // word_nbytes(word)
    with emitter.either(emitter.compare("eq", emitter.parameter("column"), 1)) as branch:
        _copy_rows(emitter, lanes)
        with branch.otherwise(), emitter.loop(0, emitter.parameter("padded"), lanes, unroll=False) as start:
            _copy_strip(emitter, start, lanes)
    return emitter


def _copy_strip(emitter: Emitter, start: IRValue, lanes: int) -> None:
    """Copy ``lanes`` columns of a block whose rows are not contiguous; all may lie behind the last one."""
    with emitter.either(emitter.compare("slt", start, emitter.parameter("columns"))) as branch:
        done = _copy_squares(emitter, start, lanes)
        _copy_elements(emitter, start, lanes, done)
        with branch.otherwise():
            _clear(emitter, start, lanes)


def _copy_rows(emitter: Emitter, lanes: int) -> None:
    """Copy a block whose rows are contiguous: whole vectors, a masked one, zeros."""
    columns, padded = emitter.parameter("columns"), emitter.parameter("padded")
    whole = emitter.sub(columns, emitter.urem(columns, lanes))
    mask = lane_mask(emitter, emitter.sub(columns, whole), lanes)
    with emitter.loop(0, emitter.parameter("rows"), unroll=False) as i:
        with emitter.loop(0, whole, lanes) as j:
            store_vector(emitter, load_vector(emitter, _source(emitter, i, j), lanes), _target(emitter, i, j))
        with emitter.loop(whole, padded, lanes, unroll=False) as j:
            inside = emitter.compare("slt", j, columns)
            value = emitter.variable(f"<{lanes} x {emitter.word}>", zero(f"<{lanes} x {emitter.word}>"))
            with emitter.when(inside):
                emitter.store(load_vector(emitter, _source(emitter, i, j), lanes, mask), value)
            store_vector(emitter, emitter.load(f"<{lanes} x {emitter.word}>", value), _target(emitter, i, j))


def _copy_squares(emitter: Emitter, start: IRValue, lanes: int) -> IRValue:
    """Copy what squares cover of a block whose columns are contiguous; return the slot of the rows done.

    Behind the last column stand zeros: it is read in place of those that do not exist.
    """
    done = emitter.variable("i64", IRValue("i64", "0"))
    columns = emitter.parameter("columns")
    with emitter.when(emitter.compare("eq", emitter.parameter("row"), 1)):
        rows = emitter.parameter("rows")
        whole = emitter.sub(rows, emitter.urem(rows, lanes))
        is_whole = emitter.compare("sle", emitter.add(start, lanes), columns)
        with emitter.either(is_whole) as branch:
            _squares(emitter, start, lanes, whole, [emitter.add(start, j) for j in range(lanes)], None)
            with branch.otherwise():
                last = emitter.sub(columns, 1)
                near = [emitter.minimum(emitter.add(start, j), last) for j in range(lanes)]
                _squares(emitter, start, lanes, whole, near, lane_mask(emitter, emitter.sub(columns, start), lanes))
        emitter.store(whole, done)
    return done


def _squares(
    emitter: Emitter, start: IRValue, lanes: int, whole: IRValue, columns: Sequence[IRValue], mask: IRValue | None
) -> None:
    """Transpose the rows up to ``whole`` of a strip of columns; lanes that the mask leaves out are 0."""
    nothing = zero(f"<{lanes} x {emitter.word}>")
    with emitter.loop(0, whole, lanes, unroll=False) as i:
        square = transpose(emitter, [load_vector(emitter, _source(emitter, i, j), lanes) for j in columns])
        for row, vector in enumerate(square):
            kept = vector if mask is None else emitter.select(mask, vector, nothing)
            store_vector(emitter, kept, _target(emitter, emitter.add(i, row), start))


def _clear(emitter: Emitter, start: IRValue, lanes: int) -> None:
    """Write zeros to a strip behind the last column."""
    with emitter.loop(0, emitter.parameter("rows"), unroll=False) as i:
        store_vector(emitter, zero(f"<{lanes} x {emitter.word}>"), _target(emitter, i, start))


def _copy_elements(emitter: Emitter, start: IRValue, lanes: int, done: IRValue) -> None:
    """Copy the rest of a strip of ``lanes`` columns one by one, with zeros behind the last column."""
    stop = emitter.add(start, lanes)
    inside = emitter.maximum(emitter.minimum(stop, emitter.parameter("columns")), start)
    with emitter.loop(emitter.load("i64", done), emitter.parameter("rows"), unroll=False) as i:
        with emitter.loop(start, inside, unroll=False) as j:
            emitter.store(emitter.load(emitter.word, _source(emitter, i, j)), _target(emitter, i, j))
        with emitter.loop(inside, stop, unroll=False) as j:
            emitter.store(zero(emitter.word), _target(emitter, i, j))


def _source(emitter: Emitter, i: IRValue, j: IRValue) -> IRValue:
    row = emitter.mul(i, emitter.parameter("row"))
    return emitter.element(emitter.parameter("from"), emitter.add(row, emitter.mul(j, emitter.parameter("column"))))


def _target(emitter: Emitter, i: IRValue, j: IRValue) -> IRValue:
    return emitter.element(emitter.parameter("to"), emitter.add(emitter.mul(i, emitter.parameter("to_row")), j))
