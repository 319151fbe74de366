"""Activations and other formulas of one input that MIL has no operation for, or an operation with parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, Lower, Rule
from ort_ep_coreml.lowering.terms import Number, Term, chosen, first, term
from ort_ep_coreml.mil import Operand


def formula(compute: Callable[[Term, Node], Term]) -> Lower:
    """Lower to a formula of the first input."""

    def lower(to: EmissionState, node: Node) -> Operand:
        return compute(first(to, node), node).operand

    return lower


def _alpha(kind: str, default: float) -> Lower:
    return formula(lambda x, node: x.do(kind, alpha=x.number(node.float_attribute("alpha", default))))


def _hard_sigmoid(x: Term, node: Node) -> Term:
    alpha, beta = node.float_attribute("alpha", 0.2), node.float_attribute("beta", 0.5)
    return x.do("sigmoid_hard", alpha=x.number(alpha), beta=x.number(beta))


def _hard_swish(x: Term, node: Node) -> Term:
    return x * x.do("sigmoid_hard", alpha=x.number(1 / 6), beta=x.number(0.5))


def _selu(x: Term, node: Node) -> Term:
    alpha = node.float_attribute("alpha", 1.67326319217681884765625)
    return x.do("elu", alpha=x.number(alpha)) * node.float_attribute("gamma", 1.05070102214813232421875)


def _celu(x: Term, node: Node) -> Term:
    alpha = node.float_attribute("alpha", 1.0)
    below = ((x / alpha).do("exp") - 1) * alpha
    return x.with_("maximum", 0) + below.with_("minimum", 0)


def gelu(x: Term, approximate: bool) -> Term:
    """Return the Gaussian error linear unit, or its approximation by tanh."""
    return x.do("gelu", mode="TANH_APPROXIMATION" if approximate else "EXACT")


def _gelu(x: Term, node: Node) -> Term:
    return gelu(x, node.string_attribute("approximate", "none") == "tanh")


def _prelu(to: EmissionState, node: Node) -> Operand:
    x, slope = first(to, node), term(to, node.input(1))
    return (x.with_("maximum", 0) + x.with_("minimum", 0) * slope).operand


def _swish(x: Term, node: Node) -> Term:
    alpha = node.float_attribute("alpha", 1.702 if node.op_type == "QuickGelu" else 1.0)
    return x * (x if alpha == 1.0 else x * alpha).do("sigmoid")


def _shrink(x: Term, node: Node) -> Term:
    bias, limit = node.float_attribute("bias", 0.0), node.float_attribute("lambd", 0.5)
    above = chosen(x.with_("greater", limit), x - bias, 0, x)
    return chosen(x.with_("less", -limit), x + bias, above, x)


def _asinh(x: Term, node: Node) -> Term:
    size = x.do("abs")
    return x.do("sign") * (size + (size * size + 1).do("sqrt")).do("log", epsilon=x.number(0))


def _acosh(x: Term, node: Node) -> Term:
    return (x + (x * x - 1).do("sqrt")).do("log", epsilon=x.number(0))


def _is_infinite(x: Term, node: Node) -> Term:
    above, below = node.int_attribute("detect_positive", 1), node.int_attribute("detect_negative", 1)
    if above and below:
        return x.do("abs").with_("equal", math.inf)
    if not above and not below:
        return x.do("abs").with_("less", 0)  # of no element
    return x.with_("equal", math.inf if above else -math.inf)


def clipped(x: Term, low: Number | None, high: Number | None) -> Term:
    """Return elements between bounds; a bound that is absent bounds nothing."""
    x = x if low is None else x.with_("maximum", low)
    return x if high is None else x.with_("minimum", high)


def _clip(to: EmissionState, node: Node) -> Operand:
    bounds: list[Number | None] = [term(to, v) if (v := node.input(place)) is not None else None for place in (1, 2)]
    for place, name in enumerate(("min", "max")):
        if bounds[place] is None and node.attribute(name) is not None:  # before opset 11
            bounds[place] = node.float_attribute(name, 0.0)
    found = clipped(first(to, node), *bounds)
    return to.emit("identity", x=found.operand) if bounds == [None, None] else found.operand


def _softplus(x: Term, node: Node) -> Term:
    return x.do("softplus")


def _mish(x: Term, node: Node) -> Term:
    return x * x.do("softplus").do("tanh")


def _thresholded(x: Term, node: Node) -> Term:
    return chosen(x.with_("greater", node.float_attribute("alpha", 1.0)), x, 0, x)


def _biased(to: EmissionState, node: Node) -> Term:
    x = first(to, node)
    return x if node.input(1) is None else x + term(to, node.input(1))


def _bias_gelu(to: EmissionState, node: Node) -> Operand:
    return gelu(_biased(to, node), node.op_type == "FastGelu").operand


def _swiglu(to: EmissionState, node: Node) -> Operand:
    return (_swish(first(to, node), node) * term(to, node.input(1))).operand


def _bias_add(to: EmissionState, node: Node) -> Operand:
    return (_biased(to, node) + term(to, node.input(2))).operand


def _bias_split_gelu(to: EmissionState, node: Node) -> Operand:
    x, rank = _biased(to, node), rank_of(node.input(0))
    width = sizes_of(node.inputs[0])[-1]  # type: ignore[arg-type]  # required
    assert isinstance(width, int), "_width_is_even was asked"
    left, right = x.cut(rank - 1, 0, width // 2, rank), x.cut(rank - 1, width // 2, None, rank)
    return (left * gelu(right, approximate=False)).operand


def _width_is_even(context: LoweringContext, node: Node) -> str | None:
    sizes = sizes_of(node.inputs[0])  # type: ignore[arg-type]  # required
    is_even = bool(sizes) and isinstance(sizes[-1], int) and sizes[-1] % 2 == 0
    return None if is_even else f"{node.op_type} halves its last axis, whose size is {sizes[-1] if sizes else 'absent'}"


ACTIVATIONS: Mapping[str, Rule] = {
    "Elu": Rule(_alpha("elu", 1.0)),
    "LeakyRelu": Rule(_alpha("leaky_relu", 0.01)),
    "HardSigmoid": Rule(formula(_hard_sigmoid)),
    "HardSwish": Rule(formula(_hard_swish)),
    "Selu": Rule(formula(_selu)),
    "Celu": Rule(formula(_celu)),
    "Gelu": Rule(formula(_gelu)),
    "Mish": Rule(formula(_mish)),
    "PRelu": Rule(_prelu, required=2, oldest=7),
    "Swish": Rule(formula(_swish)),
    "SwiGLU": Rule(_swiglu, required=2),
    "Shrink": Rule(formula(_shrink)),
    "ThresholdedRelu": Rule(formula(_thresholded)),
    "Softplus": Rule(formula(_softplus)),
    "Asinh": Rule(formula(_asinh)),
    "Acosh": Rule(formula(_acosh)),
    "IsInf": Rule(formula(_is_infinite), results={0: BOOL}),
    "Clip": Rule(_clip, FLOATS | INTS),
}
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_ACTIVATIONS: Mapping[str, Rule] = {
    "Gelu": Rule(formula(lambda x, node: gelu(x, approximate=False))),
    "QuickGelu": Rule(formula(_swish)),
    "BiasGelu": Rule(_bias_gelu, required=2),
    "FastGelu": Rule(_bias_gelu),
    "BiasAdd": Rule(_bias_add, required=3),
    "BiasSplitGelu": Rule(_bias_split_gelu, conditions=(_width_is_even,), required=2),
}
"""Rules by operator of ``com.microsoft``."""
