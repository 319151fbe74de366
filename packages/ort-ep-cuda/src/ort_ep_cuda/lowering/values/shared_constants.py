"""Constants that hold the same numbers are sent to the device once. Weights of a model's ends are often tied.

A table of 50257 rows of 768, read by Gather, and its transpose, read by MatMul, take 154 MB, not 309.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin.ir import DataType, Graph, Value

LEAST_NBYTES = 1 << 20  # of those that are compared: smaller ones are not worth it
_SAMPLES = 64
_READ_BOTH_WAYS = frozenset({"MatMul", "Gemm"})  # by libraries, which take a matrix by rows or by columns


@dataclass(frozen=True, slots=True)
class SharedConstants:
    """``equal``: whose bytes are those of another, by name; ``turned``: matrices that are the transpose of another."""

    equal: dict[str, str] = field(default_factory=dict)
    turned: dict[Value, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> SharedConstants:
        """Compare the constants of a graph that are as large as each other."""
        found = cls()
        groups: defaultdict[tuple[int, DataType], list[Value]] = defaultdict(list)
        for value in _constants(graph):
            assert value.constant is not None
            if value.constant.nbytes >= LEAST_NBYTES and value.constant.dtype is not DataType.STRING:
                groups[value.constant.nbytes, value.constant.dtype].append(value)
        for group in groups.values():
            found._compare(group)
        return found

    def _compare(self, group: list[Value]) -> None:
        bases: list[Value] = []
        for value in sorted(group, key=_is_read_both_ways):  # those that have to lie by rows come first
            base = next((base for base in bases if _are_equal(_flat(base), _flat(value))), None)
            if base is not None:
                self.equal[value.name] = base.name
                continue
            turned = _is_read_both_ways(value) and next((base for base in bases if _is_transpose(base, value)), None)
            if turned:
                self.turned[value] = turned
            else:
                bases.append(value)


def _constants(graph: Graph) -> Iterable[Value]:
    return dict.fromkeys(value for node in graph for value in node.present_inputs() if value.constant is not None)


def _is_read_both_ways(value: Value) -> bool:
    return all(node.op_type in _READ_BOTH_WAYS and not node.domain for node in value.consumers())


def _flat(value: Value) -> np.ndarray:
    assert value.constant is not None
    return value.constant.array().reshape(-1).view(np.uint8)


def _are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    places = np.linspace(0, a.size - 1, _SAMPLES).astype(np.int64)
    return bool(np.array_equal(a[places], b[places]) and np.array_equal(a, b))


def _is_transpose(base: Value, value: Value) -> bool:
    assert base.constant is not None
    assert value.constant is not None
    shape = value.constant.shape
    if len(shape) != 2 or base.constant.shape != shape[::-1]:
        return False
    a, b = _words(base.constant.array()).T, _words(value.constant.array())
    rows, columns = (np.linspace(0, size - 1, _SAMPLES).astype(np.int64) for size in shape)
    return bool(np.array_equal(a[rows, columns], b[rows, columns]) and np.array_equal(a, b))


def _words(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix by its bits: NaN equals NaN, and 0 is not -0."""
    return matrix.view(f"u{matrix.dtype.itemsize}")
