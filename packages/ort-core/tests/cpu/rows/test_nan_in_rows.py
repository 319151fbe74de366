"""A NaN anywhere in a row makes all of its softmax NaN, though the largest element is found without it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from run_levels import run_at_level

import ort_core as ort
from ort_core import tolerances

LENGTHS = (1, 2, 15, 17, 40, 100, 133)  # in registers, and in walks of four vectors, one, and a part of one


def computed(op_type: str, x: np.ndarray, axis: int) -> np.ndarray:
    node = f"{op_type}<keepdims = 1>(x, axes)" if op_type.startswith("Reduce") else f"{op_type}<axis = {axis}>(x)"
    text = (
        f'<ir_version: 10, opset_import: ["": 23]> g (float[a, b] x) => (float[?, ?] y) '
        f"<int64[1] axes = {{{axis}}}> {{ y = {node} }}"
    )
    (found,) = ort.InferenceSession(parser.parse_model(text).SerializeToString()).run(None, {"x": x})
    return np.asarray(found)


def expected(op_type: str, x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        largest = wide.max(axis, keepdims=True)
        powers = np.exp(wide - largest)
        total = powers.sum(axis, keepdims=True)
        if op_type == "Softmax":
            return powers / total
        logarithm = np.log(total)
        return wide - largest - logarithm if op_type == "LogSoftmax" else logarithm + largest


def rows_with_nan(length: int) -> np.ndarray:
    """Return a row for each place of a NaN, among numbers and among minus infinities, and one without any."""
    x = np.random.default_rng(length).normal(0, 30, (2 * length + 1, length)).astype(np.float32)
    x[length : 2 * length] = -np.inf
    for place in range(length):
        x[place, place] = x[length + place, place] = np.nan
    return x


def check(op_type: str, axis: int) -> None:
    limits = tolerances.tolerance("approximate", "float32")
    for length in LENGTHS:
        x = rows_with_nan(length)
        wanted = expected(op_type, x, -1)
        found = computed(op_type, x, -1) if axis else computed(op_type, x.T.copy(), 0).T
        np.testing.assert_allclose(
            found, wanted, limits.relative, limits.absolute, err_msg=f"{op_type} of {length} elements"
        )


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "ReduceLogSumExp"])
def test_a_nan_in_a_row_is_in_all_of_its_softmax(op_type: str, axis: int) -> None:
    check(op_type, axis)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_other_levels_pass_nan_on_too(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for operator in ("Softmax", "LogSoftmax", "ReduceLogSumExp"):
        check(operator, 0)
        check(operator, -1)
