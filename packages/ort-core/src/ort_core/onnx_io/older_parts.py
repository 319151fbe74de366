"""Operators that a fusion brings into models that are older than they are, in parts that those models know.

    y = GroupNormalization <num_groups = 2> (x, scale, bias)    of opset 21, in a model of opset 17, becomes
    normal = InstanceNormalization (Reshape (x, [0, 2, -1]), ones, zeros)
    y = Add (Mul (Reshape (normal, Shape (x)), scale of each channel), bias of each channel)

A function that imports the newer opset would not do: onnxruntime inlines functions under the opset of the model.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value


def write_in_older_parts(node: Node) -> bool:
    """Replace a node of an editable graph by older operators with the same output; return whether there are any."""
    x = node.input(0)
    if node.domain or node.op_type != "GroupNormalization" or x is None or not isinstance(x.type, TensorType):
        return False
    rank, graph = x.rank, node.graph
    if rank is None or graph is None:
        return False
    made = _Parts(graph, node)
    groups, dtype = node.int_attribute("num_groups", 1), x.type.dtype.numpy
    rows = made.op("Reshape", x, made.constant(np.array([0, groups, -1])))
    gain, offset = made.constant(np.ones(groups, dtype)), made.constant(np.zeros(groups, dtype))
    normal = made.op("InstanceNormalization", rows, gain, offset, epsilon=node.float_attribute("epsilon", 1e-5))
    back = made.op("Reshape", normal, made.op("Shape", x))
    of_channels = made.constant(np.array([-1] + [1] * (rank - 2)))
    scale, bias = (made.op("Reshape", _present(node.input(index)), of_channels) for index in (1, 2))
    last = Node("Add", [made.op("Mul", back, scale), bias], [], name=node.name)
    graph.insert_before(node, last).adopt_outputs([node.detach_output(0)])
    graph.remove(node)
    return True


def _present(value: Value | None) -> Value:
    assert value is not None
    return value


class _Parts:
    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node

    def constant(self, array: np.ndarray) -> Value:
        return self._graph.new_constant(array, f"{self._node.name or self._node.op_type}_constant")

    def op(self, op_type: str, *inputs: Value, **attributes: object) -> Value:
        made = Value(self._graph.fresh_name(f"{self._node.name or self._node.op_type}_{op_type}"))
        name = f"{self._node.name}/{op_type}" if self._node.name else ""
        self._graph.insert_before(self._node, Node(op_type, inputs, [made], attributes, name=name))
        return made
