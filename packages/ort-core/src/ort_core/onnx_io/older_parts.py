"""Operators that a fusion brings into models that are older than they are, in parts that those models know.

    y = GroupNormalization <num_groups = 2> (x, scale, bias)    of opset 21, in a model of opset 17, becomes
    normal = InstanceNormalization (Reshape (x, [0, 2, -1]), ones, zeros)
    y = Add (Mul (Reshape (normal, Shape (x)), scale of each channel), bias of each channel)

    y = Softmax <axis = 1> (x)    of opset 13, x of three axes, in a model of opset 12, becomes
    y = Transpose <perm = [0, 2, 1]> (Softmax <axis = 2> (Transpose <perm = [0, 2, 1]> (x)))

A function that imports the newer opset would not do: onnxruntime inlines functions under the opset of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value

Writer = Callable[[Node, int], bool]
_NEGATIVE_AXES, _LIMITS_ARE_INPUTS, _SOFTMAX_OF_ONE_AXIS = 11, 11, 13
_WIDENED: Mapping[str, int] = {  # operators that later opsets have for further types alone, since when
    "Add": 7, "Cast": 9, "Floor": 6, "Mul": 7, "Where": 9,
}  # fmt: skip
_WIDENED_FROM = frozenset({
    DataType.FLOAT, DataType.DOUBLE, DataType.INT8, DataType.UINT8, DataType.INT32, DataType.INT64, DataType.BOOL,
})  # fmt: skip  # the types that they have always had


def write_in_older_parts(node: Node, version: int) -> bool:
    """Write a node of an editable graph as operators of an older opset; return whether it has such a form."""
    write = None if node.domain else _WRITERS.get(node.op_type, _as_it_is)
    return write is not None and write(node, version)


def _as_it_is(node: Node, version: int) -> bool:
    """Keep an operator that has more types since."""
    values = (node.output, *node.present_inputs())
    is_known = all(isinstance(each.type, TensorType) and each.type.dtype in _WIDENED_FROM for each in values)
    if not is_known or version < _WIDENED.get(node.op_type, version + 1):
        return False
    node.opset = None
    return True


def _one_scale(node: Node, version: int) -> bool:
    """Keep a conversion of bytes by one scale: an axis is what newer opsets have."""
    number = node.input(1)
    kinds = {value.type.dtype for value in (node.output, *node.present_inputs()) if isinstance(value.type, TensorType)}
    if version < 10 or number is None or number.rank != 0 or not kinds <= {
        DataType.FLOAT, DataType.INT8, DataType.UINT8
    }:  # fmt: skip
        return False
    for name in ("axis", "block_size", "output_dtype", "precision", "saturate"):
        node.attributes.pop(name, None)
    node.opset = None
    return True


def _clip(node: Node, version: int) -> bool:
    """Write limits as attributes where inputs are not known yet."""
    x, graph = node.input(0), node.graph
    if graph is None or x is None or not isinstance(x.type, TensorType) or x.type.dtype is not DataType.FLOAT:
        return False
    if version < _LIMITS_ARE_INPUTS:
        limits = {"min": node.input(1), "max": node.input(2)}
        given = {name: graph.fixed_constant(value) for name, value in limits.items() if value is not None}
        if None in given.values():
            return False
        found = {name: float(each.array()) for name, each in given.items() if each is not None}
        _replace(node, Node("Clip", [x], [], found, name=node.name))
        return True
    node.opset = None
    return True


def _mean(node: Node, version: int) -> bool:
    """Count axes from the beginning."""
    x = node.input(0)
    if len(node.inputs) > 1 or x is None or x.rank is None:
        return False
    axes = node.attributes.get("axes")
    if axes is not None and version < _NEGATIVE_AXES:
        node.set_attributes({"axes": [axis % x.rank for axis in axes.value]})  # type: ignore[attr-defined]  # integers
    node.opset = None
    return True


def _softmax(node: Node, version: int) -> bool:
    """Bring the axis to the end, where the older Softmax sums over it alone."""
    x = node.input(0)
    if x is None or not x.rank or version >= _SOFTMAX_OF_ONE_AXIS or node.graph is None:
        return False
    last, axis = x.rank - 1, node.int_attribute("axis", -1) % x.rank
    if axis == last:
        node.set_attributes({"axis": last})
        node.opset = None
        return True
    made = _Parts(node.graph, node)
    order = [axis if place == last else last if place == axis else place for place in range(x.rank)]
    chances = made.op("Softmax", made.op("Transpose", x, perm=order), axis=last)
    _replace(node, Node("Transpose", [chances], [], {"perm": order}, name=node.name))
    return True


def _group_normalization(node: Node, version: int) -> bool:
    x = node.input(0)
    if x is None or not isinstance(x.type, TensorType):
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
    _replace(node, Node("Add", [made.op("Mul", back, scale), bias], [], name=node.name))
    return True


def _replace(node: Node, last: Node) -> None:
    """Let a node without outputs make those of another, which goes."""
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, last).adopt_outputs([node.detach_output(0)])
    graph.remove(node)


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


_WRITERS: Mapping[str, Writer] = {
    "Clip": _clip, "DequantizeLinear": _one_scale, "GroupNormalization": _group_normalization,
    "QuantizeLinear": _one_scale, "ReduceMean": _mean, "Softmax": _softmax,
}  # fmt: skip
