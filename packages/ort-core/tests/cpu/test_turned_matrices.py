"""Matrices of which no size is known are turned by squares, whatever their sizes are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper
from run_levels import run_at_level

import ort_core as ort

DTYPES = [np.uint8, np.float16, np.float32, np.int64]
SIZES = (1, 3, 4, 7, 16, 37)  # below the smaller squares, between both, whole ones, and more


def session_of(nodes: list, dtype: type, ranks: dict[str, int], result: int) -> ort.InferenceSession:  # type: ignore[type-arg]  # of protos
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [
        helper.make_tensor_value_info(name, kind, [f"{name}{axis}" for axis in range(rank)])
        for name, rank in ranks.items()
    ]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", kind, [None] * result)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString())


def numbers(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 100, shape).astype(dtype)


def check(dtype: type) -> None:
    """Matrices, and stacks of them: Transpose of the last two axes, and of an image to channels-last."""
    single = session_of([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], dtype, {"x": 2}, 2)
    stacked = session_of([helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], dtype, {"x": 3}, 3)
    images = session_of([helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], dtype, {"x": 4}, 4)
    for rows, columns in itertools.product(SIZES, SIZES):
        x = numbers((rows, columns), dtype)
        np.testing.assert_array_equal(single.run(None, {"x": x})[0], x.T, err_msg=f"{x.shape}")
        x = numbers((3, rows, columns), dtype)
        np.testing.assert_array_equal(stacked.run(None, {"x": x})[0], x.transpose(0, 2, 1), err_msg=f"{x.shape}")
    x = numbers((2, 5, 6, 7), dtype)
    np.testing.assert_array_equal(images.run(None, {"x": x})[0], x.transpose(0, 2, 3, 1))


def check_operand() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), helper.make_node("Mul", ["t", "z"], ["y"])]
    session = session_of(nodes, np.float32, {"x": 2, "z": 2}, 2)
    for rows, columns in itertools.product(SIZES, SIZES):
        x, z = numbers((rows, columns), np.float32), numbers((columns, rows), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], x.T * z, err_msg=f"{x.shape}")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_matrices_of_open_sizes_are_turned(dtype: type) -> None:
    check(dtype)


def test_a_turned_matrix_of_open_sizes_is_an_operand() -> None:
    check_operand()


def test_nothing_is_turned_of_an_empty_matrix() -> None:
    session = session_of([helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], np.float32, {"x": 3}, 3)
    for shape in [(0, 20, 20), (2, 0, 20), (2, 20, 0)]:
        assert session.run(None, {"x": np.zeros(shape, np.float32)})[0].shape == (shape[0], shape[2], shape[1])


def test_one_step_turns_a_matrix() -> None:
    session = session_of([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], np.float32, {"x": 2}, 2)
    compiled = [planned.step.compiled for planned in session._loaded.prepared.plan.steps]
    (step,) = [step for each in compiled for program in each.native_programs for step in program.steps]
    assert step.kernel.startswith("turned_")


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_other_levels_turn_them_too(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in DTYPES:
        check(each)
    check_operand()
