"""Masks of Dropout, which have the data's type before opset 10 and are bool since: ONNX's converter changes no reader.

Before:  y, mask = Dropout(x)
After:   y = Dropout(x)    mask = Cast(And(b, Not(b)))    b = Cast<to = bool>(x)

Nothing is dropped when a model runs, and older versions leave a mask of zeros then. One that nobody reads goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.retired_operators import new_name

BOOL_SINCE = 10
"""The opset from which on the mask is bool."""


def write_out_masks(model: ModelProto) -> None:
    """Replace the masks of a model's Dropouts, in place; it is of an opset before ``BOOL_SINCE``."""
    graphs = list(graphs_of(model.graph))
    dropouts = [(graph, node) for graph in graphs for node in graph.node if node.op_type == "Dropout"]
    masked = [(graph, node) for graph, node in dropouts if node.domain in ("", "ai.onnx") and len(node.output) > 1]
    if not masked:
        return
    read = {name for graph in graphs for node in graph.node for name in node.input}
    read.update(each.name for graph in graphs for each in graph.output)
    taken = read | {name for graph in graphs for node in graph.node for name in node.output}
    types = {each.name: each.type.tensor_type.elem_type for graph in graphs for each in _declared(graph)}
    for graph, node in masked:
        mask = node.output.pop()
        if mask and mask in read:
            dtype = types.get(mask) or types.get(node.input[0]) or TensorProto.FLOAT
            names = [new_name(f"{mask}_{part}", taken) for part in ("truth", "inverse", "both")]
            _insert_behind(graph, node, _zeros(node.input[0], names, mask, dtype))


def _declared(graph: GraphProto) -> Iterable[ValueInfoProto]:
    return (*graph.input, *graph.value_info, *graph.output)


def _zeros(data: str, names: Sequence[str], mask: str, dtype: int) -> list[NodeProto]:
    truth, inverse, both = names
    return [
        helper.make_node("Cast", [data], [truth], to=TensorProto.BOOL),
        helper.make_node("Not", [truth], [inverse]),
        helper.make_node("And", [truth, inverse], [both]),
        helper.make_node("Cast", [both], [mask], to=dtype),
    ]


def _insert_behind(graph: GraphProto, node: NodeProto, added: list[NodeProto]) -> None:
    place = next(number for number, each in enumerate(graph.node) if each is node or each == node)
    for number, each in enumerate(added):
        graph.node.insert(place + 1 + number, each)
