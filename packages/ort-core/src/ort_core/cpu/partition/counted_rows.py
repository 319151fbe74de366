"""Sizes that a run reads from a number: the rows of a cache that grows to a total which no shape tells.

A program reads its sizes off the shapes of its inputs. Such a number becomes one more input of it, without elements:

    total = 7  ->  an array of shape (7, 0)

The number is then part of the signature that a program is planned for, as any size is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import DataType, Graph, KnownDim, Node, SymbolicDim, TensorType, Value, ValueType, maximum, walk
from ort_core.plugin.kernels import RuntimeValue
from ort_core.plugin.ops import Growth, node_attention

_DOMAIN = "com.microsoft"
_OPERATORS = frozenset({"GroupQueryAttention"})


class CountedRows:
    """The numbers of a graph that sizes of its values are read from.

    Attributes:
        values: inputs of programs without elements, by the numbers that they stand for.
    """

    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}
        self._number_of: dict[Value, Value] = {}

    def size_of(self, number: Value) -> SymbolicDim:
        """Return the size that a number is."""
        size = SymbolicDim.named(f"number in {number.name}")
        if number not in self.values:
            rows = Value(f"rows of {number.name}", TensorType(DataType.INT32, (size, 0)))
            self.values[number], self._number_of[rows] = rows, number
        return size

    def places(self, inputs: Sequence[Value]) -> tuple[int, ...]:
        """Return which inputs of a program stand for numbers."""
        return tuple([place for place, value in enumerate(inputs) if value in self._number_of]) if self.values else ()

    def reads(self, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Return what a program is made of that has these inputs: numbers in the places of what stands for them."""
        return [value and self._number_of.get(value, value) for value in inputs] if self.values else inputs


def count_rows(graph: Graph) -> CountedRows:
    """Find caches of a graph whose rows a number tells, and say so in the types of all values that have that size."""
    found = CountedRows()
    sizes: dict[str, KnownDim] = {}
    given = _names(graph.inputs)
    for node in graph:
        if node.op_type not in _OPERATORS or node.domain != _DOMAIN:
            continue
        number = _total(node)
        for name, before in [] if number is None else _open_rows(node):
            if number is None or name in given:
                continue
            size = found.size_of(number)
            rows = size if before is None else maximum(before, size)
            if sizes.setdefault(name, rows) != rows:
                given.add(name)  # one name for several sizes: nothing is said of it
    sizes = {name: size for name, size in sizes.items() if name not in given}
    if sizes:
        for value in _values(graph):
            value.type = _replaced(value.type, sizes)
    return found if sizes else CountedRows()


def rows_of(number: RuntimeValue) -> np.ndarray | None:
    """Return the array that stands for a number at run time; ``None`` where it is no number of rows."""
    if not isinstance(number, np.ndarray) or number.size != 1 or number.dtype.kind != "i":
        return None
    rows = number.item()
    return None if rows < 0 else np.empty((rows, 0), np.int32)


def _total(node: Node) -> Value | None:
    """Return the number of rows that an attention states for the caches that it gives, unless it is a constant."""
    record = node_attention(node)
    if record.cache is None or record.cache.growth is not Growth.FILLED or record.slides or record.lengths is None:
        return None
    number = None if record.lengths.total is None else node.input(record.lengths.total)
    if number is None or number.constant is not None or not isinstance(number.type, TensorType):
        return None
    shape = number.type.shape
    is_one = shape is not None and all(isinstance(size, int) for size in shape) and math.prod(shape) == 1  # type: ignore[arg-type]  # as was just seen
    return number if is_one and number.type.dtype is DataType.INT32 else None


def _open_rows(node: Node) -> Iterator[tuple[str, KnownDim | None]]:
    """Yield the names of the rows of an attention's caches, and how many rows these had before."""
    cache = node_attention(node).cache
    assert cache is not None, "there is one"
    for index, past in ((1, cache.key), (2, cache.value)):
        present = node.outputs[index] if len(node.outputs) > index else None
        size = None if present is None or not present.shape or len(present.shape) != 4 else present.shape[2]
        if not isinstance(size, SymbolicDim) or size.name is None:
            continue
        before = None if past is None else node.input(past)
        if before is None:
            yield size.name, None
        elif before.shape and len(before.shape) == 4 and before.shape[2] is not None:
            yield size.name, before.shape[2]


def _names(values: Sequence[Value]) -> set[str]:
    sizes = [size for value in values for size in value.shape or () if isinstance(size, SymbolicDim)]
    return {name for size in sizes for name in size.symbols()}


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in walk(graph):  # bodies read them, too
        yield from node.present_outputs()
        for body in node.subgraphs():
            yield from body.inputs


def _replaced(known: ValueType | None, sizes: Mapping[str, KnownDim]) -> ValueType | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return known
    shape = tuple([size.substitute(sizes) if isinstance(size, SymbolicDim) else size for size in known.shape])
    return known if shape == known.shape else TensorType(known.dtype, shape)
