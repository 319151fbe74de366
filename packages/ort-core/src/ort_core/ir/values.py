"""Values: the edges of a graph. Each has at most one producer and knows all its uses, nested graphs included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.ir.types import Shape, TensorType, ValueType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ort_core.ir.constants import Constant
    from ort_core.ir.graph import Graph
    from ort_core.ir.nodes import Node


class Body:
    """What an attribute of a node may hold as a graph: ``ir.graph.Graph``, which attributes must not import."""

    __slots__ = ()


class Value:
    """A graph input, an initializer, or one output of a node.

    ``constant`` is set for initializers. A value that is both a graph input and an initializer may be overridden by
    the caller: its ``constant`` is only a default, so ask ``Graph.fixed_constant`` before folding.
    Identity is the object; names are unique within a graph and the graphs nested in it.
    """

    __slots__ = ("_uses", "constant", "doc", "graph", "metadata", "name", "output_index", "producer", "type")

    def __init__(self, name: str, type: ValueType | None = None, *, constant: Constant | None = None) -> None:
        self.name = name
        self.type = type
        self.constant = constant
        self.producer: Node | None = None
        self.output_index = 0
        self.graph: Graph | None = None
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self._uses: dict[tuple[Node, int], None] = {}
        if type is None and constant is not None:
            self.type = TensorType(constant.dtype, constant.shape)

    @property
    def uses(self) -> tuple[tuple[Node, int], ...]:
        """Every (node, input index) that reads this value, in nested graphs too."""
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """How often nodes read this value (graph outputs are not counted)."""
        return len(self._uses)

    @property
    def only_reader(self) -> Node | None:
        """The node that reads this value, where exactly one does, and once."""
        uses = self._uses
        return next(iter(uses))[0] if len(uses) == 1 else None

    def readers(self) -> Iterator[Node]:
        """Iterate over the reading nodes in order of first use, without a copy; one that reads twice may come twice."""
        return (node for node, _ in self._uses)

    def consumers(self) -> tuple[Node, ...]:
        """Return the reading nodes, each once, in order of first use."""
        return tuple(dict.fromkeys(node for node, _ in self._uses))

    @property
    def is_graph_output(self) -> bool:
        """Whether the graph that owns this value returns it."""
        return self.graph is not None and self in self.graph._output_places

    @property
    def is_graph_input(self) -> bool:
        """Whether this is a formal input of the graph that owns it."""
        return self.graph is not None and self in self.graph._input_set

    @property
    def shape(self) -> Shape | None:
        """The shape of a tensor, ``None`` when the rank is unknown or the value is not a dense tensor."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def rank(self) -> int | None:
        """The rank of a tensor, ``None`` when unknown."""
        shape = self.shape
        return None if shape is None else len(shape)

    def replace_uses(self, replacement: Value, *, outputs: bool = False) -> None:
        """Make every reader of this value read ``replacement``; with ``outputs`` the graph returns it, too."""
        if replacement is self:
            return
        for node, index in self.uses:
            node.set_input(index, replacement)
        if outputs and self.graph is not None and self.is_graph_output:
            self.graph.replace_output(self, replacement)

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {self.type})"
