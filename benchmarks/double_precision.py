"""A float32 model rewritten to compute in float64: the truth that the errors of float32 engines are measured against.

Types, weights, constants and casts become double. What operators fix to float32 by their own definition (the scales of
Resize, everything that NonMaxSuppression or ZipMap reads) stays float32, through casts where double meets it. Fused
operators that have no double form become the operators that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, load_model, numpy_helper

FIXED: dict[str, frozenset[int]] = {
    "Resize": frozenset({1, 2}),
    "Upsample": frozenset({1}),
    "NonMaxSuppression": frozenset({0, 1, 3, 4}),
    "ZipMap": frozenset({0}),
}
"""Inputs that an operator takes in float32 alone."""


def _skip_layer_normalization(node: NodeProto) -> list[NodeProto]:
    """``LayerNormalization(input + skip + bias)``; of its further outputs only the sum."""
    if any(node.output[1:3]):
        raise ValueError(f"{node.name} gives its mean or deviation, which no double form is written for")
    x, skip, gamma, beta, bias = (*node.input, "", "")[:5]
    out = node.output[0]
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{out}__sum"
    added = [("Add", [x, skip], f"{out}__skip"), ("Add", [f"{out}__skip", bias], total)] if bias else []
    nodes = [helper.make_node(op, reads, [to]) for op, reads, to in added or [("Add", [x, skip], total)]]
    reads = [name for name in (total, gamma, beta) if name]
    return [*nodes, helper.make_node("LayerNormalization", reads, [out], epsilon=_attribute(node, "epsilon", 1e-12))]


def _bias_gelu(node: NodeProto) -> list[NodeProto]:
    """``v / 2 (1 + erf(v / sqrt 2))`` of ``v = x + bias``."""
    out = node.output[0]
    v, half, root, ratio, error, one, above, halved = (f"{out}__{i}" for i in range(8))
    constants = [(half, 0.5), (root, np.sqrt(2.0)), (one, 1.0)]
    return [
        *(helper.make_node("Constant", [], [n], value=numpy_helper.from_array(np.array(c))) for n, c in constants),
        helper.make_node("Add", list(node.input), [v]),
        helper.make_node("Div", [v, root], [ratio]),
        helper.make_node("Erf", [ratio], [error]),
        helper.make_node("Add", [error, one], [above]),
        helper.make_node("Mul", [v, half], [halved]),
        helper.make_node("Mul", [halved, above], [out]),
    ]


def _attribute(node: NodeProto, name: str, default: float) -> float:
    found = [helper.get_attribute_value(each) for each in node.attribute if each.name == name]
    return float(found[0]) if found else default


UNFUSED: dict[str, Callable[[NodeProto], list[NodeProto]]] = {
    "SkipLayerNormalization": _skip_layer_normalization,
    "BiasGelu": _bias_gelu,
}
"""Operators of onnxruntime's domain as the standard ones that they stand for."""


def to_double(path: Path) -> ModelProto:
    """Return the model of a file with float32 replaced by float64.

    Raises:
        ValueError: the model holds floats of another width, whose rounding is part of what it computes.
    """
    model = load_model(str(path))
    others = {TensorProto.FLOAT16, TensorProto.BFLOAT16} & {tensor.data_type for tensor in model.graph.initializer}
    if others or model.functions:
        raise ValueError(f"{path} is no plain float32 model")
    _rewrite(model.graph)
    return model


def _rewrite(graph: GraphProto) -> None:
    fixed = {
        name
        for node in graph.node
        for position, name in enumerate(node.input)
        if name and position in FIXED.get(node.op_type, ())
    }
    weights = {tensor.name for tensor in graph.initializer}
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in fixed:
            _widen(tensor)
    for value in (*graph.input, *graph.output):
        if not {value.name} & fixed & weights and value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    nodes: list[NodeProto] = []
    narrowed: set[str] = set()
    for node in graph.node:
        for position, name in enumerate(node.input):
            if not name or position not in FIXED.get(node.op_type, ()) or name in weights:
                continue
            if name not in narrowed:
                nodes.append(helper.make_node("Cast", [name], [f"{name}__float32"], to=TensorProto.FLOAT))
                narrowed.add(name)
            node.input[position] = f"{name}__float32"
        _rewrite_attributes(node)
        nodes.extend(UNFUSED.get(node.op_type, lambda each: [each])(node) if node.domain else [node])
    del graph.node[:]
    graph.node.extend(nodes)


def _rewrite_attributes(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.FLOAT:
            _widen(attribute.t)
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        elif attribute.type == AttributeProto.GRAPH:
            _rewrite(attribute.g)
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
    if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
        values = np.asarray(helper.get_attribute_value(node.attribute[0]), np.float64)
        node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(values)))


def _widen(tensor: TensorProto) -> None:
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))
