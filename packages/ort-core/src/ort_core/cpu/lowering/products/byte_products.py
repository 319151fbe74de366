"""Products of two computed matrices of bytes as anchors: exact sums, with everything up to the store fused.

For bytes ``a`` on zero point ``u`` and ``b`` on ``v``, the kernel sums ``a' b'`` of ``a' = a + s`` and ``b' = b - t``::

    sum (a - u) (b - v)  =  sum a' b'  -  (u + s) sum b'  -  (v - t) sum (a - u)

The sums of columns ``sum b'`` are made as ``b`` is packed; those of rows are a reduction, where ``v`` is not ``t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ort_core.cpu.codegen.quantized.byte_matrices import (
    ARGUMENTS,
    ByteMatrices,
    ByteOperand,
    byte_matrices_kernel,
    shift_of,
)
from ort_core.cpu.codegen.quantized.byte_panels import ARGUMENTS as PANELS
from ort_core.cpu.codegen.quantized.byte_panels import BATCH_DIMS, byte_panels_kernel, panel_columns, rows_of_words
from ort_core.cpu.codegen.quantized.integer_dot import WORD
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import BYTES
from ort_core.cpu.lowering.rows.reducing import combined, reduce_operand
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, broadcast_strides, collapse, count_of, moved_nbytes, tallest_last
from ort_core.plugin.ir import DataType, KnownDim, ceil_div
from ort_core.plugin.loops import Scalar, cast, element, structure

I32 = DataType.INT32
RESULTS = frozenset({DataType.FLOAT, I32, DataType.UINT8, DataType.INT8})
_MAX_OPERANDS = 12


@dataclass(frozen=True, slots=True, eq=False)
class ByteProduct:
    """Sums of products of rows of ``a`` with columns in panels.

    ``a`` is ``[..., rows, depth]`` with dense rows. ``panels`` is ``[..., 1, bytes of a matrix]``, as its batch repeats
    over the result's.
    """

    a: View
    panels: View
    words: KnownDim
    operator: str

    @property
    def result_types(self) -> frozenset[DataType]:
        """Everything that the epilogue can end in."""
        return RESULTS

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number, one for each row or column, or a tensor with dense rows."""
        return len(inputs) <= _MAX_OPERANDS and all(_can_read(view, shape) for view in inputs)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the step."""
        shape, machine = pending.shape, lowering.target
        if target.strides[-1] != 1 and shape[-1] != 1:
            raise NotLowered("columns of the result are not dense")
        walked = [_strides(self.a, shape), _strides(self.panels, shape), target.strides[:-1]]
        sizes, steps = _rows_and_matrices(shape, [*walked, *(_strides(view, shape) for view in pending.inputs)])
        operands = tuple(map(_operand, pending.inputs, steps[3:], [_is_dense(v, shape) for v in pending.inputs]))
        empty = BATCH_DIMS - (len(sizes) - 1)
        words: list[Argument] = [
            pointer(self.a), pointer(self.panels), pointer(target), sizes[-1], shape[-1], self.a.shape[-1],
            self.words, steps[0][-1], steps[2][-1], *[1] * empty, *sizes[:-1],
        ]  # fmt: skip
        assert len(words) == ARGUMENTS.a_batch
        for each in steps[:3]:
            words += [*[0] * empty, *each[:-1]]
        for view, each in zip(pending.inputs, steps[3:], strict=True):
            words += [pointer(view), each[-1], *[0] * empty, *each[:-1]]
        spec = ByteMatrices(pending.expression, operands, self.a.dtype is DataType.INT8)
        facts = f"{operands} {spec.is_signed} {structure(spec.expression)}"
        kernel = kernel_text(
            "bytes_computed", facts, lambda name: byte_matrices_kernel(name, spec, machine), is_vectorized=True
        )
        flops = count_of(shape) * self.a.shape[-1] * 2
        reads = [self.a.buffer, self.panels.buffer, *(view.buffer for view in pending.inputs)]
        lowering.emit(
            kernel, words, reads, [target.buffer], flops // 96 + 1, pending.operators, flops,
            moved_nbytes([self.a, self.panels, target, *pending.inputs]),
        )  # fmt: skip


ZeroPoint = int | View
"""Of one side: a number, or a view of its own type that broadcasts to it."""


@dataclass(frozen=True, slots=True, eq=False)
class ByteSum:
    """The int32 sums of a product with zero points taken off, over the anchor's sum and its operands."""

    anchor: ByteProduct
    total: Scalar
    inputs: tuple[View, ...]


def byte_sum(
    lowering: Lowering, left: View, right: View, points: tuple[ZeroPoint, ZeroPoint], shape: Sequence[KnownDim],
    operator: str,
) -> ByteSum:  # fmt: skip
    """Return the product of two views of bytes of rank 2 and more, whose batches broadcast to that of ``shape``."""
    if not {left.dtype, right.dtype} <= BYTES or min(len(left.shape), len(right.shape)) < 2:
        raise NotLowered("only matrices of bytes, or stacks of them, are multiplied natively")
    lowering.require_equal(left.shape[-1], right.shape[-2])
    left, right = (view if view.strides[-1] == 1 else lowering.copied(view) for view in (left, right))
    panels, sums, words = _packed(lowering, right, operator)
    outer = tuple(shape[:-2])
    spread = lowering.operands.spread
    anchor = ByteProduct(
        spread(left, (*outer, *left.shape[-2:])), spread(panels, (*outer, 1, panels.shape[-1])), words, operator
    )
    inputs: list[View] = []

    def add(view: View) -> Scalar:
        inputs.append(view)
        return element(len(inputs), view.dtype)

    def point(of: ZeroPoint, shift: int) -> Scalar | int:
        if isinstance(of, int):
            return of + shift
        return cast(add(of), I32) + shift if shift else cast(add(of), I32)

    total = element(0, I32)
    shift = shift_of(left.dtype is DataType.INT8, lowering.target)
    if points[0] != 0 or shift:
        total = total - add(spread(sums, (*outer, 1, shape[-1]))) * point(points[0], shift)
    below = 128 if right.dtype is DataType.UINT8 else 0
    if points[1] != below:
        rows = _row_sums(lowering, left, points[0], operator)
        total = total - add(spread(rows, (*outer, *rows.shape[-2:]))) * point(points[1], -below)
    return ByteSum(anchor, total, tuple(inputs))


def _packed(lowering: Lowering, right: View, operator: str) -> tuple[View, View, KnownDim]:
    """Write the step that packs matrices; return their panels, the sums of their columns, and words of a panel."""
    *outer, depth, columns = right.shape
    machine, is_signed = lowering.target, right.dtype is DataType.INT8
    whole = rows_of_words(machine)
    words = ceil_div(depth, WORD * whole) * whole
    width = panel_columns(machine)
    panels = lowering.new_view(DataType.INT8, (*outer, 1, ceil_div(columns, width) * words * (width * WORD)))
    sums = lowering.new_view(I32, (*outer, 1, columns))
    sizes, (steps,) = collapse(outer, [right.strides[:-2]])
    if len(sizes) > BATCH_DIMS:
        raise NotLowered(f"more than {BATCH_DIMS} batch dimensions are not generated")
    empty = BATCH_DIMS - len(sizes)
    arguments: list[Argument] = [
        pointer(panels), pointer(sums), pointer(right), depth, columns, words, right.strides[-2],
        *[1] * empty, *sizes, *[0] * empty, *steps,
    ]  # fmt: skip
    assert len(arguments) == PANELS.b_batch + BATCH_DIMS
    kernel = kernel_text(
        "bytepanels", f"{is_signed}", lambda name: byte_panels_kernel(name, is_signed, machine), is_vectorized=True
    )
    lowering.emit(
        kernel, arguments, [right.buffer], [panels.buffer, sums.buffer], count_of(right.shape) // 8 + 1, (operator,), 0,
        moved_nbytes([right, panels]),
    )  # fmt: skip
    return panels, sums, words


def _row_sums(lowering: Lowering, left: View, point: ZeroPoint, operator: str) -> View:
    """Return the sums of the rows of a side less its zero point."""
    views = [left] if isinstance(point, int) else [left, point]

    def difference(value: Scalar, zero: Scalar | None = None) -> Scalar:
        number = cast(value, I32)
        if zero is not None:
            return number - cast(zero, I32)
        return number - point if isinstance(point, int) and point else number

    operand = combined(left.shape, difference, *views)
    return reduce_operand(lowering, operand, [len(left.shape) - 1], "sum", operators=(operator,))


def _can_read(view: View, shape: Sequence[KnownDim]) -> bool:
    strides = broadcast_strides(view, shape)
    return strides is not None and view.dtype in RESULTS and strides[-1] in (0, 1)


def _is_dense(view: View, shape: Sequence[KnownDim]) -> bool:
    """Return whether an operand has a number for each column."""
    strides = broadcast_strides(view, shape)
    return strides is not None and strides[-1] == 1


def _operand(view: View, steps: Sequence[KnownDim], is_dense: bool) -> ByteOperand:
    """Return what an operand is that steps so from matrix to matrix and, last, from row to row."""
    if is_dense:
        return ByteOperand("column" if steps[-1] == 0 else "tensor", view.dtype)
    return ByteOperand("one" if all(step == 0 for step in steps) else "row", view.dtype)


def _strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    """Return the strides of a view along all axes of a result but its columns."""
    strides = broadcast_strides(replace(view, shape=view.shape[:-1], strides=view.strides[:-1], order=()), shape[:-1])
    assert strides is not None
    return strides


def _rows_and_matrices(
    shape: Sequence[KnownDim], steps: Sequence[Sequence[KnownDim]]
) -> tuple[list[KnownDim], list[list[KnownDim]]]:
    """Return matrices and rows, last, and how A, panels, the result and operands step there; few of each.

    Where all matrices are multiplied with the same one, they are rows of one.
    """
    if all(step == 0 for step in steps[1]):
        sizes, merged = tallest_last(*collapse(shape[:-1], steps))
    else:
        sizes, merged = collapse(shape[:-2], [each[:-1] for each in steps])
        sizes, merged = [*sizes, shape[-2]], [[*some, each[-1]] for some, each in zip(merged, steps, strict=True)]
    if len(sizes) - 1 > BATCH_DIMS:
        raise NotLowered(f"more than {BATCH_DIMS} batch dimensions are not generated")
    return sizes, merged
