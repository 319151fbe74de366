"""Operators that compute each element by itself. Broadcasting is a view with strides of zero."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import element_type
from ort_ep_directml.lowering.operand import Operand, broadcast, expanded
from ort_ep_directml.lowering.plan import Scalar
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Lower, Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import InfinityMode, RoundingMode

BYTE = ElementType.UINT8
FLOATS = (ElementType.FLOAT32, ElementType.FLOAT16)
UNSIGNED = (ElementType.UINT8, ElementType.UINT16, ElementType.UINT32, ElementType.UINT64)


def unary(to: EmissionState, kind: str, operand: Operand, **fields: object) -> Operand:
    """Append an operator of one tensor that keeps its type and sizes."""
    return to.emit(kind, (operand.dtype, operand.sizes), Input=operand, **fields)


def binary(to: EmissionState, kind: str, a: Operand, b: Operand, dtype: ElementType | None = None) -> Operand:
    """Append an operator of two tensors, which broadcast as in ONNX."""
    sizes = broadcast(a.sizes, b.sizes)
    return to.emit(kind, (dtype or a.dtype, sizes), A=expanded(a, sizes), B=expanded(b, sizes))


def of_one(kind: str, **fields: object) -> Lower:
    """Lower to one operator of the input."""
    return lambda to, node: unary(to, kind, to.operand(node.input(0)), **fields)


def of_two(kind: str) -> Lower:
    """Lower to one operator of two inputs."""
    return lambda to, node: binary(to, kind, to.operand(node.input(0)), to.operand(node.input(1)))


def comparison(kind: str) -> Lower:
    """Lower to one operator of two inputs that gives booleans."""
    return lambda to, node: binary(to, kind, to.operand(node.input(0)), to.operand(node.input(1)), BYTE)


def of_many(kind: str) -> Lower:
    """Lower to operators of two inputs, from left to right."""

    def lower(to: EmissionState, node: Node) -> Operand:
        return reduce(lambda left, right: binary(to, kind, left, right), to.operands(node))

    return lower


def _mean(to: EmissionState, node: Node) -> Operand:
    operands = to.operands(node)
    total = reduce(lambda left, right: binary(to, "ELEMENT_WISE_ADD", left, right), operands)
    return binary(to, "ELEMENT_WISE_DIVIDE", total, to.scalar(total.dtype, len(operands)))


def _abs(to: EmissionState, node: Node) -> Operand:
    operand = to.operand(node.input(0))
    return operand if operand.dtype in UNSIGNED else unary(to, "ELEMENT_WISE_ABS", operand)


def _arc(*, of_sine: bool) -> Lower:
    """Lower by the angle of a point on the unit circle: DirectML's ASIN and ACOS are wrong by up to 7e-5."""

    def lower(to: EmissionState, node: Node) -> Operand:
        x = to.operand(node.input(0))
        factors = [unary(to, "ACTIVATION_LINEAR", x, Alpha=sign, Beta=1.0) for sign in (1.0, -1.0)]
        other = unary(to, "ELEMENT_WISE_SQRT", binary(to, "ELEMENT_WISE_MULTIPLY", factors[0], factors[1]))
        y, z = (x, other) if of_sine else (other, x)
        return binary(to, "ELEMENT_WISE_ATAN_YX", y, z)

    return lower


def _is_nan(to: EmissionState, node: Node) -> Operand:
    operand = to.operand(node.input(0))
    return to.emit("ELEMENT_WISE_IS_NAN", (BYTE, operand.sizes), Input=operand)


def _is_inf(to: EmissionState, node: Node) -> Operand:
    operand = to.operand(node.input(0))
    wanted = (node.int_attribute("detect_positive", 1), node.int_attribute("detect_negative", 1))
    modes = {(1, 1): InfinityMode.EITHER, (1, 0): InfinityMode.POSITIVE, (0, 1): InfinityMode.NEGATIVE}
    if wanted not in modes:
        raise Refused("IsInf that detects neither sign computes nothing")
    made = (BYTE, operand.sizes)
    return to.emit("ELEMENT_WISE_IS_INFINITY", made, Input=operand, InfinityMode=int(modes[wanted]))


def _mod(to: EmissionState, node: Node) -> Operand:
    a, b = to.operand(node.input(0)), to.operand(node.input(1))
    if node.int_attribute("fmod", 0):
        return binary(to, "ELEMENT_WISE_MODULUS_TRUNCATE", a, b)
    if a.dtype in FLOATS:
        raise Refused(
            "a Mod of floats that takes the divisor's sign is left to others: DirectML makes NaN of infinities"
        )
    return binary(to, "ELEMENT_WISE_MODULUS_FLOOR", a, b)


def _pow(to: EmissionState, node: Node) -> Operand:
    """Lower to a power; DirectML's of 0 by 0, and of 1 by infinity, is not a number, where ONNX has 1."""
    base, exponent = to.operand(node.input(0)), to.operand(node.input(1))
    sizes = broadcast(base.sizes, exponent.sizes)
    pair = {"Input": expanded(base, sizes), "Exponent": expanded(exponent, sizes)}
    power = to.emit("ELEMENT_WISE_POW", (base.dtype, sizes), **pair)
    known = to.context.constant(node.input(1))
    if base.dtype not in FLOATS or (known is not None and bool((np.isfinite(known) & (known != 0)).all())):
        return power
    by_zero = binary(to, "ELEMENT_WISE_LOGICAL_EQUALS", exponent, to.scalar(exponent.dtype, 0), BYTE)
    of_one = binary(to, "ELEMENT_WISE_LOGICAL_EQUALS", base, to.scalar(base.dtype, 1), BYTE)
    is_one = binary(to, "ELEMENT_WISE_LOGICAL_OR", by_zero, of_one)
    one = expanded(to.scalar(base.dtype, 1), sizes)
    return to.emit("ELEMENT_WISE_IF", (base.dtype, sizes), Condition=expanded(is_one, sizes), A=one, B=power)


def _shift(to: EmissionState, node: Node) -> Operand:
    side = node.string_attribute("direction", "LEFT")
    return binary(to, f"ELEMENT_WISE_BIT_SHIFT_{side}", to.operand(node.input(0)), to.operand(node.input(1)))


def _where(to: EmissionState, node: Node) -> Operand:
    condition, a, b = (to.operand(node.input(place)) for place in range(3))
    sizes = broadcast(condition.sizes, a.sizes, b.sizes)
    parts = {"Condition": expanded(condition, sizes), "A": expanded(a, sizes), "B": expanded(b, sizes)}
    return to.emit("ELEMENT_WISE_IF", (a.dtype, sizes), **parts)


def limits(dtype: ElementType) -> tuple[float, float]:
    """Return the least and the greatest number of an element type; for floats the infinities."""
    if dtype.numpy.kind == "f":
        return -np.inf, np.inf
    known = np.iinfo(dtype.numpy)
    return int(known.min), int(known.max)


def clamp(to: EmissionState, operand: Operand, low: float, high: float) -> Operand:
    """Append a clip to two numbers."""
    bounds = {"Min": Scalar(operand.dtype, low), "Max": Scalar(operand.dtype, high)}
    return unary(to, "ELEMENT_WISE_CLIP1", operand, MinMaxDataType=int(operand.dtype), **bounds)


def _clip(to: EmissionState, node: Node) -> Operand:
    found = to.operand(node.input(0))
    low, high = limits(found.dtype)
    low = node.float_attribute("min", low)  # before opset 11
    high = node.float_attribute("max", high)
    arrays = [to.context.constant(node.input(place)) for place in (1, 2)]
    if all(a is not None or node.input(i) is None for i, a in enumerate(arrays, 1)):
        low, high = (b if a is None else a.reshape(()).item() for a, b in zip(arrays, (low, high), strict=True))
        if not low <= high:
            raise Refused(f"Clip with a least number {low} above the greatest {high} is left to others")
        return clamp(to, found, low, high)
    for place, kind in ((1, "ELEMENT_WISE_MAX"), (2, "ELEMENT_WISE_MIN")):
        if node.input(place) is not None:
            bound = to.operand(node.input(place))
            found = binary(to, kind, found, to.reshape(bound, ()))
    return found


def nonzero(to: EmissionState, operand: Operand) -> Operand:
    """Append what gives 1 for each element that is not zero, NaN included."""
    equal = binary(to, "ELEMENT_WISE_LOGICAL_EQUALS", operand, to.scalar(operand.dtype, 0), BYTE)
    return unary(to, "ELEMENT_WISE_LOGICAL_NOT", equal)


def _cast(to: EmissionState, node: Node) -> Operand:
    operand = to.operand(node.input(0))
    target = element_type(node.output)
    if target is None:
        raise Refused("the result has an element type that DirectML has not")
    if dtype_of(node.output) is DataType.BOOL and dtype_of(node.input(0)) is not DataType.BOOL:
        if operand.dtype is ElementType.FLOAT64:
            raise Refused("DirectML does not compare float64")
        return nonzero(to, operand)
    return to.cast(operand, target)


def _relu(to: EmissionState, node: Node) -> Operand:
    operand = to.operand(node.input(0))
    if operand.dtype is ElementType.INT64:
        return clamp(to, operand, 0, limits(operand.dtype)[1])
    return unary(to, "ACTIVATION_RELU", operand)


def _bitwise_not(to: EmissionState, node: Node) -> Operand:
    return unary(to, "ELEMENT_WISE_BIT_NOT", to.operand(node.input(0)))


_UNARY = {
    "Acosh": "ACOSH", "Asinh": "ASINH", "Atan": "ATAN", "Atanh": "ATANH",
    "Ceil": "CEIL", "Cos": "COS", "Cosh": "COSH", "Erf": "ERF", "Exp": "EXP", "Floor": "FLOOR", "Log": "LOG",
    "Neg": "NEGATE", "Not": "LOGICAL_NOT", "Reciprocal": "RECIP", "Sign": "SIGN", "Sin": "SIN", "Sinh": "SINH",
    "Sqrt": "SQRT", "Tan": "TAN",
}  # fmt: skip
_BINARY = {
    "Add": "ADD", "Sub": "SUBTRACT", "Mul": "MULTIPLY", "Div": "DIVIDE", "And": "LOGICAL_AND", "Or": "LOGICAL_OR",
    "Xor": "LOGICAL_XOR", "BitwiseAnd": "BIT_AND", "BitwiseOr": "BIT_OR", "BitwiseXor": "BIT_XOR",
}  # fmt: skip
_COMPARISONS = {
    "Equal": "EQUALS", "Greater": "GREATER_THAN", "Less": "LESS_THAN",
    "GreaterOrEqual": "GREATER_THAN_OR_EQUAL", "LessOrEqual": "LESS_THAN_OR_EQUAL",
}  # fmt: skip
_VARIADIC = {"Max": "MAX", "Min": "MIN", "Sum": "ADD"}

ELEMENTWISE: Mapping[str, Rule] = {
    **{name: Rule(of_one(f"ELEMENT_WISE_{kind}")) for name, kind in _UNARY.items()},
    **{name: Rule(of_two(f"ELEMENT_WISE_{kind}"), required=2, oldest=7) for name, kind in _BINARY.items()},
    **{
        name: Rule(comparison(f"ELEMENT_WISE_LOGICAL_{kind}"), required=2, oldest=7)
        for name, kind in _COMPARISONS.items()
    },
    **{name: Rule(of_many(f"ELEMENT_WISE_{kind}"), oldest=8) for name, kind in _VARIADIC.items()},
    "Abs": Rule(_abs),
    "Acos": Rule(_arc(of_sine=False)),
    "Asin": Rule(_arc(of_sine=True)),
    "BitShift": Rule(_shift, required=2),
    "BitwiseNot": Rule(_bitwise_not),
    "Cast": Rule(_cast, oldest=6),
    "CastLike": Rule(_cast, required=2),
    "Clip": Rule(_clip, oldest=6),
    "IsInf": Rule(_is_inf),
    "IsNaN": Rule(_is_nan),
    "Mean": Rule(_mean, oldest=8),
    "Mod": Rule(_mod, required=2),
    "Pow": Rule(_pow, required=2, oldest=7),
    "Relu": Rule(_relu),
    "Round": Rule(of_one("ELEMENT_WISE_ROUND", RoundingMode=int(RoundingMode.HALVES_TO_NEAREST_EVEN))),
    "Where": Rule(_where, required=3),
}
"""Rules by operator."""
