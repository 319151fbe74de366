"""StaticValues: values that constants and fixed sizes alone give, computed while it is decided who gets what.

Passes fold most of them before. What is left (Constant nodes and arithmetic on sizes where passes are off, or inside
bodies) goes along with the nodes that read it, and becomes constants of their program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView, Rejection
from ort_core.plugin.claims import SHAPE_READERS, SIZE_ARITHMETIC, SMALL_NBYTES, is_static, results_beforehand
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.ops import constant_of_node

_FOLDED = SIZE_ARITHMETIC | {"ConstantOfShape", "Expand", "Tile", "Transpose"}


@dataclass(frozen=True, slots=True)
class StaticValues:
    """What is known before any run.

    Attributes:
        values: arrays by value.
        free: nodes of which they come, that read nothing but constants; they may go along with any group.
        bound: nodes that read sizes of computed values, whose order among the others must be kept.
    """

    values: Mapping[Value, np.ndarray] = field(default_factory=dict)
    free: Set[Node] = frozenset()
    bound: Set[Node] = frozenset()

    def __contains__(self, node: Node) -> bool:
        return node in self.free or node in self.bound


def find_static_values(view: GraphView, refused: Set[Node] = frozenset()) -> StaticValues:
    """Return what is known of the nodes on offer.

    Args:
        view: the graph.
        refused: nodes that go along with nobody: their results come from outside.
    """
    values: dict[Value, np.ndarray] = {}
    free: set[Node] = set()
    bound: set[Node] = set()
    for node in view.nodes:
        found = None if node in refused else _results(view, node, values)
        if found is None:
            continue
        values.update(found)
        is_bound = any(_orders(value, node, bound) for value in node.present_inputs())
        (bound if is_bound else free).add(node)
    return StaticValues(values, free, bound)


def _orders(value: Value, node: Node, bound: Set[Node]) -> bool:
    """Return whether a node must stay behind what gives one of its inputs."""
    return value.producer in bound or (node.op_type in SHAPE_READERS and value.producer is not None)


def _results(view: GraphView, node: Node, values: Mapping[Value, np.ndarray]) -> Mapping[Value, np.ndarray] | None:
    held = constant_of_node(node)
    if held is not None:
        return {node.output: held.array()}
    if any(not is_static(value) or _elements(value) > SMALL_NBYTES for value in node.present_outputs()):
        return None

    def content(value: Value) -> np.ndarray | None:
        constant = view.constant(value)
        is_small = constant is not None and constant.nbytes <= SMALL_NBYTES
        return constant.array() if value not in values and constant is not None and is_small else values.get(value)

    found = results_beforehand(node, view.context, content, _sizes, _FOLDED) if node.inputs else None
    return None if isinstance(found, Rejection) else found


def _sizes(value: Value) -> tuple[int, ...] | None:
    return tuple(size for size in value.shape or () if isinstance(size, int)) if is_static(value) else None


def _elements(value: Value) -> int:
    return int(np.prod([size for size in value.shape or () if isinstance(size, int)], dtype=np.int64))


def attached(
    nodes: Iterable[Node], groups: list[tuple[Node, ...]], known: StaticValues
) -> tuple[list[tuple[Node, ...]], set[Node]]:
    """Return groups with the nodes whose results are known that only they read, and those that cannot go along.

    Args:
        nodes: all of the graph, in topological order.
        groups: without the nodes that are free.
        known: what is known before a run.
    """
    order = {node: place for place, node in enumerate(nodes)}
    group_of = {node: index for index, group in enumerate(groups) for node in group}
    alone: set[Node] = set()
    for node in sorted((*known.free, *known.bound), key=order.__getitem__, reverse=True):
        values = tuple(node.present_outputs())
        readers = {group_of.get(reader, -1) for value in values for reader in value.consumers()}
        if node in known.bound:
            readers.add(group_of.get(node, -1))
        if not readers and groups:
            readers = {0}  # nobody reads it
        is_given = node.graph is not None and any(value in node.graph.outputs for value in values)
        if is_given or len(readers) != 1 or -1 in readers:
            alone.add(node)
        else:
            group_of[node] = readers.pop()
    whole: list[list[Node]] = [[] for _ in groups]
    for node in order:
        if node in group_of:
            whole[group_of[node]].append(node)
    return [tuple(group) for group in whole], alone
