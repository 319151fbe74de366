"""Index limits: DirectML does not look whether indices lie within their axis, so somebody else must.

Constants are looked at when a plan is made, inputs of a claim before each run: what lies beyond is left to numpy
kernels, which also have the words for it. Indices that are computed inside of a claim must be proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_directml.lowering.lowering_context import LoweringContext
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.shape_numbers import learn_behind
from ort_ep_directml.lowering.sizes import sampled_sizes

Sizes = tuple[int, ...]
_PLACES: Mapping[str, int] = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "Scatter": 1, "ScatterElements": 1, "ScatterND": 1, "RoiAlign": 2,
    "RotaryEmbedding": 3, "NegativeLogLikelihoodLoss": 1, "SoftmaxCrossEntropyLoss": 1, "GroupQueryAttention": 5,
}  # fmt: skip
"""Which input holds indices."""
_FROM_THE_FRONT = frozenset(
    {"RoiAlign", "RotaryEmbedding", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "GroupQueryAttention"}
)
"""Operators whose indices do not count from the end where they are negative."""
_MOST_BEFORE = 16  # nodes; a mask is summed, moved by one and converted
_HANDED_ON = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Cast"})
"""Operators whose results hold the elements of their first input, and no others."""


@dataclass(frozen=True, slots=True)
class IndexLimit:
    """What indices must lie within.

    Attributes:
        index: which input of the claim holds them.
        name: its name.
        sizes: of the axes that they count along: one, or one for each element of the last dimension.
        is_counted_back: whether negative ones count from the end.
        ignored: a number that means no place at all, where there is one.
    """

    index: int
    name: str
    sizes: Sizes
    is_counted_back: bool
    ignored: int | None = None

    def broken_by(self, array: np.ndarray) -> str | None:
        """Return how an array goes beyond, or ``None``."""
        ends = np.array(self.sizes, np.int64)
        lowest = -ends if self.is_counted_back else np.zeros_like(ends)
        if np.all((array >= lowest) & (array < ends) | (False if self.ignored is None else array == self.ignored)):
            return None
        return f"indices {self.name!r} lie outside of axes of {list(self.sizes)}, and DirectML does not look"


def unproven(view: GraphView, node: Node, claimed: AbstractSet[Node]) -> str | None:
    """Return why a node's indices may be computed inside of a claim, unlooked at, or ``None``.

    Args:
        view: the graph.
        node: any node.
        claimed: the nodes before it that are claimed so far.
    """
    indices = _indices(node)
    if indices is None:
        return None
    root = _root(indices)
    if root.producer is None or root.producer not in claimed:
        return None
    given = _counted(node)
    sizes = [size for size in given.shape or () if isinstance(size, int)] if given is not None else []
    context = LoweringContext(view, 0)
    learn_behind(context, node, sampled_sizes)
    if indices in context.numbers:
        return None  # they are looked at when a plan is made
    bounds = LoweringContext(view, 0).interval(root) or LoweringContext(view, 0).interval(indices)
    if bounds is not None and given is not None and given.shape is not None and len(sizes) == len(given.shape):
        ends = _axes(node, tuple(sizes), indices)
        if -min(ends) * _is_counted_back(node) <= bounds[0] and bounds[1] < min(ends):
            return None
    return (
        f"indices {indices.name!r} would be computed on the device, where nobody looks whether they lie within the axis"
    )


def computed_before(view: GraphView, node: Node, claimed: AbstractSet[Node]) -> list[Node]:
    """Return the claimed nodes that compute a node's lengths from whole numbers of inputs; empty where others do, too.

    They are few and small. Left to the processor, they are done before the claim runs, and what they give is looked at.
    """
    indices = _indices(node) if node.op_type == "GroupQueryAttention" else None
    found: dict[Node, None] = {}
    waiting = [] if indices is None or indices.producer is None else [indices.producer]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        if each.graph is not view.graph or len(found) >= _MOST_BEFORE or not all(map(_is_whole, each.present_inputs())):
            return []
        found[each] = None
        waiting += [value.producer for value in each.present_inputs() if value.producer is not None]
    return [each for each in found if each in claimed]


def _is_whole(value: Value) -> bool:
    dtype = dtype_of(value)
    return dtype is not None and (dtype.is_integer or dtype is DataType.BOOL)


def index_limits(
    view: GraphView, nodes: Sequence[Node], inputs: Sequence[Value], known: Mapping[Value, Sizes]
) -> tuple[IndexLimit, ...]:
    """Return what inputs of a claim must lie within.

    Args:
        view: the graph.
        nodes: of the claim.
        inputs: of the claim.
        known: sizes of values.

    Raises:
        Refused: a constant goes beyond.
    """
    places = {value: place for place, value in enumerate(inputs)}
    found: list[IndexLimit] = []
    for node in nodes:
        indices = _indices(node)
        given = _counted(node)
        if indices is None or given is None or given not in known:
            continue
        root = _root(indices)
        ends = _axes(node, known[given], indices)
        ends = ends if root is indices else (min(ends),)  # a view may have moved the last dimension
        limit = IndexLimit(places.get(root, -1), root.name, ends, _is_counted_back(node), _ignored(node))
        constant = view.constant(root)
        if constant is not None and (why := limit.broken_by(constant.array())) is not None:
            raise Refused(f"{node.describe()}: {why}")
        if root in places and constant is None:
            found.append(limit)
    return tuple(dict.fromkeys(found))


def check_numbers(context: LoweringContext, node: Node, sizes: Callable[[Value], Sizes]) -> None:
    """Look at indices of a node that are numbers of shapes.

    Raises:
        Refused: they go beyond.
    """
    indices = _indices(node)
    given = _counted(node)
    if indices is None or given is None or indices not in context.numbers:
        return
    ends = _axes(node, sizes(given), indices)
    limit = IndexLimit(-1, indices.name, ends, _is_counted_back(node), _ignored(node))
    why = limit.broken_by(context.numbers[indices])
    if why is not None:
        raise Refused(why)


def _indices(node: Node) -> Value | None:
    place = _PLACES.get(node.op_type)
    return None if place is None or place >= len(node.inputs) else node.inputs[place]


def _counted(node: Node) -> Value | None:
    """Return the value whose places the indices of a node are."""
    if node.op_type == "GroupQueryAttention":
        return node.outputs[1] if len(node.outputs) > 1 else None
    return node.input(1 if node.op_type == "RotaryEmbedding" else 0)


def _root(value: Value) -> Value:
    """Return where the elements of a value come from."""
    while value.producer is not None and value.producer.op_type in _HANDED_ON:
        source = value.producer.input(0)
        if source is None:
            break
        value = source
    return value


def _is_counted_back(node: Node) -> bool:
    return node.op_type not in _FROM_THE_FRONT


def _ignored(node: Node) -> int | None:
    value = node.attribute("ignore_index")
    return value if isinstance(value, int) else None


def _axes(node: Node, sizes: Sizes, indices: Value) -> Sizes:
    """Return the sizes of the axes that a node's indices count along."""
    if node.op_type in ("RoiAlign", "RotaryEmbedding"):
        return sizes[:1]
    if node.op_type == "GroupQueryAttention":
        return sizes[2:3]  # the rows of the present
    if node.op_type in _FROM_THE_FRONT:
        return sizes[1:2]  # the classes
    if node.op_type in ("GatherND", "ScatterND"):
        batch = node.int_attribute("batch_dims", 0)
        count = indices.shape[-1] if indices.shape else None
        return sizes[batch : batch + count] if isinstance(count, int) else (min(sizes),)
    return (sizes[node.int_attribute("axis", 0)],)
