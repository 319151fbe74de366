"""Sizes by denotation: what a dimension of an input means (``DATA_BATCH``) gives it a size."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ort_core.errors import InvalidArgument
from ort_core.ir.graph import Graph
from ort_core.ir.types import TensorType


def fix_denoted_sizes(graph: Graph, proto: onnx.GraphProto, sizes: Mapping[str, int], named: Mapping[str, int]) -> None:
    """Give dimensions of a graph's inputs the sizes of their denotations.

    Args:
        graph: built from ``proto``, and changed in place.
        proto: the graph in its file.
        sizes: sizes by denotation.
        named: sizes by name, which must not say otherwise of the same dimension.

    Raises:
        InvalidArgument: the dimension has another size, or its name is given another one.
    """
    for value, info in zip(graph.inputs, proto.input, strict=True):
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            continue
        shape = list(value.type.shape)
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            size = sizes.get(dim.denotation)
            if size is None:
                continue
            _check_fits(value.name, axis, dim, size, named)
            shape[axis] = size
        value.type = TensorType(value.type.dtype, tuple(shape))


def _check_fits(
    name: str, axis: int, dim: onnx.TensorShapeProto.Dimension, size: int, named: Mapping[str, int]
) -> None:
    if dim.HasField("dim_value") and dim.dim_value != size:
        raise InvalidArgument(
            f"Invalid free dimension override. Dimension {axis} of input {name!r} (denotation {dim.denotation!r}) has "
            f"the fixed size {dim.dim_value}, the session's options give it {size}."
        )
    if named.get(dim.dim_param, size) != size:
        raise InvalidArgument(
            f"Conflicting free dimension overrides. Dimension {axis} of input {name!r} is given {size} by its "
            f"denotation {dim.denotation!r} and {named[dim.dim_param]} by its name {dim.dim_param!r}."
        )
