"""How each placed node runs: what compiled partitions tell of their own graphs, told of the model's nodes.

A provider's fusions stand between the two. A node is found by the names of its outputs; one that was fused away belongs
to the node that carries it inside, else to the node that reads its result.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_core.interruptions import raise_interruption
from ort_core.ir.traversal import walk
from ort_core.partitioning.partition import ControlFlow, Partition
from ort_core.partitioning.report import NodePlacement, PlacementReport
from ort_core.providers.execution import NodeExecution, body_path, output_names
from ort_core.runtime.control_flow import ControlFlowStep
from ort_core.runtime.plan import PartitionStep

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node
    from ort_core.partitioning.partition import PartitionedGraph
    from ort_core.runtime.plan import ExecutionPlan
    from ort_core.stages.planning import PreparedModel

log = logging.getLogger(__name__)
REMOVED = "removed"
_Place = tuple[tuple[str, ...], str]  # the bodies around a value, and its name


def explain_executions(prepared: PreparedModel) -> PlacementReport:
    """Return the report of a prepared model with how each node runs, as far as providers tell."""
    if prepared.partitioned is None:
        return prepared.report
    own: dict[_Place, NodeExecution] = {}
    inner: list[NodePlacement] = []
    for part, step in compiled_partitions(prepared.partitioned, prepared.plan):
        executions = _told_by(step)
        if not executions:
            continue
        if part.restored is not None:
            own[_place_of(part.nodes[0])] = _summary(executions)
            inner.extend(_placed(each, part) for each in executions)
            continue
        found = _Executions(executions, body_path(part.nodes[0].graph))
        for node in part.nodes:
            own[_place_of(node)] = found.of(node)
            for body in node.subgraphs():
                inner.extend(_inner(each, part, found) for each in walk(body))
    return replace(prepared.report, nodes=tuple(_told(prepared, own)), inner=tuple(inner))


def _told_by(step: PartitionStep) -> Sequence[NodeExecution]:
    """Return what a partition tells of its nodes; nothing, and a line in the log, where it fails to tell."""
    try:
        return step.compiled.executions()
    except Exception as error:  # noqa: BLE001 - the border to plugins
        raise_interruption(error)
        log.warning(
            "%s failed to tell how partition %r runs: %s: %s", step.provider, step.name, type(error).__name__, error
        )
        return ()


def compiled_partitions(
    partitioned: PartitionedGraph, plan: ExecutionPlan
) -> Iterator[tuple[Partition, PartitionStep]]:
    """Yield the partitions of a plan as they were placed and as they run, those of bodies included."""
    for part, planned in zip(partitioned.steps, plan.steps, strict=True):
        if isinstance(part, Partition) and isinstance(planned.step, PartitionStep):
            yield part, planned.step
        elif isinstance(part, ControlFlow) and isinstance(planned.step, ControlFlowStep):
            for name, body in part.bodies.items():
                yield from compiled_partitions(body, planned.step.bodies[name])


class _Executions:
    """How the nodes of one partition run, found for nodes of the model.

    Args:
        executions: what the partition tells.
        around: the bodies that the partition itself lies in.
    """

    def __init__(self, executions: Sequence[NodeExecution], around: tuple[str, ...]) -> None:
        self._by_value: dict[_Place, NodeExecution] = {}
        for each in executions:
            self._by_value.update({((*around, *each.path), name): each for name in each.outputs})
        for each in executions:
            for name in each.replaces:
                self._by_value.setdefault(((*around, *each.path), name), each)

    def of(self, node: Node) -> NodeExecution:
        """Return how a node runs, or what it is part of."""
        path, waiting, seen = body_path(node.graph), [node], {node}
        for each in waiting:  # grows
            found = [self._by_value[path, name] for name in output_names(each) if (path, name) in self._by_value]
            if found:
                return found[0]
            readers = [reader for value in each.present_outputs() for reader in value.consumers()]
            waiting.extend(r for r in dict.fromkeys(readers) if r.graph is node.graph and r not in seen)
            seen.update(readers)
        return NodeExecution.of(node, REMOVED, reason="the provider's passes left nothing of it", path=path)


def _told(prepared: PreparedModel, own: Mapping[_Place, NodeExecution]) -> Iterator[NodePlacement]:
    """Return the placements with their executions; they stand in the order in which partitions were made."""
    assert prepared.partitioned is not None
    for placement, node in zip(prepared.report.nodes, _nodes(prepared.partitioned), strict=True):
        yield replace(placement, execution=own.get(_place_of(node)))


def _nodes(partitioned: PartitionedGraph) -> Iterator[Node]:
    for part in partitioned.every_step():
        yield from part.nodes if isinstance(part, Partition) else (part.node,)


def _place_of(node: Node) -> _Place:
    return body_path(node.graph), next(iter(output_names(node)), node.name)


def _inner(node: Node, part: Partition, found: _Executions) -> NodePlacement:
    return replace(NodePlacement.of(node, part.provider.name, part.name, ()), execution=found.of(node))


def _placed(execution: NodeExecution, part: Partition) -> NodePlacement:
    owner = part.nodes[0]
    return NodePlacement(
        execution.name, execution.op_type, execution.domain, part.provider.name, part.name,
        path=(owner.name or owner.op_type, *execution.path), execution=execution,
    )  # fmt: skip


def _summary(executions: Sequence[NodeExecution]) -> NodeExecution:
    """Return how a partition runs that stands in the model as one node."""
    counts = Counter(each.how for each in executions)
    how = next(iter(counts)) if len(counts) == 1 else "mixed"
    text = ", ".join(f"{count} nodes {each}" for each, count in counts.items())
    return NodeExecution("", "EPContext", "com.microsoft", (), how, f"compiled ahead: {text}")
