"""Nodes: one application of an operator to values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.ir.attributes import GRAPH_KINDS, Attribute
from ort_core.ir.values import Value

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph


class Node:
    """An operator with its inputs, outputs and attributes.

    Absent optional inputs and outputs are ``None``. ``opset`` overrides the model's import for this node's domain
    (nodes that were inlined from a function with other imports). ``body`` is the subgraph that a fused node stands
    for: whoever cannot run the node runs its body. A node belongs to at most one graph; use the graph to place it.
    """

    __slots__ = (
        "_input_tuple", "_inputs", "_next", "_outputs", "_previous", "attributes", "body", "doc", "domain", "graph",
        "has_graphs", "metadata", "name", "op_type", "opset", "overload",
    )  # fmt: skip

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None] | int = 1,
        attributes: Iterable[Attribute] | Mapping[str, object] = (),
        *,
        domain: str = "",
        name: str = "",
        overload: str = "",
        opset: int | None = None,
        body: Graph | None = None,
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.name = name
        self.overload = overload
        self.opset = opset
        self.body = body
        self.graph: Graph | None = None
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self._previous: Node | None = None
        self._next: Node | None = None
        self.attributes: dict[str, Attribute] = {}
        self.has_graphs = False  # whether an attribute has ever held one: every walk asks every node
        if attributes:
            self.set_attributes(attributes)
        self._outputs: tuple[Value | None, ...] = self._own(
            [Value("") for _ in range(outputs)] if isinstance(outputs, int) else outputs
        )
        self._inputs: list[Value | None] = list(inputs)
        self._input_tuple: tuple[Value | None, ...] | None = None  # the same, once asked for: every pass asks
        for index, value in enumerate(self._inputs):
            if value is not None:
                value._uses[(self, index)] = None

    def _own(self, outputs: Sequence[Value | None]) -> tuple[Value | None, ...]:
        for index, value in enumerate(outputs):
            if value is None:
                continue
            if value.producer is not None:
                raise ValueError(f"value {value.name!r} already has a producer, {value.producer!r}")
            value.producer, value.output_index = self, index
        return tuple(outputs)

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The input values in schema order."""
        found = self._input_tuple
        if found is None:
            found = self._input_tuple = tuple(self._inputs)
        return found

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """The output values in schema order."""
        return self._outputs

    @property
    def output(self) -> Value:
        """The first output, which must exist."""
        value = self._outputs[0]
        assert value is not None, f"{self!r} has no first output"
        return value

    def input(self, index: int) -> Value | None:
        """Return input ``index``, or ``None`` when it is absent."""
        return self._inputs[index] if index < len(self._inputs) else None

    def present_inputs(self) -> Iterator[Value]:
        """Yield the inputs that are not absent."""
        return filter(None, self._inputs)

    def present_outputs(self) -> Iterator[Value]:
        """Yield the outputs that are not absent."""
        return filter(None, self._outputs)

    def set_input(self, index: int, value: Value | None) -> None:
        """Replace input ``index``."""
        self._check_editable()
        old = self._inputs[index]
        if old is not None:
            old._uses.pop((self, index), None)
        self._inputs[index] = value
        self._input_tuple = None
        if value is not None:
            value._uses[(self, index)] = None

    def append_input(self, value: Value | None) -> None:
        """Add an input at the end."""
        self._check_editable()
        self._inputs.append(value)
        self._input_tuple = None
        if value is not None:
            value._uses[(self, len(self._inputs) - 1)] = None

    def set_inputs(self, inputs: Sequence[Value | None]) -> None:
        """Replace all inputs."""
        self._check_editable()
        for index, old in enumerate(self._inputs):
            if old is not None:
                old._uses.pop((self, index), None)
        self._inputs = []
        self._input_tuple = None
        for value in inputs:
            self.append_input(value)

    def detach_output(self, index: int) -> Value:
        """Give up output ``index`` and return it without a producer, so that another node can produce it."""
        self._check_editable()
        value = self._outputs[index]
        assert value is not None
        self._outputs = tuple(None if i == index else v for i, v in enumerate(self._outputs))
        value.producer = None
        return value

    def adopt_outputs(self, outputs: Sequence[Value | None]) -> None:
        """Replace all outputs by values that have no producer."""
        self._check_editable()
        for value in self.present_outputs():
            value.producer = None
        self._outputs = self._own(outputs)
        for value in self.present_outputs():
            value.graph = self.graph

    def set_attributes(self, attributes: Iterable[Attribute] | Mapping[str, object]) -> None:
        """Add or replace attributes; plain Python values of a mapping are converted, ``None`` values are left out."""
        self._check_editable()
        if isinstance(attributes, Mapping):
            pairs = ((name, value) for name, value in attributes.items() if value is not None)
            attributes = [v if isinstance(v, Attribute) else Attribute.of(n, v) for n, v in pairs]
        for attribute in attributes:
            self.attributes[attribute.name] = attribute
            if attribute.kind in GRAPH_KINDS:
                self.has_graphs = True
                if self.graph is not None:
                    self.graph.has_bodies = True
                for graph in attribute.graphs():
                    graph.owner = self

    def attribute(self, name: str, default: object = None) -> object:
        """Return the value of an attribute, or ``default``."""
        found = self.attributes.get(name)
        return default if found is None else found.value

    def int_attribute(self, name: str, default: int) -> int:
        """Return an INT attribute, or ``default``."""
        value = self.attribute(name, default)
        return value if isinstance(value, int) else default

    def float_attribute(self, name: str, default: float) -> float:
        """Return a FLOAT attribute, or ``default``."""
        value = self.attribute(name, default)
        return float(value) if isinstance(value, (int, float)) else default

    def string_attribute(self, name: str, default: str) -> str:
        """Return a STRING attribute, or ``default``."""
        value = self.attribute(name, default)
        return value if isinstance(value, str) else default

    def ints_attribute(self, name: str) -> tuple[int, ...] | None:
        """Return an INTS attribute, or ``None``."""
        value = self.attribute(name)
        return value if isinstance(value, tuple) else None

    def floats_attribute(self, name: str) -> tuple[float, ...]:
        """Return a FLOATS attribute, empty where there is none."""
        value = self.attribute(name)
        return value if isinstance(value, tuple) else ()

    def subgraphs(self) -> tuple[Graph, ...]:
        """Return the graphs nested in the attributes, in attribute order (the fused ``body`` is not one)."""
        found: tuple[Graph, ...] = ()
        if not self.has_graphs:
            return found
        for attribute in self.attributes.values():
            found += attribute.graphs()
        return found

    @property
    def qualified_name(self) -> str:
        """``domain::op_type``, with ``ai.onnx`` for the default domain."""
        return f"{self.domain or 'ai.onnx'}::{self.op_type}"

    def describe(self) -> str:
        """Return the words by which messages speak of this node; one without a name is known by what it computes."""
        output = next(self.present_outputs(), None) if not self.name else None
        return f"node {self.name!r} ({self.qualified_name})" + (f" that computes {output.name!r}" if output else "")

    def _check_editable(self) -> None:
        if self.graph is not None and self.graph.is_frozen:
            raise ValueError(f"{self.describe()} belongs to a frozen graph; clone the model to change it")

    def __repr__(self) -> str:
        inputs = ", ".join("-" if v is None else v.name for v in self._inputs)
        outputs = ", ".join("-" if v is None else v.name for v in self._outputs)
        return f"<{self.qualified_name} {self.name!r}: ({inputs}) -> ({outputs})>"
