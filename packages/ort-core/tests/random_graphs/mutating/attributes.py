"""Mutations of what a node says: another legal value of an attribute, one more, one less; an operator of the same form.

Values are those that the attribute's name or type allows; what the operator itself does not allow is dropped with the
mutant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
from onnx import AttributeProto, NodeProto, helper

from random_graphs.mutating.draft import Draft, NotHere

TEXTS: Mapping[str, Sequence[str]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "mode": ("constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic", "DCR", "CRD", "bilinear", "bicubic"),
    "coordinate_transformation_mode": (
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "approximate": ("none", "tanh"),
    "activation": ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip", "relu", "gelu", "silu", "identity"),
    "activation_type": ("relu", "gelu", "silu", "swiglu", "identity"),
    "padding_mode": ("zeros", "border", "reflection"),
    "reduction": ("none", "add", "mul", "max", "min", "mean", "sum"),
}  # fmt: skip
FLOATS: Mapping[str, Sequence[float]] = {
    "epsilon": (1e-12, 1e-5, 1e-3, 0.1, 1.0),
    "alpha": (0.0, 0.1, 0.5, 1.0, 2.0, -1.5),
    "beta": (0.0, 0.1, 0.5, 1.0, 2.0, -1.5),
    "softcap": (0.0, 0.5, 3.0),
    "scale": (0.1, 0.5, 1.0, 2.0),
}
OTHER_FLOATS = (0.0, 0.01, 0.5, 1.0, 2.0, -1.0)
FLAGS = frozenset([
    "transA", "transB", "transBatchA", "transBatchB", "keepdims", "is_causal", "unidirectional", "noop_with_empty_axes",
    "ceil_mode", "count_include_pad", "exclusive", "reverse", "select_last_index", "exclude_outside", "antialias",
    "largest", "sorted", "allowzero", "upper", "saturate", "interleaved", "rotary_interleaved", "do_rotary",
    "smooth_softmax", "causal", "linear_before_reset", "layout", "normalize_routing_weights", "use_sparse_mixer",
    "align_corners", "fmod", "storage_order", "channels_last", "input_forget",
])  # fmt: skip
AXES = ("axis", "axes", "batch_axis", "quantize_axis", "gather_axis")
ELEMENT_TYPES = (1, 2, 3, 6, 7, 9, 10, 11, 16)
WINDOWS = ("strides", "dilations", "kernel_shape", "output_padding")
SIMPLE = frozenset([
    AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING, AttributeProto.INTS, AttributeProto.FLOATS,
    AttributeProto.STRINGS,
])  # fmt: skip
ALIKE: Sequence[Sequence[str]] = (
    ("Add", "Mul", "Sub", "Div"), ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "LeakyRelu", "HardSwish", "Elu"),
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare"), ("Softmax", "LogSoftmax", "Hardmax"),
    ("Min", "Max"), ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"), ("And", "Or", "Xor"),
    ("Sqrt", "Exp", "Erf", "Reciprocal", "Sin"), ("MaxPool", "AveragePool"),
    ("GlobalAveragePool", "GlobalMaxPool"), ("ArgMax", "ArgMin"), ("Floor", "Ceil", "Round"),
)  # fmt: skip


def change_attribute(draft: Draft) -> str:
    """Give an attribute of some node another value, or its default."""
    node = draft.some([each for each in draft.graph.node if each.op_type != "Constant"])
    kinds = kinds_of(node.domain, node.op_type, draft.opset)
    name = draft.some(sorted({*kinds, *(a.name for a in node.attribute)}))
    given = next((a for a in node.attribute if a.name == name), None)
    if given is not None and given.type not in SIMPLE:
        raise NotHere
    if given is not None and draft.chance(0.2):
        set_attribute(node, name, None)
        return f"{node.op_type} without {name}"
    before = None if given is None else helper.get_attribute_value(given)
    value = _other(draft, node, name, before, kinds.get(name, ""))
    set_attribute(node, name, value)
    return f"{node.op_type} {name}={value}"


def set_attribute(node: NodeProto, name: str, value: object) -> None:
    """Give a node an attribute in place of the one it has; ``None`` takes it away."""
    kept = [AttributeProto.FromString(a.SerializeToString()) for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def _other(draft: Draft, node: NodeProto, name: str, given: Any, kind: str) -> Any:
    """Return another value of an attribute, by its name, or by its type where no name says more."""
    first = draft.array(node.input[0]) if node.input else None
    rank = 0 if first is None else first.ndim
    is_int = isinstance(given, int) or kind == "int"
    if name in FLAGS and is_int:
        return 1 - given if given in (0, 1) else draft.some((0, 1))
    if name in ("to", "dtype", "output_dtype"):
        return draft.some(ELEMENT_TYPES)
    if isinstance(given, bytes) or kind == "string":
        return draft.some(TEXTS.get(name, ()))
    if isinstance(given, float) or kind == "float":
        return draft.some([each for each in FLOATS.get(name, OTHER_FLOATS) if each != given])
    if name in AXES and rank:
        axis = draft.random.randrange(-rank, rank)
        return axis if is_int else [axis]
    if name == "perm" and rank:
        return draft.random.sample(range(rank), rank)
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], int):
        return _nudged(draft, given)
    if kind == "ints":
        return _windows(draft, name, rank)
    if is_int:
        near = {given - 1, given + 1, given * 2} if given else set()
        return draft.some(sorted({0, 1, 2, 3, 4, 16, 32} | near))
    raise NotHere


def _nudged(draft: Draft, given: Sequence[int]) -> list[int]:
    found = list(given)
    if draft.chance(0.2):
        return draft.random.sample(found, len(found))
    found[draft.random.randrange(len(found))] += draft.some((-1, 1, 1, 2))
    return found


def _windows(draft: Draft, name: str, rank: int) -> list[int]:
    spatial = max(rank - 2, 1)
    if name == "pads":
        return [draft.some((0, 0, 1, 2)) for _ in range(2 * spatial)]
    if name not in WINDOWS:
        raise NotHere
    return [draft.some((1, 1, 2, 3)) for _ in range(spatial)]


@functools.cache
def kinds_of(domain: str, op_type: str, opset: int) -> Mapping[str, str]:
    """Return the attributes that an operator may have, with their types in lower case; none where nobody knows it."""
    if domain == "com.microsoft":
        schema = _contrib_schemas().get(op_type)
    else:
        try:
            schema = onnx.defs.get_schema(op_type, opset, domain)
        except onnx.defs.SchemaError:
            schema = None
    attributes = {} if schema is None else schema.attributes
    return {name: str(each.type).rpartition(".")[2].lower() for name, each in attributes.items()}


@functools.cache
def _contrib_schemas() -> Mapping[str, Any]:
    known = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    return {schema.name: schema for schema in known if schema.domain == "com.microsoft"}


def change_operator(draft: Draft) -> str:
    """Put another operator of the same form in the place of one."""
    node = draft.some([each for each in draft.graph.node if any(each.op_type in row for row in ALIKE)])
    row = next(row for row in ALIKE if node.op_type in row)
    before, node.op_type = node.op_type, draft.some([each for each in row if each != node.op_type])
    return f"{before} as {node.op_type}"


ATTRIBUTES: Sequence[tuple[int, Callable[[Draft], str]]] = ((10, change_attribute), (2, change_operator))
