"""Bodies of If, Loop and Scan in the QDQ format: each is quantized as a graph of its own.

Weights of the graphs around that a body's operators read are copied into the body, so that their DequantizeLinear
stands beside the operator. What is written into a body gets names that no graph around it has.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import INFERRED, mark, read_tensor
from ort_quantization.models.node_order import put_in_order
from ort_quantization.onnx_model import ONNXModel

if TYPE_CHECKING:
    from ort_quantization.qdq_quantizer import QDQQuantizer

log = logging.getLogger(__name__)


def quantize_bodies(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize the bodies of a node, in place."""
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
        for graph in graphs:
            graph.CopyFrom(_quantized_body(quantizer, graph))


def _quantized_body(quantizer: QDQQuantizer, graph: GraphProto) -> GraphProto:
    wrapped = helper.make_model(graph, opset_imports=quantizer.model.model.opset_import)
    mark(wrapped, INFERRED)
    names = _names_of(wrapped.graph)
    copied = _copy_weights(quantizer, wrapped.graph)
    inner = quantizer.for_body(ONNXModel(wrapped, quantizer.model.folder), copied)
    body = inner.quantize_model().graph
    number = quantizer.next_body()
    _rename(body, {name: f"{name}_body_{number}" for name in _names_of(body) - names})
    put_in_order(body, is_deep=False)
    return body


def _names_of(graph: GraphProto) -> set[str]:
    """Return the names that a graph itself gives."""
    given = {name for node in graph.node for name in node.output if name}
    return given | {each.name for each in (*graph.initializer, *graph.input)}


def _copy_weights(quantizer: QDQQuantizer, body: GraphProto) -> dict[str, str]:
    """Copy the float weights around a body that its chosen operators read; return their names, new by old."""
    own = _names_of(body)
    copied: dict[str, str] = {}
    for node in body.node:
        if not quantizer.should_quantize_node(node):
            continue
        for name in dict.fromkeys(node.input):
            if not name or name in own:
                continue
            tensor = quantizer.weight_around(name)
            if tensor is None:
                continue
            if name not in copied:
                copied[name] = f"{name}_copied"
                _add_copy(body, read_tensor(tensor, quantizer.model.folder), copied[name])
            ONNXModel.replace_node_input(node, name, copied[name])
    return copied


def _add_copy(body: GraphProto, tensor: TensorProto, name: str) -> None:
    copied = body.initializer.add()
    copied.CopyFrom(tensor)
    copied.name = name


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    """Give values of a graph other names, wherever they are read, in bodies of bodies too."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for each in graphs_of(graph):
        for node in each.node:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)
    for node in graph.node:
        for place, name in enumerate(node.output):
            node.output[place] = names.get(name, name)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
