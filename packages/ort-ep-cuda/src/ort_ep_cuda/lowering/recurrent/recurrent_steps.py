"""The steps of a recurrent layer one by one: in each a product of the state, and one or two kernels of the cell.

All steps have the same kernels: what tells them apart (places in memory, the number of the step) are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, element, lift, select
from ort_ep_cuda.lowering.products.products import multiply
from ort_ep_cuda.lowering.recurrent.recurrent_cells import Cell, CellInputs
from ort_ep_cuda.lowering.recurrent.recurrent_layer import RecurrentLayer
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import compute_type

Meaning = Callable[[Sequence[Scalar]], Scalar]


@dataclass(frozen=True, slots=True)
class Given:
    """What all steps read beside states and shares; ``None`` is absent."""

    biases: TensorView | None
    peepholes: TensorView | None
    lengths: TensorView | None


class UnrolledDirection:
    """One direction, step by step. Used once.

    Args:
        layer: with its weights ``[directions, units, gates * units]``.
        direction: which.
        cell: of this direction.
        given: what all steps read.
    """

    def __init__(self, layer: RecurrentLayer, direction: int, cell: Cell, given: Given) -> None:
        self._layer, self._direction, self._cell = layer, direction, cell
        self._builder = layer.facts.builder
        self._weights = layer.weights.at(direction)
        _, self._steps, self._batch, _ = layer.shares.shape
        self._rows = (self._batch, layer.units)
        self._fixed = [*self._per_gate(given.biases, 2 * cell.gates), *self._per_gate(given.peepholes, 3)]
        self._has_bias = given.biases is not None
        self._lengths: TensorView | None = None
        if given.lengths is not None:
            self._lengths = given.lengths.regrouped((self._batch, 1)).broadcast_to(self._rows)
            self._times = self._builder.table("times", np.arange(self._steps, dtype=np.int32))
        self._roots: dict[tuple[object, ...], Scalar] = {}

    def lower(self, state: TensorView | None, memory: TensorView | None) -> None:
        """Add all steps from initial states on, zeros where they are absent; then what is left of them."""
        found = tuple(self._first(given) for given in (state, memory))
        is_back = self._layer.is_reverse or self._direction == 1
        for time in reversed(range(self._steps)) if is_back else range(self._steps):
            found = self._step(time, *found)
        for view, last in zip(self._layer.last, found, strict=True):
            if view is not None and view.size:
                self._store_last(last, view.at(self._direction))

    def _per_gate(self, given: TensorView | None, count: int) -> list[TensorView]:
        if given is None:
            return []
        line, units = given.at(self._direction), self._layer.units
        return [line.sliced(0, number * units, 1, units).broadcast_to(self._rows) for number in range(count)]

    def _first(self, given: TensorView | None) -> TensorView:
        """Return an initial state as dense rows."""
        if given is None:
            return self._builder.stored(LazyTensor(lift(0.0, DataType.FLOAT), (), self._rows, self._layer.dtype))
        part = given.at(self._direction)
        return part if part.is_dense else self._builder.stored(LazyTensor.of(part))

    def _step(self, time: int, hidden: TensorView, memory: TensorView) -> tuple[TensorView, TensorView]:
        cell, layer = self._cell, self._layer
        share = layer.shares.at(self._direction).at(time)
        sums = self._builder.temporary(layer.dtype, (self._batch, cell.gates * layer.units))
        self._multiply(hidden, sums, 0, 2 if cell.is_reset_first else cell.gates)
        if cell.is_reset_first:
            reset = self._stored("reset", self._read(share, sums, hidden, memory), self._applied(cell.reset))
            self._multiply(reset, sums, 2, 1)
        if cell.op_type == "LSTM":
            read = self._read(share, sums, hidden, memory)
            memory = self._unless_ended("memory", time, read, self._applied(cell.memory), memory)
        result = None if layer.y is None else layer.y.at(time).at(self._direction)
        place = result if self._lengths is None else None
        read = self._read(share, sums, hidden, memory)
        found = self._unless_ended("hidden", time, read, self._applied(cell.hidden), hidden, place)
        if result is not None and self._lengths is not None:
            self._store_active(time, found, result)
        return found, memory

    def _read(self, share: TensorView, sums: TensorView, hidden: TensorView, memory: TensorView) -> list[TensorView]:
        gates, units = self._cell.gates, self._layer.units
        parts = [part.sliced(1, gate * units, 1, units) for part in (share, sums) for gate in range(gates)]
        return [*parts, hidden, memory, *self._fixed]

    def _applied(self, function: Callable[[CellInputs], Scalar]) -> Meaning:
        """Return a function of the cell as one of what ``_read`` gives."""
        gates = self._cell.gates

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            shares, sums, (hidden, memory, *fixed) = roots[:gates], roots[gates : 2 * gates], roots[2 * gates :]
            biases = [fixed.pop(0) for _ in range(2 * gates)] if self._has_bias else []
            return function(CellInputs(shares, sums, biases[:gates], biases[gates:], hidden, memory, fixed))

        return meaning

    def _multiply(self, state: TensorView, sums: TensorView, gate: int, count: int) -> None:
        units = self._layer.units
        columns = self._weights.sliced(1, gate * units, 1, count * units)
        if count == self._cell.gates:
            multiply(self._layer.facts, state, columns, sums)
            return
        part = self._builder.temporary(sums.dtype, (self._batch, count * units))
        multiply(self._layer.facts, state, columns, part)
        self._stored("part", [part], lambda roots: roots[0], sums.sliced(1, gate * units, 1, count * units))

    def _unless_ended(
        self,
        name: str,
        time: int,
        read: Sequence[TensorView],
        meaning: Meaning,
        old: TensorView,
        out: TensorView | None = None,
    ) -> TensorView:
        """Store what a step gives; rows whose sequence has ended keep ``old``."""
        if self._lengths is None:
            return self._stored(name, read, meaning, out)

        def chosen(roots: Sequence[Scalar]) -> Scalar:
            return select(binary("gt", roots[-3], roots[-2]), meaning(roots[:-3]), roots[-1])

        return self._stored(name, [*read, self._lengths, self._time(time), old], chosen, out)

    def _store_active(self, time: int, state: TensorView, out: TensorView) -> None:
        """Store a state, zeros where the sequence has ended."""
        assert self._lengths is not None

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            return select(binary("gt", roots[1], roots[2]), roots[0], lift(0.0, roots[0].dtype))

        self._stored("active", [state, self._lengths, self._time(time)], meaning, out)

    def _store_last(self, state: TensorView, out: TensorView) -> None:
        """Store a last state; a sequence without elements has none, and gets zeros."""
        if self._lengths is None:
            self._builder.stored(LazyTensor.of(state), out)
            return

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            return select(binary("gt", roots[1], 0), roots[0], lift(0.0, roots[0].dtype))

        self._stored("last", [state, self._lengths], meaning, out)

    def _time(self, time: int) -> TensorView:
        return self._times.sliced(0, time, 1, 1).broadcast_to(self._rows)

    def _stored(
        self, name: str, views: Sequence[TensorView], meaning: Meaning, out: TensorView | None = None
    ) -> TensorView:
        """Store an expression over views; it is made once for all steps in which they are told apart alike."""
        operands = tuple(dict.fromkeys(views))
        places = tuple(operands.index(view) for view in views)
        if (name, places) not in self._roots:
            roots = [element(place, compute_type(operands[place].dtype)) for place in places]
            self._roots[name, places] = cast(meaning(roots), compute_type(self._layer.dtype))
        tensor = LazyTensor(self._roots[name, places], operands, views[0].shape, self._layer.dtype)
        return self._builder.stored(tensor, out)
