"""Integers and booleans: arithmetic, comparisons, logic, bits."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.families.operands import partner
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(4)
def integer_arithmetic(g: GraphWriter) -> Value:
    value = g.pick(*et.INTEGERS)
    other = partner(g, value)
    op_type = g.choice(("Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "Pow"))
    if op_type in ("Div", "Mod") and value.dtype in et.SIGNED and g.chance(0.3):
        other = g.node("Min", [other, g.constant(-2, value.dtype)])  # onnxruntime's process ends where -1 overflows
    elif op_type in ("Div", "Mod"):
        other = g.node("Max", [other, g.constant(1, value.dtype)])
    if op_type == "Pow":
        if value.dtype not in (et.I32, et.I64):
            raise Refused("onnx has powers of 32 and 64 bits")
        if g.chance(0.6):
            other = g.constant(g.choice((0, 1, 2, 3)), value.dtype)
        else:  # computed exponents, of which no power leaves the type
            other = g.node("Min", [g.node("Max", [other, g.constant(0, value.dtype)]), g.constant(3, value.dtype)])
    return g.node(op_type, [value, other], fmod=g.choice((0, 1)) if op_type == "Mod" else None)


@family()
def integer_unary(g: GraphWriter) -> Value:
    op_type = g.choice(("Abs", "Neg", "Sign", "Identity", "Relu"))
    if op_type == "Relu" and g.opset < 14:
        raise Refused("a newer operator")
    return g.node(op_type, [g.pick(*et.SIGNED)])


@family(3)
def comparison(g: GraphWriter) -> Value:
    value = g.pick(*et.FLOATS, *et.INTEGERS)
    op_type = g.choice(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
    if value.dtype is et.BF16 and g.opset < 16:
        raise Refused("no bfloat16 yet")
    return g.node(op_type, [value, partner(g, value)])


@family(2)
def logic(g: GraphWriter) -> Value:
    value = g.pick(et.BOOL)
    op_type = g.choice(("And", "Or", "Xor", "Not"))
    return g.node(op_type, [value] if op_type == "Not" else [value, partner(g, value)])


@family()
def bits(g: GraphWriter) -> Value:
    value = g.pick(*et.INTEGERS)
    op_type = g.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op_type == "BitShift":
        if value.dtype not in et.UNSIGNED:
            raise Refused("only unsigned numbers are shifted")
        shift = g.constant(g.random.randrange(5), value.dtype)
        return g.node(op_type, [value, shift], direction=g.choice(("LEFT", "RIGHT")))
    if g.opset < 18:
        raise Refused("a newer operator")
    return g.node(op_type, [value] if op_type == "BitwiseNot" else [value, partner(g, value)])
