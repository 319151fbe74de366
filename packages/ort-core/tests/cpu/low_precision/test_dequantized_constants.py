"""Constants of few bits, of 8-bit floats and in blocks, made real at load, against their values in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto
from test_groups import FLOAT, INT64, N, model_of
from test_quantized_groups import run_native

from ort_core.tolerances import compare

RANDOM = np.random.default_rng(31)
ROWS, COLUMNS = 24, 40
TYPES = {
    "int4": (ml_dtypes.int4, -8, 8), "uint4": (ml_dtypes.uint4, 0, 16), "int8": (np.int8, -128, 128),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, -99, 99), "float8_e5m2": (ml_dtypes.float8_e5m2, -99, 99),
    "float8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, -99, 99),
}  # fmt: skip
LAYOUTS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "one scale": ((), {}),
    "a scale for each row": ((ROWS,), {"axis": 0}),
    "a scale for each column": ((COLUMNS,), {"axis": 1}),
    "blocks of rows": ((ROWS // 8, COLUMNS), {"axis": 0, "block_size": 8}),
    "blocks of columns, the last part": ((ROWS, 3), {"axis": -1, "block_size": 16}),
}


def weights(name: str, layout: str) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, int]]:
    """Return constants of a DequantizeLinear, the float64 values that they stand for, and its attributes."""
    dtype, low, high = TYPES[name]
    shape, attributes = LAYOUTS[layout]
    stored = RANDOM.integers(low, high, (ROWS, COLUMNS)).astype(np.float32).astype(dtype)
    scales = RANDOM.uniform(0.01, 0.1, shape).astype(np.float32)
    zeros = RANDOM.integers(0, 4, shape).astype(np.float32).astype(dtype)
    if name.startswith("float8"):
        zeros = np.zeros(shape, np.float32).astype(dtype)
    factor, offset = scales.astype(np.float64), zeros.astype(np.float64)
    if "block_size" in attributes:
        axis, block = attributes["axis"], attributes["block_size"]
        size = stored.shape[axis]
        factor, offset = (np.repeat(each, block, axis).take(range(size), axis) for each in (factor, offset))
    elif attributes.get("axis") == 0:
        factor, offset = factor[:, None], offset[:, None]
    return {"q": stored, "s": scales, "z": zeros}, (stored.astype(np.float64) - offset) * factor, attributes


def model(reader: object, given: dict[str, np.ndarray], attributes: dict[str, int], x: tuple[int, list]) -> ModelProto:
    nodes = [N("DequantizeLinear", ["q", "s", "z"], ["w"], **attributes), reader]
    return model_of(nodes, {"x": x}, {"y": FLOAT}, given, opset=21)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TYPES)
def test_product_with_dequantized_weights_equals_float64(name: str, layout: str) -> None:
    given, real, attributes = weights(name, layout)
    x = RANDOM.standard_normal((5, ROWS)).astype(np.float32)
    (found,) = run_native(model(N("MatMul", ["x", "w"], ["y"]), given, attributes, (FLOAT, ["N", ROWS])), {"x": x})
    comparison = compare(found, (x.astype(np.float64) @ real).astype(np.float32), "approximate")
    assert comparison.passes, comparison


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TYPES)
def test_rows_of_dequantized_tables_equal_float64(name: str, layout: str) -> None:
    given, real, attributes = weights(name, layout)
    indices = RANDOM.integers(0, ROWS, (3, 2))
    reader = N("Gather", ["w", "x"], ["y"])
    (found,) = run_native(model(reader, given, attributes, (INT64, ["A", "B"])), {"x": indices})
    comparison = compare(found, real[indices].astype(np.float32), "rounding")
    assert comparison.passes, comparison
