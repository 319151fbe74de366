"""StaticValues: values that constants and fixed sizes alone give, computed while it is decided who gets what.

Passes fold most of them before. What is left (Constant nodes and arithmetic on sizes where passes are off, or inside
bodies) goes along with the nodes that read it, and becomes constants of their program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ort_core.plugin import GraphView, Rejection
from ort_core.plugin.claims import SHAPE_READERS, SIZE_ARITHMETIC, SMALL_NBYTES, is_static, results_beforehand
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.ops import constant_of_node

_OPEN = -1  # stands for a size that is open where sizes are only moved: no size is negative
_MOVING = frozenset({"Concat", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"})
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
    partly: dict[Value, np.ndarray] = {}
    for node in view.nodes:
        found = None if node in refused else _results(view, node, values) or _chosen_sizes(view, node, values, partly)
        if found is None:
            continue
        values.update(found)
        is_bound = any(value in partly or _orders(value, node, bound) for value in node.present_inputs())
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

    if not node.inputs:
        return None
    found = results_beforehand(node, view.context, partial(_content, view, values), _sizes, _FOLDED)
    return None if isinstance(found, Rejection) else found


def _content(view: GraphView, values: Mapping[Value, np.ndarray], value: Value) -> np.ndarray | None:
    constant = view.constant(value)
    is_small = constant is not None and constant.nbytes <= SMALL_NBYTES
    return constant.array() if value not in values and constant is not None and is_small else values.get(value)


def _chosen_sizes(
    view: GraphView, node: Node, values: Mapping[Value, np.ndarray], partly: dict[Value, np.ndarray]
) -> Mapping[Value, np.ndarray] | None:
    """Return the sizes that a node takes out of a shape of which others are open; ``partly`` notes what it hands on."""
    if any(not is_static(value) for value in node.present_outputs()):
        return None
    if node.op_type == "Shape" and not node.domain:
        return _told_apart({node.output: _shape(node)}, partly)
    if not any(value in partly for value in node.present_inputs()):
        return None
    known = {**values, **{value: partly[value] for value in node.present_inputs() if value in partly}}
    found = results_beforehand(node, view.context, partial(_content, view, known), _sizes, _MOVING)
    return None if isinstance(found, Rejection) else _told_apart(found, partly)


def _shape(node: Node) -> np.ndarray:
    source = node.input(0)
    sizes = () if source is None or source.shape is None else source.shape
    first, last = node.int_attribute("start", 0), node.int_attribute("end", len(sizes))
    return np.array([size if isinstance(size, int) else _OPEN for size in sizes[first:last]], np.int64)


def _told_apart(
    found: Mapping[Value, np.ndarray], partly: dict[Value, np.ndarray]
) -> Mapping[Value, np.ndarray] | None:
    if not any((array == _OPEN).any() for array in found.values()):
        return found
    partly.update(found)
    return None


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
