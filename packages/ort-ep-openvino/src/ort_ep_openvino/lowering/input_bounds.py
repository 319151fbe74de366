"""What comes from outside of a claim is looked at before each run, so that claims may count on its bounds.

Integers are taken to lie where float32 holds each of them, and sizes too. A run whose inputs do not keep that is
computed by kernels instead (``narrowing``): right, and slower.
"""

from __future__ import annotations

from collections.abc import Set

from ort_core.plugin import GraphView
from ort_core.plugin.ir import DataType, Node, SymbolicDim, TensorType, Value
from ort_core.plugin.ops import ValueRanges, type_interval

HIGHEST_SMALL = 2**24 - 1  # the next integer but one has no float32 of its own
_UNBOUNDED = 2**63 - 1  # sizes are int64
Interval = tuple[int, int]
WIDE = frozenset({DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64})


def comes_from_outside(view: GraphView, outside: Set[Value], value: Value) -> bool:
    """Return whether a value is an input of every claim that reads it.

    Args:
        view: the graph that claims are made of.
        outside: outputs of nodes that are in no claim.
        value: a value that is no constant.
    """
    return value in outside or value.producer is None or value.producer.graph is not view.graph


def is_sum(node: Node) -> bool:
    """Return whether a node adds elements of one input up, and nothing else."""
    return node.op_type == "ReduceSum" and not node.domain


def sizes_from_outside(view: GraphView) -> dict[str, Interval]:
    """Return the bounds that claims may count on for the named sizes of a graph's inputs."""
    shapes = (value.shape or () for value in view.graph.inputs)
    named = (size for shape in shapes for size in shape if isinstance(size, SymbolicDim))
    return {name: (0, HIGHEST_SMALL) for size in named for name in size.symbols()}


def bounds_from_outside(view: GraphView, outside: Set[Value], ranges: ValueRanges, value: Value) -> Interval | None:
    """Return the bounds that a claim may count on for a value, ``None`` where nothing is looked at before a run.

    Args:
        view: the graph that claims are made of.
        outside: outputs of nodes that are in no claim.
        ranges: bounds sizes that are computed from named ones.
        value: what is asked about.
    """
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    if dtype not in WIDE or view.constant(value) is not None:
        return None
    producer = value.producer
    summed = None if producer is None or not is_sum(producer) else producer.input(0)
    looked_at = value if summed is None or comes_from_outside(view, outside, value) else summed
    if comes_from_outside(view, outside, looked_at):
        limits = type_interval(dtype)
        assert limits is not None, "integers have limits"
        return max(limits[0], -HIGHEST_SMALL), HIGHEST_SMALL
    source = producer.input(0) if producer is not None and producer.op_type == "Shape" else None
    if source is None or source.shape is None or all(isinstance(size, int) for size in source.shape):
        return None
    if comes_from_outside(view, outside, source):
        return 0, HIGHEST_SMALL
    highest = max(_UNBOUNDED if size is None else ranges.size_range(size)[1] for size in source.shape)
    return 0, highest
