"""Editing: changes of the copy of a claim that the parser is handed; every new node knows which node it stands for.

The parser names nodes by their place in what it read. A mark on each node leads back to the node of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, Graph, Node, TensorType, Value
from ort_core.plugin.kernels import EvaluationContext, evaluate_node

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
        context: of the model; ``None`` where nothing is computed.
    """

    def __init__(self, graph: Graph, node: Node, context: EvaluationContext | None = None) -> None:
        self.graph, self.node, self._context = graph, node, context

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

    def input(self, index: int) -> Value:
        """Return an input of the node that its operator demands."""
        value = self.node.input(index)
        assert value is not None, "the schema demands it"
        return value

    def constant(self, array: np.ndarray | Constant) -> Value:
        """Return a new constant."""
        return self.graph.new_constant(array)

    def number(self, number: float, like: Value) -> Value:
        """Return a scalar constant in the element type of a value."""
        dtype = dtype_of(like) or DataType.FLOAT
        return self.constant(Constant.of(np.array(number, dtype.numpy), dtype))

    def fixed(self, index: int) -> np.ndarray | None:
        """Return the values of an input that is a constant, ``None`` for any other or none."""
        value = self.node.input(index)
        found = None if value is None else self.graph.fixed_constant(value)
        return None if found is None else found.array()

    def cast(self, value: Value, dtype: DataType) -> Value:
        """Return a value in another element type."""
        found = self.add("Cast", [value], {"to": int(dtype)})
        found.type = TensorType(dtype, value.shape)
        return found

    @property
    def opset(self) -> int:
        """The version of the node's domain that applies to it."""
        assert self._context is not None, "writers of decomposed nodes have a context"
        return self._context.opset_of(self.node)

    def computed(
        self,
        op_type: str,
        inputs: Sequence[np.ndarray | None],
        attributes: Mapping[str, object],
        opset: int,
    ) -> np.ndarray | Rejection:
        """Return what an operator makes of some arrays by the reference kernels; an attribute of None is absent."""
        assert self._context is not None, "writers of decomposed nodes have a context"
        formal = [None if array is None else Value(f"input {index}") for index, array in enumerate(inputs)]
        present = {name: value for name, value in attributes.items() if value is not None}
        answer = evaluate_node(Node(op_type, formal, 1, present, opset=opset), list(inputs), self._context)
        if isinstance(answer, Rejection):
            return Rejection(answer.reason, self.node)
        assert isinstance(answer[0], np.ndarray), "these operators make tensors"
        return answer[0]

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


Results = dict[int, Value]
"""What a node's outputs are, by index."""
Writer = Callable[[Editor], Results | Rejection]
"""Writes a node in other words, or says why it cannot."""


def fixed_shape(value: Value | None) -> tuple[int, ...] | None:
    """Return a shape of numbers alone, ``None`` where one is open."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) else None
