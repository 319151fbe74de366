"""Activations: one operator of DirectML where it has one, else a few."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.elementwise import binary, of_one, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand, expanded
from ort_ep_directml.lowering.rule import Lower, Rule

_SWISH_LEVEL = 0x6200


def with_numbers(kind: str, **defaults: float) -> Lower:
    """Lower to one operator whose fields are attributes: ``Alpha`` is ``alpha``."""

    def lower(to: EmissionState, node: Node) -> Operand:
        numbers = {name: node.float_attribute(name.lower(), default) for name, default in defaults.items()}
        return unary(to, kind, to.operand(node.input(0)), **numbers)

    return lower


def _shrink(to: EmissionState, node: Node) -> Operand:
    bias, threshold = node.float_attribute("bias", 0.0), node.float_attribute("lambd", 0.5)
    return unary(to, "ACTIVATION_SHRINK", to.operand(node.input(0)), Bias=bias, Threshold=threshold)


def _prelu(to: EmissionState, node: Node) -> Operand:
    x, slope = to.operand(node.input(0)), to.operand(node.input(1))
    made = (x.dtype, x.sizes)
    return to.emit("ACTIVATION_PARAMETERIZED_RELU", made, Input=x, Slope=expanded(slope, x.sizes))


def scaled(to: EmissionState, operand: Operand, scale: float, bias: float = 0.0) -> Operand:
    """Append ``scale * x + bias``."""
    return unary(to, "ACTIVATION_LINEAR", operand, Alpha=scale, Beta=bias)


def times(to: EmissionState, a: Operand, b: Operand) -> Operand:
    """Append a product."""
    return binary(to, "ELEMENT_WISE_MULTIPLY", a, b)


def _hard_swish(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    if to.context.level >= _SWISH_LEVEL:
        return unary(to, "ACTIVATION_HARD_SWISH", x, Alpha=1 / 6, Beta=0.5)
    return times(to, x, unary(to, "ACTIVATION_HARD_SIGMOID", x, Alpha=1 / 6, Beta=0.5))


def _swish(to: EmissionState, node: Node) -> Operand:
    x, alpha = to.operand(node.input(0)), node.float_attribute("alpha", 1.0)
    if to.context.level >= _SWISH_LEVEL:
        return unary(to, "ACTIVATION_SWISH", x, SigmoidInputScale=alpha)
    return times(to, x, unary(to, "ACTIVATION_SIGMOID", scaled(to, x, alpha)))


def _mish(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    return times(to, x, unary(to, "ACTIVATION_TANH", unary(to, "ACTIVATION_SOFTPLUS", x, Steepness=1.0)))


def _gelu(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    if node.string_attribute("approximate", "none") == "none":
        return unary(to, "ACTIVATION_GELU", x)
    cubic = times(to, times(to, x, x), scaled(to, x, 0.044715))
    inner = scaled(to, binary(to, "ELEMENT_WISE_ADD", x, cubic), math.sqrt(2 / math.pi))
    return times(to, x, scaled(to, unary(to, "ACTIVATION_TANH", inner), 0.5, 0.5))


ACTIVATIONS: Mapping[str, Rule] = {
    "Celu": Rule(with_numbers("ACTIVATION_CELU", Alpha=1.0)),
    "Elu": Rule(with_numbers("ACTIVATION_ELU", Alpha=1.0), oldest=6),
    "Gelu": Rule(_gelu),
    "HardSigmoid": Rule(with_numbers("ACTIVATION_HARD_SIGMOID", Alpha=0.2, Beta=0.5), oldest=6),
    "HardSwish": Rule(_hard_swish),
    "LeakyRelu": Rule(with_numbers("ACTIVATION_LEAKY_RELU", Alpha=0.01), oldest=6),
    "Mish": Rule(_mish),
    "PRelu": Rule(_prelu, required=2, oldest=7),
    "Selu": Rule(
        with_numbers("ACTIVATION_SCALED_ELU", Alpha=1.67326319217681884765625, Gamma=1.05070102214813232421875),
        oldest=6,
    ),
    "Shrink": Rule(_shrink),
    "Sigmoid": Rule(of_one("ACTIVATION_SIGMOID"), oldest=6),
    "Softplus": Rule(of_one("ACTIVATION_SOFTPLUS", Steepness=1.0)),
    "Softsign": Rule(of_one("ACTIVATION_SOFTSIGN")),
    "Swish": Rule(_swish),
    "Tanh": Rule(of_one("ACTIVATION_TANH"), oldest=6),
    "ThresholdedRelu": Rule(with_numbers("ACTIVATION_THRESHOLDED_RELU", Alpha=1.0)),
}
"""Rules by operator."""
