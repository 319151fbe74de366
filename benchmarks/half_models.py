"""A float32 model in float16: weights, constants, casts, inputs and outputs; for engines that are measured with it.

Numbers beyond float16 are clipped to its largest, so that masks stay finite. What an operator demands in float32 (the
scales of Resize) stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

LARGEST = 65504.0
_FLOAT, _HALF = TensorProto.FLOAT, TensorProto.FLOAT16
_KEPT = {"Resize": (2,), "Upsample": (1,)}  # inputs that are float32 by definition


def to_half(source: Path, target: Path) -> Path:
    """Write a model in float16 and return where it lies.

    Args:
        source: a float32 model.
        target: the file; what lies there is overwritten.
    """
    model = onnx.load(source)
    kept = {name for graph in _graphs(model.graph) for name in _kept_inputs(graph)}
    for graph in _graphs(model.graph):
        _convert(graph, kept)
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, target)
    return target


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _kept_inputs(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        for index in _KEPT.get(node.op_type, ()):
            if index < len(node.input):
                yield node.input[index]


def _convert(graph: GraphProto, kept: set[str]) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == _FLOAT and value.name not in kept:
            kind.elem_type = _HALF
    for tensor in graph.initializer:
        if tensor.data_type == _FLOAT and tensor.name not in kept:
            tensor.CopyFrom(_half_of(tensor))
    for node in graph.node:
        if not kept.intersection(node.output):
            _convert_node(node)


def _convert_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == _FLOAT:
            attribute.i = _HALF
        elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type == _FLOAT:
            attribute.t.CopyFrom(_half_of(attribute.t))
    if node.op_type == "Constant" and node.attribute and node.attribute[0].name in ("value_float", "value_floats"):
        given = helper.get_attribute_value(node.attribute[0])
        tensor = numpy_helper.from_array(_clipped(np.array(given, np.float32)))
        node.attribute[0].CopyFrom(helper.make_attribute("value", tensor))


def _half_of(tensor: TensorProto) -> TensorProto:
    return numpy_helper.from_array(_clipped(numpy_helper.to_array(tensor)), tensor.name)


def _clipped(array: np.ndarray) -> np.ndarray:
    return np.clip(array, -LARGEST, LARGEST).astype(np.float16)
