"""Norms in pieces: where a graph has what a norm is made of, and what keeps some kinds from being one operator."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx

from ort_transformers.graphs.model_paths import Makers, Readers
from ort_transformers.graphs.model_values import ModelValues

BY_LENGTH = "vectors are divided by their length, bounded from below in place of an epsilon: no operator for norms does"
UNBIASED = "the variance is divided by one less than the number of elements: no operator for norms does that"
OF_GROUPS = (
    "onnxruntime runs GroupNorm on GPUs alone: use_gpu_operators writes it, and use_standard_operators "
    "GroupNormalization"
)
NO_EPSILON = "nothing is added to the mean square"
_MEANS = ("ReduceMean", "GlobalAveragePool")  # the second of TensorFlow's converter
_STEPS_TO_ROOT = frozenset({"Add", "Cast"})
_STEPS_TO_UNBIASED = frozenset({"Reshape", "Unsqueeze", "Cast", "Div", "Mul"})
_STEPS_TO_DIVISOR = frozenset({"Mul", "Div", "Clip", "Max", "Expand"})
_STEPS = 6
Piece = tuple[str, str, tuple[str, ...], str]  # its kind, the node at its heart, others of it, a reason or nothing


def norm_pieces(model: ModelValues) -> Iterator[Piece]:
    """Yield norms in pieces."""
    makers, readers = model.output_name_to_node(), model.input_name_to_nodes()
    weights = {each.name: tuple(each.dims) for each in model.model.graph.initializer}
    for node in model.nodes():
        if node.op_type in ("Sqrt", "Pow"):
            yield from _of_root(node, makers, weights)
        elif node.op_type == "ReduceL2" and _divides_by_length(node, readers, weights, _axis_of(node, model)):
            yield "norm", node.name, (), BY_LENGTH
        elif node.op_type == "InstanceNormalization" and _is_of_groups(node, makers, readers):
            yield "group norm", node.name, _behind(node, readers), OF_GROUPS


def _of_root(node: onnx.NodeProto, makers: Makers, weights: dict[str, tuple[int, ...]]) -> Iterator[Piece]:
    """Yield the norm whose mean square, with what is added to it, a node takes the root of."""
    current = node
    while current.op_type in _STEPS_TO_ROOT or current is node:
        parents = (makers[name] for name in current.input if name in makers)
        found = next((each for each in parents if each.op_type in (*_STEPS_TO_ROOT, *_MEANS)), None)
        if found is None:
            break
        current = found
    if current.op_type in _MEANS:
        yield "norm", node.name, (current.name,), "" if current.output[0] not in node.input else NO_EPSILON
    elif node.op_type == "Sqrt" and _is_unbiased(node, makers, weights):
        yield "norm", node.name, (), UNBIASED


def _is_unbiased(node: onnx.NodeProto, makers: Makers, weights: dict[str, tuple[int, ...]]) -> bool:
    """Return whether a root is that of a mean times a number by another one."""
    current, kinds = makers.get(node.input[0]), []
    for _ in range(_STEPS):
        if current is None or current.op_type not in _STEPS_TO_UNBIASED:
            break
        if current.op_type in ("Mul", "Div"):
            if not any(weights.get(name) in ((), (1,)) for name in current.input):
                return False
            kinds.append(current.op_type)
        current = next((makers[name] for name in current.input if name in makers), None)
    return current is not None and current.op_type in _MEANS and sorted(kinds) == ["Div", "Mul"]


def _divides_by_length(
    node: onnx.NodeProto, readers: Readers, weights: dict[str, tuple[int, ...]], axis: int | None
) -> bool:
    """Return whether what a length is of is divided by it, bounded, and has a weight for each element behind that."""
    waiting, is_bounded = readers.get(node.output[0], []), False
    for _ in range(_STEPS):
        if len(waiting) != 1:
            return False
        (current,) = waiting
        if current.op_type == "Div" and current.input[0] == node.input[0]:
            return is_bounded and _is_weighed(current, readers, weights, axis)
        if current.op_type not in _STEPS_TO_DIVISOR:
            return False
        is_bounded |= current.op_type in ("Clip", "Max")
        waiting = readers.get(current.output[0], [])
    return False


def _axis_of(node: onnx.NodeProto, model: ModelValues) -> int | None:
    """Return the one axis of a reduction, where it is known and counted from the last."""
    given = model.get_constant_value(node.input[1]) if len(node.input) > 1 else None
    listed = next((each.ints for each in node.attribute if each.name == "axes"), ()) if given is None else given.ravel()
    axes = [int(each) for each in listed]
    return axes[0] if len(axes) == 1 and axes[0] < 0 else None


def _is_weighed(node: onnx.NodeProto, readers: Readers, weights: dict[str, tuple[int, ...]], axis: int | None) -> bool:
    """Return whether numbers behind a node, one for each element along the axis, multiply it."""
    for _ in range(_STEPS):
        behind = readers.get(node.output[0], [])
        if len(behind) != 1 or behind[0].op_type != "Mul":
            return False
        node = behind[0]
        shapes = [weights[name] for name in node.input if name in weights]
        if any(math.prod(shape) > 1 and (axis is None or shape[axis:][:1] != (1,)) for shape in shapes):
            return True
    return False


def _is_of_groups(node: onnx.NodeProto, makers: Makers, readers: Readers) -> bool:
    before, behind = makers.get(node.input[0]), readers.get(node.output[0], [])
    return before is not None and before.op_type == "Reshape" and any(each.op_type == "Reshape" for each in behind)


def _behind(node: onnx.NodeProto, readers: Readers) -> tuple[str, ...]:
    """Return the names of the few nodes behind a node at which a fusion of it would start."""
    names: list[str] = []
    for _ in range(3):
        behind = readers.get(node.output[0], [])
        if len(behind) != 1:
            break
        node = behind[0]
        names.append(node.name)
    return tuple(names)
