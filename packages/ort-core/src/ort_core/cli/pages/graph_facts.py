"""A placed model as plain data for a picture: nodes with their provider and reasons, edges with types, groups.

Groups are the bodies of control-flow nodes, and blocks: stretches of the graph whose operators repeat, as the layers
of a transformer do. A block is found in the order of the nodes, so that it needs no names of scopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ort_core.ir.attributes import Attribute
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.printer import format_type
from ort_core.ir.values import Value
from ort_core.partitioning.report import NodePlacement, PlacementReport

MAX_ATTRIBUTE = 120  # characters of an attribute's text; tables of trees and vocabularies go on for megabytes
MIN_BLOCK = 4  # nodes: repeats of fewer are easier to read as they are
MIN_REPEATS = 2
_FEW = 12
Facts = dict[str, Any]  # Any: plain data for JSON


@dataclass(frozen=True, slots=True)
class Repeat:
    """Equal stretches of a sequence: ``count`` of ``period`` items each, from ``start``."""

    start: int
    period: int
    count: int

    @property
    def length(self) -> int:
        """How many items there are in all."""
        return self.period * self.count


def find_repeats(items: Sequence[str]) -> list[Repeat]:
    """Return stretches that repeat one behind the other, disjoint and in order.

    The stretch that covers most is taken first (the shortest period of those that cover as much), then the same is
    done on either side of it. Takes O(n^2) comparisons of a sequence of n.
    """
    best = _longest(items)
    if best is None:
        return []
    behind = best.start + best.length
    rest = [Repeat(behind + r.start, r.period, r.count) for r in find_repeats(items[behind:])]
    return [*find_repeats(items[: best.start]), best, *rest]


def _longest(items: Sequence[str]) -> Repeat | None:
    best: Repeat | None = None
    for period in range(MIN_BLOCK, len(items) // MIN_REPEATS + 1):
        run = 0
        for index in range(len(items) - period + 1):
            if index + period < len(items) and items[index] == items[index + period]:
                run += 1
                continue
            count = run // period + 1
            if count >= MIN_REPEATS:
                found = Repeat(index - run, period, count)
                if best is None or found.length > best.length:
                    best = found
            run = 0
    return best


def attribute_text(attribute: Attribute) -> str:
    """Return ``name = value`` in a line; of long values the beginning and how many there are."""
    value = attribute.value
    if attribute.reference is not None:
        return f"{attribute.name} = @{attribute.reference}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(_value_text(each) for each in value[:_FEW])
        rest = f", … {len(value)} in all" if len(value) > _FEW else ""
        return _cut(f"{attribute.name} = [{shown}{rest}]")
    return _cut(f"{attribute.name} = {_value_text(value)}")


def _value_text(value: object) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "replace"))
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value) if isinstance(value, str) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ATTRIBUTE else text[: MAX_ATTRIBUTE - 1] + "…"


def graph_facts(graph: Graph, report: PlacementReport, times_ms: Mapping[str, float] | None = None) -> Facts:
    """Return what a picture of a placed graph shows.

    Args:
        graph: the model's graph, as it was placed.
        report: its placement.
        times_ms: milliseconds of regions by name, as profiles name them: ``a+b`` is the region of nodes a and b.
    """
    return _Builder(report, times_ms or {}).build(graph)


class _Builder:
    def __init__(self, report: PlacementReport, times_ms: Mapping[str, float]) -> None:
        self._placements: dict[tuple[tuple[str, ...], str, str], list[NodePlacement]] = {}
        for placement in (*report.nodes, *report.inner):
            self._placements.setdefault((placement.path, placement.name, placement.op_type), []).append(placement)
        self._report = report
        self._regions = {name: (region, ms) for region, ms in times_ms.items() for name in region.split("+")}
        self.nodes: list[Facts] = []
        self.edges: list[list[Any]] = []  # Any: from, to, label
        self.groups: list[Facts] = []
        self._made: dict[Value, int] = {}
        self._waiting: list[tuple[Value, int]] = []

    def build(self, graph: Graph) -> Facts:
        for value in graph.inputs:
            if value.constant is None:
                self._made[value] = self._border("input", value)
        self._graph(graph, None, ())
        for value in graph.outputs:
            self._read(value, self._border("output", value))
        for value, reader in self._waiting:
            if value in self._made:
                self.edges.append([self._made[value], reader, f"{value.name}  {format_type(value.type)}"])
        return {
            "nodes": self.nodes, "edges": self.edges, "groups": self.groups,
            "providers": list(dict.fromkeys(n["provider"] for n in self.nodes if n["provider"])),
            "unavailable": [list(each) for each in self._report.unavailable],
            "fallbacks": [*self._report.notes, *self._report.fallbacks],
            "foreseen": self._report.is_foreseen,
            "ways": {name: dict(ways) for name, ways in self._report.executions().items()},
        }  # fmt: skip

    def _border(self, kind: str, value: Value) -> int:
        self.nodes.append(
            {"name": value.name, "op": kind, "kind": kind, "provider": "", "partition": "", "group": None,
             "types": [format_type(value.type)], "reasons": [], "weights": [], "attributes": [], "ms": None,
             "region": None, "how": "", "step": "", "why": "", "plain": False}
        )  # fmt: skip
        return len(self.nodes) - 1

    def _read(self, value: Value, reader: int) -> None:
        self._waiting.append((value, reader))

    def _graph(self, graph: Graph, group: int | None, path: tuple[str, ...], owner: Facts | None = None) -> None:
        nodes = list(graph)
        block_of: dict[int, int] = {}
        for repeat in find_repeats([f"{node.qualified_name}/{len(node.inputs)}" for node in nodes]):
            for number in range(repeat.count):
                start = repeat.start + number * repeat.period
                label = f"block {number + 1} of {repeat.count}"
                made = self._group(label, group, repeat.period, f"{repeat.start}/{repeat.period}")
                block_of.update(dict.fromkeys(range(start, start + repeat.period), made))
        for index, node in enumerate(nodes):
            self._node(node, block_of.get(index, group), path, owner)

    def _group(self, label: str, parent: int | None, count: int, alike: str = "") -> int:
        self.groups.append({"label": label, "parent": parent, "count": count, "alike": alike})
        return len(self.groups) - 1

    def _node(self, node: Node, group: int | None, path: tuple[str, ...], owner: Facts | None) -> None:
        placement = self._placement(node, path)
        whole = owner or {"provider": "", "partition": ""}  # a node that was claimed with its body
        region = self._regions.get(node.name)
        index = len(self.nodes)
        weights = [v for v in node.present_inputs() if v.constant is not None]
        told = None if placement is None else placement.execution
        self.nodes.append(
            {
                "name": node.name, "op": node.qualified_name if node.domain else node.op_type, "kind": "node",
                "provider": placement.provider if placement else whole["provider"], "group": group,
                "partition": placement.partition if placement else whole["partition"],
                "types": [format_type(v.type) for v in node.present_outputs()],
                "reasons": [[r.provider, r.reason] for r in placement.refusals] if placement else [],
                "weights": [f"{v.name}  {format_type(v.type)}" for v in weights],
                "attributes": [attribute_text(each) for each in node.attributes.values() if not each.graphs()],
                "how": told.how if told else "", "step": told.step if told else "", "why": told.reason if told else "",
                "plain": bool(told and told.is_plain),
                "ms": region[1] if region else None, "region": region[0] if region and "+" in region[0] else None,
            }
        )  # fmt: skip
        for value in node.present_inputs():
            if value.constant is None:
                self._read(value, index)
        for attribute, body in _bodies(node):
            inner = self._group(f"{node.op_type} {attribute}", group, len(body))
            for value in body.inputs:
                self._made[value] = index
            self._graph(body, inner, (*path, node.name or node.op_type), self.nodes[index])
            for value in body.outputs:
                if value in self._made and self._made[value] != index:
                    self.edges.append([self._made[value], index, f"{value.name}  {format_type(value.type)}", 1])
        for value in node.present_outputs():
            self._made[value] = index

    def _placement(self, node: Node, path: tuple[str, ...]) -> NodePlacement | None:
        found = self._placements.get((path, node.name, node.op_type))
        if not found:
            return None
        return found.pop(0) if len(found) > 1 else found[0]


def _bodies(node: Node) -> list[tuple[str, Graph]]:
    return [(a.name, body) for a in node.attributes.values() for body in _graphs(a.value)]


def _graphs(value: object) -> list[Graph]:
    if isinstance(value, Graph):
        return [value]
    return [each for each in value if isinstance(each, Graph)] if isinstance(value, (tuple, list)) else []
