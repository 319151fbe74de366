"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node
from ort_ep_coreml.lowering.conditions import constants_fit, may_be_negative
from ort_ep_coreml.lowering.emission import EmissionState, mil_type
from ort_ep_coreml.lowering.lowering_context import LoweringContext
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, MOVED, NARROW, NUMBERS, Lower, Rule
from ort_ep_coreml.lowering.terms import Number, Term, term
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
        operands = to.operands(node)
        if len(operands) == 1:
            return to.emit("identity", x=operands[0])
        return reduce(lambda left, right: to.emit(kind, x=left, y=right), operands)

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
    x, y = term(to, node.input(0)), term(to, node.input(1))
    if dtype_of(node.input(0)) not in INTS:
        return (x / y).operand
    if may_be_negative(to.context, node):  # Core ML rounds integer quotients downwards, ONNX towards zero
        return (x.do("sign") * _sign(y) * x.do("abs").with_("floor_div", _size(y))).operand
    return x.with_("floor_div", y).operand


def _sign(x: Term) -> Number:
    return np.sign(x.operand) if isinstance(x.operand, np.ndarray) else x.do("sign")


def _size(x: Term) -> Number:
    return np.abs(x.operand) if isinstance(x.operand, np.ndarray) else x.do("abs")


def _mod(to: EmissionState, node: Node) -> Operand:
    x, y = term(to, node.input(0)), term(to, node.input(1))
    if not node.int_attribute("fmod", 0):
        return x.with_("mod", y).operand
    return (x.do("sign") * x.do("abs").with_("mod", _size(y))).operand


def _pow(to: EmissionState, node: Node) -> Operand:
    x, power = term(to, node.input(0)), to.operand(node.input(1))
    if isinstance(power, np.ndarray):
        power = power.astype(x.dtype)
    elif mil_type(node.input(1)) != mil_type(node.input(0)):
        power = to.emit("cast", x=power, dtype=mil_type(node.input(0)))
    return to.emit("pow", x=x.operand, y=power)


def _cast(to: EmissionState, node: Node) -> Operand:
    source, target = node.input(0), node.output
    if dtype_of(target) is DataType.BOOL and dtype_of(source) is not DataType.BOOL:
        if dtype_of(source) in NARROW:  # MIL compares none of 8 bits
            return to.emit("not_equal", x=to.emit("cast", x=to.operand(source), dtype="int32"), y=np.array(0, np.int32))
        return to.emit("not_equal", x=to.operand(source), y=to.scalar(source, 0))
    if mil_type(source) == mil_type(target):
        return to.emit("identity", x=to.operand(source))
    if {mil_type(source), mil_type(target)} == {"int8", "uint8"}:
        wide = to.emit("cast", x=to.operand(source), dtype="int32")
        return to.emit("cast", x=wide, dtype=mil_type(target))
    return to.emit("cast", x=to.operand(source), dtype=mil_type(target))


def _cast_is_right(context: LoweringContext, node: Node) -> str | None:
    if dtype_of(node.input(0)) in FLOATS and dtype_of(node.output) is DataType.INT64:
        return "Core ML casts to int32, and nothing bounds these numbers"
    if dtype_of(node.output) in NARROW and dtype_of(node.input(0)) not in FLOATS | BOOL:
        return _narrow_cast_is_right(context, node)
    if dtype_of(node.input(0)) is DataType.INT64 and dtype_of(node.output) is DataType.INT32:
        return constants_fit(context, node)
    return None


def _is_no_constant(context: LoweringContext, node: Node) -> str | None:
    if context.constant(node.input(0)) is None:
        return None
    return "there is nothing to compute at run time: what is cast is constant"


def _narrow_cast_is_right(context: LoweringContext, node: Node) -> str | None:
    dtype, value = dtype_of(node.output), node.input(0)
    assert dtype is not None, "types were asked"
    assert value is not None, "required"
    limits, found = np.iinfo(dtype.numpy), context.interval(value)
    if dtype_of(value) is dtype or (found is not None and limits.min <= found[0] <= found[1] <= limits.max):
        return None
    return f"nothing proves that {value.name!r} fits {dtype.name.lower()}; what Core ML does beyond is not known"


def _where(to: EmissionState, node: Node) -> Operand:
    """Lower to a choice; coremltools takes its shape from what is chosen alone, so that gets the condition's before."""
    cond, a, b = to.operands(node)
    if not _covers(node):
        if mil_type(node.input(1)) == "bool":
            kept = to.emit("logical_and", x=cond, y=a)
            others = to.emit("logical_and", x=to.emit("logical_not", x=cond), y=b)
            return to.emit("logical_or", x=kept, y=others)
        zeros = to.emit("mul", x=to.emit("cast", x=cond, dtype=mil_type(node.input(1))), y=to.scalar(node.input(1), 0))
        b = to.emit("add", x=zeros, y=b)
    return to.emit("select", cond=cond, a=a, b=b)


def _covers(node: Node) -> bool:
    """Return whether one of what is chosen has the shape of the result already."""
    return any(value is not None and value.shape == node.output.shape for value in node.inputs[1:3])


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
    "Acos": "acos", "Asin": "asin", "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Relu": "relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul"}
_COMPARED = {"Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal"}
_LOGICAL = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}
_BROADCASTS = 7  # the opset from which arithmetic broadcasts as numpy does

ELEMENTWISE: Mapping[str, Rule] = {
    **{name: Rule(unary(kind)) for name, kind in _UNARY.items()},
    **{name: Rule(unary(kind), NUMBERS) for name, kind in {"Abs": "abs", "Sign": "sign"}.items()},
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
    "Div": Rule(_div, NUMBERS, conditions=(constants_fit,), required=2, oldest=_BROADCASTS),
    "Pow": Rule(_pow, ports={1: NUMBERS}, required=2, oldest=_BROADCASTS),
    "Mod": Rule(_mod, NUMBERS, conditions=(constants_fit,), required=2),
    "Max": Rule(variadic("maximum"), NUMBERS, conditions=(constants_fit,), oldest=8),
    "Min": Rule(variadic("minimum"), NUMBERS, conditions=(constants_fit,), oldest=8),
    "Sum": Rule(variadic("add"), oldest=8),
    "Mean": Rule(_mean, oldest=8),
    "Log": Rule(_log),
    "Neg": Rule(_neg, NUMBERS),
    "Reciprocal": Rule(_reciprocal),
    "Cast": Rule(_cast, MOVED | NARROW, conditions=(_cast_is_right,)),
    "CastLike": Rule(_cast, MOVED | NARROW, conditions=(_is_no_constant, _cast_is_right), required=2),
    "Where": Rule(_where, MOVED, ports={0: BOOL}, conditions=(constants_fit,), required=3),
    "IsNaN": Rule(_is_nan, results={0: BOOL}),
    "Identity": Rule(unary("identity"), MOVED | NARROW),
}
"""Rules by operator."""
