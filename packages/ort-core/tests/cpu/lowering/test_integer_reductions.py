"""Products, norms and extremes of integers and bools in compiled code, beside Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

TYPES = (np.int32, np.uint32, np.int64, np.uint64)
SIZES = ((3, 5, 7), (1, 4, 33), (2, 1, 1), (4, 19, 61), (2, 0, 3), (1, 1, 130))
AXES = ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2))


def reduced(operator: str, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0)
    model = model_of([node], {"x": (dtype, ["A", "B", "C"])}, {"y": dtype}, {"axes": np.array(axes)})
    compiled = session(model, "CPUExecutionProvider")
    assert "numpy:" not in str(compiled.explain()), compiled.explain()
    return run(compiled, {"x": x})[0]


def expected(of: Callable[[list[int]], int], x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Return what a function makes of the integers of each row, in Python; it stops at the limits of the type."""
    kept = [axis for axis in range(3) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    rows = np.moveaxis(x, kept, range(len(kept))).reshape(*(x.shape[axis] for axis in kept), count)
    result = np.empty(rows.shape[:-1], x.dtype)
    limits = np.iinfo(x.dtype) if x.dtype.kind != "b" else None
    for place in np.ndindex(result.shape):
        found = of(rows[place].tolist())
        result[place] = found if limits is None else max(min(found, limits.max), limits.min)
    return result


def norm(row: list[int]) -> int:
    return math.isqrt(sum(value * value for value in row))


@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_integers_are_exact_and_stop_at_the_limits_of_their_type(dtype: type) -> None:
    generator, limits = np.random.default_rng(7), np.iinfo(dtype)
    for axes in AXES:
        for size in SIZES:
            small = generator.integers(max(limits.min, -2), 3, size).astype(dtype)
            small[small == 0] = 1
            x = np.where(generator.random(size) < 0.03, generator.integers(limits.min, limits.max, size, dtype), small)
            x = np.where(generator.random(size) < 0.001, dtype(0), x)
            np.testing.assert_array_equal(
                reduced("ReduceProd", x, axes), expected(math.prod, x, axes), f"{axes} {size}"
            )


def test_products_at_the_limits_do_not_count_as_wrapped() -> None:
    rows = [[2**31, 2**32], [2**31, 2**32 - 1], [-(2**31), 2**32], [-(2**32), 2**32], [7 * 7 * 73, 2578511968213609]]
    rows += [[2**62, 2], [-(2**62), 2], [-(2**62), 3], [2**62, 0], [2**63 - 1, -1]]
    x = np.array(rows, np.int64)[None]
    np.testing.assert_array_equal(reduced("ReduceProd", x, [2]), expected(math.prod, x, [2]))


@pytest.mark.parametrize("dtype", [each for each in TYPES if each is not np.uint64])
def test_norms_of_integers_are_truncated_roots(dtype: type) -> None:
    generator, limits = np.random.default_rng(8), np.iinfo(dtype)
    for axes in AXES:
        for size in SIZES:
            x = generator.integers(max(limits.min, -9999), min(limits.max, 9999), size, np.int64).astype(dtype)
            np.testing.assert_array_equal(reduced("ReduceL2", x, axes), expected(norm, x, axes), f"{axes} {size}")
    largest = np.full((2, 3, 17), limits.max, dtype)
    assert (reduced("ReduceL2", largest, [2]) == limits.max).all()


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_bools_say_whether_any_or_all_hold(operator: str) -> None:
    generator, of = np.random.default_rng(9), np.any if operator == "ReduceMax" else np.all
    for axes in AXES:
        for size in SIZES:
            for share in (0.05, 0.95):
                x = generator.random(size) < share
                np.testing.assert_array_equal(reduced(operator, x, axes), of(x, axis=axes), f"{axes} {size}")
