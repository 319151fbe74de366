"""Users' operators that say what they compute of a row: one row nest, however many reductions and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rows.row_steps import store_rows
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, count_of
from ort_core.plugin.ir import KnownDim, Node, Value, broadcast
from ort_core.plugin.loops import (
    RowMeaning,
    Scalar,
    is_of_row,
    operations,
    reads_rows,
    scheduled,
)


def row_formula(lowering: Lowering, node: Node) -> None:
    """Compute all outputs of a node by its operator's formulas; without reductions they stay pending expressions."""
    inputs = list(node.present_inputs())
    if inputs != list(node.inputs[: len(inputs)]):  # absent ones at the end are none
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
    if is_of_row(known.expression):  # a constant: a formula of it would read no element and count as one value a row
        return False
    return lowering.is_single_use(value) and all(_runs_along(view, shape) for view in known.inputs)


def _runs_along(view: View, shape: Sequence[KnownDim]) -> bool:
    strides = broadcast_strides(view, shape)
    return strides is not None and strides[-1] in (0, 1)


def _emit(
    lowering: Lowering, node: Node, state: FusionState, shape: tuple[KnownDim, ...], roots: Sequence[Scalar],
    outputs: Sequence[Value],
) -> None:  # fmt: skip
    schedule = scheduled(roots, len(state.inputs))
    of_row = [is_of_row(root) for root in roots]
    views = [
        lowering.result_view(value, (*shape[:-1], 1) if narrow else shape) for value, narrow in zip(outputs, of_row)
    ]
    elements = [view for view, narrow in zip(views, of_row) if not narrow]
    scalars = [view for view, narrow in zip(views, of_row) if narrow]
    work = count_of(shape) * max(1, sum(map(operations, roots)) // 4)
    store_rows(lowering, schedule, state.inputs, shape, elements, scalars, (node,), work)
    for value, view in zip(outputs, views):
        lowering.set(value, view.reshaped(tensor_type(value)[1]))
