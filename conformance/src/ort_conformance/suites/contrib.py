"""Operators of the domain com.microsoft, by their formulas in float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.case_values import numbers
from ort_conformance.suites.contrib_attention import ATTENTION_ROWS
from ort_conformance.suites.contrib_quantized import QUANTIZED_ROWS
from ort_conformance.suites.contrib_row import Arrays, ContribRow
from ort_conformance.suites.contrib_tensors import TENSOR_ROWS
from ort_conformance.suites.model_text import evaluated, node_model

DOMAIN = "com.microsoft"
MORE_ROWS = (*ATTENTION_ROWS, *QUANTIZED_ROWS, *TENSOR_ROWS)
_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + _ERF(x / math.sqrt(2)))


def _fast_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _normalized(x: np.ndarray, scale: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


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
    for row in (*ROWS, *MORE_ROWS):
        name = row.op_type + (f"_{row.label}" if row.label else "")
        build = functools.partial(_built, row)
        truth = functools.partial(_truth, row)
        yield case_check("contrib", evaluated(name, build, row.tolerance, truth=truth))


def _values(row: ContribRow) -> dict[str, np.ndarray]:
    return {key: numbers((row.op_type, key), shape, "float32") for key, shape in row.shapes.items()} | dict(row.given)


def _built(row: ContribRow) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model of the operator, with what is constant as initializers, and its feeds."""
    values = _values(row)
    feeds = {key: value for key, value in values.items() if key not in row.constants}
    constants = {key: values[key] for key in row.constants}
    model = node_model(
        row.op_type, feeds, row.attributes, output_count=row.output_count, constants=constants, domain=DOMAIN
    )
    model.graph.node[0].input[:] = row.order or list(values)
    return model, feeds


def _truth(row: ContribRow, feeds: Arrays) -> Sequence[object]:
    values = _values(row) | dict(feeds)
    exact = {key: v.astype(np.float64) if v.dtype.kind == "f" else v for key, v in values.items()}
    found = row.formula(exact)
    return [_narrow(each) for each in (found if isinstance(found, tuple) else (found,))]


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array
