"""How operators take transposed data: for each, what it must be given instead, and how its results are then laid out.

A value ``v`` is *held transposed* by ``perm`` when ``v = Transpose(held, perm)``: axis ``a`` of ``v`` is axis
``perm[a]`` of what is held. Each function below answers for one node: the changed attributes and inputs that make it
compute on held data, and the permutation by which its own results are held, or ``None`` when it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value
from ort_core.ops.shape_arithmetic import fixed_sizes
from ort_core.rewrite.matcher import constant_of

Perm = tuple[int, ...]


@frozen
class Adapted:
    """A node on held data: ``perm`` of its results, changed attributes, constants that replace inputs.

    ``data_inputs`` are the inputs that must be held by the node's input permutation. ``op_type`` is that of a node
    that takes its place, with these attributes alone; ``None`` where it stays.
    """

    perm: Perm
    data_inputs: tuple[int, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    op_type: str | None = None


Adapter = Callable[[Node, Perm, int], "Adapted | None"]  # (node, permutation of its data inputs, opset)


def adapt(node: Node, perm: Perm, opset: int, adapters: Mapping[str, Adapter]) -> Adapted | None:
    """Return how a node computes on data held by ``perm``, or ``None``."""
    adapter = adapters.get(node.qualified_name if node.domain else node.op_type)
    adapted = adapter(node, perm, opset) if adapter is not None else None
    if adapted is None or any(node.input(index) is None for index in adapted.data_inputs):
        return None
    return adapted


def inverse(perm: Perm) -> Perm:
    """Return the permutation that undoes ``perm``."""
    undone = [0] * len(perm)
    for position, axis in enumerate(perm):
        undone[axis] = position
    return tuple(undone)


def compose(held: Perm, then: Perm) -> Perm:
    """Return the permutation of ``Transpose(Transpose(x, held), then)``."""
    return tuple(held[axis] for axis in then)


def is_identity(perm: Perm) -> bool:
    """Return whether a permutation moves nothing."""
    return perm == tuple(range(len(perm)))


def _unary(node: Node, perm: Perm, opset: int) -> Adapted | None:
    return Adapted(perm, (0,))


def _broadcasting(node: Node, perm: Perm, opset: int) -> Adapted | None:
    """Adapt an elementwise operator; constants are transposed, other inputs need the full rank or a single element."""
    rank, data, constants = len(perm), [], {}
    if opset < 7:
        return None  # broadcasting was an attribute then
    for index, value in enumerate(node.inputs):
        if value is None or value.rank == 0:
            continue
        if value.rank == rank and constant_of(value) is None:
            data.append(index)
            continue
        constant = constant_of(value)
        if constant is None or len(constant.shape) > rank:
            return None
        if constant.size != 1 or len(constant.shape) == rank:
            full = constant.array().reshape((1,) * (rank - len(constant.shape)) + constant.shape)
            constants[index] = np.ascontiguousarray(full.transpose(inverse(perm)))
    return Adapted(perm, tuple(data), constants=constants)


def _axis_operator(default: int, variadic: bool = False, since: int = 1) -> Adapter:
    def adapter(node: Node, perm: Perm, opset: int) -> Adapted | None:
        if opset < since:
            return None  # the axis divided the dimensions in two then
        axis = node.int_attribute("axis", default)
        if not -len(perm) <= axis < len(perm):
            return None
        data = tuple(range(len(node.inputs))) if variadic else (0,)
        return Adapted(perm, data, {"axis": perm[axis % len(perm)]})

    return adapter


def _quantization(node: Node, perm: Perm, opset: int) -> Adapted | None:
    scale = node.input(1)
    if scale is None or scale.rank is None or node.int_attribute("block_size", 0):
        return None
    if scale.rank == 0:
        return Adapted(perm, (0,))
    axis = node.int_attribute("axis", 1)
    if scale.rank != 1 or opset < 13 or not -len(perm) <= axis < len(perm):
        return None
    return Adapted(perm, (0,), {"axis": perm[axis % len(perm)]})


def _reduction(node: Node, perm: Perm, opset: int) -> Adapted | None:
    axes = _axes_of(node, len(perm))
    if axes is None:
        return None
    moved = np.array(sorted(perm[axis] for axis in axes), np.int64)
    result = perm if node.int_attribute("keepdims", 1) else _without(perm, axes)
    if node.input(1) is not None:
        return Adapted(result, (0,), constants={1: moved})
    return Adapted(result, (0,), {"axes": tuple(int(axis) for axis in moved)} if "axes" in node.attributes else {})


def _squeeze(node: Node, perm: Perm, opset: int) -> Adapted | None:
    """Adapt a Squeeze; one that names no axes takes those of size 1, which all must be known then."""
    if "axes" not in node.attributes and node.input(1) is None:
        ones = _axes_of_one(node)
        return None if ones is None else Adapted(_without(perm, ones), (0,))
    axes = _axes_of(node, len(perm))
    if not axes:
        return None
    moved = np.array(sorted(perm[axis] for axis in axes), np.int64)
    if node.input(1) is not None:
        return Adapted(_without(perm, axes), (0,), constants={1: moved})
    return Adapted(_without(perm, axes), (0,), {"axes": tuple(int(axis) for axis in moved)})


def _axes_of_one(node: Node) -> list[int] | None:
    """Return the axes of size 1 of what a node reads, ``None`` where some size is not known."""
    source = node.input(0)
    sizes = None if source is None else fixed_sizes(source.shape)
    return None if sizes is None else [axis for axis, size in enumerate(sizes) if size == 1]


def _axes_of(node: Node, rank: int) -> list[int] | None:
    """Return the axes of a reduction, all where none are given, ``None`` when they are computed in the run."""
    axes: list[int] | None = None
    attribute = node.ints_attribute("axes")
    if attribute is not None:
        if not attribute:
            return None
        axes = list(attribute)
    elif node.input(1) is not None:
        constant = constant_of(node.input(1))
        if constant is None or not constant.size:
            return None
        axes = [int(axis) for axis in constant.array().reshape(-1)]
    if axes is None:
        return None if node.int_attribute("noop_with_empty_axes", 0) else list(range(rank))
    if any(not -rank <= axis < rank for axis in axes):
        return None
    return [axis % rank for axis in axes]


def _without(perm: Perm, axes: list[int]) -> Perm:
    kept = [perm[axis] for axis in range(len(perm)) if axis not in axes]
    order = sorted(kept)
    return tuple(order.index(axis) for axis in kept)


def _index_reduction(node: Node, perm: Perm, opset: int) -> Adapted | None:
    axis = node.int_attribute("axis", 0)
    if not -len(perm) <= axis < len(perm):
        return None
    result = perm if node.int_attribute("keepdims", 1) else _without(perm, [axis % len(perm)])
    return Adapted(result, (0,), {"axis": perm[axis % len(perm)]})


def _pad(node: Node, perm: Perm, opset: int) -> Adapted | None:
    constant = constant_of(node.input(1))
    rank = len(perm)
    if opset < 11 or constant is None or node.input(3) is not None or constant.size != 2 * rank:
        return None
    pads = constant.array().reshape(2, rank)
    return Adapted(perm, (0,), constants={1: np.ascontiguousarray(pads[:, list(inverse(perm))]).reshape(-1)})


def _slice(node: Node, perm: Perm, opset: int) -> Adapted | None:
    starts, axes = constant_of(node.input(1)), constant_of(node.input(3))
    rank = len(perm)
    if opset < 10 or len(node.inputs) < 4 or axes is None:
        return None  # without axes the starts are for the first axes, which are others in held data
    given = axes.array().reshape(-1)
    if starts is not None and starts.size != given.size:
        return None
    return Adapted(perm, (0,), constants={3: np.array([perm[int(axis) % rank] for axis in given], axes.dtype.numpy)})


def has_same_perm(value: Value, perm: Perm) -> bool:
    """Return whether a value is made by a Transpose with this permutation."""
    node = value.producer
    return node is not None and node.op_type == "Transpose" and node.domain == "" and perm_of(node) == perm


def perm_of(node: Node) -> Perm | None:
    """Return the permutation of a Transpose; reversal where none is given.

    ``None`` if the rank is unknown then, or the node is not valid.
    """
    source = node.input(0)
    if source is None:
        return None
    perm = node.ints_attribute("perm")
    if perm is None:
        return None if source.rank is None else tuple(reversed(range(source.rank)))
    is_valid = source.rank in (None, len(perm)) and set(perm) == set(range(len(perm)))
    return perm if is_valid else None


_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_BROADCASTING = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
_REDUCTIONS = tuple(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
ADAPTERS: Mapping[str, Adapter] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _axis_operator(-1, since=13)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantization),
    **dict.fromkeys(("ArgMax", "ArgMin"), _index_reduction),
    "Concat": _axis_operator(1, variadic=True),
    "Split": _axis_operator(0),
    "Squeeze": _squeeze,
    "Pad": _pad,
    "Slice": _slice,
    **dict.fromkeys(("com.microsoft::Gelu", "com.microsoft::QuickGelu"), _unary),
}
"""By operator, those of other domains with the domain before them: how they take transposed data."""
