"""Elementwise operators: the shape of the input, or what several inputs broadcast to; and their shape arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.ir.types import DataType
from ort_core.ops import symbolic_values as sym
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import broadcast
from ort_core.ops.symbolic_values import Element

SAME_SHAPE = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cos", "Cosh", "CumSum",
    "CumProd", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LRN",
    "LeakyRelu", "Log", "MeanVarianceNormalization", "Mish", "Reciprocal",
    "ReverseSequence", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "SwiGLU",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu", "Affine", "ImageScaler", "ParametricSoftplus", "Scale",
    "ScaledTanh", "MemcpyFromHost", "MemcpyToHost",
)  # fmt: skip


@infer_rule(*SAME_SHAPE)
def infer_same_shape(ctx: InferenceContext) -> None:
    """Every output element comes from the input element at its place."""
    ctx.set_shape(0, ctx.shape(0))


@infer_rule("Hardmax", "LogSoftmax", "LpNormalization", "Softmax")
def infer_along_axis(ctx: InferenceContext) -> None:
    """The shape of the input, whose axis must exist."""
    shape = ctx.shape(0)
    ctx.set_shape(0, shape)
    axis = ctx.optional_int_of("axis")
    if shape and axis is not None and not -len(shape) <= axis < len(shape):
        ctx.refuse(f"'axis' must be in [{-len(shape)} , {len(shape) - 1}]. Its actual value is: {axis}")


_UNARY: dict[str, Callable[[Element], Element]] = {
    "Neg": sym.negate,
    "Abs": sym.absolute,
    "Floor": sym.floor,
    "Ceil": sym.ceiling,
    "Not": sym.logical_not,
    "Sqrt": lambda e: e**0.5 if isinstance(e, (int, float)) and e >= 0 else None,
    "Relu": lambda e: sym.larger(e, 0),
    "Round": lambda e: round(e) if isinstance(e, float) and abs(e) < 2**62 else e,
}


@infer_rule(*_UNARY)
def infer_unary(ctx: InferenceContext) -> None:
    """As ``infer_same_shape``, and the elements of shape arithmetic are carried along."""
    ctx.set_shape(0, ctx.shape(0))
    value = ctx.value(0)
    if value is not None:
        ctx.set_value(0, sym.map_elements(_UNARY[ctx.node.op_type], value))


_BINARY: dict[str, Callable[[Element, Element], Element] | None] = {
    "Add": sym.add, "Sub": sym.subtract, "Mul": sym.multiply, "Div": None, "Pow": None, "Mod": sym.remainder,
    "And": sym.logical_and, "Or": sym.logical_or, "Xor": None, "Equal": sym.equal, "Greater": sym.greater,
    "Less": lambda a, b: sym.greater(b, a), "GreaterOrEqual": sym.greater_or_equal,
    "LessOrEqual": lambda a, b: sym.greater_or_equal(b, a), "BitShift": None, "BitwiseAnd": None, "BitwiseOr": None,
    "BitwiseXor": None, "PRelu": None,
}  # fmt: skip
_BROADCAST_SINCE_7 = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "PRelu")


@infer_rule(*_BROADCAST_SINCE_7)
def infer_binary_without_broadcasting(ctx: InferenceContext) -> None:
    """Before opset 7 the second input was fitted to the first one."""
    ctx.set_shape(0, ctx.shape(0))
    if ctx.shape(0) == ctx.shape(1) and ctx.int_of("broadcast") == 0:
        _propagate_binary(ctx)


@infer_rule(*_BROADCAST_SINCE_7, since=7)
@infer_rule(*(name for name in _BINARY if name not in _BROADCAST_SINCE_7))
def infer_binary(ctx: InferenceContext) -> None:
    """The inputs broadcast; shape arithmetic is carried along."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(1))))
    _propagate_binary(ctx)


def _propagate_binary(ctx: InferenceContext) -> None:
    left = ctx.value(0)
    right = None if left is None else ctx.value(1)
    if left is None or right is None:
        return
    op_type = ctx.node.op_type
    function = _BINARY[op_type]
    dtype = ctx.dtype(0)
    if op_type == "Div":
        function = sym.divide_integers if dtype is not None and dtype.is_integer else sym.divide_reals
    elif op_type == "Mod" and ctx.int_of("fmod"):
        function = None
    elif op_type == "Pow":
        function = _power
    if function is not None:
        ctx.set_value(0, sym.map_elements(function, left, right))


def _power(base: Element, exponent: Element) -> Element:
    base, exponent = sym.whole(base), sym.whole(exponent)
    if isinstance(exponent, int) and 0 <= exponent <= 8:
        result: Element = 1
        for _ in range(exponent):
            result = sym.multiply(result, base)
        return result
    return None


@infer_rule("Max", "Min", "Mean", "Sum")
def infer_variadic_without_broadcasting(ctx: InferenceContext) -> None:
    """Before opset 8 all inputs had one shape."""
    ctx.set_shape(0, ctx.shape(0))


@infer_rule("Max", "Min", "Mean", "Sum", since=8)
def infer_variadic(ctx: InferenceContext) -> None:
    """All inputs broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(i) for i in range(ctx.input_count))))
    function = {"Max": sym.larger, "Min": sym.smaller, "Sum": sym.add}.get(ctx.node.op_type)
    if function is None:
        return
    result = ctx.value(0)
    for index in range(1, ctx.input_count):
        other = None if result is None else ctx.value(index)
        if result is None or other is None:
            return
        result = sym.map_elements(function, result, other)
    ctx.set_value(0, result)


@infer_rule("Where")
def infer_where(ctx: InferenceContext) -> None:
    """Condition and both choices broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(1), ctx.shape(2))))
    condition = ctx.value(0)
    left = None if condition is None else ctx.value(1)
    right = None if left is None else ctx.value(2)
    if condition is not None and left is not None and right is not None:
        ctx.set_value(0, sym.map_elements(sym.choose, condition, left, right))


@infer_rule("Clip")
def infer_clip(ctx: InferenceContext) -> None:
    """The shape of the input, elements clamped."""
    ctx.set_shape(0, ctx.shape(0))
    value = ctx.value(0)
    if value is None or ctx.opset < 11:
        return
    for index, function in ((1, sym.larger), (2, sym.smaller)):
        if ctx.has_input(index):
            bound = ctx.value(index)
            if bound is None or value is None:
                return
            value = sym.map_elements(function, value, bound)
    ctx.set_value(0, value)


@infer_rule("Cast")
def infer_cast(ctx: InferenceContext) -> None:
    """The element type is the attribute ``to``."""
    to = ctx.attribute("to")
    # Before opset 6 the attribute was the name of the type.
    dtype = DataType.__members__.get(to) if isinstance(to, str) else ctx.data_type_of("to")
    if dtype is None:
        ctx.refuse("attribute 'to' names no element type")
    ctx.set_output(0, dtype, ctx.shape(0))
    _propagate_cast(ctx, dtype)


@infer_rule("CastLike")
def infer_cast_like(ctx: InferenceContext) -> None:
    """The element type is the second input's."""
    ctx.set_output(0, ctx.dtype(1), ctx.shape(0))
    _propagate_cast(ctx, ctx.dtype(1))


def _propagate_cast(ctx: InferenceContext, dtype: DataType | None) -> None:
    value = ctx.value(0)
    if value is None or dtype is None or dtype is DataType.STRING:
        return
    if dtype is DataType.BOOL:
        value = sym.map_elements(lambda e: sym.logical_not(sym.equal(e, 0)), value)
    elif dtype.is_integer:
        value = sym.map_elements(sym.to_integer, value)
    ctx.set_value(0, value)


@infer_rule("BitCast")
def infer_bit_cast(ctx: InferenceContext) -> None:
    """The same shape, other element type of the same width."""
    ctx.set_output(0, ctx.data_type_of("to"), ctx.shape(0))


@infer_rule("Dropout")
def infer_dropout(ctx: InferenceContext) -> None:
    """Output and mask have the shape of the input; ratio and training_mode are scalars."""
    for index, name in ((1, "Ratio"), (2, "training_mode")):
        if ctx.shape(index):
            ctx.refuse(f"{name} of Dropout must be a scalar.")
    ctx.set_shape(0, ctx.shape(0))
    if ctx.opset < 10:  # the mask had the element type of the data
        ctx.set_output(1, ctx.dtype(0), ctx.shape(0))
    else:
        ctx.set_output(1, DataType.BOOL, ctx.shape(0))
