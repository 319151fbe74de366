"""The places of a model whose weights are quantized: products and look-ups with a constant table, in all its graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from ort_quantization.weight_only.matmul_nbits_settings import Settings

log = logging.getLogger(__name__)

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_WEIGHT_INPUTS = {"MatMul": 1, "Gather": 0}


@dataclass(frozen=True, slots=True)
class Site:
    """One node whose weight is quantized.

    Attributes:
        node: in the model.
        tensor: its weight.
        owner: the graph that holds the weight.
        graph: that the node stands in.
        source: the graph that gives its operand.
        added_axes: rank that the result has at least, because of leading axes of the weight; 0: none.
        settings: how the weight is quantized.
        operand: what the weight of a MatMul meets, before the model is changed.
    """

    node: NodeProto
    tensor: TensorProto
    owner: GraphProto
    graph: GraphProto
    source: GraphProto
    added_axes: int
    settings: Settings
    operand: str

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight of a MatMul."""
        return self.tensor.dims[-2], self.tensor.dims[-1]


class Scope:
    """A graph and those around it: the tensors and ranks that its nodes see.

    Args:
        graph: the inner one.
        outer: what is around it.
    """

    def __init__(self, graph: GraphProto, outer: Scope | None = None) -> None:
        self.graph, self.outer = graph, outer
        self._tensors = {each.name: each for each in graph.initializer}
        values = [*graph.input, *graph.value_info, *graph.output]
        self._ranks = {each.name: _rank(each) for each in reversed(values)}
        self._made = {name for node in graph.node for name in node.output}
        self._given = {each.name for each in graph.input}

    def find(self, name: str) -> tuple[TensorProto, GraphProto] | None:
        """Return a tensor and the graph that holds it, ``None`` for what is no constant."""
        if name in self._tensors:
            return self._tensors[name], self.graph
        if self.outer is None or name in self._made:
            return None
        return self.outer.find(name)

    def source(self, name: str) -> GraphProto:
        """Return the graph that gives a value: the innermost that makes or takes it."""
        is_own = name in self._made or name in self._given or name in self._tensors
        return self.graph if is_own or self.outer is None else self.outer.source(name)

    def rank(self, name: str) -> int | None:
        """Return the rank of a value where it is stated."""
        if name in self._ranks:
            return self._ranks[name]
        return self.outer.rank(name) if self.outer is not None else None

    def inner(self) -> Iterator[Scope]:
        """Yield the scopes of the graphs inside the nodes, one level deep."""
        for node in self.graph.node:
            for attribute in node.attribute:
                for graph in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                    yield Scope(graph, self)


def scopes(graph: GraphProto, outer: Scope | None = None) -> Iterator[Scope]:
    """Yield the scope of a graph and of all graphs inside, outer ones first."""
    start = Scope(graph, outer)
    yield start
    for inner in start.inner():
        yield from scopes(inner.graph, start)


def find_sites(
    graph: GraphProto, chosen: Callable[[NodeProto], bool], settings: Callable[[NodeProto], Settings], opset: int
) -> list[Site]:
    """Return the nodes that can be quantized among those that are chosen; why others cannot is logged."""
    found = []
    for scope in scopes(graph):
        for node in scope.graph.node:
            if not chosen(node):
                continue
            site = _site(node, scope, settings(node), opset)
            if isinstance(site, str):
                log.info("node %r (%s) stays as it is: %s", node.name, node.op_type, site)
            else:
                found.append(site)
    return found


def _site(node: NodeProto, scope: Scope, settings: Settings, opset: int) -> Site | str:
    """Return the site of a node, or why it is none."""
    place = _WEIGHT_INPUTS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if place is None:
        return "weights of MatMul and Gather are quantized, no others"
    held = scope.find(node.input[place])
    if held is None:
        return "its weight is no constant of the file"
    tensor, owner = held
    if tensor.data_type not in _FLOATS:
        return "its weight is neither float32 nor float16 nor bfloat16"
    if 0 in tensor.dims:
        return "its weight is empty"
    source = scope.source(node.input[1 - place])
    if node.op_type == "Gather":
        found = Site(node, tensor, owner, scope.graph, source, 0, settings, "")
        return found if settings.bits != 2 else "Gather has 4 or 8 bits"
    rank, operand_rank = len(tensor.dims), scope.rank(node.input[0])
    if rank < 2 or any(each != 1 for each in tensor.dims[:-2]):
        return f"its weight of shape {list(tensor.dims)} is not one matrix"
    if operand_rank == 1:
        return "its other operand is a vector"
    added = rank if rank > 2 and (operand_rank is None or operand_rank < rank) else 0
    if added and opset < 8:
        return "Expand, which gives the result its leading axes, came with opset 8"
    return Site(node, tensor, owner, scope.graph, source, added, settings, node.input[0])


def _rank(value: ValueInfoProto) -> int | None:
    kind = value.type.tensor_type
    return len(kind.shape.dim) if kind.HasField("shape") else None


def replace_nodes(graph: GraphProto, replaced: Mapping[int, list[NodeProto]]) -> None:
    """Put other nodes in the place of some of a graph and of those inside, by their numbers (``id``)."""
    for scope in reversed(list(scopes(graph))):  # inner ones first: their nodes go with the copy of the outer
        nodes = list(scope.graph.node)
        if not any(id(node) in replaced for node in nodes):
            continue
        ordered = [other for node in nodes for other in replaced.get(id(node), [node])]
        copies = [_copied(node) for node in ordered]
        del scope.graph.node[:]
        scope.graph.node.extend(copies)


def _copied(node: NodeProto) -> NodeProto:
    found = NodeProto()
    found.CopyFrom(node)
    return found
