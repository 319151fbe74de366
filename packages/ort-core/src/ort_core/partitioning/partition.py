"""Partitions: assigned claims with their border, and control-flow nodes whose bodies are partitioned themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

from ort_core.collecting import paused_collection
from ort_core.errors import KernelNotFoundError, UnknownOperator, UnregisteredOperator
from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import Border, border_of, extract
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.unknown_operator import unknown_operator_hint
from ort_core.ops.signature import node_text
from ort_core.partitioning.assign import AcceptedClaim, Assignment, Exclusions, Restored, assign_by_priority
from ort_core.partitioning.report import NodePlacement, Refusal
from ort_core.partitioning.taken_apart import take_apart
from ort_core.providers.capability import Kinds
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.restored import RestoredPartition


@frozen
class Partition:
    """A set of nodes for one provider, with what crosses its border."""

    name: str
    provider: ExecutionProvider
    nodes: tuple[Node, ...]
    border: Border
    restored: RestoredPartition | None = None
    in_parts: Mapping[Node, Kinds] = field(default_factory=dict)

    def own_graph(self, context: EvaluationContext) -> Graph:
        """Return a copy of the nodes with their border; those that are claimed in their parts are these."""
        graph, _ = extract(self.nodes, self.name, self.border)
        for node, twin in zip(self.nodes, graph.nodes, strict=True) if self.in_parts else ():
            if node in self.in_parts:
                made = take_apart(graph, twin, self.in_parts[node], context, folds=self.provider.folds_parts)
                assert not isinstance(made, Rejection), "it had parts when it was claimed"
        return graph

    @property
    def reads(self) -> tuple[Value, ...]:
        """What a run hands in, in order."""
        if self.restored is None:
            return self.border.inputs
        return tuple(self.nodes[0].present_inputs())[: self.restored.input_count]

    @property
    def writes(self) -> tuple[Value, ...]:
        """What a run gives, in order."""
        return self.border.outputs if self.restored is None else tuple(self.nodes[0].present_outputs())


@frozen
class ControlFlow:
    """A control-flow node that the runtime runs itself, because its bodies hold partitions of other providers."""

    name: str
    node: Node
    bodies: dict[str, PartitionedGraph]


@frozen
class PartitionedGraph:
    """A graph as a list of steps in running order."""

    graph: Graph
    steps: tuple[Partition | ControlFlow, ...]
    placements: tuple[NodePlacement, ...]

    def every_step(self) -> Iterator[Partition | ControlFlow]:
        """Yield the steps, each control-flow node followed by the steps of its bodies."""
        for step in self.steps:
            yield step
            if isinstance(step, ControlFlow):
                for body in step.bodies.values():
                    yield from body.every_step()


CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


@paused_collection()
def partition_graph(
    model: Model,
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    context: EvaluationContext,
    exclusions: Exclusions = MappingProxyType({}),
    prefix: str = "",
    restored: Restored = MappingProxyType({}),
    faults: CompileFaultsState | None = None,
) -> PartitionedGraph:
    """Partition a graph and, where it pays, the bodies of its control-flow nodes.

    A control-flow node goes whole to a provider that claims it; bodies are partitioned on their own when the claiming
    provider is the last resort and priority gives another provider nodes inside. ``restored`` are nodes of ``graph``
    that stand for partitions compiled before. ``faults`` takes what providers raise when they are asked.

    Raises:
        EPFail: a provider raised when it was asked, and ``ORT_STRICT_COMPILATION`` is set.
        KernelNotFoundError: nobody takes a node; the message gives every provider's reason.
    """
    assignment = assign_by_priority(model, graph, providers, context, exclusions, restored, faults)
    if assignment.unassigned:
        raise unplaced(assignment.unassigned[0], assignment.refusals.get(assignment.unassigned[0], ()), context)
    names = _Names(prefix)
    steps: list[Partition | ControlFlow] = []
    placements: list[NodePlacement] = []
    for claim in _split_control_flow(assignment, model, providers, context, exclusions, faults):
        if isinstance(claim, AcceptedClaim):
            name = names.next(claim.provider.name)
            border = border_of(claim.nodes)
            steps.append(
                Partition(name, claim.provider, claim.nodes, border, restored.get(claim.nodes[0]), claim.in_parts)
            )
            placements.extend(
                NodePlacement.of(node, claim.provider.name, name, assignment.refusals.get(node, ()))
                for node in claim.nodes
            )
            continue
        node, provider = claim
        name = names.next("control-flow")
        bodies = {
            attribute.name: partition_graph(
                model, body, providers, context, exclusions, f"{name}/{attribute.name}/", faults=faults
            )
            for attribute in node.attributes.values()
            for body in attribute.graphs()
        }
        steps.append(ControlFlow(name, node, bodies))
        placements.append(NodePlacement.of(node, provider.name, name, assignment.refusals.get(node, ())))
        for body in bodies.values():
            placements.extend(body.placements)
    return PartitionedGraph(graph, tuple(steps), tuple(placements))


def unplaced(node: Node, refusals: Sequence[Refusal], context: EvaluationContext) -> KernelNotFoundError:
    """Return the error for a node that nobody runs."""
    opset = context.opset_of(node)
    reasons = "; ".join(f"{r.provider}: {r.reason}" for r in refusals) or "no provider was asked"
    asked = f"Providers asked: {reasons}."
    if context.kernels.find(node.domain, node.op_type, opset) or context.schemas.find(node.domain, node.op_type, opset):
        types = ", ".join("-" if v is None else str(v.type) if v.type else "?" for v in node.inputs)
        return KernelNotFoundError(
            f"Could not find an implementation for {node.op_type}({opset}) node with name '{node.name}' "
            f"(domain {node.domain or 'ai.onnx'!r}, input types: {types}): {node.qualified_name}({opset}) has no "
            f"provider. {asked}"
        )
    hint = unknown_operator_hint(node.domain, node.op_type, opset, context.kernels)
    if node.domain in ("", "ai.onnx.ml"):
        return UnknownOperator(
            f"This is an invalid model. {node_text(node)} , Error No Op registered for {node.op_type} with "
            f"domain_version of {opset}. {asked}{hint}"
        )
    return UnregisteredOperator(
        f"Fatal error: {node.domain}:{node.op_type}(-1) is not a registered function/op. It is the node "
        f"{node.name!r} ({node.qualified_name}, version {opset} of the domain). {asked}{hint}"
    )


class _Names:
    def __init__(self, prefix: str) -> None:
        self._prefix, self._count = prefix, 0

    def next(self, kind: str) -> str:
        name = f"{self._prefix}{kind.removesuffix('ExecutionProvider').lower()}-{self._count}"
        self._count += 1
        return name


_Step = AcceptedClaim | tuple[Node, ExecutionProvider]


def _split_control_flow(
    assignment: Assignment,
    model: Model,
    providers: Sequence[ExecutionProvider],
    context: EvaluationContext,
    exclusions: Exclusions,
    faults: CompileFaultsState | None,
) -> list[_Step]:
    """Take control-flow nodes out of last-resort claims when priority gives another provider nodes of their bodies."""
    steps: list[_Step] = []
    for claim in assignment.claims:
        if not claim.provider.is_last_resort:
            steps.append(claim)
            continue
        wanted = {
            node for node in claim.nodes
            if node.op_type in CONTROL_FLOW and not node.domain
            and _others_want(node, claim.provider, model, providers, context, exclusions, faults)
        }  # fmt: skip
        if not wanted:
            steps.append(claim)
            continue
        for group in _runs(claim.nodes, wanted):
            steps.append((group[0], claim.provider) if group[0] in wanted else replace(claim, nodes=group))
    return steps


def _runs(nodes: Sequence[Node], single: set[Node]) -> list[tuple[Node, ...]]:
    """Cut a sequence of nodes in topological order so that each node of ``single`` stands alone."""
    runs: list[list[Node]] = []
    for node in nodes:
        if node in single or not runs or runs[-1][0] in single:
            runs.append([node])
        else:
            runs[-1].append(node)
    return [tuple(run) for run in runs]


def _others_want(
    node: Node,
    provider: ExecutionProvider,
    model: Model,
    providers: Sequence[ExecutionProvider],
    context: EvaluationContext,
    exclusions: Exclusions,
    faults: CompileFaultsState | None,
) -> bool:
    if all(other is provider or other.is_last_resort for other in providers):
        return False
    for body in node.subgraphs():
        claims = assign_by_priority(model, body, providers, context, exclusions, faults=faults).claims
        if any(claim.provider is not provider and not claim.provider.is_last_resort for claim in claims):
            return True
        nested = (inner for inner in body if inner.subgraphs())
        if any(_others_want(inner, provider, model, providers, context, exclusions, faults) for inner in nested):
            return True
    return False
