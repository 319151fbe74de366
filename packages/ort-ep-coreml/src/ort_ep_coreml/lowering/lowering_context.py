"""LoweringContext: what is known around a node while it is decided who gets it: constants, bounds, inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.claims import bounds_of, dtype_of, small_bounds
from ort_core.plugin.ir import DataType, Node, Symbol, SymbolicDim, Value
from ort_core.plugin.ops import ValueRanges
from ort_ep_coreml.mil import INT32_LIMITS, Size
from ort_ep_coreml.open_sizes import OpenSizes

Interval = tuple[int, int]
_ANY = OpenSizes(INT32_LIMITS[1])


@dataclass(frozen=True, slots=True)
class LoweringContext:
    """What a rule may ask.

    Attributes:
        view: the graph.
        outside: values that no claim computes: inputs of the graph, and results of nodes that run elsewhere. Those of
            wide integers are looked at before each run, so they are known to fit int32.
        target: the oldest system that programs are for, as coremltools names it.
        precision: ``FLOAT32``, or ``FLOAT16`` where Core ML may compute in half precision.
        sizes: which values open sizes may have: runs beyond are computed elsewhere.
        known: values that constants and fixed sizes alone give, which go along with what reads them.
    """

    view: GraphView
    outside: Set[Value]
    target: str = "iOS17"
    precision: str = "FLOAT32"
    sizes: OpenSizes = _ANY
    known: Mapping[Value, np.ndarray] = field(default_factory=dict)

    def opset(self, node: Node) -> int:
        """Return the version of the node's operator set."""
        return self.view.opset(node)

    def constant(self, value: Value | None) -> np.ndarray | None:
        """Return the array of an initializer that nobody overrides, or of a value that is known before a run."""
        if value is not None and value in self.known:
            return self.known[value]
        found = self.view.constant(value)
        return None if found is None else found.array()

    def interval(self, value: Value) -> Interval | None:
        """Return proven bounds (inclusive) of the elements of an integer value, or ``None``."""
        found = bounds_of(self.known[value]) if value in self.known else small_bounds(self.view.constant(value))
        if found is not None:
            return found
        return ValueRanges(given=self._given).value_range(value)

    def _given(self, value: Value) -> Interval | None:
        if value in self.known:
            return self.interval(value) if self.known[value].dtype.kind == "i" else None
        if value.producer is not None and value.producer.op_type == "Shape":
            return 1, self._largest_size(value.producer)  # Core ML has no empty tensors
        if value not in self.outside or dtype_of(value) is not DataType.INT64:
            return None
        proven = self.view.value_range(value)
        return INT32_LIMITS if proven is None else (max(proven[0], INT32_LIMITS[0]), min(proven[1], INT32_LIMITS[1]))

    def _largest_size(self, node: Node) -> int:
        """Return the largest of the sizes that a Shape gives."""
        shape = (None if (value := node.input(0)) is None else value.shape) or (None,)
        given = shape[slice(node.int_attribute("start", 0), node.int_attribute("end", len(shape)))] or shape
        return min(max(self._largest(size) for size in given), INT32_LIMITS[1])

    def _largest(self, size: object) -> int:
        if isinstance(size, int):
            return size
        if not isinstance(size, SymbolicDim):
            return INT32_LIMITS[1]
        total = 0  # terms that are subtracted make it smaller, whatever they are
        for monomial, coefficient in size.terms:
            if any(not isinstance(atom, Symbol) for atom, _ in monomial):
                return INT32_LIMITS[1]
            highest = math.prod(self.sizes.of(atom.name).high ** power for atom, power in monomial)  # type: ignore[union-attr]  # a symbol
            total += max(coefficient, 0) * highest
        return total


def sizes_of(value: Value) -> tuple[Size, ...]:
    """Return the sizes of a value whose rank is known: numbers, and texts for those that are open."""
    return tuple(size if isinstance(size, int) else str(size) for size in value.shape or ())


def rank_of(value: Value | None) -> int:
    """Return the rank of a value that rules have seen to have one."""
    return len(value.shape) if value is not None and value.shape is not None else 0
