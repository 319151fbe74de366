"""Users' operators that say what they compute of a row: one row nest, however many reductions and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ort_core.cpu.codegen.nests.elementwise_nests import BROADCAST, DENSE, NestInput
from ort_core.cpu.codegen.nests.row_nests import Reduction, RowNest, RowNestPass, row_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, collapse, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value, broadcast
from ort_core.plugin.loops import (
    RowMeaning,
    RowSchedule,
    Scalar,
    is_of_row,
    operations,
    reads_rows,
    scheduled,
)

F32 = DataType.FLOAT


def row_formula(lowering: Lowering, node: Node) -> None:
    """Compute all outputs of a node by its operator's formulas; without reductions they stay pending expressions."""
    inputs = list(node.present_inputs())
    if len(inputs) != len(node.inputs):
        raise NotLowered("an optional operand in the middle is absent")
    shape = _full_shape(inputs)
    state = FusionState()
    scalars = [_operand(lowering, state, value, shape) for value in inputs]
    roots = _formulas(lowering, node, scalars)
    outputs = {k: value for k, value in enumerate(node.outputs) if value is not None}
    for k, value in outputs.items():
        _check_output(lowering, value, roots[k], shape)
    wanted = [roots[k] for k in outputs]
    if any(map(reads_rows, wanted)) or any(map(is_of_row, wanted)):
        _emit(lowering, node, state, shape, wanted, list(outputs.values()))
        return
    for value, root in zip(outputs.values(), wanted):
        lowering.set(value, PendingElementwise(root, tuple(state.inputs), shape, (node,)))


def _check_output(lowering: Lowering, value: Value, root: Scalar, shape: Sequence[KnownDim]) -> None:
    dtype, declared = tensor_type(value)
    if root.dtype is not dtype:
        raise NotLowered(f"the formula of {value.name!r} gives {root.dtype.text}, the model declares {dtype.text}")
    if len(declared) != len(shape):
        raise NotLowered(f"the model declares {len(declared)} axes for {value.name!r}, the operands have {len(shape)}")
    for left, right in zip(_own_shape(root, shape), declared):
        lowering.require_equal(left, right)


def _own_shape(root: Scalar, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    return (*shape[:-1], 1 if is_of_row(root) else shape[-1])


def _formulas(lowering: Lowering, node: Node, scalars: Sequence[Scalar]) -> tuple[Scalar, ...]:
    meaning = lowering.own_meaning(node)
    assert isinstance(meaning, RowMeaning), node
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    found = meaning.formula(scalars, attributes)
    if not isinstance(found, tuple):
        raise NotLowered(found.reason)
    return found


def _full_shape(inputs: Sequence[Value]) -> tuple[KnownDim, ...]:
    shapes = [tensor_type(value)[1] for value in inputs]
    rank = max(map(len, shapes), default=0)
    if rank == 0:
        raise NotLowered("there are no rows in scalars")
    aligned = [(*[1] * (rank - len(shape)), *shape) for shape in shapes]
    return tuple(reduce(broadcast, sizes) for sizes in zip(*aligned))


def _operand(lowering: Lowering, state: FusionState, value: Value, shape: Sequence[KnownDim]) -> Scalar:
    """Return how the rows read a value; a computation in front that only this node reads is taken in."""
    known = lowering.pending(value)
    if isinstance(known, PendingElementwise) and _is_taken_in(lowering, value, known, shape):
        return state.inlined(known)
    scalar = lowering.operands.number(value)
    if scalar is not None:
        return scalar
    view = lowering.operands.spread(lowering.view(value), shape)
    if not _runs_along(view, shape):
        view = lowering.operands.spread(lowering.contiguous(value), shape)
    if not _runs_along(view, shape):
        raise NotLowered(f"whether {value.name!r} has one element a row is only known at run time")
    return state.add(view)


def _is_taken_in(lowering: Lowering, value: Value, known: PendingElementwise, shape: Sequence[KnownDim]) -> bool:
    return lowering.is_single_use(value) and all(_runs_along(view, shape) for view in known.inputs)


def _runs_along(view: View, shape: Sequence[KnownDim]) -> bool:
    strides = broadcast_strides(view, shape)
    return strides is not None and strides[-1] in (0, 1)


def _emit(
    lowering: Lowering, node: Node, state: FusionState, shape: tuple[KnownDim, ...], roots: Sequence[Scalar],
    outputs: Sequence[Value],
) -> None:  # fmt: skip
    schedule = scheduled(roots, len(state.inputs))
    _check_types(schedule, roots)
    elements = [k for k, root in enumerate(roots) if not is_of_row(root)]
    targets = [lowering.result_view(outputs[k], shape) for k in elements]
    scalars = [lowering.result_view(outputs[k], (*shape[:-1], 1)) for k, _ in schedule.scalars]
    operands = [*targets, *state.inputs]
    strides = [_strides(view, shape) for view in operands]
    sizes, outer = collapse(shape[:-1], [each[:-1] for each in strides])
    steps = [each[-1] for each in strides[len(targets) :]]
    inputs = tuple(NestInput(v.dtype, BROADCAST if s == 0 else DENSE) for v, s in zip(state.inputs, steps))
    nest = RowNest(
        len(sizes) + 1, inputs, tuple(view.dtype for view in targets), _passes(schedule, elements),
        tuple(index for _, index in schedule.scalars),
    )  # fmt: skip
    kernel = row_kernel(nest, lowering.target)
    pointers = [pointer(view) for view in (*targets, *scalars, *state.inputs)]
    arguments: list[Argument] = [*pointers, *sizes, shape[-1], *(s for each in outer for s in each)]
    work = count_of(shape) * max(1, sum(map(operations, roots)) // 4)
    lowering.emit(
        KernelText(kernel.name, kernel), arguments, [v.buffer for v in state.inputs],
        [v.buffer for v in (*targets, *scalars)], work, (node,), work, moved_nbytes([*operands, *scalars]),
    )  # fmt: skip
    for k, view in (*zip(elements, targets), *zip((k for k, _ in schedule.scalars), scalars)):
        lowering.set(outputs[k], view.reshaped(tensor_type(outputs[k])[1]))


def _passes(schedule: RowSchedule, elements: Sequence[int]) -> tuple[RowNestPass, ...]:
    passes = [
        RowNestPass(
            () if each.kept is None else ((0, each.kept),),
            tuple(Reduction(r.kind, r.expression, r.index) for r in each.reductions), each.derived,
        )
        for each in schedule.passes
    ]  # fmt: skip
    last = RowNestPass(tuple((elements.index(k), expression) for k, expression in schedule.elements))
    return (*passes, last)


def _check_types(schedule: RowSchedule, roots: Sequence[Scalar]) -> None:
    reduced = [r.expression.dtype for each in schedule.passes for r in each.reductions]
    of_rows = [roots[k].dtype for k, _ in schedule.scalars]
    if any(dtype is not F32 for dtype in (*reduced, *of_rows)):
        raise NotLowered("only float32 rows are generated")


def _strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    strides = broadcast_strides(view, shape)
    assert strides is not None, (view, shape)  # as _operand has made sure
    return strides
