"""Stores: the steps that put pending values into memory, and where each had best lie for those who read it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    DENSE,
    MOST_SKIPPED,
    OPEN,
    PERIODS,
    PITCHED,
    REPEATED,
    STRIDED,
    TILED,
    ElementwiseNest,
    NestInput,
    elementwise_kernel,
)
from ort_core.cpu.codegen.nests.interleaved import MOST_ROWS, InterleavedCopy, interleaving_kernel
from ort_core.cpu.codegen.nests.size_stores import size_store_kernel
from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.images.layout_steps import TURNED_BITS, emit_turned
from ort_core.cpu.lowering.pending import (
    Pending,
    PendingAnchor,
    PendingContents,
    PendingElementwise,
    PendingMatrices,
    PendingReshape,
    is_placed,
    order_of,
)
from ort_core.cpu.lowering.steps import Argument, KernelText, Operators, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import (
    Buffer,
    Place,
    View,
    collapse,
    count_of,
    dense_strides,
    is_open,
    moved_nbytes,
)
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Value
from ort_core.plugin.loops import Scalar, cast, element

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

EMPTY_OPERATIONS = 20  # of a formula (a sine has about 100), in empty lanes: spared, they pay for a copy of the result
COLLIDING = 512  # floats: rows of a multiple of it, 2 KiB, fall on the same few sets of a first-level cache
LEAST_TURNED_COUNT = 1024  # elements below which another step costs more than it saves
MOST_TURNED_BITS = 32  # of elements that vectors turn in squares sooner than each is loaded: 2.5 times for bytes
SPREAD = 16  # floats, a cache line, between rows that would


@frozen
class _Walk:
    """How loops step through a result and its operands: the sizes of axes, and each one's strides over them."""

    sizes: list[KnownDim]
    strides_of: list[list[KnownDim]]


@frozen
class _NestCall:
    """What follows from an expression and how its operands and its result lie, whichever buffers those are."""

    kernel: KernelText
    sizes: tuple[KnownDim, ...]
    work: KnownDim
    flops: KnownDim
    nbytes: KnownDim


class Stores:
    """Writes values into memory; part of a lowering's state."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering

    def store(self, expression: Scalar, inputs: Sequence[View], target: View, operators: Operators) -> None:
        """Compute an expression over views into a view."""
        self.store_elementwise(PendingElementwise(expression, tuple(inputs), target.shape, operators), target)

    def converted(self, view: View, dtype: DataType) -> PendingElementwise:
        """Return a view's elements as another type; where it has that type, as they are."""
        word = "Copy" if view.dtype is dtype else "Cast"
        return PendingElementwise(cast(element(0, view.dtype), dtype), (view,), view.shape, (word,))

    def stored(self, value: Value, pending: Pending) -> View:
        """Write the steps that compute a pending value, in the place that is best for its readers; returns the view."""
        if isinstance(pending, PendingContents):
            return self._store_contents(value, pending)
        if isinstance(pending, PendingReshape):
            source = pending.source
            copy = PendingElementwise(element(0, source.dtype), (source,), source.shape, pending.operators)
            return self.store_elementwise(copy, self._lowering.result_view(value, source.shape)).reshaped(pending.shape)
        if isinstance(pending, PendingMatrices):
            copied, rank = pending.copy(), len(pending.shape)
            return copied.transposed([*range(rank - 2), rank - 1, rank - 2]) if pending.is_turned else copied
        order = order_of(pending)
        if order and not self._lowering.is_output(value):
            target = self._target_of(value, pending, order)
        elif isinstance(pending, PendingElementwise):
            target = self._lowering.result_view(value, pending.shape)
        if isinstance(pending, PendingElementwise):
            return self.store_elementwise(pending, target)
        if order:
            last = (
                target
                if not self._lowering.is_output(value)
                else self._lowering.new_view(pending.dtype, pending.shape, order)
            )
            pending.anchor.store(self._lowering, pending, last)  # type: ignore[attr-defined]  # every anchor has it; see rules
            return last
        stored = tuple(pending.shape[a] for a in pending.order) if pending.order else pending.shape
        target = self._spread_view(value, stored) or self._lowering.result_view(value, stored)
        natural = target
        if pending.order:
            inverse = tuple(pending.order.index(a) for a in range(len(pending.order)))
            natural = target.transposed(inverse)
        pending.anchor.store(self._lowering, pending, natural)  # type: ignore[attr-defined]  # every anchor has it; see rules
        return target

    def _target_of(self, value: Value, pending: PendingElementwise | PendingAnchor, order: tuple[int, ...]) -> View:
        """Return where to store a value of a memory order: in a concatenation that reads it, or by itself."""
        may_be_part = isinstance(pending, PendingElementwise) or (
            is_placed(pending.anchor) and pending.anchor.stores_among_others
        )
        if may_be_part:
            return self._lowering.placed_view(value, pending.dtype, pending.shape, order)
        return self._lowering.new_view(pending.dtype, pending.shape, order)

    def stored_sizes(self, sizes: Sequence[KnownDim]) -> View:
        """Return sizes as a vector (int64) that kernels can read."""
        target = self._lowering.new_view(DataType.INT64, (len(sizes),))
        self._emit_sizes(sizes, target)
        return target

    def _store_contents(self, value: Value, pending: PendingContents) -> View:
        target = self._lowering.result_view(value, pending.shape)
        if pending.elements:
            self._emit_sizes(pending.elements, target)
        return target

    def _emit_sizes(self, sizes: Sequence[KnownDim], target: View) -> None:
        name, function = size_store_kernel(len(sizes), target.dtype.bits)
        self._lowering.emit(KernelText(name, function), (pointer(target), *sizes), (), (target.buffer,), 1, ("Sizes",))

    def store_elementwise(self, pending: PendingElementwise, target: View) -> View:
        """Write the step that computes an expression into a view of its shape; returns the view."""
        lowering, bits = self._lowering, _copied_bits(pending, target)
        walk = None if bits is None else _walk_of(pending, target)
        if bits is not None and walk is not None:
            if walk.strides_of[0] == list(dense_strides(walk.sizes)) and emit_turned(
                lowering, pending.inputs[0], target, walk.sizes, walk.strides_of[1], pending.operators
            ):
                return target
            walk = _by_rows(walk)
            if self._interleaved(pending, target, walk.sizes, walk.strides_of, bits):
                return target
        if bits is None and target.is_contiguous and not target.order:
            pending = replace(pending, inputs=tuple([self._turned(v, pending.shape) for v in pending.inputs]))
        elif _is_computed_apart(pending, target, lowering.target.lanes):
            apart = self.store_elementwise(pending, lowering.new_view(target.dtype, target.shape))
            copy = PendingElementwise(element(0, target.dtype), (apart,), target.shape, pending.operators)
            return self.store_elementwise(copy, target)

        def plan() -> _NestCall:
            return self._nest_call(pending, target, bits, walk or _by_rows(_walk_of(pending, target)))

        shared = self._shared(pending.expression)
        call = plan() if shared is None else lowering.remembered(_layout_of(shared, pending, target), plan)
        lowering.emit(
            call.kernel, (pointer(target), *map(pointer, pending.inputs), *call.sizes),
            [v.buffer for v in pending.inputs], [target.buffer], call.work, pending.operators, call.flops, call.nbytes,
        )  # fmt: skip
        return target

    def _turned(self, view: View, shape: tuple[KnownDim, ...]) -> View:
        """Return a view with dense columns as a row-major copy: squares are turned sooner than elements are read."""
        count = count_of(shape)
        is_small = isinstance(count, int) and count < LEAST_TURNED_COUNT
        if view.shape != shape or view.is_contiguous or view.dtype.bits > MOST_TURNED_BITS or is_small:
            return view
        place = self._lowering.new_view(view.dtype, shape)
        sizes, (_, steps) = collapse(shape, [place.strides, view.strides])
        return place if emit_turned(self._lowering, view, place, sizes, steps, ("Transpose",)) else view

    def _nest_call(self, pending: PendingElementwise, target: View, bits: DataType | None, walk: _Walk) -> _NestCall:
        """Return the kernel that computes an expression, and what it is given beside pointers."""
        sizes, strides_of = list(walk.sizes), walk.strides_of
        period, out_period = _short_rows(pending, sizes, strides_of), 0
        if period:
            out_period = 0 if strides_of[0][-2] == period else period
            sizes[-2:] = [sizes[-2] * period]
            inputs = tuple(_walked(view, s[-2:], period) for view, s in zip(pending.inputs, strides_of[1:]))
            strides_of = [[*s[:-2], s[-2]] for s in strides_of]  # read of PITCHED operands, and of such a result
        else:
            inputs = tuple(_nest_input(view, s[-1]) for view, s in zip(pending.inputs, strides_of[1:]))
        nest = ElementwiseNest(len(sizes), inputs, ((pending.expression, target.dtype),), out_period)
        if bits is not None and bits is not target.dtype:
            nest = _copy_of_bits(nest, bits)
        arguments: list[KnownDim] = [*sizes, *(strides_of[0] if out_period else strides_of[0][:-1])]
        for steps in strides_of[1:]:
            arguments.extend(steps)
        count, num_operations = count_of(pending.shape), pending.num_operations
        return _NestCall(
            self._nest_kernel(nest), tuple(arguments), count * (1 + num_operations // 16),
            count * max(0, num_operations - len(pending.inputs)), moved_nbytes([target, *pending.inputs]),
        )  # fmt: skip

    def _interleaved(
        self, pending: PendingElementwise, target: View, sizes: Sequence[KnownDim],
        strides_of: Sequence[Sequence[KnownDim]], dtype: DataType,
    ) -> bool:  # fmt: skip
        """Copy a few rows that lie interleaved in the target; return whether they do."""
        to, source = strides_of
        count = sizes[-1]
        if len(sizes) < 2 or not isinstance(count, int) or not 1 < count <= MOST_ROWS or source[-2] != 1:
            return False
        if to[-1] != 1 or to[-2] != count or source[-1] == 1:
            return False
        lowering, copy = self._lowering, InterleavedCopy(len(sizes) - 1, count, dtype)
        kernel = interleaving_kernel(copy, lowering.target)
        arguments: list[Argument] = [pointer(target), pointer(pending.inputs[0]), *sizes[:-1]]
        arguments += [*to[:-2], *source[:-2], source[-1]]
        lowering.emit(
            KernelText(kernel.name, kernel), arguments, [pending.inputs[0].buffer], [target.buffer],
            count_of(pending.shape), pending.operators, 0, moved_nbytes([target, pending.inputs[0]]),
        )  # fmt: skip
        return True

    def _nest_kernel(self, nest: ElementwiseNest) -> KernelText:
        def write() -> KernelText:
            kernel = elementwise_kernel(nest, self._lowering.target)
            return KernelText(kernel.name, kernel)

        ((expression, dtype),) = nest.outputs
        shared = self._shared(expression)
        what = ("nest", nest.rank, nest.inputs, shared, dtype, nest.out_period)
        return write() if shared is None else self._lowering.kernel(what, write)

    def _shared(self, expression: Scalar) -> Hashable | None:
        """Return what stands for an expression that other values have, too, as copies do; ``None`` for any other."""
        if expression.operation == "input":
            return "input", expression.dtype, expression.index
        return expression if self._lowering.expressions.has(expression) else None

    def _spread_view(self, value: Value, shape: Sequence[KnownDim]) -> View | None:
        """Return where to store rows that only products read, if rows side by side would share cache sets."""
        length = shape[-1] if len(shape) > 1 else 1
        if not isinstance(length, int) or length % COLLIDING or not self._only_products_read(value, length):
            return None
        row = length + SPREAD
        rows = tuple(shape[:-1])
        strides = tuple(step * row for step in dense_strides(rows))
        buffer = Buffer(tensor_type(value)[0], count_of(rows) * row, Place.ARENA)
        return View(buffer, (*rows, length), (*strides, 1))

    def _only_products_read(self, value: Value, length: int) -> bool:
        """Return whether all readers are products whose left operand this is, perhaps with other axes for its rows."""
        if self._lowering.is_returned(value) or not value.use_count:
            return False
        for node in value.consumers():
            if not self._lowering.is_member(node) or node.input(0) is not value or value in node.inputs[1:]:
                return False
            if node.op_type == "Reshape" and not node.domain:
                shape = tensor_type(node.output)[1]
                if shape[-1:] != (length,) or not self._only_products_read(node.output, length):
                    return False
            elif node.op_type not in ("MatMul", "Gemm", "FusedMatMul") or node.int_attribute("transA", 0):
                return False
        return True


def _layout_of(expression: Hashable, pending: PendingElementwise, target: View) -> Hashable:
    """Return all that decides the ``_NestCall`` of an expression, for which another object may stand."""
    reads = tuple([(view.dtype, view.shape, view.strides) for view in pending.inputs])
    result = (target.dtype, target.shape, target.strides, target.order)
    return "nest", expression, pending.num_operations, pending.shape, reads, result


def _walk_of(pending: PendingElementwise, target: View) -> _Walk:
    operands = [target.strides, *(known_strides(view, pending.shape) for view in pending.inputs)]
    order = target.order or tuple(range(len(pending.shape)))
    sizes, strides_of = collapse([pending.shape[a] for a in order], [[o[a] for a in order] for o in operands])
    return _Walk(sizes, strides_of)


def _by_rows(walk: _Walk) -> _Walk:
    """Return a walk whose rows lie densely in the result: a column of a larger one has rows of one element."""
    if walk.strides_of[0][-1] in (0, 1):
        return walk
    return _Walk([*walk.sizes, 1], [[*each, 0] for each in walk.strides_of])


def _is_computed_apart(pending: PendingElementwise, target: View, lanes: int) -> bool:
    """Return whether long formulas for short rows, as parts of a Concat are, had better be computed as one long row.

    Vectors at the ends of short rows are partly empty, and the formula costs as much as for full ones.
    """
    if pending.num_operations < EMPTY_OPERATIONS or target.order:
        return False
    walk = _by_rows(_walk_of(pending, target))
    if _short_rows(pending, walk.sizes, walk.strides_of):
        return False
    dense = _walk_of(pending, View(target.buffer, target.shape, dense_strides(target.shape)))
    spared = _empty_share(walk.sizes[-1], lanes) - _empty_share(dense.sizes[-1], lanes)
    return spared * pending.num_operations >= EMPTY_OPERATIONS


def _empty_share(size: KnownDim, lanes: int) -> float:
    """Return how much of the vectors of a row is empty: of a row that only a run knows, nothing that counts."""
    if not isinstance(size, int) or size <= 0:
        return 0.0
    return 1 - size / (-(-size // lanes) * lanes)


def _short_rows(
    pending: PendingElementwise, sizes: Sequence[KnownDim], strides_of: Sequence[Sequence[KnownDim]]
) -> int:
    """Return the length of short rows of floats that the kernel can walk as one long row, or 0."""
    period = sizes[-1]
    if len(sizes) < 2 or not isinstance(period, int) or period not in PERIODS or not pending.expression.arguments:
        return 0
    is_float = strides_of[0][-1] == 1 and all(view.dtype is DataType.FLOAT for view in pending.inputs)
    return (
        period if is_float and all(s[-1] == 0 or tuple(s[-2:]) in ((period, 1), (0, 1)) for s in strides_of[1:]) else 0
    )


def _walked(view: View, strides: Sequence[KnownDim], period: int) -> NestInput:
    """Return how short rows are stepped through that are walked as one long row."""
    row, inner = strides
    if inner == 1:
        return NestInput(view.dtype, TILED, period=period) if row == 0 else NestInput(view.dtype, DENSE)
    if row == 0:
        return NestInput(view.dtype, BROADCAST)
    return NestInput(view.dtype, REPEATED if row == 1 else PITCHED, period=period)


def _nest_input(view: View, step: KnownDim) -> NestInput:
    """Return how the innermost loop steps through a view."""
    if step in (0, 1):
        return NestInput(view.dtype, BROADCAST if step == 0 else DENSE)
    if is_open(step):
        return NestInput(view.dtype, OPEN)
    is_small = isinstance(step, int) and 1 < step <= MOST_SKIPPED
    return NestInput(view.dtype, STRIDED, step if is_small and isinstance(step, int) else 0)


def _copied_bits(pending: PendingElementwise, target: View) -> DataType | None:
    """Return as what a copy moves elements, ``None`` where an expression is no operand as it is.

    A bool is moved as the byte that it lies in.
    """
    if len(pending.inputs) != 1 or target.dtype is not pending.inputs[0].dtype or target.dtype.bits not in TURNED_BITS:
        return None
    if (pending.expression.operation, pending.expression.index) != ("input", 0):
        return None
    return DataType.UINT8 if target.dtype is DataType.BOOL else target.dtype


def _copy_of_bits(nest: ElementwiseNest, dtype: DataType) -> ElementwiseNest:
    (given,) = nest.inputs
    return ElementwiseNest(nest.rank, (NestInput(dtype, given.inner, given.step),), ((element(0, dtype), dtype),))
