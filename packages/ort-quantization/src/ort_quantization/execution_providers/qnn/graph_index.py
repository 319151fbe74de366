"""What patterns ask of a graph: who gives and who reads a value, and which values are constants."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, numpy_helper

from ort_core.model_graphs import reads_of
from ort_quantization.models.model_files import read_tensor


class GraphIndex:
    """The producers, readers and constants of a graph, as it is when this is made.

    Args:
        graph: of a model.
        folder: where its external tensors lie.
    """

    def __init__(self, graph: GraphProto, folder: str = "") -> None:
        self._folder = folder
        self._tensors = {each.name: each for each in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in reads_of(node):
                self._readers.setdefault(name, []).append(node)
        self._results = {each.name for each in graph.output}

    def maker(self, name: str, op_type: str) -> NodeProto | None:
        """Return the node that gives a value if it is of a type."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op_type and node.domain in ("", "ai.onnx") else None

    def only_reader(self, name: str, *op_types: str) -> NodeProto | None:
        """Return the node that reads a value if nothing else does and it is of a type."""
        readers = self._readers.get(name, [])
        is_only = len(readers) == 1 and name not in self._results and readers[0].domain in ("", "ai.onnx")
        return readers[0] if is_only and readers[0].op_type in op_types and name in readers[0].input else None

    def readers(self, name: str) -> list[NodeProto]:
        """Return the nodes that read a value, in graphs inside them too."""
        return self._readers.get(name, [])

    def constant(self, name: str) -> np.ndarray | None:
        """Return the numbers of an initializer or a Constant, ``None`` for other values."""
        if name in self._tensors:
            return numpy_helper.to_array(read_tensor(self._tensors[name], self._folder))
        node = self.maker(name, "Constant")
        tensor = None if node is None else next((each.t for each in node.attribute if each.name == "value"), None)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_number(self, name: str, number: float) -> bool:
        """Return whether a value is one constant number, to float32's rounding."""
        found = self.constant(name)
        return found is not None and found.size == 1 and bool(np.isclose(float(found.item()), number, rtol=1e-4))

    def other(self, node: NodeProto, name: str) -> str:
        """Return what a node of two inputs reads beside a value."""
        return str(node.input[1] if node.input[0] == name else node.input[0])

    def axes(self, node: NodeProto) -> list[int] | None:
        """Return the axes of a reduction, from its attribute or its input."""
        given = next((list(each.ints) for each in node.attribute if each.name == "axes"), None)
        if given is None and len(node.input) > 1:
            found = self.constant(node.input[1])
            given = None if found is None else [int(each) for each in found.reshape(-1)]
        return given


def attribute(node: NodeProto, name: str, default: int) -> int:
    """Return a whole number that a node states."""
    return next((each.i for each in node.attribute if each.name == name and each.type == AttributeProto.INT), default)


def replace_nodes(graph: GraphProto, gone: Iterable[NodeProto], made: NodeProto) -> None:
    """Put one node in the place of others: where the last of them stands."""
    names = {name for node in gone for name in node.output}
    kept: list[NodeProto] = []
    for node in graph.node:
        if names.intersection(node.output):
            if set(made.output).intersection(node.output):
                kept.append(made)
        else:
            kept.append(node)
    copies = [NodeProto.FromString(each.SerializeToString()) for each in kept]
    del graph.node[:]
    graph.node.extend(copies)


def known_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of values whose sizes are all numbers."""
    found = {}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(each.HasField("dim_value") for each in kind.shape.dim):
            found[value.name] = tuple(each.dim_value for each in kind.shape.dim)
    return found
