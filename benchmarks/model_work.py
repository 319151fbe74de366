"""What a run of a model must do at least: bytes of weights to read, float operations of its products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import NodeProto, helper

Shapes = Mapping[str, Sequence[int]]


def weights_nbytes(path: Path) -> int:
    """Return how many bytes of weights a run must read."""
    weights = onnx.load(path, load_external_data=False).graph.initializer
    kinds = [helper.tensor_dtype_to_np_dtype(tensor.data_type) for tensor in weights]
    return sum(math.prod(tensor.dims) * kind.itemsize for tensor, kind in zip(weights, kinds, strict=True))


def product_flops(path: Path, dims: Mapping[str, int]) -> int | None:
    """Return the float operations of products and convolutions; ``None`` where the size of one is not known.

    Args:
        path: the model.
        dims: sizes of its named dimensions.
    """
    model = onnx.load(path, load_external_data=False)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = dims.get(dim.dim_param, 1)
    del model.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    for value in (*inferred.input, *inferred.output, *inferred.value_info):
        found = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in found):
            shapes[value.name] = tuple(dim.dim_value for dim in found)
    total = 0
    for node in inferred.node:
        count = _COUNTS.get(node.op_type)
        if count is None:
            continue
        if any(name not in shapes for name in (*node.input[:2], node.output[0])):
            return None
        total += count(node, shapes)
    return total


def _matmul(node: NodeProto, shapes: Shapes) -> int:
    return 2 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: NodeProto, shapes: Shapes) -> int:
    is_transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return 2 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if is_transposed else 1]


def _convolution(node: NodeProto, shapes: Shapes) -> int:
    return 2 * math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _transposed(node: NodeProto, shapes: Shapes) -> int:
    return 2 * math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


_COUNTS: Mapping[str, Callable[[NodeProto, Shapes], int]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _convolution, "ConvTranspose": _transposed,
}  # fmt: skip
