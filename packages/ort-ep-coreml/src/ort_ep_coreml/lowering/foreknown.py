"""Foreknown: values that constants and fixed sizes alone give, computed while it is decided who gets what.

Passes fold most of them before. What is left (Constant nodes and arithmetic on sizes where passes are off, or inside
bodies) goes along with the nodes that read it, and becomes constants of their program.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView, Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.kernels import evaluate_node
from ort_core.plugin.ops import constant_of_node
from ort_ep_coreml.lowering.asked import SMALL_NBYTES, dtype_of, is_static

log = logging.getLogger(__name__)
_OF_SIZES = frozenset({"Shape", "Size"})
_FOLDED = frozenset(
    {
        "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Floor",
        "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg",
        "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
        "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""What sizes, axes and numbers of functions are computed with: each gives the same for the same inputs."""


@dataclass(frozen=True, slots=True)
class Foreknown:
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


def find_foreknown(view: GraphView, refused: Set[Node] = frozenset()) -> Foreknown:
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
    return Foreknown(values, free, bound)


def _orders(value: Value, node: Node, bound: Set[Node]) -> bool:
    """Return whether a node must stay behind what gives one of its inputs."""
    return value.producer in bound or (node.op_type in _OF_SIZES and value.producer is not None)


def _results(view: GraphView, node: Node, values: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray] | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    held = constant_of_node(node)
    if held is not None:
        return {node.output: held.array()}
    if node.op_type in _OF_SIZES:
        return {node.output: _sizes(node)} if is_static(node.input(0)) else None
    if node.op_type not in _FOLDED:
        return None
    inputs = [None if value is None else _array(view, value, values) for value in node.inputs]
    if node.op_type == "CastLike" and dtype_of(node.input(1)) is not None:
        inputs[1] = np.zeros((), dtype_of(node.input(1)).numpy)  # type: ignore[union-attr]  # its type alone is read
    if not inputs or any(array is None for array, value in zip(inputs, node.inputs, strict=True) if value is not None):
        return None
    return _computed(view, node, inputs)


def _array(view: GraphView, value: Value, values: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    if value in values:
        return values[value]
    constant = view.constant(value)
    return None if constant is None or constant.nbytes > SMALL_NBYTES else constant.array()


def _sizes(node: Node) -> np.ndarray:
    shape = np.array(node.inputs[0].shape, np.int64)  # type: ignore[union-attr]  # is_static was asked
    if node.op_type == "Size":
        return np.array(shape.prod(), np.int64)
    start, end, _ = slice(node.int_attribute("start", 0), node.int_attribute("end", shape.size)).indices(shape.size)
    return shape[start:end]


def _computed(view: GraphView, node: Node, inputs: list[np.ndarray | None]) -> dict[Value, np.ndarray] | None:
    if any(not is_static(value) or _elements(value) > SMALL_NBYTES for value in node.present_outputs()):
        return None
    found = evaluate_node(node, inputs, view.context)
    if isinstance(found, Rejection):  # the run will say so, where it is wrong
        log.debug("%s of constants is left to the run: %s", node.op_type, found)
        return None
    pairs = zip(node.outputs, found, strict=False)
    return {value: np.asarray(array) for value, array in pairs if value is not None}


def _elements(value: Value) -> int:
    return int(np.prod([size for size in value.shape or () if isinstance(size, int)], dtype=np.int64))


def attached(
    nodes: Iterable[Node], groups: list[tuple[Node, ...]], known: Foreknown
) -> tuple[list[tuple[Node, ...]], set[Node]]:
    """Return groups with the foreknown nodes that only they read, and those that cannot go along.

    Args:
        nodes: all of the graph, in topological order.
        groups: without the nodes that are free.
        known: what is foreknown.
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
