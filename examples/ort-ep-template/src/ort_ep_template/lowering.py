"""Lowering: what a node of each operator becomes. Here a NumPy call; in yours, one that builds the SDK's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Program = Callable[..., np.ndarray]


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


LOWERINGS: Mapping[str, Program] = {
    "Abs": np.abs,
    "Add": np.add,
    "MatMul": np.matmul,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Relu": _relu,
    "Sub": np.subtract,
    "Tanh": np.tanh,
}
"""Programs by operator of ai.onnx, for float32."""
