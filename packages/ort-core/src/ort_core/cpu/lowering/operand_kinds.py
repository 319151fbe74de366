"""How an epilogue over channels-last images and volumes reads its operands."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.channels_last import OperandKind
from ort_core.cpu.lowering.layout_steps import is_channels_last
from ort_core.cpu.lowering.views import View, broadcast_strides
from ort_core.plugin.ir import DataType, KnownDim

F32 = DataType.FLOAT


def operand_kind(view: View, shape: Sequence[KnownDim]) -> OperandKind | None:
    """Return how an epilogue over channels-last images reads a view, ``None`` where it cannot."""
    strides = broadcast_strides(view, shape)
    if view.dtype is not F32 or strides is None:
        return None
    if all(stride == 0 for axis, stride in enumerate(strides) if axis != 1):
        return OperandKind.CHANNEL if strides[1] == 1 or shape[1] == 1 else None
    same = len(view.shape) == len(shape) and view.shape == tuple(shape)
    return OperandKind.TENSOR if same and is_channels_last(view) else None
