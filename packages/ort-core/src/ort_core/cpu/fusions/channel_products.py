"""Products over the channels of data that keeps them in front: convolutions with windows of one element.

    y = Transpose(Transpose(x, (0, 2, 3, 1)) @ W + b, (0, 3, 1, 2))     ->  y = Conv(x, W turned) + b

Attentions whose heads talk have such products of few channels, and perceptrons over images. Rows of a few elements are
what vectors compute worst. What lies between the two Transposes may be more: the pass knows what TransposeOptimizer
knows, and products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ort_core.plugin.ir import DataType, Node, TensorType
from ort_core.plugin.passes import (
    ADAPTERS,
    Adapted,
    Adapter,
    Level,
    PassContext,
    PassRecordState,
    Perm,
    TransposeOptimizer,
)
from ort_core.plugin.rewrite import constant_of

MAX_CHANNELS = 32  # rows of more are read and written turned as fast: tokens of mixers stay products
MIN_POSITIONS = 16  # of fewer columns a product reads its weights faster as they are


def _product(node: Node, perm: Perm, opset: int) -> Adapted | None:
    """Adapt the product of data, whose channels were moved to the end, and a constant matrix of floats."""
    x, weights = node.input(0), constant_of(node.input(1))
    if perm != (0, *range(2, len(perm)), 1) or x is None or weights is None or len(weights.shape) != 2:
        return None
    if not isinstance(x.type, TensorType) or x.type.dtype is not DataType.FLOAT or x.shape is None:
        return None
    if max(weights.shape) > MAX_CHANNELS:
        return None
    positions = [size for size in x.shape[1:-1] if isinstance(size, int)]
    if len(positions) < len(perm) - 2 or math.prod(positions) < MIN_POSITIONS:
        return None
    turned = np.ascontiguousarray(weights.array().T).reshape(*weights.shape[::-1], *[1] * len(positions))
    return Adapted(perm, (0,), constants={1: turned}, op_type="Conv")


class ChannelProducts(TransposeOptimizer):
    """Compute products over channels where the data lies, and leave out the Transposes around them."""

    name = "ChannelProducts"
    level = Level.EXTENDED
    adapters: ClassVar[Mapping[str, Adapter]] = {**ADAPTERS, "MatMul": _product}

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look where there are both, Transposes and products."""
        if {"Transpose", "MatMul"} <= context.op_types():
            super().apply(context, record)
