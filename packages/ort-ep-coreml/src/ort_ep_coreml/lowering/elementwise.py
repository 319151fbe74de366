"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_ep_coreml.lowering.asked import Asked, dtype_of
from ort_ep_coreml.lowering.conditions import constants_fit, nonnegative_integers
from ort_ep_coreml.lowering.emission import EmissionState, mil_type
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, MOVED, NUMBERS, Lower, Rule
from ort_ep_coreml.mil import Operand


def unary(kind: str) -> Lower:
    """Lower to one operation of the input."""
    return lambda to, node: to.emit(kind, x=to.operand(node.input(0)))


def binary(kind: str) -> Lower:
    """Lower to one operation of two inputs, which broadcast as in ONNX."""
    return lambda to, node: to.emit(kind, x=to.operand(node.input(0)), y=to.operand(node.input(1)))


def variadic(kind: str) -> Lower:
    """Lower to operations of two inputs, from left to right."""

    def lower(to: EmissionState, node: Node) -> Operand:
        return reduce(lambda left, right: to.emit(kind, x=left, y=right), to.operands(node))

    return lower


def _mean(to: EmissionState, node: Node) -> Operand:
    total = variadic("add")(to, node)
    assert not isinstance(total, list)
    return to.emit("real_div", x=total, y=to.scalar(node.input(0), len(list(node.present_inputs()))))


def _log(to: EmissionState, node: Node) -> Operand:
    return to.emit("log", x=to.operand(node.input(0)), epsilon=to.scalar(node.input(0), 0.0))


def _neg(to: EmissionState, node: Node) -> Operand:
    return to.emit("mul", x=to.operand(node.input(0)), y=to.scalar(node.input(0), -1))


def _reciprocal(to: EmissionState, node: Node) -> Operand:
    return to.emit("real_div", x=to.scalar(node.input(0), 1), y=to.operand(node.input(0)))


def _div(to: EmissionState, node: Node) -> Operand:
    kind = "floor_div" if dtype_of(node.input(0)) in INTS else "real_div"
    return to.emit(kind, x=to.operand(node.input(0)), y=to.operand(node.input(1)))


def _alpha(kind: str, default: float) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        alpha = to.scalar(node.input(0), node.float_attribute("alpha", default))
        return to.emit(kind, x=to.operand(node.input(0)), alpha=alpha)

    return lower


def _hard_sigmoid(to: EmissionState, node: Node) -> Operand:
    x = node.input(0)
    is_swish = node.op_type == "HardSwish"
    alpha = 1 / 6 if is_swish else node.float_attribute("alpha", 0.2)
    beta = 0.5 if is_swish else node.float_attribute("beta", 0.5)
    gate = to.emit("sigmoid_hard", x=to.operand(x), alpha=to.scalar(x, alpha), beta=to.scalar(x, beta))
    return to.emit("mul", x=to.operand(x), y=gate) if is_swish else gate


def _selu(to: EmissionState, node: Node) -> Operand:
    x = node.input(0)
    alpha = node.float_attribute("alpha", 1.67326319217681884765625)
    gamma = node.float_attribute("gamma", 1.05070102214813232421875)
    found = to.emit("elu", x=to.operand(x), alpha=to.scalar(x, alpha))
    return to.emit("mul", x=found, y=to.scalar(x, gamma))


def _gelu(to: EmissionState, node: Node) -> Operand:
    mode = "TANH_APPROXIMATION" if node.string_attribute("approximate", "none") == "tanh" else "EXACT"
    return to.emit("gelu", x=to.operand(node.input(0)), mode=mode)


def _prelu(to: EmissionState, node: Node) -> Operand:
    x, zero = to.operand(node.input(0)), to.scalar(node.input(0), 0)
    below = to.emit("mul", x=to.emit("minimum", x=x, y=zero), y=to.operand(node.input(1)))
    return to.emit("add", x=to.emit("maximum", x=x, y=zero), y=below)


def _clip(to: EmissionState, node: Node) -> Operand:
    found = to.operand(node.input(0))
    bounds: list[Operand | None] = [to.operand(v) if (v := node.input(place)) is not None else None for place in (1, 2)]
    for place, name in enumerate(("min", "max")):
        if bounds[place] is None and node.attribute(name) is not None:  # before opset 11
            bounds[place] = to.scalar(node.input(0), node.float_attribute(name, 0.0))
    for kind, bound in zip(("maximum", "minimum"), bounds, strict=True):
        if bound is not None:
            found = to.emit(kind, x=found, y=bound)
    return to.emit("identity", x=found) if all(bound is None for bound in bounds) else found


def _cast(to: EmissionState, node: Node) -> Operand:
    source, target = node.input(0), node.output
    if dtype_of(target) is DataType.BOOL and dtype_of(source) is not DataType.BOOL:
        return to.emit("not_equal", x=to.operand(source), y=to.scalar(source, 0))
    if mil_type(source) == mil_type(target):
        return to.emit("identity", x=to.operand(source))
    return to.emit("cast", x=to.operand(source), dtype=mil_type(target))


def _cast_is_right(asked: Asked, node: Node) -> str | None:
    if dtype_of(node.input(0)) in FLOATS and dtype_of(node.output) is DataType.INT64:
        return "Core ML casts to int32, and nothing bounds these numbers"
    if dtype_of(node.input(0)) is DataType.INT64 and dtype_of(node.output) is DataType.INT32:
        return constants_fit(asked, node)
    return None


def _where(to: EmissionState, node: Node) -> Operand:
    cond, a, b = to.operands(node)
    return to.emit("select", cond=cond, a=a, b=b)


def _is_nan(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    return to.emit("not_equal", x=x, y=x)


def _equal(to: EmissionState, node: Node) -> Operand:
    operands = to.operands(node)
    if dtype_of(node.input(0)) is DataType.BOOL:  # MIL compares numbers only
        operands = [
            each.astype(np.int32) if isinstance(each, np.ndarray) else to.emit("cast", x=each, dtype="int32")
            for each in operands
        ]
    return to.emit("equal", x=operands[0], y=operands[1])


_UNARY = {
    "Abs": "abs", "Acos": "acos", "Asin": "asin", "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Relu": "relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul"}
_COMPARED = {"Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal"}
_LOGICAL = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}
_BROADCASTS = 7  # the opset from which arithmetic broadcasts as numpy does

ELEMENTWISE: Mapping[str, Rule] = {
    **{name: Rule(unary(kind)) for name, kind in _UNARY.items()},
    **{
        name: Rule(binary(kind), NUMBERS, conditions=(constants_fit,), required=2, oldest=_BROADCASTS)
        for name, kind in _ARITHMETIC.items()
    },
    **{
        name: Rule(
            binary(kind), NUMBERS, results={0: BOOL}, conditions=(constants_fit,), required=2, oldest=_BROADCASTS
        )
        for name, kind in _COMPARED.items()
    },
    **{name: Rule(binary(kind), BOOL, required=2, oldest=_BROADCASTS) for name, kind in _LOGICAL.items()},
    "Equal": Rule(_equal, MOVED, results={0: BOOL}, conditions=(constants_fit,), required=2, oldest=_BROADCASTS),
    "Not": Rule(unary("logical_not"), BOOL),
    "Div": Rule(_div, NUMBERS, conditions=(constants_fit, nonnegative_integers), required=2, oldest=_BROADCASTS),
    "Pow": Rule(binary("pow"), required=2, oldest=_BROADCASTS),
    "Max": Rule(variadic("maximum"), NUMBERS, conditions=(constants_fit,), required=2, oldest=8),
    "Min": Rule(variadic("minimum"), NUMBERS, conditions=(constants_fit,), required=2, oldest=8),
    "Sum": Rule(variadic("add"), required=2, oldest=8),
    "Mean": Rule(_mean, required=2, oldest=8),
    "Log": Rule(_log),
    "Neg": Rule(_neg, NUMBERS),
    "Reciprocal": Rule(_reciprocal),
    "Elu": Rule(_alpha("elu", 1.0)),
    "LeakyRelu": Rule(_alpha("leaky_relu", 0.01)),
    "HardSigmoid": Rule(_hard_sigmoid),
    "HardSwish": Rule(_hard_sigmoid),
    "Selu": Rule(_selu),
    "Gelu": Rule(_gelu),
    "PRelu": Rule(_prelu, required=2, oldest=_BROADCASTS),
    "Clip": Rule(_clip),
    "Cast": Rule(_cast, MOVED, conditions=(_cast_is_right,)),
    "Where": Rule(_where, MOVED, ports={0: BOOL}, conditions=(constants_fit,), required=3),
    "IsNaN": Rule(_is_nan, results={0: BOOL}),
    "Identity": Rule(unary("identity"), MOVED),
}
"""Rules by operator."""
