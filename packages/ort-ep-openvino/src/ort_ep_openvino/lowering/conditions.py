"""Conditions that rules of several families share. Each returns the reason of a refusal, or ``None``."""

from __future__ import annotations

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_openvino.lowering.rule import Condition

EXACT_IN_FLOAT32 = 2**24 - 1  # the next integer but one has no float32 of its own
SMALL_INTEGERS = frozenset({DataType.INT8, DataType.UINT8, DataType.BOOL})


def dtype_of(value: Value | None) -> DataType | None:
    """Return the element type of a tensor, or ``None``."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def constant_inputs(*positions: int) -> Condition:
    """Refuse when one of these inputs is present and not a constant: OpenVINO needs the values to know shapes."""

    def check(view: GraphView, node: Node) -> str | None:
        for position in positions:
            value = node.input(position)
            if value is not None and view.constant(value) is None:
                return f"input {position} ({value.name!r}) is no constant; OpenVINO needs its values for shapes"
        return None

    return check


def without_attributes(**defaults: object) -> Condition:
    """Refuse attributes that differ from the value given; strings are compared as text."""

    def check(view: GraphView, node: Node) -> str | None:
        for name, default in defaults.items():
            found = node.attribute(name, default)
            text = found.decode() if isinstance(found, bytes) else found
            if text != default:
                return f"OpenVINO is wrong for {node.op_type} with {name}={text!r}"
        return None

    return check


def only_attributes(**allowed: tuple[object, ...]) -> Condition:
    """Refuse attributes whose value is none of those given."""

    def check(view: GraphView, node: Node) -> str | None:
        for name, values in allowed.items():
            found = node.attribute(name, values[0])
            text = found.decode() if isinstance(found, bytes) else found
            if text not in values:
                return f"OpenVINO is wrong for {node.op_type} with {name}={text!r}"
        return None

    return check


def without_inputs(*positions: int) -> Condition:
    """Refuse when one of these optional inputs is given."""

    def check(view: GraphView, node: Node) -> str | None:
        given = next((p for p in positions if node.input(p) is not None), None)
        return None if given is None else f"OpenVINO ignores or misreads input {given} of {node.op_type}"

    return check


def without_outputs(*positions: int) -> Condition:
    """Refuse when one of these optional outputs is asked for."""

    def check(view: GraphView, node: Node) -> str | None:
        asked = next((p for p in positions if p < len(node.outputs) and node.outputs[p] is not None), None)
        return None if asked is None else f"OpenVINO computes output {asked} of {node.op_type} wrongly, or not at all"

    return check


def nonempty_inputs(view: GraphView, node: Node) -> str | None:
    """Refuse inputs that are known to hold no element: the value of an empty reduction is not ONNX's."""
    empty = next((v for v in node.present_inputs() if v.shape is not None and 0 in v.shape), None)
    return None if empty is None else f"{empty.name!r} holds no element; OpenVINO's result then is not ONNX's"


def comparable_integers(view: GraphView, node: Node) -> str | None:
    """Refuse comparisons of wide integers, which OpenVINO makes in float32, unless one side is a small constant."""
    if all(dtype_of(value) not in (DataType.INT32, DataType.INT64) for value in node.present_inputs()):
        return None
    if any(_is_small(view, value) for value in node.present_inputs()):
        return None
    return "OpenVINO compares int32 and int64 as float32; neither side is a constant below 2**24"


def _is_small(view: GraphView, value: Value) -> bool:
    constant = view.constant(value)
    if constant is not None and constant.dtype in (DataType.INT32, DataType.INT64) and constant.nbytes <= 1 << 16:
        array = constant.array()
        return bool(array.size == 0 or np.abs(array.astype(np.float64)).max() <= EXACT_IN_FLOAT32)
    return False
