"""Operands of open sizes: whether a row is dense or one element for all is known only to a run."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.codegen.nests.elementwise_nests import OPEN, STRIDED
from ort_core.cpu.lowering.stores import _nest_input
from ort_core.cpu.lowering.views import Buffer, Place, View, run_time_strides
from ort_core.plugin.ir import DataType, SymbolicDim, broadcast

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.uint8, np.int8]
SIZES = (1, 2, 15, 33, 4100)  # rows: of one element, of parts of a vector, and of several blocks


def broadcasts(rows: int, columns: int) -> list[tuple[int, int]]:
    return list(dict.fromkeys([(rows, columns), (rows, 1), (1, columns), (1, 1)]))


def session_of(nodes: list, dtype: type, inputs: str) -> ort.InferenceSession:  # type: ignore[type-arg]  # of protos
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [helper.make_tensor_value_info(name, kind, [f"{name}0", f"{name}1"]) for name in inputs]
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "g", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString())


def numbers(shape: tuple[int, int], dtype: type, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 60, shape).astype(dtype)


def check(dtype: type) -> None:
    """Sums of two operands, each of any of the forms, by one session: every number here is exact in every type."""
    session = session_of([helper.make_node("Add", ["a", "b"], ["y"])], dtype, "ab")
    for columns in SIZES:
        for left, right in itertools.product(broadcasts(3, columns), repeat=2):
            a, b = numbers(left, dtype, 1), numbers(right, dtype, 2)
            (found,) = session.run(None, {"a": a, "b": b})
            np.testing.assert_array_equal(found, a + b, err_msg=f"{left} and {right} of {np.dtype(dtype)}")


def check_three() -> None:
    nodes = [helper.make_node("Greater", ["a", "b"], ["c"]), helper.make_node("Where", ["c", "a", "x"], ["y"])]
    session = session_of(nodes, np.float32, "abx")
    for shapes in itertools.product(broadcasts(2, 37), repeat=3):
        a, b, x = (numbers(shape, np.float32, seed) for seed, shape in enumerate(shapes))
        (found,) = session.run(None, {"a": a, "b": b, "x": x})
        np.testing.assert_array_equal(found, np.where(a > b, a, x), err_msg=f"{shapes}")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_operands_of_open_sizes_are_read_as_they_broadcast(dtype: type) -> None:
    check(dtype)


def test_three_operands_of_open_sizes_are_read_as_they_broadcast() -> None:
    check_three()


def test_open_sizes_may_be_zero() -> None:
    session = session_of([helper.make_node("Add", ["a", "b"], ["y"])], np.float32, "ab")
    for left, right in [((2, 0), (2, 1)), ((1, 1), (3, 0)), ((0, 4), (1, 4)), ((0, 0), (1, 1))]:
        (found,) = session.run(None, {"a": numbers(left, np.float32, 0), "b": numbers(right, np.float32, 1)})
        assert found.shape == np.broadcast_shapes(left, right)


def test_an_open_row_is_read_by_vectors() -> None:
    """Not element by element: no operand of the nest has a stride that might be any."""
    a, b = SymbolicDim.named("a"), SymbolicDim.named("b")
    view = View(Buffer(DataType.FLOAT, a, Place.INPUT), (a,), (1,))
    assert _nest_input(view, run_time_strides(view, (broadcast(a, b),))[0]).inner == OPEN
    assert _nest_input(view, a).inner == STRIDED


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_other_levels_read_open_rows_too(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in DTYPES:
        check(each)
    check_three()
