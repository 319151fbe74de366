"""Meanings: what each elementwise ONNX operator computes of one element, written once.

A meaning takes one ``Scalar`` per input and the node's attributes. Operators whose result depends on more than the
element (reductions, softmax, normalization) are in ``rows``. A meaning that cannot serve a dtype or an attribute
returns a Rejection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops import (
    double_functions,
    float32_inverse,
    float64_inverse,
    float64_power,
    integer_powers,
    polynomials,
)
from ort_core.loops.gaussian_units import gelu, gelu_tanh
from ort_core.loops.scalar import (
    Scalar,
    binary,
    bitcast,
    cast,
    fma,
    lift,
    maximum,
    minimum,
    select,
    unary,
)

Attributes = Mapping[str, object]
ElementMeaning = Callable[[Sequence[Scalar], Attributes], "Scalar | Rejection"]
F32, F64 = DataType.FLOAT, DataType.DOUBLE
INTEGERS = frozenset(
    {DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.UINT8, DataType.UINT16, DataType.UINT32,
     DataType.UINT64}
)  # fmt: skip
UNSIGNED = frozenset({DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64})


def _attribute(attributes: Attributes, name: str, default: float) -> float:
    value = attributes.get(name)
    return float(value) if isinstance(value, (int, float)) else float(np.float32(default))  # attributes are float32


def _simple(function: Callable[..., Scalar]) -> ElementMeaning:
    return lambda inputs, attributes: function(*inputs)


def _only_float(function: Callable[[Scalar], Scalar]) -> ElementMeaning:
    return _limited(function, lambda dtype: dtype is F32, "it is approximated for float32 only, not for")


def _real(function: Callable[[Scalar], Scalar]) -> ElementMeaning:
    return _limited(function, lambda dtype: dtype.is_float, "of floats, not of")


def _of_both(of_float: Callable[[Scalar], Scalar], of_double: Callable[[Scalar], Scalar]) -> ElementMeaning:
    return _real(lambda x: (of_double if x.dtype is F64 else of_float)(x))


def _integer(operation: str) -> ElementMeaning:
    made = unary if operation == "not" else binary
    return _limited(lambda *inputs: made(operation, *inputs), lambda dtype: dtype in INTEGERS, "of integers, not of")


def _limited(function: Callable[..., Scalar], takes: Callable[[DataType], bool], reason: str) -> ElementMeaning:
    """Return the meaning of an operator over some element types; ``reason`` is what a refusal says before the type."""

    def meaning(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
        if not takes(inputs[0].dtype):
            return Rejection(f"{reason} {inputs[0].dtype.text}")
        return function(*inputs)

    return meaning


def _variadic(operation: str) -> ElementMeaning:
    def meaning(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
        total = inputs[0]
        for other in inputs[1:]:
            total = binary(operation, total, other)
        return total

    return meaning


def _mean(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    total = _variadic("add")(inputs, attributes)
    return total / float(len(inputs)) if isinstance(total, Scalar) else total


def _divide(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    a, b = inputs
    if a.dtype.is_float or _is_safe_divisor(b):
        return a / b  # of integers: towards zero
    return Rejection("integer division by zero must be caught; the reference kernel does")


def _is_safe_divisor(b: Scalar) -> bool:
    """Return whether an integer constant neither divides by zero nor overflows."""
    return b.operation == "constant" and int(b.value) not in (0, -1)


def _mod(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    a, b = inputs
    if a.dtype is F32:
        return _float_remainder(a, b, bool(attributes.get("fmod", 0)))
    if a.dtype not in INTEGERS or not _is_safe_divisor(b):
        return Rejection("only the remainder of integers by a constant is generated")
    rest = binary("rem", a, b)
    if attributes.get("fmod", 0) or a.dtype in UNSIGNED:
        return rest
    differs = binary("lt", binary("xor", rest, b), 0)
    return select(binary("and", binary("ne", rest, 0), differs), rest + b, rest)


def _float_remainder(a: Scalar, b: Scalar, is_of_dividend: bool) -> Scalar:
    """Return the remainder with the sign of ``a``, or as Python's ``%`` with that of ``b``."""
    rest = double_functions.remainder(a, b)
    if is_of_dividend:
        return rest
    differs = binary("ne", binary("lt", rest, 0.0), binary("lt", b, 0.0))
    signed = select(binary("and", binary("ne", rest, 0.0), differs), rest + b, rest)
    zero = bitcast(binary("and", bitcast(b, DataType.INT32), -(1 << 31)), F32)
    return select(binary("eq", rest, 0.0), zero, signed)


def _relu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return maximum(inputs[0], 0)


def _leaky_relu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return select(binary("lt", x, 0.0), x * _attribute(attributes, "alpha", 0.01), x)


def _prelu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    x, slope = inputs
    return select(binary("lt", x, 0), x * slope, x)


def _elu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return select(binary("lt", x, 0.0), _attribute(attributes, "alpha", 1.0) * polynomials.expm1_of_negative(x), x)


def _selu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    alpha = _attribute(attributes, "alpha", 1.67326319217681884765625)
    gamma = _attribute(attributes, "gamma", 1.05070102214813232421875)
    return select(binary("gt", x, 0.0), x * gamma, polynomials.expm1_of_negative(x) * (gamma * alpha))


def _celu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    alpha = _attribute(attributes, "alpha", 1.0)
    if alpha > 0.0:
        return select(binary("gt", x, 0.0), x, alpha * polynomials.expm1_of_negative(x / alpha))
    return maximum(x, 0.0) + minimum(alpha * (polynomials.exp(x / alpha) - 1.0), 0.0)


def _hard_sigmoid(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    alpha, beta = _attribute(attributes, "alpha", 0.2), _attribute(attributes, "beta", 0.5)
    return maximum(minimum(fma(inputs[0], alpha, beta), 1.0), 0.0)


def _hard_swish(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return x * maximum(minimum(fma(x, 1.0 / 6.0, 0.5), 1.0), 0.0)


def _gelu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return gelu_tanh(inputs[0]) if attributes.get("approximate", "none") == "tanh" else gelu(inputs[0])


def _quick_gelu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return x * polynomials.sigmoid(x * _attribute(attributes, "alpha", 1.702))


def _swish(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return x * polynomials.sigmoid(x * _attribute(attributes, "alpha", 1.0))


def _bias_gelu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return gelu(inputs[0] + inputs[1])


def _fast_gelu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return gelu_tanh(inputs[0] + inputs[1] if len(inputs) > 1 else inputs[0])


def _softplus(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return maximum(x, 0.0) + polynomials.log1p_of_fraction(polynomials.exp_of_negative(-unary("abs", x)))


def _softsign(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return inputs[0] / (unary("abs", inputs[0]) + 1.0)


def _mish(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    """``x tanh(log(1 + e**x))``: with ``w = e**-|x|`` the tanh is a quotient of sums, in which nothing cancels.

    Below 0 it is ``w (w + 2) / (w (w + 2) + 2)``, above ``(1 + 2 w) / (1 + 2 w + 2 w**2)``.
    """
    (x,) = inputs
    w = polynomials.exp_of_negative(-unary("abs", x))
    is_below, twice = binary("lt", x, 0.0), w + w
    above = select(is_below, fma(w, w, twice), twice + 1.0)
    return x * (above / (above + select(is_below, 2.0, twice * w)))


def _clip(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    x = inputs[0]
    low = inputs[1] if len(inputs) > 1 else attributes.get("min")
    high = inputs[2] if len(inputs) > 2 else attributes.get("max")
    if low is not None:
        x = maximum(x, low)  # type: ignore[arg-type]  # a Scalar or a number
    return minimum(x, high) if high is not None else x  # type: ignore[arg-type]  # as above


def _thresholded_relu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return select(binary("gt", x, _attribute(attributes, "alpha", 1.0)), x, 0.0)


def _reciprocal(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return lift(1.0, inputs[0].dtype) / inputs[0]


def _pow(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    x, exponent = inputs
    if not x.dtype.is_float:
        return integer_powers.power(x, exponent)
    value = float(exponent.value) if exponent.operation == "constant" else None
    if value == 0.5:
        return unary("sqrt", x)
    if value in (1.0, 2.0, 3.0, 4.0):
        square = x * x
        return {1.0: x, 2.0: square, 3.0: square * x, 4.0: square * square}[value]
    if value == -1.0:
        return 1.0 / x
    if x.dtype is F64 and exponent.dtype is F64:
        return float64_power.power(x, exponent)
    if x.dtype is not F32 or exponent.dtype is F64:
        return Rejection("no generated power of operands of two types, one of which is float64")
    return double_functions.power(x, exponent)


def _cast(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    to = attributes.get("to")
    if not isinstance(to, int):
        return Rejection("before opset 6 Cast named its type by a string")
    (x,) = inputs
    target = DataType(to)
    if target not in SUPPORTED:
        return Rejection(f"no generated cast from {x.dtype.text} to {target.text}")
    if target is DataType.BOOL:
        return x if x.dtype is DataType.BOOL else binary("ne", x, 0)
    if not x.dtype.is_float or target.is_float:
        return cast(x, target)
    if target is DataType.UINT64:
        half = 2.0**63
        above = binary("xor", _whole(x - half, DataType.INT64), -(2**63))
        return cast(select(binary("ge", x, half), above, _whole(x, DataType.INT64)), target)
    wide = DataType.INT64 if target is DataType.UINT32 or target.bits == 64 else DataType.INT32
    return cast(_whole(x, wide), target)  # the low bits, as x86 processors and so onnxruntime and numpy there give


def _whole(x: Scalar, target: DataType) -> Scalar:
    """Return a float without its fraction; out of range the least integer, as x86 processors give."""
    inside = binary("lt", x, 2.0 ** (target.bits - 1))
    return select(inside, cast(x, target), -(2 ** (target.bits - 1)))


def _bit_shift(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    x, amount = inputs
    if x.dtype not in UNSIGNED:
        return Rejection("only shifts of unsigned integers are generated")
    shifted = binary("shl" if attributes.get("direction") == "LEFT" else "lshr", x, amount)
    return select(binary("lt", amount, x.dtype.bits), shifted, 0)


def _is_inf(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    (x,) = inputs
    if not x.dtype.is_float:
        return Rejection(f"of floats, not of {x.dtype.text}")
    above = binary("eq", x, math.inf) if attributes.get("detect_positive", 1) else lift(False, DataType.BOOL)
    below = binary("eq", x, -math.inf) if attributes.get("detect_negative", 1) else lift(False, DataType.BOOL)
    return binary("or", above, below)


def _shrink(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    (x,) = inputs
    if not x.dtype.is_float:
        return Rejection(f"Shrink of {x.dtype.text} is not generated")
    bias, limit = _attribute(attributes, "bias", 0.0), _attribute(attributes, "lambd", 0.5)
    return select(binary("lt", x, -limit), x + bias, select(binary("gt", x, limit), x - bias, lift(0.0, x.dtype)))


def _absolute(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return inputs[0] if inputs[0].dtype in UNSIGNED else unary("abs", inputs[0])


def _swiglu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    product = _swish(inputs[:1], attributes)
    return product * inputs[1]


def _where(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return select(inputs[0], inputs[1], inputs[2])


def _sign(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    zero = lift(0, x.dtype)
    return select(binary("gt", x, zero), 1, select(binary("lt", x, zero), -1, x), x.dtype)


MEANINGS: Mapping[tuple[str, str], ElementMeaning] = {
    ("", "Add"): _variadic("add"), ("", "Sub"): _variadic("sub"), ("", "Mul"): _variadic("mul"), ("", "Div"): _divide,
    ("", "Sum"): _variadic("add"), ("", "Min"): _variadic("min"), ("", "Max"): _variadic("max"), ("", "Mean"): _mean,
    ("", "Neg"): _simple(lambda x: -x), ("", "Abs"): _absolute,
    ("", "Sqrt"): _real(lambda x: unary("sqrt", x)), ("", "Floor"): _real(lambda x: unary("floor", x)),
    ("", "Ceil"): _real(lambda x: unary("ceil", x)), ("", "Round"): _real(lambda x: unary("rint", x)),
    ("", "Exp"): _real(polynomials.exp), ("", "Log"): _real(polynomials.log),
    ("", "Tanh"): _real(polynomials.tanh), ("", "Sigmoid"): _real(polynomials.sigmoid),
    ("", "Erf"): _real(polynomials.erf), ("", "Relu"): _relu, ("", "LeakyRelu"): _leaky_relu,
    ("", "PRelu"): _prelu, ("", "Elu"): _elu, ("", "Selu"): _selu, ("", "Celu"): _celu, ("", "Clip"): _clip,
    ("", "HardSigmoid"): _hard_sigmoid, ("", "HardSwish"): _hard_swish, ("", "Gelu"): _gelu, ("", "Swish"): _swish,
    ("", "Softplus"): _softplus, ("", "Softsign"): _softsign, ("", "Mish"): _mish, ("", "Pow"): _pow,
    ("", "ThresholdedRelu"): _thresholded_relu, ("", "Reciprocal"): _reciprocal, ("", "Where"): _where,
    ("", "Cast"): _cast, ("", "Sign"): _sign, ("", "Identity"): _simple(lambda x: x),
    ("", "Equal"): _simple(lambda a, b: binary("eq", a, b)), ("", "Less"): _simple(lambda a, b: binary("lt", a, b)),
    ("", "Greater"): _simple(lambda a, b: binary("gt", a, b)),
    ("", "LessOrEqual"): _simple(lambda a, b: binary("le", a, b)),
    ("", "GreaterOrEqual"): _simple(lambda a, b: binary("ge", a, b)),
    ("", "And"): _simple(lambda a, b: binary("and", a, b)), ("", "Or"): _simple(lambda a, b: binary("or", a, b)),
    ("", "Xor"): _simple(lambda a, b: binary("xor", a, b)), ("", "Not"): _simple(lambda x: unary("not", x)),
    ("", "IsNaN"): _real(lambda x: unary("is_nan", x)),
    ("", "Sin"): _only_float(double_functions.sin), ("", "Cos"): _only_float(double_functions.cos),
    ("", "Tan"): _only_float(double_functions.tan),
    ("", "Asin"): _of_both(float32_inverse.asin, float64_inverse.asin),
    ("", "Acos"): _of_both(float32_inverse.acos, float64_inverse.acos),
    ("", "Atan"): _of_both(float32_inverse.atan, float64_inverse.atan),
    ("", "Sinh"): _of_both(double_functions.sinh, float64_inverse.sinh),
    ("", "Cosh"): _of_both(double_functions.cosh, float64_inverse.cosh),
    ("", "Asinh"): _of_both(double_functions.asinh, float64_inverse.asinh),
    ("", "Acosh"): _of_both(double_functions.acosh, float64_inverse.acosh),
    ("", "Atanh"): _of_both(double_functions.atanh, float64_inverse.atanh),
    ("", "Mod"): _mod, ("", "BitShift"): _bit_shift, ("", "BitwiseAnd"): _integer("and"),
    ("", "BitwiseOr"): _integer("or"), ("", "BitwiseXor"): _integer("xor"), ("", "BitwiseNot"): _integer("not"),
    ("", "IsInf"): _is_inf, ("", "Shrink"): _shrink, ("", "SwiGLU"): _swiglu,
    ("com.microsoft", "Gelu"): _simple(gelu), ("com.microsoft", "FastGelu"): _fast_gelu,
    ("com.microsoft", "QuickGelu"): _quick_gelu, ("com.microsoft", "BiasGelu"): _bias_gelu,
}  # fmt: skip
REAL_ONLY = frozenset(
    {"LeakyRelu", "HardSigmoid", "HardSwish", "Softsign", "ThresholdedRelu", "Reciprocal", "Mean", "Elu", "Selu",
     "Celu", "Swish", "Softplus", "Mish", "QuickGelu", "SwiGLU", "Gelu", "FastGelu", "BiasGelu"}
)  # fmt: skip
SUPPORTED = frozenset({F32, F64, DataType.BOOL, *INTEGERS})
"""The element types that expressions are generated for."""


def meaning_of(domain: str, op_type: str, inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    """Return what an operator computes of its inputs' elements, or why there is no generated form."""
    found = MEANINGS.get((domain, op_type))
    if found is None:
        return Rejection(f"{op_type} has no scalar meaning")
    for scalar in inputs:
        if scalar.dtype not in SUPPORTED:
            return Rejection(f"{scalar.dtype.text} is not generated")
    if op_type in REAL_ONLY and not inputs[0].dtype.is_float:
        return Rejection(f"{op_type} of {inputs[0].dtype.text} is not generated")
    if (
        inputs
        and inputs[0].dtype is DataType.BOOL
        and op_type in ("Add", "Sub", "Mul", "Min", "Max", "Neg", "Abs", "Sum")
    ):
        return Rejection(f"{op_type} of bool is not arithmetic")
    return found(inputs, attributes)
