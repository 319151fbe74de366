"""RecurrentLayer: a recurrent node whose input's products are in the program, its tensors in the order of layout 0."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import multiply
from ort_ep_cuda.lowering.recurrent.recurrent_cells import GATES, directions_of
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import TensorView

_X, _WEIGHTS, _STATE_WEIGHTS = 0, 1, 2
_Y_ORDERS = ((0, 1, 2, 3), (1, 2, 0, 3))  # by layout: how [steps, directions, batch, units] is read from the output
_STATE_ORDERS = ((0, 1, 2), (1, 0, 2))


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
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
    def of(cls, facts: LoweredNode) -> RecurrentLayer:
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
            share = shares.at(direction).regrouped((steps * batch, gates * units))
            multiply(facts, rows, factors.at(direction).permuted((1, 0)), share)
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
