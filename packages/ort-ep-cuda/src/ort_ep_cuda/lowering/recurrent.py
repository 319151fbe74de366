"""Recurrent layers: the input's share of all steps is one product for each direction; then the steps follow.

Layers of few units are walked by one kernel. Others are a product and one or two kernels in each step, all launched
ahead; a captured graph starts them without the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ort_core.plugin import InvalidArgument, Rejection
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, cast, lift, select
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products import PRODUCT_TYPES, multiply
from ort_ep_cuda.lowering.recurrent_cells import GATES, Cell, CellInputs, directions_of, find_cells
from ort_ep_cuda.lowering.recurrent_kernel import UNITS, WEIGHTS_NBYTES, Walk, launch_walk
from ort_ep_cuda.lowering.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.views import TensorView

_X, _WEIGHTS, _STATE_WEIGHTS, _BIAS, _LENGTHS, _STATE, _MEMORY, _PEEPHOLES = range(8)
_Y_ORDERS = ((0, 1, 2, 3), (1, 2, 0, 3))  # by layout: how [steps, directions, batch, units] is read from the output
_STATE_ORDERS = ((0, 1, 2), (1, 0, 2))


def refuse_recurrent(node: Node) -> str | None:
    """Return why a layer is not generated: its element types, a direction or a function that is not known."""
    value = node.input(_X)
    assert value is not None
    if element_type(value) not in PRODUCT_TYPES:
        return f"{node.op_type} of {element_type(value).text} is not generated"
    if node.string_attribute("direction", "forward") not in ("forward", "reverse", "bidirectional"):
        return f"{node.op_type} in the direction {node.string_attribute('direction', '')!r} is not generated"
    found = find_cells(node)
    return found.reason if isinstance(found, Rejection) else None


def lower_recurrent(facts: LoweredNode) -> None:
    """Store all states, the last one, and of an LSTM the last memory."""
    cells = find_cells(facts.node)
    if isinstance(cells, Rejection):
        raise InvalidArgument(f"{facts.node.describe()}: {cells.reason}")
    layer = _Layer.of(facts)
    nbytes = layer.weights.size * layer.dtype.numpy.itemsize // layer.directions
    if nbytes <= WEIGHTS_NBYTES and layer.units <= UNITS:
        _walk(layer, cells)
    else:
        _unroll(layer, cells)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A node with its tensors, whose axes have the order of layout 0.

    ``shares`` are the input's products, ``[directions, steps, batch, gates * units]``. Outputs are ``None`` where
    nobody reads them.
    """

    facts: LoweredNode
    shares: TensorView
    weights: TensorView
    y: TensorView | None
    last: tuple[TensorView | None, ...]

    @classmethod
    def of(cls, facts: LoweredNode) -> _Layer:
        """Return the layer with the input's products added to the program."""
        node, builder = facts.node, facts.builder
        directions, gates, layout = directions_of(node), GATES[node.op_type], node.int_attribute("layout", 0)
        x = builder.view(facts.value(_X))
        x = x.permuted((1, 0, 2)) if layout else x
        x = x if x.is_dense else builder.stored(LazyTensor.of(x))
        steps, batch, inputs = x.shape
        units = facts.tensor(_STATE_WEIGHTS).shape[2]
        factors = builder.view(facts.value(_WEIGHTS))
        if factors.shape != (directions, gates * units, inputs):
            raise InvalidArgument(
                f"{node.describe()}: W has the shape {factors.shape}, expected {(directions, gates * units, inputs)}"
            )
        rows = x.regrouped((steps * batch, inputs))
        shares = builder.temporary(x.dtype, (directions, steps, batch, gates * units))
        for direction in range(directions):
            share = _part(shares, direction).regrouped((steps * batch, gates * units))
            multiply(facts, rows, _part(factors, direction).permuted((1, 0)), share)
        weights = builder.dense(facts.value(_STATE_WEIGHTS), (0, 2, 1)).permuted((0, 2, 1))
        y_shape = (batch, steps, directions, units) if layout else (steps, directions, batch, units)
        state_shape = (batch, directions, units) if layout else (directions, batch, units)
        values = [*node.outputs, None, None, None][:3]
        y = None if values[0] is None else builder.result(values[0], y_shape).permuted(_Y_ORDERS[layout])
        last = tuple(
            None if value is None else builder.result(value, state_shape).permuted(_STATE_ORDERS[layout])
            for value in values[1:]
        )
        return cls(facts, shares, weights, y, last)

    @property
    def dtype(self) -> DataType:
        """The element type of everything but lengths."""
        return self.shares.dtype

    @property
    def directions(self) -> int:
        """How many directions there are."""
        return self.shares.shape[0]

    @property
    def units(self) -> int:
        """How many hidden units there are."""
        return self.weights.shape[1]

    @property
    def is_reverse(self) -> bool:
        """Whether the only direction is the reverse one."""
        return self.facts.node.string_attribute("direction", "forward") == "reverse"

    def dense(self, index: int) -> TensorView | None:
        """Return an input as dense memory, ``None`` where it is absent."""
        return self.facts.builder.dense(self.facts.value(index)) if self.facts.has(index) else None

    def state(self, index: int) -> TensorView | None:
        """Return an initial state."""
        found = self.dense(index)
        return None if found is None else found.permuted(_STATE_ORDERS[self.facts.node.int_attribute("layout", 0)])


def _part(view: TensorView, index: int) -> TensorView:
    """Return one place of the first axis, without the axis."""
    at = view.sliced(0, index, 1, 1)
    return TensorView(at.buffer, at.dtype, at.shape[1:], at.strides[1:], at.offset)


def _walk(layer: _Layer, cells: Sequence[Cell]) -> None:
    """Let one kernel walk the layer, or one for each direction where their functions differ."""
    walk = Walk(
        layer.shares, layer.weights, layer.dense(_BIAS), layer.dense(_PEEPHOLES), layer.dense(_LENGTHS),
        layer.state(_STATE), layer.state(_MEMORY), layer.y, *layer.last,
    )  # fmt: skip
    if not walk.shares.shape[2] or not layer.units:
        return
    launches = [
        launch_walk(cell, walk, range(direction, direction + 1), is_reverse=layer.is_reverse)
        for direction, cell in enumerate(cells)
    ]
    if len(launches) == 2 and launches[0].kernel == launches[1].kernel:
        launches = [launch_walk(cells[0], walk, range(2), is_reverse=False)]
    for launch in launches:
        layer.facts.builder.add(launch)


def _unroll(layer: _Layer, cells: Sequence[Cell]) -> None:
    """Add the steps of each direction one by one."""
    for direction, cell in enumerate(cells):
        _Unrolled(layer, direction, cell).lower()


class _Unrolled:
    """One direction, step by step. Used once."""

    def __init__(self, layer: _Layer, direction: int, cell: Cell) -> None:
        self._layer, self._direction, self._cell = layer, direction, cell
        self._builder = layer.facts.builder
        self._weights = _part(layer.weights, direction)
        _, self._steps, self._batch, _ = layer.shares.shape
        self._rows = (self._batch, layer.units)
        self._fixed = [*self._per_gate(_BIAS, 2 * cell.gates), *self._per_gate(_PEEPHOLES, 3)]
        lengths = layer.dense(_LENGTHS)
        self._lengths = None
        if lengths is not None:
            self._lengths = LazyTensor.of(lengths.regrouped((self._batch, 1))).broadcast_to(self._rows)

    def lower(self) -> None:
        """Add all steps, then what is left of them."""
        hidden, memory = (self._first(index) for index in (_STATE, _MEMORY))
        is_back = self._layer.is_reverse or self._direction == 1
        for time in reversed(range(self._steps)) if is_back else range(self._steps):
            hidden, memory = self._step(time, hidden, memory)
        for view, state in zip(self._layer.last, (hidden, memory), strict=True):
            if view is not None and view.size:
                self._builder.stored(self._unless_empty(LazyTensor.of(state)), _part(view, self._direction))

    def _per_gate(self, index: int, count: int) -> list[LazyTensor]:
        found = self._layer.dense(index)
        if found is None:
            return []
        line, units = _part(found, self._direction), self._layer.units
        parts = [line.sliced(0, number * units, 1, units) for number in range(count)]
        return [LazyTensor.of(part).broadcast_to(self._rows) for part in parts]

    def _first(self, index: int) -> TensorView:
        """Return an initial state as dense rows; zeros where it is absent."""
        given = self._layer.state(index) if index == _STATE or self._cell.op_type == "LSTM" else None
        if given is not None:
            part = _part(given, self._direction)
            return part if part.is_dense else self._builder.stored(LazyTensor.of(part))
        zero = LazyTensor(lift(0.0, DataType.FLOAT), (), self._rows, self._layer.dtype)
        return self._builder.stored(zero)

    def _step(self, time: int, hidden: TensorView, memory: TensorView) -> tuple[TensorView, TensorView]:
        cell, layer = self._cell, self._layer
        share = _part(_part(layer.shares, self._direction), time)
        sums = self._builder.temporary(layer.dtype, (self._batch, cell.gates * layer.units))
        first = 2 if cell.is_reset_first else cell.gates
        self._multiply(hidden, sums, 0, first)
        if cell.is_reset_first:
            reset = self._computed(time, share, sums, hidden, memory, cell.reset, is_masked=False)
            self._multiply(reset, sums, 2, 1)
        if cell.op_type == "LSTM":
            memory = self._computed(time, share, sums, hidden, memory, cell.memory, old=memory)
        result = None if layer.y is None else _part(_part(layer.y, time), self._direction)
        place = result if self._lengths is None else None
        found = self._computed(time, share, sums, hidden, memory, cell.hidden, old=hidden, out=place)
        if result is not None and self._lengths is not None:
            self._store_active(time, found, result)
        return found, memory

    def _multiply(self, state: TensorView, sums: TensorView, gate: int, count: int) -> None:
        units = self._layer.units
        columns = self._weights.sliced(1, gate * units, 1, count * units)
        if count == self._cell.gates:
            multiply(self._layer.facts, state, columns, sums)
            return
        part = self._builder.temporary(sums.dtype, (self._batch, count * units))
        multiply(self._layer.facts, state, columns, part)
        self._builder.stored(LazyTensor.of(part), sums.sliced(1, gate * units, 1, count * units))

    def _computed(
        self,
        time: int,
        share: TensorView,
        sums: TensorView,
        hidden: TensorView,
        memory: TensorView,
        function: Callable[[CellInputs], Scalar],
        *,
        old: TensorView | None = None,
        out: TensorView | None = None,
        is_masked: bool = True,
    ) -> TensorView:
        """Store what a function of the cell gives; rows whose sequence has ended keep ``old``."""
        gates, units = self._cell.gates, self._layer.units
        views = [part.sliced(1, gate * units, 1, units) for part in (share, sums) for gate in range(gates)]
        tensors = [*map(LazyTensor.of, (*views, hidden, memory)), *self._fixed]
        if is_masked and self._lengths is not None and old is not None:
            tensors += [self._lengths, LazyTensor.of(old)]

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            new = function(self._given(roots))
            if len(roots) == len(tensors) and is_masked and self._lengths is not None:
                return select(binary("gt", roots[-2], time), new, roots[-1])
            return new

        return self._builder.stored(combine(tensors, meaning, self._layer.dtype), out)

    def _given(self, roots: Sequence[Scalar]) -> CellInputs:
        gates = self._cell.gates
        shares, sums, hidden, memory = roots[:gates], roots[gates : 2 * gates], roots[2 * gates], roots[2 * gates + 1]
        behind = list(roots[2 * gates + 2 : 2 * gates + 2 + len(self._fixed)])
        biases = [behind.pop(0) for _ in range(2 * gates)] if len(behind) >= 2 * gates else []
        return CellInputs(shares, sums, biases[:gates], biases[gates:], hidden, memory, behind)

    def _store_active(self, time: int, state: TensorView, out: TensorView) -> None:
        """Store a state, zeros where the sequence has ended."""
        assert self._lengths is not None
        tensors = [LazyTensor.of(state), self._lengths]

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            return select(binary("gt", roots[1], time), roots[0], lift(0.0, roots[0].dtype))

        self._builder.stored(combine(tensors, meaning, self._layer.dtype), out)

    def _unless_empty(self, state: LazyTensor) -> LazyTensor:
        if self._lengths is None:
            return state

        def meaning(roots: Sequence[Scalar]) -> Scalar:
            return select(binary("gt", roots[1], 0), roots[0], cast(lift(0.0, roots[0].dtype), roots[0].dtype))

        return combine([state, self._lengths], meaning, self._layer.dtype)
