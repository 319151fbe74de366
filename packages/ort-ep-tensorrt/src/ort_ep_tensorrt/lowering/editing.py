"""Editing: changes of the copy of a claim that the parser is handed; every new node knows which node it stands for.

The parser names nodes by their place in what it read. A mark on each node leads back to the node of the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import Constant, DataType, Graph, Node, TensorType, Value

_MARK = "ort.place"


class LoweringRefusal(Exception):
    """A node has no other words in TensorRT.

    Attributes:
        place: the place of the node in the claim.
        reason: why.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def mark_places(graph: Graph) -> None:
    """Mark the nodes of a claim's copy, before any change."""
    for place, node in enumerate(graph):
        node.metadata[_MARK] = str(place)


def place_of(node: Node) -> int:
    """Return the place in the claim of the node that this one stands for."""
    return int(node.metadata[_MARK])


def take_places(graph: Graph) -> tuple[int, ...]:
    """Return for each node of the changed copy the place of the node that it stands for, and remove the marks."""
    return tuple(int(node.metadata.pop(_MARK)) for node in graph)


def mark_parts(parts: Iterable[Node], place: int) -> None:
    """Mark the parts of a node."""
    for part in parts:
        part.metadata[_MARK] = str(place)


class Editor:
    """Writes nodes before one node of a graph, in its name.

    Args:
        graph: the copy of a claim.
        node: the node that is rewritten.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    def add(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, object] | None = None,
        *,
        like: Value | None = None,
    ) -> Value:
        """Return the result of a new node; its type is that of ``like``."""
        made = self.graph.insert_before(self.node, Node(op_type, inputs, 1, attributes or {}))
        made.metadata[_MARK] = self.node.metadata[_MARK]
        made.output.type = None if like is None else like.type
        return made.output

    def constant(self, array: np.ndarray | Constant) -> Value:
        """Return a new constant."""
        return self.graph.new_constant(array)

    def cast(self, value: Value, dtype: DataType) -> Value:
        """Return a value in another element type."""
        found = self.add("Cast", [value], {"to": int(dtype)})
        found.type = TensorType(dtype, value.shape)
        return found

    def finish(self, results: Mapping[int, Value], casts: Mapping[int, DataType] | None = None) -> None:
        """Let the node's outputs be these values, under the names that they had, and remove the node.

        Args:
            results: by index of the output.
            casts: element types that results are cast to: the parser hands some on from a Cast alone.
        """
        for index, result in results.items():
            dtype = (casts or {}).get(index)
            last = Node("Identity", [result], 1) if dtype is None else Node("Cast", [result], 1, {"to": int(dtype)})
            self.graph.insert_before(self.node, last)
            last.metadata[_MARK] = self.node.metadata[_MARK]
            last.adopt_outputs([self.node.detach_output(index)])
        self.graph.remove(self.node)


def dtype_of_value(value: Value | None) -> DataType | None:
    """Return the element type of a tensor, ``None`` where it is not known."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None
