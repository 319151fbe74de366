"""Activations that onnxruntime's FusedConv and FusedGemm apply to their result, with their parameters."""

from __future__ import annotations

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.operands import number_of

LARGEST_FLOAT = 3.4028234663852886e38
_ALPHA_BETA: dict[str, tuple[tuple[str, float], ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": (("alpha", 0.01),),
    "Elu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "ScaledTanh": (("alpha", 1.0), ("beta", 1.0)),
    "ParametricSoftplus": (("alpha", 1.0), ("beta", 1.0)),
}
CONV_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
GEMM_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign",
                    "ThresholdedRelu", "ScaledTanh", "ParametricSoftplus")  # fmt: skip


def activation_parameters(node: Node) -> dict[str, float] | Rejection:
    """Return the parameters of an activation by name, in the order of its specification."""
    if node.op_type != "Clip":
        return {name: node.float_attribute(name, default) for name, default in _ALPHA_BETA[node.op_type]}
    bounds: dict[str, float] = {}
    for index, (name, default) in enumerate((("min", -LARGEST_FLOAT), ("max", LARGEST_FLOAT)), start=1):
        bound = node.input(index)
        number = number_of(bound) if bound is not None else node.float_attribute(name, default)
        if number is None:
            return Rejection(f"the bound {name!r} is not a constant", node)
        bounds[name] = number
    return bounds
