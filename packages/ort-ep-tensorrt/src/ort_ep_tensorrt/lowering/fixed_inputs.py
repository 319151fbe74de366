"""Fixed inputs: values that come from outside of a claim and that TensorRT must know when it builds.

Axes of a reduction are one: its parser takes constants only. They are made constants of the program, with the values
of the run that the engine is built for; another run with other values has an engine of its own. To ask about a claim,
before there is a run, values are taken that fit what is known of the shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.ops import known_contents
from ort_ep_tensorrt.lowering.likely_sizes import LIKELY, SIZES_OF_RESIZE, element_count

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_AXES = frozenset({*_REDUCTIONS, "Squeeze", "Unsqueeze"})
_PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_AXES, (1,)), "Resize": (1, 2), "Upsample": (1,), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,),
    "AffineGrid": (1,), "Col2Im": (1, 2), "CumProd": (1,), "DFT": (1, 2),
}  # fmt: skip


def fixed_inputs(inputs: Iterable[Value], nodes: Iterable[Node]) -> dict[Value, Node]:
    """Return the inputs of a claim that TensorRT must know when it builds, and a node that reads each."""
    outside = set(inputs)
    found: dict[Value, Node] = {}
    for node in nodes:
        for index in _places(node):
            value = node.input(index)
            if value in outside and value is not None:
                found.setdefault(value, node)
    return found


def _places(node: Node) -> tuple[int, ...]:
    """Return which inputs of a node must be constants."""
    places = _PLACES.get(node.op_type, ())
    is_rewritten = node.op_type == "Resize" and node.int_attribute("antialias", 0)
    return (*places, SIZES_OF_RESIZE) if is_rewritten else places


def sample_of(value: Value, node: Node) -> np.ndarray | None:
    """Return values that an input may have where ``node`` reads it, ``None`` where its length is not known."""
    count, dtype = element_count(value), dtype_of(value)
    if dtype is None or value.shape is None:
        return None
    if node.op_type in _AXES:
        axes = _sample_axes(node, count) if len(value.shape) == 1 or count else None
        fixed = tuple(size for size in value.shape if isinstance(size, int))
        shape = fixed if len(fixed) == len(value.shape) else (-1,)
        return None if axes is None else np.array(axes, dtype.numpy).reshape(shape)
    if count is None:
        return None
    shape = tuple(size for size in value.shape if isinstance(size, int))
    likely = LIKELY.get(node.op_type)
    if likely is not None:
        found = likely(value, node)
        return None if found is None or len(found) != count else np.array(found, dtype.numpy).reshape(shape)
    return np.full(shape, 4 if node.op_type == "OneHot" else 0, dtype.numpy)


def fix_inputs(graph: Graph, values: Mapping[str, np.ndarray]) -> None:
    """Make inputs constants of a graph; they stay its inputs, and nothing reads them any more."""
    for value in graph.inputs:
        if value.name in values:
            value.replace_uses(graph.new_constant(np.ascontiguousarray(values[value.name])))


def fix_known_inputs(graph: Graph, context: EvaluationContext) -> None:
    """Make constants of what is computed in a graph and must be one, where sizes alone decide it."""
    places = [(n, i) for n in graph for i in _places(n) if _is_computed(n.input(i))]
    if not places:
        return
    known = known_contents(graph, context.schemas, context.opset_imports)
    for node, index in places:
        value = node.input(index)
        content = known.get(value) if value is not None else None
        dtype = dtype_of(value)
        if content is None or dtype not in (DataType.INT64, DataType.INT32):
            continue
        if all(isinstance(element, int) for element in content.reshape(-1)):
            node.set_input(index, graph.new_constant(content.astype(dtype.numpy)))


def _is_computed(value: Value | None) -> bool:
    return value is not None and value.producer is not None


def _sample_axes(node: Node, count: int | None) -> tuple[int, ...] | None:
    """Return axes that fit the shapes: so many, or where that is open the fewest that do."""
    source, result = node.input(0), node.output
    rank = None if source is None else source.rank
    if rank is None or source is None:
        return None
    if count == 0:
        return ()  # all axes, or none
    counts = range(1, rank + 1) if count is None else [count]
    total = {each: rank + each if node.op_type == "Unsqueeze" else rank for each in counts}
    every = (axes for each in counts for axes in itertools.combinations(range(total[each]), each))
    return next((axes for axes in itertools.islice(every, 1000) if _fits(node, axes, source, result)), None)


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
