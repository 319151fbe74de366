"""Operators whose results follow from shapes: constants of a plan, which is made anew for each signature of shapes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Constant, Node
from ort_core.plugin.ops import constant_of_node
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import element_type
from ort_ep_directml.lowering.operand import Operand, expanded
from ort_ep_directml.lowering.plan import Scalar
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule


def _shape(to: EmissionState, node: Node) -> Operand:
    sizes = to.sizes(node.input(0))
    start, end = node.int_attribute("start", 0), node.attribute("end")
    chosen = sizes[slice(start, end if isinstance(end, int) else None)]
    return to.constant(np.array(chosen, np.int64))


def _size(to: EmissionState, node: Node) -> Operand:
    return to.constant(np.array(np.prod(to.sizes(node.input(0)), dtype=np.int64)))


def _constant(to: EmissionState, node: Node) -> Operand:
    found = constant_of_node(node)
    if found is None:
        raise Refused("its tensor is not dense")
    return to.constant(found.array(), element_type(node.output))


def _constant_of_shape(to: EmissionState, node: Node) -> Operand:
    value = node.attribute("value")
    array = value.array() if isinstance(value, Constant) else np.zeros(1, np.float32)
    return expanded(to.constant(array.reshape(()), element_type(node.output)), to.sizes(node.output))


def _eye_like(to: EmissionState, node: Node) -> Operand:
    sizes, dtype = to.sizes(node.output), element_type(node.output)
    if dtype is None or len(sizes) != 2:
        raise Refused("the result is not a matrix of an element type that DirectML has")
    return to.constant(np.eye(*sizes, k=node.int_attribute("k", 0)).astype(dtype.numpy), dtype)


def _range(to: EmissionState, node: Node) -> Operand:
    start, delta = (to.context.constant(node.input(place)) for place in (0, 2))
    dtype = element_type(node.output)
    if start is None or delta is None or dtype is None:
        raise Refused("the start or the step of the Range is not a constant, and DirectML has them in the operator")
    numbers = {
        "ValueStart": Scalar(dtype, start.reshape(()).item()),
        "ValueDelta": Scalar(dtype, delta.reshape(()).item()),
    }
    made = (dtype, to.sizes(node.output))
    return to.emit("FILL_VALUE_SEQUENCE", made, ValueDataType=int(dtype), **numbers)


GENERATION: Mapping[str, Rule] = {
    "Constant": Rule(_constant, required=0),
    "ConstantOfShape": Rule(_constant_of_shape),
    "EyeLike": Rule(_eye_like),
    "Range": Rule(_range, required=3),
    "Shape": Rule(_shape),
    "Size": Rule(_size),
}
"""Rules by operator."""
