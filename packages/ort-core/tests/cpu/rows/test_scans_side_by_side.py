"""CumSum and CumProd beside numpy, with every number of columns about a vector and a group of vectors."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

COLUMNS = (1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 63, 64, 65, 79, 125, 128, 150)


def scanned(operator: str, x: np.ndarray, **attributes: int) -> np.ndarray:
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(operator, ["x", "axis"], ["y"], **attributes)
    opset = 26 if operator == "CumProd" else 20
    model = model_of([node], {"x": (dtype, ["A", "B", "C"])}, {"y": dtype}, {"axis": np.array(1)}, opset)
    return run(session(model, "CPUExecutionProvider"), {"x": x})[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("columns", COLUMNS)
def test_running_sums_are_those_of_each_column(columns: int, dtype: type) -> None:
    x = np.random.default_rng(columns).integers(-99, 99, (2, 9, columns)).astype(dtype)
    np.testing.assert_array_equal(scanned("CumSum", x), np.cumsum(x, 1, dtype))
    before = np.cumsum(x[:, ::-1], 1, dtype)[:, ::-1] - x
    np.testing.assert_array_equal(scanned("CumSum", x, exclusive=1, reverse=1), before)


@pytest.mark.parametrize("columns", [1, 16, 61, 67])
def test_running_products_are_those_of_each_column(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-3, 4, (3, 12, columns)).astype(np.int64)
    np.testing.assert_array_equal(scanned("CumProd", x), np.cumprod(x, 1))


@pytest.mark.parametrize("columns", COLUMNS)
def test_extremes_are_those_of_each_column(columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((2, 19, columns)).astype(np.float32)
    x[0, 3, columns // 2] = np.nan
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0)
    model = model_of([node], {"x": (1, ["A", "B", "C"])}, {"y": 1}, {"axes": np.array([1])})
    np.testing.assert_array_equal(run(session(model, "CPUExecutionProvider"), {"x": x})[0], x.max(1))
