"""Cuts sizes of a case: one axis of an input, or every place where a size stands, numbers of shapes included.

A graph that does not fit the sizes has no truth, and a minimizer that asks for one takes the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, numpy_helper

from random_graphs.truth import array_of

if TYPE_CHECKING:
    from random_graphs.cases import Case


def smaller_sizes(case: Case) -> Iterator[Case]:
    """Yield cases with a smaller size, those that save most first; a case of several assignments has none."""
    if len(case.feeds) != 1:
        return
    (feeds,) = case.feeds
    if not all(isinstance(each, np.ndarray) for each in feeds.values()):
        return
    sizes = sorted({size for array in feeds.values() for size in array.shape if size > 1}, reverse=True)
    for size in sizes:
        for smaller in dict.fromkeys((1, size // 2, size - 1)):
            yield _everywhere(case, feeds, size, smaller)
    for name, array in feeds.items():
        for axis, size in enumerate(array.shape):
            for smaller in dict.fromkeys((1, size // 2, size - 1)) if size > 1 else ():
                cut = np.ascontiguousarray(array[(slice(None),) * axis + (slice(smaller),)])
                yield _with_feeds(case, {**feeds, name: cut})


def _everywhere(case: Case, feeds: Mapping[str, np.ndarray], size: int, smaller: int) -> Case:
    model = ModelProto()
    model.CopyFrom(case.model)
    for tensor in model.graph.initializer:
        array = array_of(tensor)
        if tensor.data_type == TensorProto.INT64:
            cut = np.where(array == size, smaller, array)
        else:
            cut = _cut(array, size, smaller)
        if cut.shape != array.shape or tensor.data_type == TensorProto.INT64:
            tensor.CopyFrom(numpy_helper.from_array(cut, tensor.name))
    found = {name: _cut(array, size, smaller) for name, array in feeds.items()}
    return _with_feeds(replace(case, model=model), found)


def _cut(array: np.ndarray, size: int, smaller: int) -> np.ndarray:
    if not array.ndim:
        return array
    return np.ascontiguousarray(array[tuple(slice(smaller) if s == size else slice(None) for s in array.shape)])


def _with_feeds(case: Case, feeds: Mapping[str, np.ndarray]) -> Case:
    """Return the case with other feeds; what was declared of sizes as numbers is declared anew, or left open."""
    model = ModelProto()
    model.CopyFrom(case.model)
    for info in model.graph.input:
        if info.name in feeds:
            _declare(info, feeds[info.name].shape)
    _leave_open(model.graph)
    return replace(case, model=model, feeds=(feeds,))


def _declare(info: ValueInfoProto, shape: Sequence[int]) -> None:
    for dim, size in zip(info.type.tensor_type.shape.dim, shape, strict=False):
        if dim.HasField("dim_value"):
            dim.dim_value = size


def _leave_open(graph: GraphProto) -> None:
    for output in graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.ClearField("value")
