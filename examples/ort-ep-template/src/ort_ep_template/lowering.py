"""Lowering: what a node of each operator becomes. Here a NumPy call; in yours, one that builds the SDK's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.plugin.ir import Node

Program = Callable[..., np.ndarray]
"""Takes the node's present inputs, returns its output."""
Lowering = Callable[[Node], Program]
"""Reads the node's attributes, once, when the claim is compiled."""


def _always(program: Program) -> Lowering:
    """Return the lowering of an operator without attributes."""
    return lambda node: program


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


def _leaky_relu(node: Node) -> Program:
    slope = np.float32(node.float_attribute("alpha", 0.01))  # the default is the operator's, in ONNX's documentation
    return lambda x: np.where(x < 0, slope * x, x)


def _gemm(node: Node) -> Program:
    """``alpha * A' B' + beta * C``: also what ort-core makes of a MatMul with an Add behind it."""
    alpha, beta = (np.float32(node.float_attribute(name, 1.0)) for name in ("alpha", "beta"))
    turns_a, turns_b = (bool(node.int_attribute(name, 0)) for name in ("transA", "transB"))

    def program(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        product = alpha * ((a.T if turns_a else a) @ (b.T if turns_b else b))
        return product if c is None else product + beta * c

    return program


LOWERINGS: Mapping[str, Lowering] = {
    "Abs": _always(np.abs),
    "Add": _always(np.add),
    "Gemm": _gemm,
    "LeakyRelu": _leaky_relu,
    "MatMul": _always(np.matmul),
    "Mul": _always(np.multiply),
    "Neg": _always(np.negative),
    "Relu": _always(_relu),
    "Sub": _always(np.subtract),
    "Tanh": _always(np.tanh),
}
"""Lowerings by operator of ai.onnx, for float32."""
