"""Quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear."""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext


@infer_rule("QuantizeLinear")
def infer_quantize_linear(ctx: InferenceContext) -> None:
    """The element type is the zero point's, else the attribute's, else uint8."""
    dtype = ctx.dtype(2) if ctx.has_input(2) else ctx.data_type_of("output_dtype", DataType.UINT8)
    if ctx.has_input(2) and ctx.dtype(2) is not None and ctx.int_of("output_dtype") not in (0, ctx.dtype(2)):
        asked, found = ctx.int_of("output_dtype"), ctx.dtype(2)
        ctx.refuse(f"output_dtype {asked} does not match y_zero_point type {found}.")
    _check_axis(ctx)
    ctx.set_output(0, dtype, ctx.shape(0))


@infer_rule("DequantizeLinear")
def infer_dequantize_linear(ctx: InferenceContext) -> None:
    """The element type is the scale's (before opset 19 float32), unless an attribute gives one."""
    _check_axis(ctx)
    dtype = ctx.dtype(1) if ctx.opset >= 19 else DataType.FLOAT
    ctx.set_output(0, ctx.data_type_of("output_dtype", dtype), ctx.shape(0))


def _check_axis(ctx: InferenceContext) -> None:
    """Refuse scales for each index of an axis that is not there; of one scale the axis does not matter."""
    x, scale = ctx.shape(0), ctx.shape(1)
    axis = ctx.int_of("axis", 1)
    is_for_all = scale is None or len(scale) != 1 or not isinstance(scale[0], int) or scale[0] == 1
    if x is not None and not is_for_all and not -len(x) <= axis < len(x):
        ctx.refuse(f"axis {axis} is not in the valid range [{-len(x)}, {len(x) - 1}]")


@infer_rule("DynamicQuantizeLinear")
def infer_dynamic_quantize_linear(ctx: InferenceContext) -> None:
    """uint8 data, a float32 scale and a uint8 zero point."""
    ctx.set_output(0, DataType.UINT8, ctx.shape(0))
    ctx.set_output(1, DataType.FLOAT, ())
    ctx.set_output(2, DataType.UINT8, ())
