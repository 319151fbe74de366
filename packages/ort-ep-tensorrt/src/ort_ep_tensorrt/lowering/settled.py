"""Settled inputs: values that come from outside of a claim and that TensorRT must know when it builds.

Axes of a reduction are one: its parser takes constants only. They are made constants of the program, with the values
of the run that the engine is built for; another run with other values has an engine of its own. To ask about a claim,
before there is a run, values are taken that fit what is known of the shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from ort_core.plugin.ir import DataType, Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.ops import known_contents
from ort_ep_tensorrt.lowering.editing import dtype_of_value

MAX_ELEMENTS = 64  # of an input whose values decide; more are data, not axes or sizes
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_AXES = frozenset({*_REDUCTIONS, "Squeeze", "Unsqueeze"})
_PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_AXES, (1,)), "Resize": (1, 2), "Upsample": (1,), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,),
}  # fmt: skip


def settled_inputs(inputs: Iterable[Value], nodes: Iterable[Node]) -> dict[Value, Node]:
    """Return the inputs of a claim that TensorRT must know when it builds, and a node that reads each."""
    outside = set(inputs)
    found: dict[Value, Node] = {}
    for node in nodes:
        for index in _PLACES.get(node.op_type, ()):
            value = node.input(index)
            if value in outside and value is not None:
                found.setdefault(value, node)
    return found


def element_count(value: Value) -> int | None:
    """Return how many elements an input has, ``None`` where that is open or too many to decide anything."""
    shape = value.shape
    if shape is None or any(not isinstance(size, int) for size in shape):
        return None
    count = int(np.prod([size for size in shape if isinstance(size, int)], dtype=np.int64))
    return count if count <= MAX_ELEMENTS else None


def sample_of(value: Value, node: Node) -> np.ndarray | None:
    """Return values that an input may have where ``node`` reads it, ``None`` where its length is not known."""
    count, dtype = element_count(value), dtype_of_value(value)
    if count is None or dtype is None or value.shape is None:
        return None
    shape = tuple(size for size in value.shape if isinstance(size, int))
    if node.op_type in _AXES:
        axes = _sample_axes(node, count)
        return None if axes is None else np.array(axes, dtype.numpy).reshape(shape)
    if node.op_type in ("Resize", "Upsample"):
        return np.ones(shape, dtype.numpy)
    return np.full(shape, 4 if node.op_type == "OneHot" else 0, dtype.numpy)


_MAKES_SHAPE = frozenset({"ConstantOfShape", "Expand", "Reshape", "Resize"})


def likely_values(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return elements that an input which decides shapes may have: the sizes that its reader makes, else ones."""
    count = int(np.prod(shape, dtype=np.int64))
    for reader in value.consumers():
        sizes = [size for size in reader.output.shape or () if isinstance(size, int)]
        if reader.op_type in _MAKES_SHAPE and len(sizes) == count == reader.output.rank:
            return tuple(sizes)
    return (1,) * count


def settle(graph: Graph, values: Mapping[str, np.ndarray]) -> None:
    """Make inputs constants of a graph; they stay its inputs, and nothing reads them any more."""
    for value in graph.inputs:
        if value.name in values:
            value.replace_uses(graph.new_constant(np.ascontiguousarray(values[value.name])))


def settle_known(graph: Graph, context: EvaluationContext) -> None:
    """Make constants of what is computed in a graph and must be one, where sizes alone decide it."""
    places = [(n, i) for n in graph for i in _PLACES.get(n.op_type, ()) if _is_computed(n.input(i))]
    if not places:
        return
    known = known_contents(graph, context.schemas, context.opset_imports)
    for node, index in places:
        value = node.input(index)
        content = known.get(value) if value is not None else None
        dtype = dtype_of_value(value)
        if content is None or dtype not in (DataType.INT64, DataType.INT32):
            continue
        if all(isinstance(element, int) for element in content.reshape(-1)):
            node.set_input(index, graph.new_constant(content.astype(dtype.numpy)))


def _is_computed(value: Value | None) -> bool:
    return value is not None and value.producer is not None


def _sample_axes(node: Node, count: int) -> tuple[int, ...] | None:
    source, result = node.input(0), node.output
    rank = None if source is None else source.rank
    if rank is None or source is None:
        return None
    total = rank + count if node.op_type == "Unsqueeze" else rank
    choices = itertools.islice(itertools.combinations(range(total), count), 1000)
    return next((axes for axes in choices if _fits(node, axes, source, result)), None)


def _fits(node: Node, axes: tuple[int, ...], source: Value, result: Value) -> bool:
    """Return whether the sizes that are known allow these axes."""
    sizes = tuple(source.shape or ())
    if node.op_type == "Unsqueeze":
        return _agrees(sizes, [s for i, s in enumerate(result.shape or ()) if i not in axes] if result.shape else None)
    kept = [size for axis, size in enumerate(sizes) if axis not in axes]
    if node.op_type == "Squeeze":
        return all(not isinstance(sizes[axis], int) or sizes[axis] == 1 for axis in axes) and _agrees(
            kept, result.shape
        )
    if node.int_attribute("keepdims", 1):
        return _agrees([1 if axis in axes else size for axis, size in enumerate(sizes)], result.shape)
    return _agrees(kept, result.shape)


def _agrees(found: Iterable[object], expected: Iterable[object] | None) -> bool:
    if expected is None:
        return True
    found, expected = tuple(found), tuple(expected)
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
