"""Reductions of any type along the dense dimension: vectors of states along it give what one state would."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort

TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint32, np.int8, np.uint8)
LENGTHS = (1, 2, 7, 31, 64, 65, 129, 300)
SUMS = (np.int32, np.int64, np.float64)


@pytest.fixture(autouse=True)
def compilation_must_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")


def reduced(op_type: str, x: np.ndarray, axes: list[int] | int, *, dynamic: bool, **attributes: int) -> np.ndarray:
    """Return a reduction over axes, or an extreme's index along an axis, by a model of one node."""
    dims = [f"d{axis}" if dynamic else size for axis, size in enumerate(x.shape)]
    given = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims)]
    fixed = []
    if isinstance(axes, int):
        node = helper.make_node(op_type, ["x"], ["y"], axis=axes, **attributes)
    else:
        fixed.append(numpy_helper.from_array(np.array(axes, np.int64), "axes"))
        node = helper.make_node(op_type, ["x", "axes"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return y


def drawn(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    """Return numbers among which many are equal; of integers the least and the largest, too."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0 if np.dtype(dtype).kind == "u" else -4, 5, shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        x[generator.random(shape) < 0.05] = np.iinfo(dtype).max
        x[generator.random(shape) < 0.05] = np.iinfo(dtype).min
    return x


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_the_first_or_last_of_equal_extremes_is_found(op_type: str, dtype: type, length: int) -> None:
    x = drawn((3, 2, length), dtype, length)
    first = getattr(x, op_type.lower())(axis=-1)
    last = length - 1 - getattr(x[..., ::-1], op_type.lower())(axis=-1)
    assert (reduced(op_type, x, 2, dynamic=length % 2 == 0, keepdims=0) == first).all()
    assert (reduced(op_type, x, 2, dynamic=True, keepdims=0, select_last_index=1) == last).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("places", [(), (0,), (37,), (5, 90), (199,), tuple(range(200))])
@pytest.mark.parametrize("other", [-math.inf, math.inf, 0.0])
def test_a_nan_is_the_most_extreme_and_infinities_count(dtype: type, places: tuple[int, ...], other: float) -> None:
    x = np.full((2, 200), other, dtype)
    x[:, list(places)] = math.nan
    for op_type in ("ArgMax", "ArgMin"):
        first, last = reduced(op_type, x, 1, dynamic=False), reduced(op_type, x, 1, dynamic=True, select_last_index=1)
        assert (first == (places[0] if places else 0)).all()
        assert (last == (places[-1] if places else 199)).all()


@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_are_those_of_numpy(op_type: str, dtype: type, length: int) -> None:
    x = drawn((3, 4, length), dtype, length)
    for axes in ([2], [1, 2], [0, 2], [0, 1, 2]):
        wanted = (x.max if op_type == "ReduceMax" else x.min)(axis=tuple(axes), keepdims=True)
        assert (reduced(op_type, x, axes, dynamic=length % 2 == 0) == wanted).all()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", SUMS)
def test_sums_of_whole_numbers_are_exact_and_stop_at_the_limits_of_integers(dtype: type, length: int) -> None:
    x = drawn((3, 4, length), dtype, length)
    for axes in ([2], [1, 2], [0, 2], [0, 1, 2]):
        wanted = x.astype(object).sum(axis=tuple(axes), keepdims=True)
        if dtype is not np.float64:
            wanted = np.clip(wanted, np.iinfo(dtype).min, np.iinfo(dtype).max)
        assert np.array_equal(reduced("ReduceSum", x, axes, dynamic=length % 2 == 0), wanted.astype(dtype))


def test_a_long_sum_of_float64_has_a_smaller_error_than_one_by_one() -> None:
    x = np.random.default_rng(0).random((2, 100_000))
    exact = np.array([[math.fsum(row)] for row in x])
    one_by_one = np.add.accumulate(x, axis=1)[:, -1:]
    error = np.abs(reduced("ReduceSum", x, [1], dynamic=False) - exact)
    assert (error <= np.abs(one_by_one - exact)).all()


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceL2", "ReduceSumSquare", "ReduceProd"])
def test_other_reductions_of_float64_agree_with_numpy(op_type: str) -> None:
    x = 1 + 0.1 * np.random.default_rng(1).standard_normal((5, 70))
    formulas = {
        "ReduceMean": x.mean(1), "ReduceL2": np.sqrt((x * x).sum(1)), "ReduceSumSquare": (x * x).sum(1),
        "ReduceProd": x.prod(1),
    }  # fmt: skip
    np.testing.assert_allclose(reduced(op_type, x, [1], dynamic=True, keepdims=0), formulas[op_type], rtol=1e-14)
