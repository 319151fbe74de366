"""A float32 model rewritten to compute in float64: the truth that the errors of float32 engines are measured against.

Types, weights, constants and casts become double. What operators fix to float32 by their own definition (the scales of
Resize, everything that NonMaxSuppression or ZipMap reads) stays float32, through casts where double meets it.
"""

from __future__ import annotations

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
        nodes.append(node)
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
