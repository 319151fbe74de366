"""Row nests as steps: formulas of rows whose elements lie side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.nests.elementwise_nests import BROADCAST, DENSE, NestInput
from ort_core.cpu.codegen.nests.row_nests import RowNest, row_kernel, row_vectors
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Operators, pointer
from ort_core.cpu.lowering.views import View, broadcast_strides, collapse, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import RowSchedule, row_values

F32 = DataType.FLOAT
Strides = Sequence[KnownDim]


def store_rows(
    lowering: Lowering,
    schedule: RowSchedule,
    inputs: Sequence[View],
    shape: Sequence[KnownDim],
    outputs: Sequence[View],
    scalars: Sequence[View],
    operators: Operators,
    work: KnownDim,
) -> None:
    """Write the step that computes formulas of rows.

    Args:
        lowering: receives the step.
        schedule: of the formulas.
        inputs: what they read; each broadcasts to ``shape`` and runs along the rows, or is one number a row.
        shape: rows, then their length.
        outputs: of ``shape``, for the formulas with elements.
        scalars: contiguous, for the formulas of a row.
        operators: what is computed, for reports.
        work: operations in all.

    Raises:
        NotLowered: an input does not run along the rows, or something else than floats of one type is reduced.
    """
    strides = [row_strides(view, shape) for view in (*outputs, *inputs)]
    check_types(lowering, schedule, scalars)
    emit_row_nest(lowering, schedule, inputs, shape, strides, outputs, scalars, operators, work)


def check_types(lowering: Lowering, schedule: RowSchedule, scalars: Sequence[View]) -> None:
    """Refuse what row nests do not compute: they reduce float32 or float64, and have values of that type."""
    found = {*_row_types(lowering, schedule), *(view.dtype for view in scalars)}
    if not found <= {F32} and found != {DataType.DOUBLE}:
        raise NotLowered("only rows of float32 or of float64 are generated")


def _row_types(lowering: Lowering, schedule: RowSchedule) -> set[DataType]:
    """Return the types of what is reduced and of the values of a row that are read."""

    def found() -> tuple[RowSchedule, set[DataType]]:
        reduced = {reduction.expression.dtype for each in schedule.passes for reduction in each.reductions}
        read = {node.dtype for node in row_values(*(root for each in schedule.passes for root in each.roots))}
        return schedule, reduced | read  # with the schedule, whose ``id`` is its own as long as it lives

    return lowering.remembered(("types of rows", id(schedule)), found)[1]


def row_strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    """Return how rows step through a view.

    Raises:
        NotLowered: not densely, nor along one number a row.
    """
    strides = broadcast_strides(view, shape)
    if strides is None or strides[-1] not in (0, 1):
        raise NotLowered("an operand is not read along the rows")
    return strides


def emit_row_nest(
    lowering: Lowering,
    schedule: RowSchedule,
    inputs: Sequence[View],
    shape: Sequence[KnownDim],
    strides: Sequence[Strides],
    outputs: Sequence[View],
    scalars: Sequence[View],
    operators: Operators,
    work: KnownDim,
) -> None:
    """As ``store_rows``, with the strides of outputs and inputs over ``shape`` given."""
    stored, read = tuple([view.dtype for view in outputs]), tuple([view.dtype for view in inputs])
    what = ("rows", id(schedule), tuple(shape), tuple(map(tuple, strides)), stored, read)
    _, kernel, sizes = lowering.remembered(what, lambda: _row_call(lowering, schedule, read, shape, strides, stored))
    pointers = [pointer(view) for view in (*outputs, *scalars, *inputs)]
    lowering.emit(
        kernel, [*pointers, *sizes], [v.buffer for v in inputs], [v.buffer for v in (*outputs, *scalars)],
        work, operators, work, moved_nbytes([*outputs, *scalars, *inputs]),
    )  # fmt: skip


def _row_call(
    lowering: Lowering, schedule: RowSchedule, read: Sequence[DataType], shape: Sequence[KnownDim],
    strides: Sequence[Strides], stored: tuple[DataType, ...],
) -> tuple[RowSchedule, KernelText, tuple[KnownDim, ...]]:  # fmt: skip
    """Return the kernel of a row nest and its sizes; and the schedule, whose ``id`` is its own as long as it lives."""
    sizes, outer = collapse(shape[:-1], [each[:-1] for each in strides])
    steps = [each[-1] for each in strides[len(stored) :]]
    reads = tuple(NestInput(dtype, BROADCAST if step == 0 else DENSE) for dtype, step in zip(read, steps))
    dtype = next(iter(_row_types(lowering, schedule)), F32)  # one, or they were refused
    vectors = row_vectors(shape[-1], [dtype, *stored, *(r.dtype for r in reads if r.inner == DENSE)], lowering.target)
    nest = RowNest(len(sizes) + 1, reads, stored, schedule.passes, schedule.scalars, vectors, dtype)

    def write() -> KernelText:
        kernel = row_kernel(nest, lowering.target)
        return KernelText(kernel.name, kernel)

    return schedule, lowering.kernel(nest, write), (*sizes, shape[-1], *(stride for each in outer for stride in each))
