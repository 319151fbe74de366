"""Weights of a float model as a quantized model has them, whatever its format: their numbers in floats again.

QuantizeLinear's and QOperator's weights stand beside ``NAME_scale`` and ``NAME_zero_point``; weights in blocks are what
their node makes of the unit matrix; half floats only change their type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import ort_core
from ort_quantization.models.model_files import read_tensor

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_BLOCKS = ("MatMulNBits", "MatMulBnb4")
_LAST_AXIS = ("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
_ROWS = 1024  # of the unit matrix that a node is given at once


def dequantized_weights(
    model: ModelProto, folder: str, small: ModelProto, small_folder: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name of each weight that a quantized model has in fewer bits, its numbers, and what is left of them.

    Args:
        model: the float model.
        folder: where its external data lies.
        small: the quantized one.
        small_folder: where its external data lies.
    """
    kept = {each.name: each for each in small.graph.initializer}
    by_output = {node.output[0]: node for node in small.graph.node if node.output}
    readers = {name: node for node in small.graph.node for name in node.input}
    products = {node.input[1]: node for node in model.graph.node if node.op_type == "MatMul" and len(node.input) > 1}
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        found = _in_scale(tensor.name, kept, readers, small_folder)
        if found is None and tensor.name in kept and kept[tensor.name].data_type in _HALF:
            found = numpy_helper.to_array(read_tensor(kept[tensor.name], small_folder)).astype(np.float32)
        if found is None and tensor.name in products:
            node = by_output.get(products[tensor.name].output[0])
            if node is not None and node.op_type in _BLOCKS:
                found = _of_blocks(node, kept, small_folder)
        exact = numpy_helper.to_array(read_tensor(tensor, folder)) if found is not None else None
        if found is None or exact is None:
            continue
        if found.shape != exact.shape and found.ndim == 2:  # a Gemm became a product: its weight is transposed
            found = found.T
        if found.shape == exact.shape:
            yield tensor.name, exact, found


def _in_scale(name: str, kept: dict[str, TensorProto], readers: dict[str, NodeProto], folder: str) -> np.ndarray | None:
    """Return a weight that has a scale, in floats."""
    if f"{name}_quantized" not in kept or f"{name}_scale" not in kept:
        return None
    numbers, scale = (
        numpy_helper.to_array(read_tensor(kept[f"{name}{end}"], folder)) for end in ("_quantized", "_scale")
    )
    point = np.zeros(scale.shape, np.float32)
    if f"{name}_zero_point" in kept:
        point = numpy_helper.to_array(read_tensor(kept[f"{name}_zero_point"], folder)).astype(np.float32)
    wide, scale = numbers.astype(np.float32), scale.astype(np.float32)
    if scale.size == 1:
        return (wide - point.reshape(-1)[0]) * scale.reshape(-1)[0]
    node = readers[f"{name}_quantized"]
    attributes = {each.name: each.i for each in node.attribute}
    if attributes.get("block_size", 0):
        axis = attributes.get("axis", 1) % wide.ndim
        places = np.arange(wide.shape[axis]) // attributes["block_size"]
        return (wide - point.take(places, axis)) * scale.take(places, axis)
    shape = [1] * wide.ndim
    shape[_axis(node, attributes) % wide.ndim] = -1
    return (wide - point.reshape(shape if point.size > 1 else [1] * wide.ndim)) * scale.reshape(shape)


def _axis(node: NodeProto, attributes: dict[str, int]) -> int:
    if node.op_type == "DequantizeLinear":
        return attributes.get("axis", 1)
    if node.op_type == "QGemm":
        return 0 if attributes.get("transB", 0) else 1
    return -1 if node.op_type in _LAST_AXIS else 0


def _of_blocks(node: NodeProto, kept: dict[str, TensorProto], folder: str) -> np.ndarray:
    """Return the weight (K, N) that a product in blocks multiplies by: what it makes of the unit matrix."""
    size = next(each.i for each in node.attribute if each.name == "K")
    plain = NodeProto()
    plain.CopyFrom(node)
    for place in reversed(range(len(plain.attribute))):
        if plain.attribute[place].name == "accuracy_level":  # may round operands
            del plain.attribute[place]
    plain.input[0] = "rows"
    tensors = [read_tensor(kept[name], folder) for name in dict.fromkeys(node.input[1:]) if name in kept]
    kind = next(
        (each.data_type for each in tensors if each.data_type in (TensorProto.FLOAT, *_HALF)), TensorProto.FLOAT
    )
    graph = helper.make_graph(
        [plain], "weight", [helper.make_tensor_value_info("rows", kind, ["n", size])],
        [helper.make_tensor_value_info(node.output[0], kind, None)], tensors,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    session = ort_core.InferenceSession(content, providers=["ReferenceExecutionProvider"])
    unit = np.eye(size, dtype=helper.tensor_dtype_to_np_dtype(kind))
    parts = [session.run(None, {"rows": unit[first : first + _ROWS]})[0] for first in range(0, size, _ROWS)]
    return np.concatenate([np.asarray(part).astype(np.float32) for part in parts])
