"""Compositions: operators, or forms of them, that OpenVINO's frontend lacks, as several nodes that it reads rightly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.ir import Graph, Node, Value

ACTIVATIONS = ("none", "silu", "swish")
_END = np.iinfo(np.int32).max  # as a bound of Slice: the end of any axis
_STATES = (5, 6)  # the inputs of a recurrent operator that hold states; GRU and RNN have the first alone
_SWAPPED = [1, 0, 2]  # batches and steps, or directions and batches
_BATCHES_FIRST = [2, 0, 1, 3]  # of [steps, directions, batches, units]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where nodes are added: before a node that they stand for.

    Attributes:
        graph: the copy of a claim.
        node: what is replaced.
    """

    graph: Graph
    node: Node

    def add(self, op_type: str, inputs: Sequence[Value | None], given: object = ()) -> Value:
        """Add a node of one result, and return that."""
        return self.graph.insert_before(self.node, Node(op_type, inputs, 1, given)).output  # type: ignore[arg-type]  # Node checks

    def integers(self, *numbers: int) -> Value:
        """Return a constant list of integers."""
        return self.graph.new_constant(np.array(numbers, np.int64), "numbers")

    def give(self, index: int, op_type: str, inputs: Sequence[Value | None], given: object = ()) -> None:
        """Add a node whose result is output ``index`` of the node that is replaced, where that has a reader."""
        outputs = self.node.outputs
        if len(outputs) > index and outputs[index] is not None:
            made = self.graph.insert_before(self.node, Node(op_type, inputs, 1, given, name=self.node.name))  # type: ignore[arg-type]  # Node checks
            made.adopt_outputs([self.node.detach_output(index)])


def gate(graph: Graph, node: Node) -> None:
    """SwiGLU<alpha>(a, b) -> Mul(Swish<alpha>(a), b)."""
    place = _Place(graph, node)
    swish = place.add("Swish", [node.input(0)], {"alpha": node.float_attribute("alpha", 1.0)})
    place.give(0, "Mul", [swish, node.input(1)])
    graph.remove(node)


def causal_convolution(graph: Graph, node: Node) -> None:
    """CausalConvWithState(x, w, b, past) -> a Conv of each channel behind the past or zeros, whose end is the state."""
    place, x, weight, past = _Place(graph, node), node.input(0), node.input(1), node.input(3)
    assert weight is not None
    channels, reach = _channels_and_reach(weight)
    if past is not None:
        x = place.add("Concat", [past, x], {"axis": 2})
    elif reach:
        x = place.add("Pad", [x, place.integers(0, 0, reach, 0, 0, 0)])
    y = place.add("Conv", [x, weight, node.input(2)], {"group": channels})
    if node.string_attribute("activation", "none") == "none":
        place.give(0, "Identity", [y])
    else:
        place.give(0, "Mul", [y, place.add("Sigmoid", [y])])
    place.give(1, "Slice", [x, place.integers(-reach or _END), place.integers(_END), place.integers(2)])
    graph.remove(node)


def _channels_and_reach(weight: Value) -> tuple[int, int]:
    """Return the channels of a causal convolution, and how many places before one it reads."""
    channels, _, taps = weight.shape or ()
    assert isinstance(channels, int), "causal_refusal was asked"
    assert isinstance(taps, int), "causal_refusal was asked"
    return channels, taps - 1


def causal_refusal(view: GraphView, node: Node) -> str | None:
    """Return why a CausalConvWithState cannot be composed, or ``None``."""
    activation, weight = node.string_attribute("activation", "none"), node.input(1)
    if activation not in ACTIVATIONS:
        return f"{node.op_type} has the activation {activation!r}; ONNX knows {', '.join(ACTIVATIONS)}"
    sizes = () if weight is None or weight.shape is None else weight.shape
    if len(sizes) != 3 or not all(isinstance(size, int) for size in (sizes[0], sizes[2])):
        return f"the channels or taps of {node.op_type} are not known before a run"
    return None


def steps_first(graph: Graph, node: Node) -> None:
    """RNN, GRU or LSTM<layout=1>(x, ..., h) -> the same of [steps, batches, ...], between Transposes."""
    if not node.int_attribute("layout", 0):
        return
    place = _Place(graph, node)
    inputs = list(node.inputs)
    inputs[0] = place.add("Transpose", [inputs[0]], {"perm": _SWAPPED})
    for index in _STATES:
        if node.input(index) is not None:
            inputs[index] = place.add("Transpose", [inputs[index]], {"perm": _SWAPPED})
    attributes = tuple(each for each in node.attributes.values() if each.name != "layout")
    inner = graph.insert_before(node, Node(node.op_type, inputs, len(node.outputs), attributes))
    for index, output in enumerate(inner.outputs):
        place.give(index, "Transpose", [output], {"perm": _SWAPPED if index else _BATCHES_FIRST})
    graph.remove(node)
