"""Operands of fused expressions: what is computed again by its reader, compiled in as a number, or read from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_core.cpu.lowering.broadcasting import sizes_text
from ort_core.cpu.lowering.pending import (
    CHEAP_OPERATIONS,
    MAX_OPERATIONS,
    MAX_TAKEN,
    FusionState,
    PendingAnchor,
    PendingElementwise,
    as_it_is,
    is_cheap,
)
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.usual_sizes import are_usually_equal
from ort_core.cpu.lowering.value_types import computed_type, tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, count_of, ordered_strides, run_time_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import SMALL_TYPES, Scalar, lift, operations

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

COMMON_NUMBERS = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -0.5})  # expressions are simpler for some
MIN_REPEATS = 4  # reads of each element of a column, from which on a copy of it pays
MAX_NUMBERS = 16  # others; real models have up to about twenty, generated ones thousands


class Operands:
    """How expressions read values; part of a lowering's state."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._numbers: set[float] = set()  # that are compiled in

    def spread(self, view: View, shape: Sequence[KnownDim]) -> View:
        """Return a view as it broadcasts to ``shape``, if need be with strides that only the run decides.

        Raises:
            NotLowered: it does not broadcast.
        """
        if broadcast_strides(view, shape) is not None:
            return view
        view = self._required_usual(view, shape)
        if broadcast_strides(view, shape) is not None:
            return view
        if len(view.shape) > len(shape):
            raise NotLowered(f"{sizes_text(view.shape)} does not broadcast to {sizes_text(shape)}")
        for size, wanted in zip(view.shape, shape[len(shape) - len(view.shape) :]):
            if size != wanted and size != 1:
                self._lowering.require_equal((size - 1) * (size - wanted), 0)
        return View(view.buffer, tuple(shape), run_time_strides(view, shape), view.offset)

    def _required_usual(self, view: View, shape: Sequence[KnownDim]) -> View:
        """Return a view with those of its sizes that are usually equal to the wanted ones required to be so."""
        if len(view.shape) > len(shape):
            return view
        usual = as_usual(view, shape)
        for size, wanted in zip(view.shape, usual.shape):
            self._lowering.require_equal(size, wanted)
        return usual

    def operand(self, value: Value, state: FusionState, shape: Sequence[KnownDim]) -> Scalar:
        """Return how a fused expression over ``shape`` reads a value, taking its computation in where that pays."""
        known = self._lowering.pending(value) or self._lowering.widened(value)
        if isinstance(known, PendingElementwise):
            single, size = self._lowering.is_single_use(value), known.num_operations
            taken_in = size <= MAX_OPERATIONS and (single or size <= CHEAP_OPERATIONS)
            if taken_in and len(state.inputs) + len(known.inputs) <= 10 and state.taken + size <= MAX_TAKEN:
                state.taken += size
                begins = not state.inputs and state.anchor is None and state.core is None
                known = self._alone(value, known, state, single and begins)
                take = state.continued if single else state.inlined
                is_spread = known.shape == tuple(shape)  # its operands are, as those of any expression
                spread = as_it_is if is_spread else lambda view: self.spread(view, shape)
                return take(known, spread, self._lowering.expressions)
        scalar = self.number(value)
        if scalar is not None:
            return scalar
        return state.add(self.spread(self._lowering.view(value), shape))

    def dense_where_repeated(self, view: View, shape: Sequence[KnownDim]) -> View:
        """Return a transposed view as a row-major copy where ``shape`` reads each element of it many times.

        Each read of a column costs a load for each element; the copy reads them once.
        """
        if not view.shape or not _is_column(view) or not _repeats(view.shape, shape):
            return view
        return self._lowering.remembered(("dense", view), lambda: self._lowering.copied(view))

    def _alone(self, value: Value, known: PendingElementwise, state: FusionState, is_core: bool) -> PendingElementwise:
        """Return a value's expression as its own where it is to stand in another one, where it may meet its equal."""
        expression = known.expression
        if not is_core and state.copies.get(expression) is not value:
            expression = self._lowering.expressions.apart(expression, state.copies)
        state.copies[expression] = value
        if expression is known.expression:
            return known
        own = replace(known, expression=expression, core=None)
        self._lowering.set(value, own)
        return own

    def number(self, value: Value) -> Scalar | None:
        """Return a one-element constant to be compiled in; ``None`` where it is to be read.

        A program that has many different numbers reads the later ones: kernels that differ in numbers alone would
        each take LLVM tens of milliseconds.
        """
        scalar = self.constant_scalar(value)
        if scalar is None or not scalar.dtype.is_float or scalar.value in COMMON_NUMBERS:
            return scalar
        if scalar.value not in self._numbers and len(self._numbers) >= MAX_NUMBERS:
            return None
        self._numbers.add(float(scalar.value))
        return scalar

    def constant_scalar(self, value: Value) -> Scalar | None:
        """Return a one-element constant as an expression; of small types, which are read as bytes, ``None``."""
        array = self._lowering.constant_of(value)
        if array is None or array.size != 1 or len(array.shape) > 1:
            return None
        dtype = DataType.from_numpy(array.dtype)
        return None if dtype in SMALL_TYPES else lift(array.reshape(-1)[0].item(), computed_type(dtype))

    def fuse(self, node: Node, inputs: Sequence[Value], shape: Sequence[KnownDim]) -> tuple[FusionState, list[Scalar]]:
        """Return the operands of an elementwise node, with at most one anchor taken in."""
        state = FusionState()
        absorbed: dict[Value, Scalar] = {}
        for value in inputs:
            known = self._lowering.pending(value)
            if (
                isinstance(known, PendingAnchor)
                and tensor_type(node.output)[0] in known.anchor.result_types
                and not known.order
                and known.shape == tuple(shape)
                and self._lowering.is_single_use(value)
                and operations(known.expression) <= MAX_OPERATIONS
            ):
                others = [as_usual(w, shape) for v in inputs if v is not value for w in self._read_beside_anchor(v)]
                if known.anchor.can_fuse(shape, [*known.inputs, *others]):
                    absorbed[value] = state.absorbed(known)
                    break
        scalars = []
        # The product of two scales is read, not compiled in: layers that differ in it alone share their code.
        is_number = node.op_type == "Mul" and count_of(shape) == 1 and tensor_type(node.output)[0] is DataType.FLOAT
        first = None if absorbed or len(inputs) == 1 else self._largest_pending(inputs)
        begun = None if first is None else self.operand(first, state, shape)
        for value in inputs:
            if value is first and begun is not None:
                scalars.append(begun)
            elif value in absorbed:
                scalars.append(absorbed[value])
            elif is_number and self.constant_scalar(value) is not None:
                scalars.append(state.add(self._lowering.view(value)))
            else:
                scalars.append(self.operand(value, state, shape))
        return state, scalars

    def _largest_pending(self, inputs: Sequence[Value]) -> Value | None:
        """Return the operand that is best taken in first, which saves a walk through all of its expression."""
        sizes: dict[Value, int] = {}
        for value in inputs:
            known = self._lowering.pending(value)
            if isinstance(known, PendingElementwise) and self._lowering.is_single_use(value):
                sizes[value] = known.num_operations
        return max(sizes, key=sizes.__getitem__) if sizes else None

    def _read_beside_anchor(self, value: Value) -> Sequence[View]:
        """Return the views that an anchor's epilogue reads for an operand, computing it now unless it is small.

        Small elements (quantized ones) are read as they are and widened in the epilogue; so are single numbers.
        """
        if self.number(value) is not None:
            return ()
        quantized = self._lowering.quantized.get(value)
        if isinstance(self._lowering.pending(value), PendingAnchor) and quantized is not None:
            self._lowering.set(value, quantized.expression(self._lowering))
        known = self._lowering.pending(value)
        if not isinstance(known, PendingElementwise) or not is_cheap(known.expression):
            return (self._lowering.view(value),)
        is_small = all(view.dtype.bits < 32 or count_of(view.shape) == 1 for view in known.inputs)
        return known.inputs if is_small else (self._lowering.view(value),)


def as_usual(view: View, shape: Sequence[KnownDim]) -> View:
    """Return a view with the sizes of ``shape`` in place of those that are usually equal to them.

    Right only where they are equal, which the caller requires if it reads the view.
    """
    missing = len(shape) - len(view.shape)
    if missing < 0:
        return view
    wanted = tuple([w if are_usually_equal(s, w) else s for s, w in zip(view.shape, shape[missing:])])
    if wanted == view.shape:
        return view
    order = view.order or tuple(range(len(view.shape)))
    is_dense = view.strides == ordered_strides(view.shape, order)
    strides = ordered_strides(wanted, order) if is_dense else view.strides
    return View(view.buffer, wanted, strides, view.offset, view.order)


def _is_column(view: View) -> bool:
    """Return whether neighbors along the last axis lie apart in memory."""
    return view.shape[-1] != 1 and view.strides[-1] not in (0, 1)


def _repeats(small: Sequence[KnownDim], large: Sequence[KnownDim]) -> bool:
    """Return whether each element is read ``MIN_REPEATS`` times or more when a shape broadcasts to a larger one.

    A size that only a run knows counts as large.
    """
    repeats = 1
    padded = (*[1] * (len(large) - len(small)), *small)
    for size, wanted in zip(padded, large):
        if size == 1 and wanted != 1:
            repeats *= wanted if isinstance(wanted, int) else MIN_REPEATS
    return repeats >= MIN_REPEATS
