"""The cells of recurrent layers as expressions: what a step makes of sums, shares and states.

RNN   H = f(S + x)
GRU   z, r = f(S + x)    c = g(r-weighted S + x)    H = (1 - z) * c + z * H
LSTM  i, o, f = f(S + x + p * C)    C = f * C + i * g(S + x)    H = o * h(C)
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.recurrent.recurrent import CELL, EXTRA, HIDDEN, NEXT, RESET, SHARE, STATE, SUM, VECTOR, Phase
from ort_core.cpu.lowering.sequences.gate_functions import gate_sigmoid, gate_tanh
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import (
    Scalar,
    binary,
    element,
    exp,
    expm1_of_negative,
    log1p_of_fraction,
    maximum,
    minimum,
    select,
    unary,
)

F32 = DataType.FLOAT
Activation = Callable[[Scalar], Scalar]
_Formula = Callable[[Scalar, float, float], Scalar]

_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES = {"RNN": "h", "GRU": "zrh", "LSTM": "iofc"}

# name: (formula over x, alpha and beta; default alpha, default beta); None: the function has no such parameter.
# The defaults are onnxruntime's: 0 for the three functions that are nothing without their parameters.
_FORMULAS: dict[str, tuple[_Formula, float | None, float | None]] = {
    "affine": (lambda x, a, b: x * a + b, 0.0, 0.0),
    "elu": (lambda x, a, b: select(binary("ge", x, 0.0), x, expm1_of_negative(minimum(x, 0.0)) * a), 1.0, None),
    "hardsigmoid": (lambda x, a, b: minimum(maximum(x * a + b, 0.0), 1.0), 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: select(binary("ge", x, 0.0), x, x * a), 0.01, None),
    "relu": (lambda x, a, b: maximum(x, 0.0), None, None),
    "scaledtanh": (lambda x, a, b: gate_tanh(x * b) * a, 0.0, 0.0),
    "sigmoid": (lambda x, a, b: gate_sigmoid(x), None, None),
    "softplus": (lambda x, a, b: log1p_of_fraction(exp(-unary("abs", x))) + maximum(x, 0.0), None, None),
    "softsign": (lambda x, a, b: x / (unary("abs", x) + 1.0), None, None),
    "tanh": (lambda x, a, b: gate_tanh(x), None, None),
    "thresholdedrelu": (lambda x, a, b: select(binary("gt", x, a), x, 0.0), 0.0, None),
}


def gate_names(op_type: str) -> str:
    """Return a letter per gate, in the order in which weights hold them."""
    return _GATES[op_type]


def cell_phases(node: Node, resets_late: bool, has_peepholes: bool) -> tuple[Phase, ...]:
    """Return the phases of a node's cell; the same for both directions.

    Raises:
        NotLowered: the directions differ in their functions, or a function is not known.
    """
    functions = _functions(node)
    clip = node.float_attribute("clip", -1.0)

    def clipped(x: Scalar) -> Scalar:
        return minimum(maximum(x, -clip), clip) if clip >= 0 else x

    if node.op_type == "RNN":
        (f,) = functions
        return (Phase((0,), HIDDEN, ((NEXT, f(clipped(_sum(0) + _share(0)))),)),)
    if node.op_type == "GRU":
        return _gru(functions, clipped, resets_late)
    return (_lstm(functions, clipped, has_peepholes, node.int_attribute("input_forget", 0) != 0),)


def _gru(functions: tuple[Activation, ...], clipped: Activation, resets_late: bool) -> tuple[Phase, ...]:
    gate, candidate = functions
    h = _state(HIDDEN)
    z, r = (gate(clipped(_sum(i) + _share(i))) for i in range(2))
    if resets_late:
        new = candidate(clipped(_share(2) + r * (_sum(2) + element(VECTOR, F32))))
        return (Phase((0, 1, 2), HIDDEN, ((NEXT, (1.0 - z) * new + z * h),)),)
    first = Phase((0, 1), HIDDEN, ((EXTRA, z), (RESET, r * h)))
    new, z = candidate(clipped(_share(2) + _sum(0))), _state(EXTRA)
    return (first, Phase((2,), RESET, ((NEXT, (1.0 - z) * new + z * h),)))


def _lstm(functions: tuple[Activation, ...], clipped: Activation, has_peepholes: bool, input_forget: bool) -> Phase:
    gate, candidate, output = functions
    c = _state(CELL)
    into, out, forget, new = (_sum(i) + _share(i) for i in range(4))
    if has_peepholes:
        into, forget = into + element(VECTOR, F32) * c, forget + element(VECTOR + 2, F32) * c
    into = gate(clipped(into))
    kept = 1.0 - into if input_forget else gate(clipped(forget))
    c = kept * c + into * candidate(clipped(new))
    if has_peepholes:
        out = out + element(VECTOR + 1, F32) * c
    return Phase((0, 1, 2, 3), HIDDEN, ((CELL, c), (NEXT, gate(clipped(out)) * output(c))))


def _sum(gate: int) -> Scalar:
    return element(SUM + gate, F32)


def _share(gate: int) -> Scalar:
    return element(SHARE + gate, F32)


def _state(which: int) -> Scalar:
    return element(STATE + which, F32)


def _functions(node: Node) -> tuple[Activation, ...]:
    defaults = _DEFAULTS[node.op_type]
    directions = 2 if node.string_attribute("direction", "forward") == "bidirectional" else 1
    names = node.attribute("activations", ()) or defaults * directions
    if not isinstance(names, tuple) or len(names) < len(defaults) * directions:
        raise NotLowered(f"{names!r} names too few activations")
    alphas, betas = (iter(node.floats_attribute(name)) for name in ("activation_alpha", "activation_beta"))
    chosen = []
    for name in names[: len(defaults) * directions]:
        if str(name).lower() not in _FORMULAS:
            raise NotLowered(f"activation {name!r} is not generated")
        _, alpha, beta = _FORMULAS[str(name).lower()]
        alpha = alpha if alpha is None else next(alphas, alpha)
        beta = beta if beta is None else next(betas, beta)
        chosen.append((str(name).lower(), alpha or 0.0, beta or 0.0))
    first = chosen[: len(defaults)]
    if directions == 2 and chosen[len(defaults) :] != first:
        raise NotLowered("the directions have different activations")
    return tuple(_bound(*each) for each in first)


def _bound(name: str, alpha: float, beta: float) -> Activation:
    formula = _FORMULAS[name][0]
    return lambda x: formula(x, alpha, beta)
