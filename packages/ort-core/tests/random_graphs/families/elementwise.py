"""Elementwise operators on floats: a row an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import partner
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

Attributes = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Unary:
    """An operator of one float: its opset, values that its attributes take, what its operand goes through first."""

    op_type: str
    attributes: Attributes = field(default_factory=dict)
    since: int = 1
    domain: str = ""
    guard: str = ""
    dtypes: tuple[et.ElementType, ...] = et.FLOATS


UNARY = (
    Unary("Relu"), Unary("Sigmoid"), Unary("Tanh"), Unary("Abs"), Unary("Neg"), Unary("Erf"), Unary("Softplus"),
    Unary("Softsign"), Unary("Mish", since=18), Unary("Identity"), Unary("Exp", guard="small"), Unary("Sin"),
    Unary("Cos"), Unary("Atan"), Unary("Sinh", guard="small"), Unary("Cosh", guard="small"), Unary("Asinh"),
    Unary("Tan", guard="unit"), Unary("Asin", guard="unit"), Unary("Acos", guard="unit"), Unary("Atanh", guard="unit"),
    Unary("Acosh", guard="above one"), Unary("Log", guard="positive"), Unary("Sqrt", guard="positive"),
    Unary("Reciprocal", guard="positive"), Unary("Floor"), Unary("Ceil"), Unary("Round"), Unary("Sign"),
    Unary("Elu", {"alpha": (0.1, 0.5, 2.0, 0.0)}), Unary("LeakyRelu", {"alpha": (0.1, 0.5, 0.0, -1.0)}),
    Unary("ThresholdedRelu", {"alpha": (0.1, 0.5, 2.0)}), Unary("Celu", {"alpha": (0.1, 0.5, 2.0)}),
    Unary("HardSigmoid", {"alpha": (0.1, 0.5), "beta": (0.1, 0.6)}), Unary("HardSwish", since=14),
    Unary("Selu", {"alpha": (0.5, 1.5), "gamma": (0.5, 1.1)}), Unary("Gelu", {"approximate": ("none", "tanh")}, 20),
    Unary("Shrink", {"bias": (0.0, 0.5), "lambd": (0.5, 1.0)}), Unary("Swish", {"alpha": (0.5, 1.0, 2.0)}, 24),
    Unary("QuickGelu", {"alpha": (1.0, 1.702)}, domain="com.microsoft"), Unary("Gelu", domain="com.microsoft"),
    Unary("FastGelu", domain="com.microsoft"),
)  # fmt: skip


def guarded(g: GraphWriter, value: Value, guard: str) -> Value:
    """Return a value brought into an operator's domain."""

    def number(x: float) -> Value:
        return g.constant(x, value.dtype)

    if guard == "small":
        return g.node("Clip", [value, number(-4), number(4)])
    if guard == "unit":
        return g.node("Mul", [g.node("Tanh", [value]), number(0.9)])
    if guard == "positive":
        return g.node("Add", [g.node("Abs", [value]), number(0.5)])
    if guard == "above one":
        return g.node("Add", [g.node("Abs", [value]), number(1.25)])
    return value


@family(9)
def unary(g: GraphWriter) -> Value:
    row = g.choice(UNARY)
    if row.since > g.opset:
        raise Refused("a newer operator")
    value = guarded(g, g.pick(*row.dtypes), row.guard)
    given = {name: g.choice(values) for name, values in row.attributes.items() if g.chance(0.5)}
    return g.node(row.op_type, [value], domain=row.domain, **given)


BINARY: Mapping[str, Callable[[GraphWriter, Value, Value], tuple[Value, Value]]] = {
    "Add": lambda g, a, b: (a, b),
    "Sub": lambda g, a, b: (a, b),
    "Mul": lambda g, a, b: (a, b),
    "Max": lambda g, a, b: (a, b),
    "Min": lambda g, a, b: (a, b),
    "PRelu": lambda g, a, b: (a, b),
    "Div": lambda g, a, b: (a, guarded(g, b, "positive")),
    "Mod": lambda g, a, b: (a, guarded(g, b, "positive")),
    "Pow": lambda g, a, b: (guarded(g, a, "positive"), g.constant(g.choice((2, 3, 0.5, 0, 1, -1, 1.5)), b.dtype)),
}


@family(8)
def binary(g: GraphWriter) -> Value:
    op_type = g.choice((*BINARY, "Add", "Mul", "Add", "Mul", "Sub", "Div"))
    value = g.pick(*et.FLOATS)
    other = partner(g, value)
    if g.chance(0.4) and op_type != "PRelu":  # of a larger slope, onnx infers the shape of X, and what follows fails
        value, other = other, value
    if op_type == "PRelu" and other.rank > value.rank:
        value, other = other, value
    value, other = BINARY[op_type](g, value, other)
    return g.node(op_type, [value, other], fmod=1 if op_type == "Mod" else None)


@family()
def several(g: GraphWriter) -> Value:
    value = g.pick(*et.FLOATS)
    count = g.choice((0, 1, 2, 3))
    return g.node(g.choice(("Sum", "Mean", "Max", "Min")), [value, *(partner(g, value) for _ in range(count))])


@family(2)
def clip(g: GraphWriter) -> Value:
    value = g.pick(*et.FLOATS, et.I64, et.I32, et.I8, et.U8)
    low, high = g.choice((-1, 0, 1)), g.choice((0, 2, 6))
    if value.dtype is et.U8:
        low = max(low, 0)
    bounds = [g.constant(x, value.dtype) if g.chance(0.8) else None for x in (low, high)]
    return g.node("Clip", [value, *bounds])


@family(2)
def composed_activation(g: GraphWriter) -> Value:
    """Activations as exporters write them, which passes fuse."""
    value = g.pick(et.F32, et.F32, et.F16, et.BF16, et.F64)

    def number(x: float) -> Value:
        return g.constant(x, value.dtype)

    kind = g.choice(("silu", "gelu", "tanh gelu", "sigmoid gelu", "hard swish", "relu6"))
    if kind == "silu":
        return g.node("Mul", [value, g.node("Sigmoid", [value])])
    if kind == "gelu":
        inner = g.node("Erf", [g.node("Div", [value, number(2**0.5)])])
        return g.node("Mul", [g.node("Mul", [value, g.node("Add", [inner, number(1)])]), number(0.5)])
    if kind in ("tanh gelu", "sigmoid gelu"):
        cube = g.node("Pow", [value, number(3)])
        inner = g.node("Add", [value, g.node("Mul", [cube, number(0.044715)])])
        if kind == "sigmoid gelu":
            return g.node("Mul", [value, g.node("Sigmoid", [g.node("Mul", [inner, number((8 / np.pi) ** 0.5)])])])
        inner = g.node("Tanh", [g.node("Mul", [inner, number((2 / np.pi) ** 0.5)])])
        return g.node("Mul", [g.node("Mul", [value, number(0.5)]), g.node("Add", [inner, number(1)])])
    if kind == "hard swish":
        inner = g.node("Clip", [g.node("Add", [value, number(3)]), number(0), number(6)])
        return g.node("Div", [g.node("Mul", [value, inner]), number(6)])
    return g.node("Clip", [value, number(0), number(6)])
