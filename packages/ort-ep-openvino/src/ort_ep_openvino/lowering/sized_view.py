"""SizedView: a graph with the bounds that its rules may count on, of sizes and of the integers that follow from them.

Rules are asked three times. Bounds that every run keeps (``standing_view``) decide most nodes. A node that they leave
open is asked again with example sizes (``example_views``): if it is right for some, it is claimed on the condition
that each run asks it with the run's own sizes (``run_view``). A run that it does not hold for goes to the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView, Rejection
from ort_core.plugin.claims import bounds_of, held_constant, results_beforehand
from ort_core.plugin.ir import KnownDim, SymbolicDim, TensorType, Value
from ort_core.plugin.ops import ValueRanges
from ort_ep_openvino.lowering.input_bounds import WIDE, Interval, bounds_from_outside, sizes_from_outside

FIRST_EXAMPLE = 5  # example sizes are small, for tables are larger, and differ, so that no two axes are equal by chance
LARGE_EXAMPLE = 61  # one of them may be: a cache is longer than the steps that go into it
MAX_ELEMENTS = 1 << 16  # of a value that is computed to know its bounds
MAX_CHAIN = 200  # nodes between a value and the sizes that it follows from


@dataclass(frozen=True, slots=True)
class SizedView(GraphView):
    """A graph, and bounds of its sizes.

    Attributes:
        known: intervals of integer values and of sizes.
    """

    known: ValueRanges = field(default_factory=ValueRanges)

    def least_size(self, size: KnownDim) -> int:
        """Return the least that a size may be."""
        return self.known.size_range(size)[0]

    def exact_shape(self, value: Value | None) -> tuple[int, ...] | None:
        """Return the sizes of a tensor, ``None`` where one is open."""
        if value is None or value.shape is None or any(size is None for size in value.shape):
            return None
        bounds = [self.known.size_range(size) for size in value.shape if size is not None]
        return tuple([low for low, _ in bounds]) if all(low == high for low, high in bounds) else None


def standing_view(view: GraphView, outside: Set[Value]) -> SizedView:
    """Return a graph with the bounds that are looked at before every run.

    Args:
        view: the graph.
        outside: what claims get from elsewhere; the set may grow.
    """
    return _with_bounds(view, outside, sizes_from_outside(view), None)


def example_views(view: GraphView, outside: Set[Value], names: Iterable[str]) -> tuple[SizedView, ...]:
    """Return graphs in which each of the named sizes is some small number of its own; others are open.

    In the first all are alike small; in each of the others one is larger than all the rest together.
    """
    small = {name: FIRST_EXAMPLE + index for index, name in enumerate(sorted(names))}
    large = LARGE_EXAMPLE + sum(small.values())
    examples = [small, *({**small, name: large} for name in small)] if small else []
    return tuple([run_view(view, outside, sizes) for sizes in examples])


def run_view(view: GraphView, outside: Set[Value], sizes: Mapping[str, int]) -> SizedView:
    """Return a graph in which named sizes are those of a run."""
    bounds = {name: (size, size) for name, size in sizes.items()}
    return _with_bounds(view, outside, bounds, _Contents(view, outside, sizes))


def named_sizes(values: Iterable[Value]) -> set[str]:
    """Return the names that a run's sizes give a number: those that are the size of an axis, not part of one."""
    dims = (dim for value in values if isinstance(value.type, TensorType) for dim in value.type.shape or ())
    return {dim.name for dim in dims if isinstance(dim, SymbolicDim) and dim.name is not None}


def _with_bounds(
    view: GraphView, outside: Set[Value], sizes: Mapping[str, Interval], contents: _Contents | None
) -> SizedView:
    def given(value: Value) -> Interval | None:
        found = bounds_from_outside(view, outside, ranges, value)
        content = contents.find(value) if contents is not None else None
        return found if content is None else bounds_of(content)

    ranges = ValueRanges(given=given, sizes=sizes)
    return SizedView(view.model, view.graph, view.nodes, view.context, ranges.value_range, ranges)


class _Contents:
    """The elements of small integer values that follow from the sizes of one run, found when first asked for."""

    def __init__(self, view: GraphView, outside: Set[Value], sizes: Mapping[str, int]) -> None:
        self._view, self._outside, self._sizes = view, outside, sizes
        self._found: dict[Value, np.ndarray | None] = {}
        self._depth = 0

    def find(self, value: Value) -> np.ndarray | None:
        """Return the elements of a value, ``None`` where they are not known."""
        if not isinstance(value.type, TensorType) or value.type.dtype not in WIDE:
            return None
        if value not in self._found:
            self._found[value] = self._computed(value)
        return self._found[value]

    def _computed(self, value: Value) -> np.ndarray | None:
        constant = held_constant(self._view, value)
        if constant is not None:
            return constant.array() if constant.size <= MAX_ELEMENTS else None
        node, sizes = value.producer, self._sizes_of(value)
        is_here = node is not None and value not in self._outside and node.graph is self._view.graph
        if node is None or not is_here or sizes is None or _count(sizes) > MAX_ELEMENTS or self._depth == MAX_CHAIN:
            return None
        self._depth += 1
        results = results_beforehand(node, self._view.context, self.find, self._sizes_of)
        self._depth -= 1
        return None if isinstance(results, Rejection) else results.get(value)

    def _sizes_of(self, value: Value) -> tuple[int, ...] | None:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        if shape is None:
            return None
        sizes = [self._size(dim) for dim in shape]
        return None if any(size is None for size in sizes) else tuple(size for size in sizes if size is not None)

    def _size(self, dim: KnownDim | None) -> int | None:
        if dim is None or isinstance(dim, int):
            return dim
        if not dim.symbols() <= self._sizes.keys():
            return None
        try:
            return dim.evaluate(self._sizes)
        except ZeroDivisionError:
            return None


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
