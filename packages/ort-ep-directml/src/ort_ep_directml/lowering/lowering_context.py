"""LoweringContext: what is known around a node while it is lowered: operator set, constants, bounds of integers."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of, small_bounds
from ort_core.plugin.ir import Constant, Node, Value
from ort_core.plugin.ops import constant_of_node
from ort_ep_directml.lowering.plan import PlanNode
from ort_ep_directml.schema.element_types import FROM_ONNX, ElementType


@dataclass(frozen=True, slots=True)
class LoweringContext:
    """What a rule may ask.

    Attributes:
        view: the graph.
        level: the feature level of the device.
        members: nodes that are lowered together, where not all of the graph are.
        numbers: what follows from the shapes that a plan is made for; filled node by node.
        device_refusal: returns why the device does not take an operator, or ``None``; for feature levels that the table
            of element types does not speak for.
    """

    view: GraphView
    level: int
    members: Set[Node] | None = None
    numbers: dict[Value, np.ndarray] = field(default_factory=dict, compare=False)
    device_refusal: Callable[[PlanNode], str | None] | None = None

    def opset(self, node: Node) -> int:
        """Return the version of the node's operator set."""
        return self.view.opset(node)

    def constant(self, value: Value | None) -> np.ndarray | None:
        """Return the array of an initializer that nobody overrides, of a Constant node, or of what follows from shapes.

        Nodes count that go along.
        """
        if value is not None and value in self.numbers:
            return self.numbers[value]
        found = self._held(value)
        return None if found is None else found.array()

    def nbytes(self, value: Value) -> int:
        """Return the bytes of a constant, 0 of everything else; nothing is read."""
        found = self._held(value)
        return 0 if found is None else found.nbytes

    def _held(self, value: Value | None) -> Constant | None:
        producer = None if value is None else value.producer
        if producer is None:
            return self.view.constant(value)
        return constant_of_node(producer) if self.members is None or producer in self.members else None

    def interval(self, value: Value) -> tuple[int, int] | None:
        """Return proven bounds (inclusive) of the elements of an integer value, or ``None``."""
        found = small_bounds(self._held(value))
        return self.view.value_range(value) if found is None else found


def element_type(value: Value | None) -> ElementType | None:
    """Return the element type of a tensor in DirectML, or ``None``."""
    dtype = dtype_of(value)
    return None if dtype is None else FROM_ONNX.get(dtype)
