"""8-bit forms: the two conversions, products of integers with float scales, and operators between the conversions."""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.convolution import channels_first, channels_last, window_attributes
from ort_core.ops.bodies.writer import BodyWriter, NoBody

_BOUNDS = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}
_WIDE_LEVELS = frozenset({DataType.INT16, DataType.UINT16, DataType.INT4, DataType.UINT4})
_LEVELS_SINCE, _HALF_SCALES_SINCE = 21, 19


def _parameters(w: BodyWriter, scale: int, zero: int, axis: int | None) -> tuple[list[Value], dict[str, object]]:
    """Return a scale and a zero point as the operators of ai.onnx take them, and their axis where they have one."""
    shape = w.shape(scale)
    if shape is None or any(not isinstance(size, int) for size in shape) or len(shape) > 1:
        raise NoBody("the shape of its scale is not known")
    given = [index for index in (scale, zero) if w.has(index)]
    if math.prod(int(str(size)) for size in shape) == 1:
        return [w.scalar(w.input(index), index) for index in given], {}
    if w.rank(0) < 1:
        raise NoBody("a scalar has no axis of scales")
    return [w.input(index) for index in given], {"axis": 1 if axis is None else axis}


def _checks_types(w: BodyWriter, levels: DataType, scale: DataType) -> None:
    least = max(
        _LEVELS_SINCE if levels in _WIDE_LEVELS else 0, _HALF_SCALES_SINCE if scale is not DataType.FLOAT else 0
    )
    if w.opset < least:
        raise NoBody(f"ai.onnx quantizes {levels.text} by {scale.text} from opset {least} on, the model has {w.opset}")


def _axis(w: BodyWriter) -> int | None:
    found = w.attribute("axis")
    return found if isinstance(found, int) else None


def quantize_linear(w: BodyWriter) -> Results:
    """QuantizeLinear of ai.onnx; uint8 without a zero point."""
    _checks_types(w, w.dtype(2) if w.has(2) else DataType.UINT8, w.dtype(1))
    parameters, attributes = _parameters(w, 1, 2, _axis(w))
    return [w.op("QuantizeLinear", w.input(0), *parameters, **attributes)]


def dequantize_linear(w: BodyWriter) -> Results:
    """DequantizeLinear of ai.onnx."""
    _checks_types(w, w.dtype(0), w.dtype(1))
    parameters, attributes = _parameters(w, 1, 2, _axis(w))
    return [w.op("DequantizeLinear", w.input(0), *parameters, **attributes)]


def _in(w: BodyWriter, index: int) -> Value:
    """Return the floats that an input stands for, whose scale and zero point are the next two inputs."""
    parameters = [w.scalar(w.input(i), i) for i in (index + 1, index + 2) if w.has(i)]
    return w.op("DequantizeLinear", w.input(index), *parameters)


def _out(w: BodyWriter, x: Value, scale: int, like: int) -> Value:
    """Return floats quantized to the type of an input by a scale, and the zero point behind it."""
    zero = w.scalar(w.input(scale + 1), scale + 1) if w.has(scale + 1) else w.constant(0, w.dtype(like))
    return w.op("QuantizeLinear", x, w.scalar(w.input(scale), scale), zero)


def _out_shifted(w: BodyWriter, x: Value, scale: int, like: int) -> Value:
    """As ``_out``, with the zero point added before the rounding, as onnxruntime does for two operands."""
    levels = w.op("Div", x, w.scalar(w.input(scale), scale))
    if w.has(scale + 1):
        levels = w.op("Add", levels, w.cast(w.scalar(w.input(scale + 1), scale + 1), DataType.FLOAT))
    return _saturated(w, w.op("Round", levels), w.dtype(like))


def _saturated(w: BodyWriter, levels: Value, dtype: DataType) -> Value:
    low, high = (w.constant(bound, DataType.FLOAT) for bound in _BOUNDS[dtype])
    return w.cast(w.op("Clip", levels, low, high), dtype)


def qlinear_add(w: BodyWriter) -> Results:
    """C = quantized(A + B)."""
    return [_out_shifted(w, w.op("Add", _in(w, 0), _in(w, 3)), 6, 0)]


def qlinear_mul(w: BodyWriter) -> Results:
    """C = quantized(A * B)."""
    return [_out_shifted(w, w.op("Mul", _in(w, 0), _in(w, 3)), 6, 0)]


def qlinear_leaky_relu(w: BodyWriter) -> Results:
    """Y = quantized(LeakyRelu(X))."""
    return [_out(w, w.op("LeakyRelu", _in(w, 0), alpha=w.float_of("alpha", 0.01)), 3, 0)]


def qlinear_sigmoid(w: BodyWriter) -> Results:
    """Y = quantized(Sigmoid(X))."""
    return [_out(w, w.op("Sigmoid", _in(w, 0)), 3, 0)]


def qlinear_softmax(w: BodyWriter) -> Results:
    """Y = quantized(Softmax(X)), counted in whole steps of 1 / y_scale, a half rounded up."""
    x, axis = _in(w, 0), w.int_of("axis", -1)
    if w.int_of("opset") >= 13:
        chances = w.op("Softmax", x, axis=axis)
    else:
        flat = w.op("Softmax", w.op("Flatten", x, axis=axis % max(w.rank(0), 1)), axis=-1)
        chances = w.op("Reshape", flat, w.op("Shape", w.input(0)))
    one = w.constant(1, DataType.FLOAT)
    steps = w.op("Floor", w.op("Div", one, w.scalar(w.input(3), 3)))
    rounded = w.op("Floor", w.op("Add", w.op("Mul", chances, steps), w.constant(0.5, DataType.FLOAT)))
    zero = w.cast(w.scalar(w.input(4), 4), DataType.FLOAT) if w.has(4) else None
    return [_saturated(w, w.sum(rounded, zero), w.dtype(0))]


def qlinear_where(w: BodyWriter) -> Results:
    """Z = quantized(X where condition, else Y)."""
    return [_out(w, w.op("Where", w.input(0), _in(w, 1), _in(w, 4)), 7, 1)]


def qlinear_concat(w: BodyWriter) -> Results:
    """Concatenate (tensor, scale, zero point) triples, each brought to the output's scale and zero point."""
    places = range(2, len(w.node.inputs), 3)
    return [w.joined(*(_out(w, _in(w, place), 0, 1) for place in places), axis=w.int_of("axis"))]


def qlinear_reduce_mean(w: BodyWriter) -> Results:
    """Quantized mean over axes."""
    axes = w.attribute("axes")
    named = axes if isinstance(axes, tuple) and axes else tuple(range(w.rank(0)))
    return [_out(w, w.reduce("ReduceMean", _in(w, 0), named, keepdims=w.int_of("keepdims", 1)), 3, 0)]


def qlinear_global_average_pool(w: BodyWriter) -> Results:
    """Quantized mean over all spatial axes, which stay with length 1."""
    rank = w.rank(0)
    axes = range(1, rank - 1) if w.int_of("channels_last") else range(2, rank)
    return [_out(w, w.reduce("ReduceMean", _in(w, 0), axes), 3, 0)]


def qlinear_average_pool(w: BodyWriter) -> Results:
    """Quantized mean over windows; padding has the value zero and counts only with ``count_include_pad``."""
    rank, last = w.rank(0), bool(w.int_of("channels_last"))
    x = channels_first(w, _in(w, 0), rank) if last else _in(w, 0)
    pooled = w.op("AveragePool", x, count_include_pad=w.int_of("count_include_pad"), **window_attributes(w))
    return [_out(w, channels_last(w, pooled, rank) if last else pooled, 3, 0)]


def integer_product(w: BodyWriter, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    """Return (A - a_zero) @ (B - b_zero) as float32, by the product of integers."""
    zeros = (a_zero, b_zero) if b_zero is not None else (a_zero,) if a_zero is not None else ()
    return w.cast(w.op("MatMulInteger", a, b, *zeros), DataType.FLOAT)


def column_parameters(w: BodyWriter, *indices: int) -> None:
    """Refuse scales and zero points other than one for all, or one for each column."""
    for index in indices:
        if w.has(index) and w.rank(index) > 1:
            raise NoBody("scales and zero points of a stack of matrices have no body")


def matmul_integer_to_float(w: BodyWriter) -> Results:
    """Y = (A - a_zero) @ (B - b_zero) * a_scale * b_scale + bias."""
    column_parameters(w, 2, 3, 4, 5)
    a_zero = w.scalar(w.input(4), 4) if w.has(4) else None
    total = integer_product(w, w.input(0), w.input(1), a_zero, w.find(5))
    scaled = w.op("Mul", total, w.op("Mul", w.wide(2), w.wide(3)))
    return [w.narrow(w.sum(scaled, w.find_wide(6)), 2)]


def dynamic_quantize_matmul(w: BodyWriter) -> Results:
    """Quantize A to uint8 over its own range, multiply with the quantized B, return float."""
    column_parameters(w, 2, 3)
    levels, scale, zero = w.ops("DynamicQuantizeLinear", w.input(0), outputs=3)
    total = integer_product(w, levels, w.input(1), zero, w.find(3))
    return [w.sum(w.op("Mul", total, w.op("Mul", scale, w.input(2))), w.find(4))]


def quantized_gemm(w: BodyWriter) -> Results:
    """Y = alpha * a_scale * b_scale * (op(A - a_zero) @ op(B - b_zero) + C), quantized with y_scale and zero point."""
    if w.has(7) != w.has(8):
        raise NoBody("a scale of the result without its zero point, or that without the scale, has no body")
    column_parameters(w, 1, 2, 4, 5)
    a, b = (
        w.transpose(w.input(i), 1, 0) if w.int_of(name) else w.input(i) for i, name in ((0, "transA"), (3, "transB"))
    )
    zero = w.scalar(w.input(2), 2) if w.has(2) else None
    levels = w.op("MatMulInteger", a, b, *((zero, w.find(5)) if w.has(5) else (zero,) if zero is not None else ()))
    total = w.cast(w.sum(levels, w.find(6)), DataType.FLOAT)
    factor = w.op("Mul", w.op("Mul", w.input(1), w.input(4)), w.constant(w.float_of("alpha", 1.0), DataType.FLOAT))
    scaled = w.op("Mul", total, factor)
    return [_out(w, scaled, 7, 0) if w.has(7) else scaled]


def mul_integer(w: BodyWriter) -> Results:
    """C = (A - a_zero) * (B - b_zero), in int32."""
    return [w.op("Mul", _shifted(w, 0), _shifted(w, 2))]


def _shifted(w: BodyWriter, index: int) -> Value:
    x = w.cast(w.input(index), DataType.INT32)
    return w.op("Sub", x, w.cast(w.input(index + 1), DataType.INT32)) if w.has(index + 1) else x


def reduce_sum_integer(w: BodyWriter) -> Results:
    """Sum 8-bit integers over axes, in 32 bits."""
    axes = w.attribute("axes")
    named = axes if isinstance(axes, tuple) and axes else tuple(range(w.rank(0)))
    wide = DataType.UINT32 if w.dtype(0) is DataType.UINT8 else DataType.INT32
    return [w.reduce("ReduceSum", w.cast(w.input(0), wide), named, keepdims=w.int_of("keepdims", 1))]
