"""Operators of the domain com.microsoft, by their formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.case_values import Shape, numbers
from ort_conformance.suites.model_text import evaluated, node_model

DOMAIN = "com.microsoft"
Arrays = Mapping[str, np.ndarray]
_ERF = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class ContribRow:
    """An operator with shapes of its inputs, attributes, and its first output as a formula of float64 inputs."""

    op_type: str
    shapes: Mapping[str, Shape]
    formula: Callable[[Arrays], np.ndarray]
    attributes: Mapping[str, object] = field(default_factory=dict)
    label: str = ""


def _gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + _ERF(x / math.sqrt(2)))


def _fast_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _normalized(x: np.ndarray, scale: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _root_mean_square(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


EPSILON = {"epsilon": 1e-5}
SIDE = {"x": (2, 3, 8)}
ROWS = (
    ContribRow("Gelu", SIDE, lambda v: _gelu(v["x"])),
    ContribRow("FastGelu", SIDE, lambda v: _fast_gelu(v["x"])),
    ContribRow("FastGelu", {"x": (2, 3, 8), "b": (8,)}, lambda v: _fast_gelu(v["x"] + v["b"]), label="with_bias"),
    ContribRow("QuickGelu", SIDE, lambda v: v["x"] / (1 + np.exp(-1.702 * v["x"]))),
    ContribRow("BiasGelu", {"x": (2, 3, 8), "b": (8,)}, lambda v: _gelu(v["x"] + v["b"])),
    ContribRow("FusedMatMul", {"a": (3, 5), "b": (5, 7)}, lambda v: 0.5 * v["a"] @ v["b"], {"alpha": 0.5}),
    ContribRow(
        "FusedMatMul", {"a": (2, 5, 3), "b": (2, 7, 5)}, lambda v: v["a"].swapaxes(1, 2) @ v["b"].swapaxes(1, 2),
        {"transA": 1, "transB": 1}, "transposed",
    ),
    ContribRow(
        "SkipLayerNormalization", {"x": (2, 3, 8), "s": (2, 3, 8), "g": (8,), "b": (8,)},
        lambda v: _normalized(v["x"] + v["s"], v["g"], v["b"]), EPSILON,
    ),
    ContribRow(
        "SkipLayerNormalization", {"x": (2, 3, 8), "s": (2, 3, 8), "g": (8,), "b": (8,), "c": (8,)},
        lambda v: _normalized(v["x"] + v["s"] + v["c"], v["g"], v["b"]), EPSILON, "with_bias",
    ),
    ContribRow(
        "SkipSimplifiedLayerNormalization", {"x": (2, 3, 8), "s": (2, 3, 8), "g": (8,)},
        lambda v: _root_mean_square(v["x"] + v["s"], v["g"]), EPSILON,
    ),
    ContribRow("BiasAdd", {"x": (2, 6, 8), "b": (8,), "s": (2, 6, 8)}, lambda v: v["x"] + v["b"] + v["s"]),
    ContribRow(
        "BiasSplitGelu", {"x": (2, 3, 16), "b": (16,)},
        lambda v: (v["x"] + v["b"])[..., :8] * _gelu((v["x"] + v["b"])[..., 8:]),
    ),
    ContribRow(
        "BiasSoftmax", {"x": (2, 3, 8), "b": (2, 3, 8)},
        lambda v: np.exp(v["x"] + v["b"]) / np.exp(v["x"] + v["b"]).sum(-1, keepdims=True),
        {"axis": 2, "is_inner_broadcast": 0},
    ),
)  # fmt: skip


def contrib_checks() -> Iterator[Check]:
    """Yield a check for each row."""
    for row in ROWS:
        name = row.op_type + (f"_{row.label}" if row.label else "")

        def build(row: ContribRow = row) -> tuple[onnx.ModelProto, Arrays]:
            feeds = {key: numbers((row.op_type, key), shape, "float32") for key, shape in row.shapes.items()}
            return node_model(row.op_type, feeds, row.attributes, domain=DOMAIN), feeds

        def truth(feeds: Arrays, row: ContribRow = row) -> Sequence[object]:
            return [row.formula({key: array.astype(np.float64) for key, array in feeds.items()}).astype(np.float32)]

        yield case_check("contrib", evaluated(name, build, "approximate", truth=truth))
