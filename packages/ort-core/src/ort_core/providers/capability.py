"""Claims: what a provider offers to run, over a read-only view of the graph that answers what it needs to know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ort_core.errors import InvalidArgument
from ort_core.ir.model import Model
from ort_core.ir.subgraph import extract
from ort_core.ir.traversal import walk

if TYPE_CHECKING:
    from ort_core.ir.constants import Constant
    from ort_core.ir.graph import Graph
    from ort_core.ir.nodes import Node
    from ort_core.ir.rejection import Rejection
    from ort_core.ir.values import Value
    from ort_core.kernels.evaluation_context import EvaluationContext

Kinds = frozenset[tuple[str, str]]
"""Operators: domains and names."""
WEIGHTS = ("inline", "inputs", "external")  # where constants go in a model for an SDK
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True, slots=True)
class Claim:
    """A convex set of nodes of one graph that a provider offers to compile and run as one partition.

    ``name`` is for reports. ``in_parts`` are nodes that are compiled as the operators that they are made of, each with
    the operators among these that are taken apart, too: the core sets it, for providers that take all of a composite's
    parts and not the composite.
    """

    nodes: tuple[Node, ...]
    name: str = ""
    in_parts: Mapping[Node, Kinds] = field(default_factory=dict)


Capability = list["Claim | Rejection"]


@dataclass(frozen=True, slots=True)
class GraphView:
    """One graph (the main one or a body) as a provider sees it while it decides what to claim.

    ``nodes`` are those that nobody with a higher priority has taken, in topological order. Nothing here may be changed:
    the graph is frozen.
    """

    model: Model
    graph: Graph
    nodes: tuple[Node, ...]
    context: EvaluationContext
    ranges: Callable[[Value], tuple[int, int] | None] = field(default=lambda value: None)

    def opset(self, node: Node) -> int:
        """Return the version of the node's domain that applies to it."""
        return self.context.opset_of(node)

    def constant(self, value: Value | None) -> Constant | None:
        """Return the constant of an initializer that no caller may override, or ``None``."""
        return None if value is None or value.graph is None else value.graph.fixed_constant(value)

    def value_range(self, value: Value) -> tuple[int, int] | None:
        """Return bounds (inclusive) of the elements of an integer value, or ``None`` when nothing is proven."""
        return self.ranges(value)

    def units(self) -> tuple[tuple[Node, ...], ...]:
        """Return groups that should be claimed whole: DequantizeLinear -> operator -> QuantizeLinear, or one node."""
        offered = set(self.nodes)
        grouped: set[Node] = set()
        units: list[tuple[Node, ...]] = []
        for node in self.nodes:
            if node.op_type in (QUANTIZE, DEQUANTIZE) or node in grouped:
                continue
            before = [v.producer for v in node.present_inputs() if v.producer in offered and v.use_count == 1]
            quantized = [n for n in before if n is not None and n.op_type == DEQUANTIZE and n not in grouped]
            after = [n for v in node.present_outputs() for n in v.consumers() if n in offered and n.op_type == QUANTIZE]
            unit = (*quantized, node, *after) if quantized else (node,)
            grouped.update(unit)
            units.append(unit)
        units.extend((node,) for node in self.nodes if node not in grouped)
        return tuple(units)

    def to_onnx(
        self,
        nodes: Iterable[Node],
        *,
        weights: str = "inline",
        weight_names: Collection[str] | None = None,
        legalize: Callable[[Graph], None] | None = None,
    ) -> bytes:
        """Return the nodes as a serialized ONNX model of their own, for SDKs that read ONNX.

        Args:
            nodes: nodes of this graph.
            weights: ``"inline"`` keeps constants inside, ``"inputs"`` makes them inputs of the model, behind its own,
                ``"external"`` leaves their data out, for readers that are handed their memory by name.
            weight_names: with ``"inputs"`` and ``"external"``, the constants that are meant; all by default.
            legalize: changes the copy of the nodes before it is written, into forms that the SDK takes; the graph's
                inputs and outputs must stay.
        """
        graph, _ = extract(nodes)
        return write_onnx(self.model, graph, weights, weight_names, legalize)


def write_onnx(
    model: Model,
    graph: Graph,
    weights: str = "inline",
    weight_names: Collection[str] | None = None,
    legalize: Callable[[Graph], None] | None = None,
) -> bytes:
    """Return a copied part of a model as a serialized model of its own, as ``GraphView.to_onnx`` says; changes it.

    Raises:
        InvalidArgument: ``weights`` is not one of the three words.
    """
    from ort_core.onnx_io.save import model_to_bytes  # the serializer is only loaded by providers that need it

    if weights not in WEIGHTS:
        raise InvalidArgument(f"weights={weights!r}: expected one of {', '.join(map(repr, WEIGHTS))}")
    if weights == "inputs":
        _make_inputs(graph, weight_names)
    part = Model(graph, _imports_of(model, graph), dict(model.functions), model.ir_version, "ort-core")
    if legalize is not None:
        legalize(graph)
    if weights != "external":
        return model_to_bytes(part)
    names = {v.name for v in graph.initializers if weight_names is None or v.name in weight_names}
    return model_to_bytes(part, referenced=names)


def _make_inputs(graph: Graph, names: Collection[str] | None) -> None:
    for value in graph.initializers:
        if not value.is_graph_input and (names is None or value.name in names):
            graph.remove_initializer(value)
            graph.add_input(value)


def _imports_of(model: Model, graph: Graph) -> dict[str, int]:
    """Return the versions of the domains that a graph of a model uses.

    A compiled model imports one more than the model that it was compiled from: its partitions are the same.
    """
    if model.functions:
        return dict(model.opset_imports)
    used = {"", "ai.onnx", *(node.domain for node in walk(graph))}
    return {domain: version for domain, version in model.opset_imports.items() if domain in used}
