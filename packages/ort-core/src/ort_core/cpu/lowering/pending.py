"""Pending values: results that are described and not computed yet, so that their consumer may take them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeGuard

from ort_core.cpu.lowering.expression_core import ExpressionCore, core_of
from ort_core.cpu.lowering.steps import NotLowered, Operators
from ort_core.cpu.lowering.views import View
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import Scalar, element, operations, substitute

if TYPE_CHECKING:
    from ort_core.cpu.lowering.expression_core import SharedExpressions
    from ort_core.cpu.lowering.lowering import Lowering
    from ort_core.plugin.ir import Value

MAX_OPERATIONS = 240  # of one fused expression: beyond it registers spill and nothing is gained
CHEAP_OPERATIONS = 6
MAX_TAKEN = 4 * MAX_OPERATIONS  # of all operands that one node takes in
MAX_INPUTS = 12


@dataclass(frozen=True, slots=True)
class PendingElementwise:
    """An expression over views, each broadcast to ``shape``."""

    expression: Scalar
    inputs: tuple[View, ...]
    shape: tuple[KnownDim, ...]
    operators: Operators = ()
    core: ExpressionCore | None = field(default=None, compare=False)  # the expression, if it has one

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.expression.dtype

    @property
    def num_operations(self) -> int:
        """How many distinct operations the expression has."""
        return operations(self.expression) if self.core is None else self.core.count


class Anchor(Protocol):
    """A computation with an epilogue: a matrix product, a convolution. Fixed when it is lowered."""

    @property
    def operator(self) -> str:
        """Its name in reports."""

    @property
    def result_types(self) -> frozenset[DataType]:
        """The element types that it can store, and so those of the expressions that it takes in."""

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether the epilogue can read these views over the result's shape."""


class RowAnchor(Anchor, Protocol):
    """An anchor that treats all axes of its result but the last as rows, however many they are."""

    def with_rows(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> Anchor | None:
        """Return the anchor for a result of another shape with the same rows, ``None`` where that needs a copy."""


class PlacedAnchor(Anchor, Protocol):
    """An anchor of channels-last images that can store them where a concatenation wants them."""

    @property
    def layout(self) -> tuple[int, ...]:
        """The memory order of its result."""

    @property
    def stores_among_others(self) -> bool:
        """Whether its channels may lie among those of other results."""

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps that compute the result into a view."""


def has_rows(anchor: Anchor) -> TypeGuard[RowAnchor]:
    """Return whether an anchor treats all axes but the last as rows: asked of a class, a protocol takes far longer."""
    return hasattr(type(anchor), "with_rows")


def is_placed(anchor: Anchor) -> TypeGuard[PlacedAnchor]:
    """Return whether an anchor can store its images where a concatenation wants them."""
    return hasattr(type(anchor), "stores_among_others")


@frozen
class PendingAnchor:
    """An anchor whose result (input 0 of ``expression``) runs through an expression before it is stored."""

    anchor: Anchor
    expression: Scalar
    inputs: tuple[View, ...]  # inputs 1.. of the expression
    shape: tuple[KnownDim, ...]
    operators: Operators = ()
    order: tuple[int, ...] = ()  # axes of the stored result, if it is to be transposed

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.expression.dtype


@frozen
class PendingContents:
    """An integer tensor by its elements, row-major, which are numbers and sizes."""

    elements: tuple[KnownDim, ...]
    shape: tuple[int, ...]
    dtype: DataType


@frozen
class PendingReshape:
    """A view in another shape that its strides cannot express: copied, unless its reader knows better."""

    source: View
    shape: tuple[KnownDim, ...]
    operators: Operators = ()

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.source.dtype


@frozen
class PendingMatrices:
    """Matrices of a constant that indices choose, which their product reads where they lie.

    Attributes:
        table: the constant, (count, rows, columns) before they are turned.
        indices: writes what they take, and returns the indices.
        shape: of the chosen matrices: that of the indices, and the matrix's.
        copy: writes the step that copies the chosen matrices, for any other reader.
        is_turned: whether each matrix is read with its rows as columns.
    """

    table: Value
    indices: Callable[[], View]
    shape: tuple[KnownDim, ...]
    copy: Callable[[], View]
    is_turned: bool = False
    dtype: DataType = DataType.FLOAT

    def turned(self) -> PendingMatrices:
        """Return the matrices transposed."""
        shape = (*self.shape[:-2], self.shape[-1], self.shape[-2])
        return PendingMatrices(self.table, self.indices, shape, self.copy, not self.is_turned)


Pending = PendingElementwise | PendingAnchor | PendingContents | PendingReshape | PendingMatrices


def as_it_is(view: View) -> View:
    """Return a view that has the shape that it is to be spread over, or has been spread over it before."""
    return view


@dataclass(slots=True)
class FusionState:
    """Collects the operands of a fused expression; equal views are read once."""

    inputs: list[View] = field(default_factory=list)
    anchor: PendingAnchor | None = None
    core: ExpressionCore | None = None  # the operand that was taken in as it is
    taken: int = 0  # operations of the operands that were taken in
    copies: dict[Scalar, Value] = field(default_factory=dict)  # expressions taken in, and of which values they are
    placed: list[Scalar] = field(default_factory=list)  # what they became over this state's operands

    def add(self, view: View) -> Scalar:
        """Return the expression that reads a view."""
        shift = 1 if self.anchor is not None else 0
        for index, known in enumerate(self.inputs):
            if known is view or (known.buffer is view.buffer and known == view):
                return element(index + shift, view.dtype)
        if len(self.inputs) >= MAX_INPUTS:
            raise NotLowered(f"more than {MAX_INPUTS} operands in one expression are not generated")
        self.inputs.append(view)
        return element(len(self.inputs) - 1 + shift, view.dtype)

    def inlined(
        self, pending: PendingElementwise, spread: Callable[[View], View] = as_it_is,
        shared: SharedExpressions | None = None,
    ) -> Scalar:  # fmt: skip
        """Return a pending expression over this state's operands, each of them ``spread`` over another shape."""
        reads = {i: self.add(spread(view)) for i, view in enumerate(pending.inputs)}
        if shared is None:
            return substitute(pending.expression, reads)
        number = 0
        found = shared.placed(pending.expression, reads, number)
        while found in self.placed and found is not pending.expression:  # one that reads nothing has no other copy
            number += 1
            found = shared.placed(pending.expression, reads, number)
        self.placed.append(found)
        return found

    def continued(
        self, pending: PendingElementwise, spread: Callable[[View], View], shared: SharedExpressions | None = None
    ) -> Scalar:
        """As ``inlined``, for an expression that nobody else reads: as the first operand it is not walked again."""
        if self.inputs or self.anchor is not None:
            return self.inlined(pending, spread, shared)
        if spread is as_it_is and pending.core is not None:
            return self._begun(pending, pending.core)
        core = pending.core or core_of(pending.expression, None)
        reads = {i: self.add(spread(view)) for i, view in enumerate(pending.inputs)}
        for i, leaf in core.leaves.items():
            if reads[i].index != i or reads[i].dtype is not leaf.dtype:
                return substitute(pending.expression, reads)
        self.core = core
        return core.root

    def _begun(self, pending: PendingElementwise, core: ExpressionCore) -> Scalar:
        """Begin with an expression whose operands another state has collected: they differ, and none is looked at."""
        self.inputs = list(pending.inputs)
        for index, leaf in core.leaves.items():
            if pending.inputs[index].dtype is not leaf.dtype:
                return substitute(
                    pending.expression, {i: element(i, view.dtype) for i, view in enumerate(pending.inputs)}
                )
        self.core = core
        return core.root

    def absorbed(self, pending: PendingAnchor) -> Scalar:
        """Take in an anchor; must come before any other operand is added."""
        assert self.anchor is None
        assert not self.inputs
        self.anchor = pending
        self.inputs = list(pending.inputs)
        return pending.expression


def order_of(pending: PendingElementwise | PendingAnchor) -> tuple[int, ...]:
    """Return the memory order that a result had best have: its anchor's, or that of an operand of its shape.

    An operand that broadcasts is small beside the result, which need not follow it.
    """
    if isinstance(pending, PendingAnchor):
        return () if pending.order else getattr(pending.anchor, "layout", ())
    orders = [view.order for view in pending.inputs if view.shape == pending.shape]
    return next((order for order in orders if order), ())


def known_order(known: View | Pending | None) -> tuple[int, ...]:
    """Return the memory order of a value, computed or not, where it is not row-major."""
    if isinstance(known, View):
        return known.order
    return order_of(known) if isinstance(known, PendingElementwise | PendingAnchor) else ()


def structure_of(expression: Scalar) -> tuple[object, ...]:
    """Return what two expressions have in common that compute the same in the same order; it can be hashed."""
    numbers: dict[int, int] = {}
    found: list[tuple[object, ...]] = []

    def walk(node: Scalar) -> int:
        if id(node) not in numbers:
            arguments = tuple(walk(argument) for argument in node.arguments)
            numbers[id(node)] = len(found)
            # The text of a value tells 0.0 from -0.0 and True from 1, which are equal.
            found.append((node.operation, node.dtype, arguments, node.index, repr(node.value)))
        return numbers[id(node)]

    walk(expression)
    return tuple(found)


def is_cheap(expression: Scalar) -> bool:
    """Return whether computing an expression again costs less than storing and loading its result."""
    return operations(expression) <= CHEAP_OPERATIONS
