"""Quantized tensors as QDQ models spell them: an 8-bit tensor with its scale and zero point."""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import ONNXRUNTIME, dtype_of, only_reader
from ort_core.rewrite.matcher import constant_of

_FLOAT = int(DataType.FLOAT)
EIGHT_BITS = frozenset({DataType.INT8, DataType.UINT8})


@frozen
class Quantized:
    """A tensor of integers, its scale and zero point, the axis they run along, and the Q or DQ node that said so."""

    tensor: Value
    scale: Value
    zero: Value | None
    axis: int
    node: Node

    @property
    def dtype(self) -> DataType:
        """The element type of the integers."""
        return dtype_of(self.tensor)

    @property
    def has_one_scale(self) -> bool:
        """Whether scale and zero point are single fixed numbers."""
        parts = [constant_of(self.scale), *([] if self.zero is None else [constant_of(self.zero)])]
        return all(part is not None and part.size == 1 for part in parts)

    @property
    def keeps_order(self) -> bool:
        """Whether a greater integer stands for a greater number: the scales are known, and above zero."""
        scale = self.scale_array()
        return scale is not None and bool((scale > 0).all())

    def triple(self) -> tuple[Value, Value, Value | None]:
        """Return what QLinear operators take."""
        return self.tensor, self.scale, self.zero

    def scale_array(self) -> np.ndarray | None:
        """Return the scales as float64, where they are constant."""
        found = constant_of(self.scale)
        return None if found is None else found.array().astype(np.float64)

    def zero_array(self) -> np.ndarray | None:
        """Return the zero points, where they are constant or absent."""
        if self.zero is None:
            return np.zeros((), np.int64)
        found = constant_of(self.zero)
        return None if found is None else found.array().astype(np.int64)


def find_dequantized(value: Value | None, dtypes: frozenset[DataType] = EIGHT_BITS) -> Quantized | None:
    """Return the quantized tensor that a value is the dequantization of, or ``None``."""
    node = None if value is None else value.producer
    return None if node is None else _read(node, "DequantizeLinear", node.input(0), node.output, dtypes)


def find_quantized(value: Value) -> Quantized | None:
    """Return the quantization that alone reads a value, or ``None``."""
    node = only_reader(value)
    return None if node is None else quantized_by(node)


def quantized_by(node: Node) -> Quantized | None:
    """Return what a QuantizeLinear makes, or ``None`` for another node."""
    return _read(node, "QuantizeLinear", node.output, node.input(0), EIGHT_BITS)


def has_same_grid(left: Quantized, right: Quantized) -> bool:
    """Return whether two tensors are known to have the same element type, scale and zero point, one number each."""
    if left.dtype != right.dtype or not (left.has_one_scale and right.has_one_scale):
        return False
    scales = (left.scale_array(), right.scale_array())
    zeros = (left.zero_array(), right.zero_array())
    assert scales[0] is not None
    assert scales[1] is not None
    assert zeros[0] is not None
    assert zeros[1] is not None
    return bool(scales[0].item() == scales[1].item() and zeros[0].item() == zeros[1].item())


def real_range(quantized: Quantized) -> tuple[float, float] | None:
    """Return the least and the greatest real number that a tensor with one scale can express."""
    scale, zero = quantized.scale_array(), quantized.zero_array()
    if not quantized.has_one_scale or scale is None or zero is None or quantized.dtype not in EIGHT_BITS:
        return None
    bounds = np.iinfo(quantized.dtype.numpy)
    ends = sorted((end - zero.item()) * scale.item() for end in (bounds.min, bounds.max))
    return ends[0], ends[1]


def _read(
    node: Node, op_type: str, tensor: Value | None, real: Value | None, dtypes: frozenset[DataType]
) -> Quantized | None:
    if node.op_type != op_type or node.domain not in ("", ONNXRUNTIME) or tensor is None:
        return None
    if node.int_attribute("block_size", 0) or node.int_attribute("precision", _FLOAT) not in (0, _FLOAT):
        return None
    scale = node.inputs[1]
    if scale is None or dtype_of(tensor) not in dtypes:
        return None
    if dtype_of(scale) is not DataType.FLOAT or dtype_of(real) is not DataType.FLOAT:  # a node may name another type
        return None
    return Quantized(tensor, scale, node.input(2), node.int_attribute("axis", 1), node)
