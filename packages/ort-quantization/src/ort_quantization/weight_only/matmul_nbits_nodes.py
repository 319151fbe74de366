"""The nodes and tensors that stand for a quantized weight, with onnxruntime's names.

MatMul becomes MatMulNBits, or DequantizeLinear before a MatMul. A weight (1, …, K, N) is taken as (K, N); where its
rank is above that of the other operand, an Expand by ones gives the result its leading axes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.tensor_folder import set_aside
from ort_quantization.weight_only.matmul_nbits_blocks import Array, LinearBlocks, PackedBlocks, pack, unpack
from ort_quantization.weight_only.matmul_nbits_settings import NATIVE_NAMES, Settings

_LINEAR_TYPES = {
    (4, True): TensorProto.INT4, (4, False): TensorProto.UINT4, (8, True): TensorProto.INT8,
    (8, False): TensorProto.UINT8, (2, True): TensorProto.INT2, (2, False): TensorProto.UINT2,
}  # fmt: skip


class TakenNames:
    """The names of all values, tensors and nodes of a model: new ones are none of them."""

    def __init__(self, model: ModelProto) -> None:
        self._taken: set[str] = set()
        for graph in graphs_of(model.graph):
            self._taken.update(each.name for each in graph.input)
            self._taken.update(each.name for each in graph.initializer)
            self._taken.update(name for node in graph.node for name in node.output)

    def new(self, wish: str) -> str:
        """Return a name: the wish, or the wish with a number behind it."""
        name, count = wish, 0
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A quantized weight in a graph.

    Attributes:
        inputs: names of its tensors: numbers, scales and, where there are any, zero points.
        rows: K.
        columns: N.
        is_transposed: whether the numbers are (N, K).
        settings: how it was quantized.
        block_size: rows of a block.
    """

    inputs: tuple[str, ...]
    rows: int
    columns: int
    is_transposed: bool
    settings: Settings
    block_size: int


def store_packed(
    graph: GraphProto, name: str, blocks: PackedBlocks, settings: Settings, names: TakenNames, folder: str
) -> StoredWeight:
    """Add the tensors of a MatMulNBits to a graph; large ones are set aside where the folder takes them."""
    columns, size = len(blocks.data), blocks.block_size
    is_native = settings.algorithm in NATIVE_NAMES
    data_name = f"{name}_Q{blocks.bits}" if is_native else f"{name}_Q{blocks.bits}G{size}"
    scale_name, point_name = ("_scales", "_zero_points") if is_native else ("_scale", "_zp")
    scales, points = blocks.scales, blocks.zero_points
    if points is not None and points.dtype != np.uint8:  # float zero points of HQQ stand in one row, as their scales do
        scales, points = scales.reshape(-1), points.reshape(-1)
    tensors = [(data_name, blocks.data), (name + scale_name, scales)]
    if points is not None:
        tensors.append((name + point_name, points))
    inputs = tuple(add_tensor(graph, names.new(wish), array, folder) for wish, array in tensors)
    return StoredWeight(inputs, blocks.rows, columns, False, settings, size)


def store_linear(
    graph: GraphProto, name: str, blocks: LinearBlocks, settings: Settings, names: TakenNames, folder: str
) -> StoredWeight:
    """Add the tensors of a DequantizeLinear to a graph; large ones are set aside where the folder takes them."""
    columns = blocks.scales.shape[1]
    is_signed = blocks.zero_points is None
    kind = _LINEAR_TYPES[blocks.bits, is_signed]
    data, shape, scales = blocks.data, [blocks.rows, columns], blocks.scales
    is_transposed = settings.is_channel_wise and is_signed and blocks.bits == 4
    if is_transposed:
        data, shape, scales = _transposed(data, blocks.rows, columns), shape[::-1], scales.reshape(columns, 1)
    start = f"{name}_DQ"
    inputs = [_add_raw(graph, names.new(f"{start}_Q{blocks.bits}"), kind, shape, data, folder)]
    inputs.append(add_tensor(graph, names.new(f"{start}_scales"), scales, folder))
    if blocks.zero_points is not None:
        name = names.new(f"{start}_zero_points")
        inputs.append(_add_raw(graph, name, kind, list(scales.shape), blocks.zero_points, folder))
    return StoredWeight(tuple(inputs), blocks.rows, columns, is_transposed, settings, blocks.block_size)


def product_nodes(node: NodeProto, stored: StoredWeight, added_axes: int, names: TakenNames) -> list[NodeProto]:
    """Return what stands for a MatMul.

    Args:
        node: the MatMul.
        stored: its quantized weight.
        added_axes: rank that the result has at least; 0: that of the other operand.
        names: of the model.
    """
    output = names.new(node.output[0] + "_pre_reshape") if added_axes else node.output[0]
    make = _linear_product if stored.settings.is_linear else _packed_product
    nodes = make(node, stored, output, names)
    if added_axes:
        nodes.extend(_expanded(node, output, added_axes, names))
    return nodes


def _packed_product(node: NodeProto, stored: StoredWeight, output: str, names: TakenNames) -> list[NodeProto]:
    settings = stored.settings
    attributes: dict[str, Any] = {
        "K": stored.rows,
        "N": stored.columns,
        "bits": settings.bits,
        "block_size": stored.block_size,
    }  # Any: as make_node has it
    if settings.accuracy_level > 0:
        attributes["accuracy_level"] = settings.accuracy_level
    suffix = f"_Q{settings.bits}"
    name = node.name + suffix if node.name else ""  # onnxruntime's tool gives all unnamed nodes one name
    product = helper.make_node(
        "MatMulNBits", [node.input[0], *stored.inputs], [output], name, None, "com.microsoft", **attributes
    )
    return [product]


def _linear_product(node: NodeProto, stored: StoredWeight, output: str, names: TakenNames) -> list[NodeProto]:
    bits = stored.settings.bits
    weight = names.new(stored.inputs[0] + "_output")
    axis = 1 if stored.is_transposed else 0
    dequantize = helper.make_node(
        "DequantizeLinear", stored.inputs, [weight], f"{node.name}_DQ_Q{bits}" if node.name else "",
        axis=axis, block_size=stored.block_size,
    )  # fmt: skip
    nodes = [dequantize]
    if stored.is_transposed:
        turned = names.new(weight + "_transposed")
        nodes.append(helper.make_node("Transpose", [weight], [turned], perm=[1, 0]))
        weight = turned
    name = f"{node.name}_matmul_Q{bits}" if node.name else ""
    return [*nodes, helper.make_node("MatMul", [node.input[0], weight], [output], name)]


def _expanded(node: NodeProto, output: str, rank: int, names: TakenNames) -> Iterable[NodeProto]:
    """Return nodes that give a value the rank of ones by which it is broadcast."""
    ones = names.new(node.output[0] + "_leading_axes")
    value = numpy_helper.from_array(np.ones(rank, np.int64), ones)
    yield helper.make_node("Constant", [], [ones], value=value)
    yield helper.make_node("Expand", [output, ones], [node.output[0]])


def gather_node(
    node: NodeProto, tensors: tuple[str, ...], gather_axis: int, quantize_axis: int, settings: Settings
) -> NodeProto:
    """Return what stands for a Gather: its tensors are numbers, scales and, where there are any, zero points."""
    data, *rest = tensors
    bits = settings.bits
    name = f"{node.name}_Q{bits}" if node.name else ""
    found = helper.make_node(
        "GatherBlockQuantized", [data, node.input[1], *rest], [node.output[0]], name,
        domain="com.microsoft", gather_axis=gather_axis, quantize_axis=quantize_axis, block_size=settings.block_size,
    )  # fmt: skip
    if bits != 4:
        found.attribute.append(helper.make_attribute("bits", bits))
    return found


def store_rows(
    graph: GraphProto, name: str, parts: tuple[bytes, Array, bytes | None], shape: tuple[int, ...], names: TakenNames,
    bits: int, folder: str,
) -> tuple[str, ...]:  # fmt: skip
    """Add the tensors of a GatherBlockQuantized: numbers, scales, zero points (``None``: signed, or around 128)."""
    data, scales, points = parts
    kind = TensorProto.UINT8 if bits == 8 else TensorProto.INT4 if points is None else TensorProto.UINT4
    found = [_add_raw(graph, names.new(f"{name}_Q{bits}"), kind, list(shape), data, folder)]
    found.append(add_tensor(graph, names.new(name + "_scales"), scales, folder))
    if points is not None:
        zero_points = names.new(name + "_zero_points")
        found.append(_add_raw(graph, zero_points, kind, list(scales.shape), points, folder))
    return tuple(found)


def weight_array(tensor: TensorProto) -> Array:
    """Return the numbers of a weight; bfloat16 as float32."""
    found = numpy_helper.to_array(tensor)
    return found.astype(np.float32) if found.dtype == ml_dtypes.bfloat16 else found


def add_tensor(graph: GraphProto, name: str, array: Array, folder: str) -> str:
    """Add a tensor to a graph, and return its name; a large one is set aside where the folder takes it."""
    graph.initializer.append(set_aside(numpy_helper.from_array(np.ascontiguousarray(array), name), folder))
    return name


def _add_raw(graph: GraphProto, name: str, kind: int, shape: list[int], raw: bytes, folder: str) -> str:
    made = TensorProto(name=name, data_type=kind, dims=shape, raw_data=raw)
    graph.initializer.append(set_aside(made, folder))
    return name


def _transposed(data: bytes, rows: int, columns: int) -> bytes:
    """Return packed 4-bit numbers (columns, rows) of (rows, columns)."""
    numbers = unpack(np.frombuffer(data, np.uint8), 4)[: rows * columns].reshape(rows, columns)
    return pack(np.ascontiguousarray(numbers.T).reshape(-1), 4).tobytes()
