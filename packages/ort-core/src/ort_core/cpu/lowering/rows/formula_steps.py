"""Row formulas over any axes: a step for each reduction, and an expression that is left to the reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState
from ort_core.cpu.lowering.rows.reducing import (
    After,
    ReductionOperand,
    kept_shape,
    operand_of,
    reduce_operand,
    store_operand,
)
from ort_core.cpu.lowering.steps import Operators
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import KnownDim
from ort_core.plugin.loops import (
    RowPass,
    RowReduction,
    RowSchedule,
    Scalar,
    cast,
    is_of_row,
    rebuilt,
    row_values,
    scheduled,
)

ROW_LENGTH = 0  # the row value that is the number of elements


def reduced_over(
    lowering: Lowering,
    formulas: Sequence[Scalar],
    inputs: Sequence[View],
    shape: Sequence[KnownDim],
    axes: Sequence[int],
    operators: Operators,
    targets: Sequence[View | None] = (),
) -> list[ReductionOperand]:
    """Write the steps of formulas over any axes; what elements they have at the end is left to the reader.

    Args:
        lowering: receives the steps.
        formulas: expressions over ``inputs``.
        inputs: each broadcasts to ``shape``.
        shape: of the elements.
        axes: that are a row.
        operators: what is computed, for reports.
        targets: where to store the formulas of a row that are one reduction, by formula; contiguous.

    Returns:
        The results: over ``shape``, or of a row over the shape with the axes of size 1.
    """
    wanted = [target for formula, target in zip(formulas, targets) if is_of_row(formula)]
    steps = _ReductionSteps(lowering, tuple(inputs), tuple(shape), axes, operators)
    elements, scalars = steps.results(scheduled(formulas, len(inputs)), wanted)
    return [scalars.pop(0) if is_of_row(formula) else elements.pop(0) for formula in formulas]


@dataclass(slots=True)
class _ReductionSteps:
    lowering: Lowering
    inputs: tuple[View, ...]
    shape: tuple[KnownDim, ...]
    axes: Sequence[int]
    operators: Operators
    values: dict[int, View] = field(default_factory=dict)  # of rows, by index
    outputs: dict[int, View] = field(default_factory=dict)
    stored: dict[int, View] = field(default_factory=dict)  # expressions that were stored, by identity

    def results(
        self, schedule: RowSchedule, targets: Sequence[View | None]
    ) -> tuple[list[ReductionOperand], list[ReductionOperand]]:
        reads = Counter(index for each in schedule.passes for root in each.roots for index in _row_indices(root))
        reads.update(schedule.scalars)
        wanted = dict(zip(schedule.scalars, targets))
        last = schedule.passes[-1]
        pending = dict(last.stores) if not last.reductions and not last.derived else {}
        left: dict[int, Scalar] = {}
        for each in schedule.passes[: -1 if pending else None]:
            for place, expression in each.stores:
                self.outputs[place] = self.stored[id(expression)] = store_operand(
                    self.lowering, self._bound(expression, self.shape), self.operators
                )
            left.update(self._reduce(each, reads, wanted))
            for index in list(left):
                if reads[index] > schedule.scalars.count(index):
                    derived = self._bound(left.pop(index), kept_shape(self.shape, self.axes))
                    self.values[index] = store_operand(self.lowering, derived, self.operators)
        places = sorted({*self.outputs, *pending})
        elements = [
            self._bound(pending[place], self.shape) if place in pending else operand_of(self.outputs[place])
            for place in places
        ]
        return elements, [self._scalar(index, left) for index in schedule.scalars]

    def _scalar(self, index: int, left: dict[int, Scalar]) -> ReductionOperand:
        if index in left:
            return self._bound(left[index], kept_shape(self.shape, self.axes))
        return operand_of(self.values[index])

    def _reduce(
        self, each: RowPass, reads: Counter[int], wanted: dict[int, View | None]
    ) -> list[tuple[int, Scalar]]:  # fmt: skip
        """Write the reductions of a pass, each with what only it is needed for; return what else is derived."""
        derived = dict(each.derived)
        for reduction in each.reductions:
            index = next((k for k, found in derived.items() if _is_behind(found, reduction, reads)), None)
            after = None if index is None else _after(derived.pop(index), reduction.index)
            index = reduction.index if index is None else index
            operand = self._bound(reduction.expression, self.shape)
            target = wanted.get(index)
            view = reduce_operand(self.lowering, operand, self.axes, reduction.kind, after, target, self.operators)
            self.values[index] = view
        return list(derived.items())

    def _bound(self, root: Scalar, shape: Sequence[KnownDim]) -> ReductionOperand:
        """Return an expression over views: what was stored, values of rows and inputs."""
        state = FusionState()

        def stored(node: Scalar) -> Scalar | None:
            view = self._view_of(node)
            return None if view is None else cast(state.add(view), node.dtype)  # the length is stored as an integer

        return ReductionOperand(rebuilt(root, stored), tuple(state.inputs), tuple(shape))

    def _view_of(self, node: Scalar) -> View | None:
        if id(node) in self.stored:
            return self.stored[id(node)]
        if node.operation == "input":
            count = len(self.inputs)
            return self.inputs[node.index] if node.index < count else self.outputs[node.index - count]
        if node.operation != "row":
            return None
        if node.index == ROW_LENGTH and node.index not in self.values:
            total = count_of([self.shape[axis] for axis in self.axes])
            self.values[node.index] = self.lowering.stores.stored_sizes((total,)).reshaped(())
        return self.values[node.index]


def _row_indices(root: Scalar) -> set[int]:
    return {node.index for node in row_values(root)}


def _is_behind(derived: Scalar, reduction: RowReduction, reads: Counter[int]) -> bool:
    """Return whether a reduction is only needed for what is derived from it alone."""
    return reads[reduction.index] == 1 and _row_indices(derived) | {ROW_LENGTH} == {ROW_LENGTH, reduction.index}


def _after(derived: Scalar, index: int) -> After:
    def after(result: Scalar, count: Scalar) -> Scalar:
        def of_row(node: Scalar) -> Scalar | None:
            return None if node.operation != "row" else result if node.index == index else count

        return rebuilt(derived, of_row)

    return after
