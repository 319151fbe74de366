"""PlacementReport: for each node its provider, and every provider's reason for leaving it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.providers.execution import NodeExecution

if TYPE_CHECKING:
    from ort_core.passes.near_misses import NearMiss


@frozen
class Refusal:
    """One provider's reason for not taking a node; ``is_fault`` when it is a broken promise, not a decision."""

    provider: str
    reason: str
    is_fault: bool = False


@frozen
class NodePlacement:
    """Where one node runs, and, where its provider tells it, how.

    ``path`` names the control-flow bodies around it, outermost first. ``execution`` is of the node of the provider that
    took this one in: of itself, or of what it was fused into.
    """

    name: str
    op_type: str
    domain: str
    provider: str
    partition: str
    refusals: tuple[Refusal, ...] = ()
    path: tuple[str, ...] = ()
    execution: NodeExecution | None = None

    @classmethod
    def of(cls, node: Node, provider: str, partition: str, refusals: tuple[Refusal, ...]) -> NodePlacement:
        """Describe a node's placement."""
        path = []
        graph = node.graph
        while graph is not None and graph.owner is not None:
            path.append(graph.owner.name or graph.owner.op_type)
            graph = graph.owner.graph
        return cls(node.name, node.op_type, node.domain, provider, partition, refusals, tuple(reversed(path)))


@frozen
class PlacementReport:
    """The placement of a whole model.

    ``providers`` are those asked for, in order; ``unavailable`` are those that were asked for and cannot run, with
    the reason; ``fallbacks`` say in a sentence each what was run elsewhere than asked. ``is_optimized_model_cached``:
    the optimized model was not made for this session but found in the cache. ``measurements`` say what the policy
    ``measured`` found, a sentence each. ``is_foreseen``: nothing was compiled, and the ``unavailable`` providers were
    asked what they would run all the same; they stand among ``providers``. ``inner`` are the nodes of bodies that a
    provider took together with their control-flow node, where it tells how they run. ``notes`` say what loading made
    of the file. ``near_misses`` are the fusions that nearly fired; ``None`` where nobody asked.
    """

    nodes: tuple[NodePlacement, ...]
    providers: tuple[str, ...]
    unavailable: tuple[tuple[str, str], ...] = ()
    fallbacks: tuple[str, ...] = ()
    is_optimized_model_cached: bool = False
    measurements: tuple[str, ...] = ()
    is_foreseen: bool = False
    inner: tuple[NodePlacement, ...] = ()
    notes: tuple[str, ...] = ()
    near_misses: tuple[NearMiss, ...] | None = None

    def counts(self) -> dict[str, int]:
        """Return the number of nodes by provider."""
        return dict(Counter(node.provider for node in self.nodes))

    def partitions(self) -> dict[str, tuple[NodePlacement, ...]]:
        """Return the nodes by partition name."""
        found: dict[str, list[NodePlacement]] = {}
        for node in self.nodes:
            found.setdefault(node.partition, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def on(self, provider: str) -> tuple[NodePlacement, ...]:
        """Return the nodes that a provider runs."""
        return tuple(node for node in self.nodes if node.provider == provider)

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {
            "providers": list(self.providers),
            "unavailable": dict(self.unavailable),
            "fallbacks": list(self.fallbacks),
            "is_optimized_model_cached": self.is_optimized_model_cached,
            "is_foreseen": self.is_foreseen,
            "measurements": list(self.measurements),
            "notes": list(self.notes),
            "counts": self.counts(),
            "executions": {name: dict(counts) for name, counts in self.executions().items()},
            "nodes": [_as_dict(each) for each in self.nodes],
            "inner": [_as_dict(each) for each in self.inner],
            "near_misses": None if self.near_misses is None else [asdict(each) for each in self.near_misses],
        }

    def executions(self) -> dict[str, Counter[str]]:
        """Return by provider how many nodes run in which way, bodies included; of those that tell."""
        found: dict[str, Counter[str]] = {}
        for node in (*self.nodes, *self.inner):
            if node.execution is not None:
                found.setdefault(node.provider, Counter())[node.execution.how] += 1
        return found

    def reasons(self) -> Counter[tuple[str, str, str]]:
        """Count the nodes that run in a plainer way than their provider has, by (how, operator, reason)."""
        found: Counter[tuple[str, str, str]] = Counter()
        for node in (*self.nodes, *self.inner):
            told = node.execution
            if told is not None and told.is_plain:
                part_of = "" if node.op_type == told.op_type else f", part of {told.op_type}"
                found[told.how, f"{node.op_type}{part_of}", told.reason] += 1
        return found

    def __str__(self) -> str:
        origin = ", optimized model from the cache" if self.is_optimized_model_cached else ""
        what = "Placement as it would be" if self.is_foreseen else "Placement"
        lines = [f"{what}: {_nodes_text(len(self.nodes))} on {', '.join(self.providers)}{origin}"]
        lines.extend(f"  not available: {name}: {reason}" for name, reason in self.unavailable)
        for name, nodes in self.partitions().items():
            operators = Counter(node.op_type for node in nodes)
            listed = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in operators.most_common(8))
            more = f", and {len(operators) - 8} more" if len(operators) > 8 else ""
            lines.append(f"  {name}: {_nodes_text(len(nodes))} on {nodes[0].provider}: {listed}{more}")
        for name, ways in self.executions().items():
            lines.append(f"  on {name}: {', '.join(f'{count} {how}' for how, count in ways.most_common())}")
        for (how, op_type, reason), count in self.reasons().most_common():
            lines.append(f"    {how}: {op_type} x{count}: {reason}")
        lines.extend(self._near_miss_lines())
        reasons: Counter[tuple[str, str, str]] = Counter()
        for node in self.nodes:
            reasons.update((r.provider, node.op_type, r.reason) for r in node.refusals)
        if reasons:
            lines.append("  left by a provider with higher priority:")
            for (provider, op_type, reason), count in reasons.most_common():
                lines.append(f"    {provider} left {op_type} x{count}: {reason}")
        lines.extend(f"  {text}" for text in (*self.measurements, *self.notes))
        lines.extend(f"  fallback: {text}" for text in self.fallbacks)
        return "\n".join(lines)

    def _near_miss_lines(self) -> list[str]:
        if self.near_misses is None:
            return []
        from ort_core.passes.near_misses import counted  # only who asks for fusions needs it

        lines = [
            f"    {each.rule} x{count}, first at {each.node}: {each.reason}"
            for each, count in counted(self.near_misses)
        ]
        return ["  fusions that nearly fired:", *lines] if lines else ["  no fusion nearly fired"]


def _as_dict(node: NodePlacement) -> dict[str, object]:
    told = node.execution
    execution = None if told is None else {"how": told.how, "step": told.step, "reason": told.reason}
    if told is not None and node.op_type != told.op_type:
        execution = {**(execution or {}), "part_of": told.op_type}
    return {
        "name": node.name, "op_type": node.op_type, "domain": node.domain, "provider": node.provider,
        "partition": node.partition, "path": list(node.path),
        "refusals": {refusal.provider: refusal.reason for refusal in node.refusals}, "execution": execution,
    }  # fmt: skip


def _nodes_text(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
