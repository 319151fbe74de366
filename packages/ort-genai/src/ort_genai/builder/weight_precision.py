"""How the weights of products are written: floats, or numbers of 4 or 8 bits by blocks for MatMulNBits."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.precision_names import Method, Precision
from ort_quantization.weight_only.matmul_nbits_blocks import PackedBlocks, packed_blocks
from ort_quantization.weight_only.matmul_nbits_rounding import (
    k_quant,
    native_blocks,
    real_zero_points,
    round_to_nearest,
    symmetric_bytes,
)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a weight is written.

    Attributes:
        precision: of the model.
        bits: of a number; 0: floats.
        block_size: rows that share a scale.
        method: that finds the numbers.
        is_symmetric: whether there are no zero points.
        accuracy_level: of MatMulNBits; see ``BuildOptions``.
    """

    precision: Precision
    bits: int = 0
    block_size: int = 32
    method: Method = Method.REAL
    is_symmetric: bool = False
    accuracy_level: int = 2

    @property
    def dtype(self) -> np.dtype:
        """Of activations and caches."""
        kinds = {Precision.FP16: np.float16, Precision.BF16: ml_dtypes.bfloat16}
        return np.dtype(kinds.get(self.precision, np.float32))

    def quantized(self, weight: np.ndarray) -> PackedBlocks:
        """Return numbers of a weight (K, N)."""
        if self.bits == 8:  # 256 numbers leave nothing that a search, or a zero point, would gain
            return symmetric_bytes(weight, self.block_size)
        if self.method is Method.REAL and not self.is_symmetric:
            return packed_blocks(real_zero_points(weight, self.bits, self.block_size))
        if self.method in (Method.DEFAULT, Method.REAL):
            return native_blocks(weight, self.bits, self.block_size, self.is_symmetric)
        if self.method is Method.RTN or self.is_symmetric:
            return packed_blocks(round_to_nearest(weight, self.bits, self.block_size, self.is_symmetric))
        return packed_blocks(k_quant(weight, self.bits, self.block_size))


def write_product(
    graph: GraphWriter, form: WeightFormat, value: str, weight: np.ndarray, name: str, result: str
) -> str:
    """Add a product of activations with a weight (N, K), and return its result.

    Args:
        graph: to add to.
        form: how the weight is written.
        value: the activations.
        weight: float32, a row for each result.
        name: of the node, ``/model/…/MatMul``.
        result: name of the result.
    """
    if not form.bits:
        tensor = graph.tensor(_weight_name(name), weight.T.astype(form.dtype))
        return graph.node("MatMul", [value, tensor], result, name)
    blocks = form.quantized(np.ascontiguousarray(weight.T))
    return write_blocks(graph, form, value, store_blocks(graph, blocks, _weight_name(name)), weight.shape, name, result)


def store_blocks(graph: GraphWriter, blocks: PackedBlocks, name: str) -> list[str]:
    """Add the tensors of a quantized weight and return their names."""
    tensors = [(f"{name}_Q{blocks.bits}", blocks.data), (f"{name}_scales", blocks.scales.astype(np.float32))]
    if blocks.zero_points is not None:
        tensors.append((f"{name}_zero_points", blocks.zero_points))
    return [graph.tensor(each, value) for each, value in tensors]


def write_blocks(
    graph: GraphWriter,
    form: WeightFormat,
    value: str,
    tensors: list[str],
    shape: tuple[int, ...],
    name: str,
    result: str,
) -> str:
    """Add a MatMulNBits of tensors that are stored, of a weight of shape (N, K)."""
    level = {"accuracy_level": form.accuracy_level} if form.accuracy_level else {}
    return graph.node(
        "MatMulNBits", [value, *tensors], result, f"{name}_Q{form.bits}", CONTRIB, K=shape[1], N=shape[0],
        bits=form.bits,
        block_size=form.block_size, **level,
    )  # fmt: skip


def _weight_name(node: str) -> str:
    """Return ``model.layers.0.attn.o_proj.MatMul.weight`` of ``/model/layers.0/attn/o_proj/MatMul``."""
    return node.strip("/").replace("/", ".") + ".weight"
