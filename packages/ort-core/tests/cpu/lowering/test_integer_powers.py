"""Pow of integers in compiled code: powers modulo the size of the type, beside Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

BASES = [0, 1, -1, 2, -2, 3, -3, 7, 10, -10, 255, 2**15, -(2**31), 2**31 - 1, 12345]


def power(x: int, y: int, dtype: type) -> int:
    """Return the power that is left of the type's bits; negative exponents leave that of 1 and -1, else 0."""
    if y < 0 and abs(x) != 1:
        return 0
    bits = 8 * np.dtype(dtype).itemsize
    wrapped = pow(x, abs(y), 2**bits)
    return wrapped if wrapped < 2 ** (bits - 1) else wrapped - 2**bits


def raised(x: np.ndarray, y: np.ndarray, *, is_constant: bool) -> np.ndarray:
    types = [helper.np_dtype_to_tensor_dtype(each.dtype) for each in (x, y)]
    inputs = {"x": (types[0], [f"x{axis}" for axis in range(x.ndim)])}
    if not is_constant:
        inputs["y"] = (types[1], [f"y{axis}" for axis in range(y.ndim)])
    node = helper.make_node("Pow", ["x", "y"], ["z"])
    compiled = session(
        model_of([node], inputs, {"z": types[0]}, {"y": y} if is_constant else {}), "CPUExecutionProvider"
    )
    assert "numpy:" not in str(compiled.explain()), compiled.explain()
    return run(compiled, {"x": x} if is_constant else {"x": x, "y": y})[0]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, 17, 31, 64, 1000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_constant_power_wraps_in_its_type(dtype: type, exponent: int) -> None:
    x = np.array(BASES * 5, np.int64).astype(dtype)
    expected = np.array([power(value, exponent, dtype) for value in x.tolist()], dtype)
    found = raised(x, np.array(exponent, np.int64), is_constant=True)
    np.testing.assert_array_equal(found, expected)


def test_computed_powers_are_those_of_each_exponent() -> None:
    y = np.array([*range(-3, 40), 63, 64, 65, -(2**31), 2**31 - 1], np.int32)
    x = np.array(BASES, np.int64).astype(np.int32)
    expected = np.array([[power(a, b, np.int32) for b in y.tolist()] for a in x.tolist()], np.int32)
    np.testing.assert_array_equal(raised(x[:, None], y[None], is_constant=False), expected)
