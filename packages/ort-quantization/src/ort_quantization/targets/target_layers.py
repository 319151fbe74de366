"""A model as layers that can be quantized each on its own: a node with a constant weight, and what follows from it.

A node without a weight belongs to the layer of the last of the values that it reads; what stands before all layers
belongs to none, and stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, helper

from ort_core.model_graphs import reads_in_order

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FOLLOWING = frozenset({
    "Add", "AveragePool", "Clip", "Concat", "DepthToSpace", "Flatten", "GlobalAveragePool", "LeakyRelu", "MaxPool",
    "Pad", "Relu", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that stay between 8 bit layers in 8 bits; others would lose more than a conversion costs."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Nodes that get one scheme.

    Attributes:
        name: of the node with the weight.
        op_type: of that node.
        nodes: names of all its nodes, in the graph's order.
        followers: those that may be in 8 bits beside it, itself among them.
        weights: names of constant tensors of floats that its nodes read.
        is_product: whether it is a product of a matrix, whose weight can be stored in blocks.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    followers: tuple[str, ...]
    weights: tuple[str, ...]
    is_product: bool


def name_nodes(model: ModelProto) -> None:
    """Give names to the nodes of the main graph that have none, or the name of another."""
    taken: set[str] = set()
    names = {node.name for node in model.graph.node}
    for place, node in enumerate(model.graph.node):
        if node.name and node.name not in taken:
            taken.add(node.name)
            continue
        name = f"{node.op_type}_{place}"
        while name in names:
            name += "_"
        node.name = name
        names.add(name)
        taken.add(name)


def layers_of(model: ModelProto) -> list[Layer]:
    """Return the layers of a model whose nodes have names of their own, in the graph's order."""
    graph = model.graph
    weights = {each.name: each for each in graph.initializer if each.data_type == TensorProto.FLOAT}
    owners: dict[str, int] = {}
    heads: list[NodeProto] = []
    members: list[list[NodeProto]] = []
    for node in graph.node:
        if _is_weighted(node, weights):
            place = len(heads)
            heads.append(node)
            members.append([])
        else:
            place = max((owners[name] for name in node.input if name in owners), default=-1)
        if place < 0:
            continue
        members[place].append(node)
        owners.update(dict.fromkeys(node.output, place))
    return [_layer(head, nodes, weights) for head, nodes in zip(heads, members, strict=True)]


def _is_weighted(node: NodeProto, weights: Mapping[str, TensorProto]) -> bool:
    return node.op_type in WEIGHTED and not node.domain and len(node.input) > 1 and node.input[1] in weights


def _layer(head: NodeProto, nodes: list[NodeProto], weights: Mapping[str, TensorProto]) -> Layer:
    read = dict.fromkeys(name for node in nodes for name in node.input if name in weights)
    return Layer(
        head.name, head.op_type, tuple(node.name for node in nodes),
        tuple(node.name for node in nodes if node is head or node.op_type in FOLLOWING), tuple(read),
        head.op_type == "MatMul" and len(weights[head.input[1]].dims) == 2,
    )  # fmt: skip


def layer_model(model: ModelProto, layer: Layer) -> ModelProto:
    """Return a layer as a model of its own, between the values that other layers give and read."""
    chosen = set(layer.nodes)
    nodes = [node for node in model.graph.node if node.name in chosen]
    made = {name for node in nodes for name in node.output if name}
    reads = dict.fromkeys(name for node in nodes for name in reads_in_order(node))
    tensors = {each.name: each for each in model.graph.initializer}
    outside = {name for node in model.graph.node if node.name not in chosen for name in reads_in_order(node)}
    outside |= {each.name for each in model.graph.output}
    types = {each.name: each for each in (*model.graph.value_info, *model.graph.output, *model.graph.input)}
    inputs = [types[name] for name in reads if name not in made and name not in tensors and name in types]
    outputs = [types[name] for name in made if name in outside and name in types]
    graph = helper.make_graph(nodes, layer.name, inputs, outputs, [tensors[name] for name in reads if name in tensors])
    graph.value_info.extend(types[name] for name in made if name in types and name not in outside)
    found = helper.make_model(graph, ir_version=model.ir_version)
    del found.opset_import[:]
    found.opset_import.extend(model.opset_import)
    return found


def signature(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return a digest of what a layer's time depends on: operators, attributes, sizes, not numbers or names."""
    places: dict[str, int] = {}

    def place(name: str) -> str:
        return str(places.setdefault(name, len(places))) if name else ""

    found = hashlib.sha256()
    for each in model.graph.input:
        found.update(f"{place(each.name)} {each.type.tensor_type.elem_type} {shapes.get(each.name)}\n".encode())
    for tensor in model.graph.initializer:
        content = tensor.raw_data if tensor.data_type == TensorProto.INT64 else b""  # shapes, axes
        found.update(f"{place(tensor.name)} {tensor.data_type} {tuple(tensor.dims)}\n".encode() + content)
    for node in model.graph.node:
        attributes = b"".join(sorted(each.SerializeToString(deterministic=True) for each in node.attribute))
        names = [*map(place, node.input), "->", *map(place, node.output)]
        found.update(f"{node.domain}.{node.op_type} {names}\n".encode() + attributes)
    return found.hexdigest()[:16]
