"""Meanings: what each elementwise ONNX operator computes of one element, written once.

A meaning takes one ``Scalar`` per input and the node's attributes. Operators whose result depends on more than the
element (reductions, softmax, normalisation) are in ``rows``. A meaning that cannot serve a dtype or an attribute
returns a Rejection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops import polynomials
from ort_core.loops.scalar import (
    Scalar,
    binary,
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
F32 = DataType.FLOAT


def _attribute(attributes: Attributes, name: str, default: float) -> float:
    value = attributes.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default


def _simple(function: Callable[..., Scalar]) -> ElementMeaning:
    return lambda inputs, attributes: function(*inputs)


def _only_float(function: Callable[[Scalar], Scalar]) -> ElementMeaning:
    def meaning(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
        if inputs[0].dtype is not F32:
            return Rejection(f"no polynomial for {inputs[0].dtype.text}")
        return function(inputs[0])

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
    if not inputs[0].dtype.is_float:
        return Rejection("integer division by zero must be caught; the reference kernel does")
    return inputs[0] / inputs[1]


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
    return select(binary("lt", x, 0.0), _attribute(attributes, "alpha", 1.0) * (polynomials.exp(x) - 1.0), x)


def _selu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    alpha = _attribute(attributes, "alpha", 1.67326319217681884765625)
    gamma = _attribute(attributes, "gamma", 1.05070102214813232421875)
    return select(binary("gt", x, 0.0), x * gamma, fma(polynomials.exp(x), gamma * alpha, -gamma * alpha))


def _celu(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    alpha = _attribute(attributes, "alpha", 1.0)
    return maximum(x, 0.0) + minimum(alpha * (polynomials.exp(x / alpha) - 1.0), 0.0)


def _hard_sigmoid(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    alpha, beta = _attribute(attributes, "alpha", 0.2), _attribute(attributes, "beta", 0.5)
    return maximum(minimum(fma(inputs[0], alpha, beta), 1.0), 0.0)


def _hard_swish(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    return x * maximum(minimum(fma(x, 1.0 / 6.0, 0.5), 1.0), 0.0)


def gelu(x: Scalar) -> Scalar:
    """``x / 2 (1 + erf(x / sqrt 2))``."""
    return (x * 0.5) * (polynomials.erf(x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x: Scalar) -> Scalar:
    """``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))``."""
    inner = x * fma(x * x, 0.044715 * math.sqrt(2 / math.pi), math.sqrt(2 / math.pi))
    return (x * 0.5) * (polynomials.tanh(inner) + 1.0)


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
    return maximum(x, 0.0) + polynomials.log(polynomials.exp(-unary("abs", x)) + 1.0)


def _softsign(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return inputs[0] / (unary("abs", inputs[0]) + 1.0)


def _mish(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    return inputs[0] * polynomials.tanh(_softplus(inputs, attributes))


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
    if exponent.operation != "constant" or x.dtype is not F32:
        return Rejection("only constant exponents of float32 are generated")
    value = float(exponent.value)
    if value == 0.5:
        return unary("sqrt", x)
    if value in (1.0, 2.0, 3.0, 4.0):
        square = x * x
        return {1.0: x, 2.0: square, 3.0: square * x, 4.0: square * square}[value]
    return Rejection(f"no generated power {value}")


def _cast(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    to = attributes.get("to")
    if not isinstance(to, int):
        return Rejection("before opset 6 Cast named its type by a string")
    target = DataType(to)
    supported = {F32, DataType.INT32, DataType.INT64, DataType.BOOL}
    source = inputs[0].dtype
    if target not in supported or source not in supported:
        return Rejection(f"no generated cast from {source.text} to {target.text}")
    if target is DataType.BOOL:
        return binary("ne", inputs[0], 0)
    result = cast(inputs[0], target)
    if source.is_float:  # out of range: the least integer, as x86 processors, and so onnxruntime and numpy there, give
        inside = binary("lt", inputs[0], 2.0 ** (target.bits - 1))
        result = select(inside, result, -(2 ** (target.bits - 1)))
    return result


def _where(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    return select(inputs[0], inputs[1], inputs[2])


def _sign(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar:
    (x,) = inputs
    zero = lift(0, x.dtype)
    return select(binary("gt", x, zero), 1, select(binary("lt", x, zero), -1, x), x.dtype)


MEANINGS: Mapping[tuple[str, str], ElementMeaning] = {
    ("", "Add"): _variadic("add"), ("", "Sub"): _variadic("sub"), ("", "Mul"): _variadic("mul"), ("", "Div"): _divide,
    ("", "Sum"): _variadic("add"), ("", "Min"): _variadic("min"), ("", "Max"): _variadic("max"), ("", "Mean"): _mean,
    ("", "Neg"): _simple(lambda x: -x), ("", "Abs"): _simple(lambda x: unary("abs", x)),
    ("", "Sqrt"): _only_float(lambda x: unary("sqrt", x)), ("", "Floor"): _only_float(lambda x: unary("floor", x)),
    ("", "Ceil"): _only_float(lambda x: unary("ceil", x)), ("", "Round"): _only_float(lambda x: unary("rint", x)),
    ("", "Exp"): _only_float(polynomials.exp), ("", "Log"): _only_float(polynomials.log),
    ("", "Tanh"): _only_float(polynomials.tanh), ("", "Sigmoid"): _only_float(polynomials.sigmoid),
    ("", "Erf"): _only_float(polynomials.erf), ("", "Relu"): _relu, ("", "LeakyRelu"): _leaky_relu,
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
    ("", "IsNaN"): _only_float(lambda x: unary("is_nan", x)),
    ("com.microsoft", "Gelu"): _simple(gelu), ("com.microsoft", "FastGelu"): _fast_gelu,
    ("com.microsoft", "QuickGelu"): _quick_gelu, ("com.microsoft", "BiasGelu"): _bias_gelu,
}  # fmt: skip
FLOAT_ONLY = frozenset(
    {"LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Gelu", "Swish", "Softplus", "Softsign", "Mish",
     "ThresholdedRelu", "Reciprocal", "FastGelu", "QuickGelu", "BiasGelu", "Mean", "Div"}
)  # fmt: skip
SUPPORTED = frozenset({DataType.FLOAT, DataType.INT32, DataType.INT64, DataType.BOOL})


def meaning_of(domain: str, op_type: str, inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
    """Return what an operator computes of its inputs' elements, or why there is no generated form."""
    found = MEANINGS.get((domain, op_type))
    if found is None:
        return Rejection(f"{op_type} has no scalar meaning")
    for scalar in inputs:
        if scalar.dtype not in SUPPORTED:
            return Rejection(f"{scalar.dtype.text} is not generated")
    if op_type in FLOAT_ONLY and inputs[0].dtype is not F32:
        return Rejection(f"{op_type} of {inputs[0].dtype.text} is not generated")
    if (
        inputs
        and inputs[0].dtype is DataType.BOOL
        and op_type in ("Add", "Sub", "Mul", "Min", "Max", "Neg", "Abs", "Sum")
    ):
        return Rejection(f"{op_type} of bool is no arithmetic")
    return found(inputs, attributes)
