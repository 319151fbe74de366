"""Values known before a run: arithmetic on sizes and constants, evaluated while providers decide or plan.

Passes fold most of it. What is left (sizes that only a signature tells, Constant nodes and arithmetic on sizes where
passes are off, or inside bodies) the numpy kernels evaluate, and programs see numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from ort_core.ir.dims import SymbolicDim
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.kernels.evaluator import evaluate_node

if TYPE_CHECKING:
    from ort_core.ir.constants import Constant
    from ort_core.ir.dims import KnownDim
    from ort_core.ir.graph import Graph
    from ort_core.ir.nodes import Node
    from ort_core.ir.types import DataType
    from ort_core.ir.values import Value
    from ort_core.kernels.evaluation_context import EvaluationContext

SMALL_NBYTES = 1 << 16  # of a constant whose elements are looked at; weights are larger
Shape = tuple[int, ...]
_MAX_SIGNATURES = 256  # of shapes whose inner sizes are remembered
SHAPE_READERS = frozenset({"Shape", "Size"})
SIZE_ARITHMETIC = frozenset(
    {
        "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater",
        "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
        "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Split",
        "Sqrt", "Squeeze", "Sub", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators that compute sizes, positions and masks of positions; each gives the same for the same inputs."""


def results_beforehand(
    node: Node,
    context: EvaluationContext,
    content_of: Callable[[Value], np.ndarray | None],
    sizes_of: Callable[[Value], Sequence[int] | None],
    operators: Set[str] = SIZE_ARITHMETIC,
) -> Mapping[Value, np.ndarray] | Rejection:
    """Return the results of a node that follow from sizes and from what is known, or why there are none.

    Args:
        node: any node.
        context: finds its kernel.
        content_of: the elements of a value, ``None`` where they are not known.
        sizes_of: the sizes of a value, ``None`` where one is open; all that Shape and Size read.
        operators: which are evaluated besides Shape and Size.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in operators | SHAPE_READERS:
        return Rejection(f"{node.op_type} is not evaluated beforehand", node)
    inputs = [None if value is None else _content(node, value, content_of, sizes_of) for value in node.inputs]
    for value, array in zip(node.inputs, inputs, strict=True):
        if value is not None and array is None:
            return Rejection(f"{value.name!r} is not known before a run", node)
    results = evaluate_node(node, inputs, context)
    if isinstance(results, Rejection):  # the run will say so, where it is wrong
        return results
    pairs = zip(node.outputs, results, strict=False)
    return {value: np.asarray(result) for value, result in pairs if value is not None}


def _content(
    node: Node,
    value: Value,
    content_of: Callable[[Value], np.ndarray | None],
    sizes_of: Callable[[Value], Sequence[int] | None],
) -> np.ndarray | None:
    if node.op_type in SHAPE_READERS:
        sizes = sizes_of(value)
        return None if sizes is None else np.broadcast_to(np.zeros((), np.bool_), sizes)  # only its shape is read
    if node.op_type == "CastLike" and value is node.inputs[1]:
        dtype = dtype_of(value)
        return None if dtype is None else np.zeros(1, dtype.numpy)  # only its type is read
    return content_of(value)


def small_bounds(constant: Constant | None) -> tuple[int, int] | None:
    """Return the least and the largest element of a constant of integers, ``None`` of none and of large ones."""
    if constant is None or constant.nbytes > SMALL_NBYTES:
        return None
    return bounds_of(constant.array())


def bounds_of(array: np.ndarray) -> tuple[int, int]:
    """Return the least and the largest of integers, 0 where there are none."""
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def dtype_of(value: Value | None) -> DataType | None:
    """Return the element type of a tensor, or ``None``."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def is_static(value: Value | None) -> bool:
    """Return whether every size of a value is a number."""
    return value is not None and value.shape is not None and all(isinstance(size, int) for size in value.shape)


class InnerSizes:
    """Whether a value within a partition has no elements, as far as sizes follow from those of the inputs.

    For vendors that have no empty tensors. Safe from threads: an answer is one dict entry.

    Args:
        graph: the partition's graph; shapes of runs are those of its inputs, in their order.
    """

    def __init__(self, graph: Graph) -> None:
        self._places = places_of_names(graph)
        values = (value for node in graph.nodes for value in node.present_outputs())
        dims = dict.fromkeys(dim for value in values for dim in _dims(value) or () if isinstance(dim, SymbolicDim))
        computed = (dim for dim in dims if dim.name is None)
        self._dims = tuple(dim for dim in computed if dim.symbols() <= self._places.keys())
        self._answers: dict[tuple[Shape, ...], bool] = {}

    def are_all_positive(self, shapes: tuple[Shape, ...]) -> bool:
        """Return whether no size within is known to be 0 in a run on inputs of these shapes."""
        if not self._dims:
            return True
        found = self._answers.get(shapes)
        if found is None:
            sizes = named_sizes(shapes, self._places)
            found = all(dim.evaluate(sizes) > 0 for dim in self._dims)
            if len(self._answers) >= _MAX_SIGNATURES:
                self._answers.clear()
            self._answers[shapes] = found
        return found


def places_of_names(graph: Graph) -> dict[str, list[tuple[int, int]]]:
    """Return every input and axis of each named size."""
    found: dict[str, list[tuple[int, int]]] = {}
    for index, value in enumerate(graph.inputs):
        for axis, dim in enumerate(_dims(value) or ()):
            if isinstance(dim, SymbolicDim) and dim.name is not None:
                found.setdefault(dim.name, []).append((index, axis))
    return found


def named_sizes(shapes: Sequence[Shape | None], places: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, int]:
    """Return the size of each name in a run on inputs of these shapes; ``places`` as ``places_of_names``."""
    return {name: _size(shapes, *found[0]) for name, found in places.items()}


def _dims(value: Value) -> tuple[KnownDim | None, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None


def _size(shapes: Sequence[Shape | None], index: int, axis: int) -> int:
    shape = shapes[index]
    assert shape is not None, "inputs are tensors: claims hold nothing else"
    return shape[axis]
