"""How an epilogue over channels-last images and volumes reads its operands."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.lowering.images.layout_steps import is_channels_last, lies_among_channels, pixel_pitch
from ort_core.cpu.lowering.views import View, broadcast_strides
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import Scalar

F32 = DataType.FLOAT


def operand_kind(view: View, shape: Sequence[KnownDim]) -> OperandKind | None:
    """Return how an epilogue over channels-last images reads a view, ``None`` where it cannot."""
    strides = broadcast_strides(view, shape)
    if view.dtype is not F32 or strides is None:
        return None
    if all(stride == 0 for axis, stride in enumerate(strides) if axis != 1):
        return OperandKind.CHANNEL if strides[1] == 1 or shape[1] == 1 else None
    same = len(view.shape) == len(shape) and view.shape == tuple(shape)
    return OperandKind.TENSOR if same and (is_channels_last(view) or lies_among_channels(view)) else None


def epilogue_of(expression: Scalar, inputs: Sequence[View], shape: Sequence[KnownDim]) -> Epilogue | None:
    """Return an anchor's epilogue, for inputs that all have a kind; ``None`` where the result is stored as it is."""
    if expression.operation == "input":
        return None
    kinds = [operand_kind(view, shape) for view in inputs]
    pitches = tuple(
        pixel_pitch(view) if kind is OperandKind.TENSOR and len(view.shape) == 4 else None
        for view, kind in zip(inputs, kinds, strict=True)
    )
    return Epilogue(expression, tuple(kind for kind in kinds if kind is not None), pitches if any(pitches) else ())
