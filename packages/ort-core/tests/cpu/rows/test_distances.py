"""CDist: distances between rows beside float64, for any sizes, also of rows that are nearly equal."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

SIZES = ((1, 1, 1), (3, 5, 7), (17, 33, 16), (2, 130, 3), (64, 1, 65), (0, 4, 3), (4, 0, 3), (5, 6, 0), (9, 67, 300))


def distances(a: np.ndarray, b: np.ndarray, metric: str) -> np.ndarray:
    dtype = helper.np_dtype_to_tensor_dtype(a.dtype)
    node = helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric=metric)
    model = model_of([node], {"a": (dtype, ["N", "K"]), "b": (dtype, ["M", "K"])}, {"y": dtype})
    compiled = session(model, "CPUExecutionProvider")
    assert "numpy:" not in str(compiled.explain()), compiled.explain()
    return run(compiled, {"a": a, "b": b})[0]


def truth(a: np.ndarray, b: np.ndarray, metric: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        squares = np.square(a.astype(np.float64)[:, None] - b.astype(np.float64)[None]).sum(-1)
        return np.sqrt(squares) if metric == "euclidean" else squares


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_are_sums_of_squared_differences(metric: str, dtype: type) -> None:
    generator = np.random.default_rng(5)
    for rows, columns, width in SIZES:
        a = generator.standard_normal((rows, width)).astype(dtype)
        b = generator.standard_normal((columns, width)).astype(dtype)
        found = distances(a, b, metric)
        assert found.shape == (rows, columns)
        bound = 3 * (width + 3) * np.finfo(dtype).eps
        np.testing.assert_allclose(found, truth(a, b, metric), rtol=bound, atol=0)


def test_rows_that_are_nearly_equal_keep_the_digits_of_their_distance() -> None:
    a = np.full((3, 5), 1000, np.float32)
    b = a + np.float32(2.0**-13) * np.arange(3, dtype=np.float32)[:, None]
    np.testing.assert_allclose(distances(a, b, "euclidean"), truth(a, b, "euclidean"), rtol=1e-6)


def test_infinities_and_not_a_number_stay_in_their_rows() -> None:
    a = np.array([[0, 1], [np.inf, 1], [np.nan, 0], [3e38, 0], [1e-30, 0]], np.float32)
    with np.errstate(over="ignore"):
        expected = truth(a, a, "sqeuclidean").astype(np.float32)
    found = distances(a, a, "sqeuclidean")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
