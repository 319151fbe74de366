"""Transposed matrices are copied by squares of vectors: right for all sizes, within their memory, in one step."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort

ELEMENTS = {np.float32: onnx.TensorProto.FLOAT, np.int32: onnx.TensorProto.INT32}


def transposed(dims: list[int | str], perm: list[int], dtype: type) -> ort.InferenceSession:
    inputs = [helper.make_tensor_value_info("x", ELEMENTS[dtype], dims)]
    outputs = [helper.make_tensor_value_info("y", ELEMENTS[dtype], [dims[axis] for axis in perm])]
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=perm)], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("seed", range(40))
def test_a_transpose_of_any_axes_and_sizes_moves_every_element_to_its_place(seed: int, monkeypatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(2, 5))
    sizes = [int(size) for size in generator.integers(1, 70, rank)]
    dims = [f"d{axis}" if generator.random() < 0.5 else size for axis, size in enumerate(sizes)]
    perm, dtype = [int(axis) for axis in generator.permutation(rank)], (np.float32, np.int32)[seed % 2]
    session = transposed(dims, perm, dtype)
    for _ in range(3):
        x = generator.integers(-(2**31), 2**31, sizes).astype(np.int32).view(dtype)  # any bits, NaNs among them
        (y,) = session.run(None, {"x": x})
        assert np.array_equal(y.view(np.int32), x.view(np.int32).transpose(perm))
        sizes = [int(generator.integers(0, 80)) if isinstance(dim, str) else dim for dim in dims]


@pytest.mark.parametrize(
    ("dims", "perm"),
    [
        (["n", 64, 1024], [0, 2, 1]),
        (["n", 64, "s"], [0, 2, 1]),
        (["n", "s", 64], [0, 2, 1]),
        (["n", 32, 64, 64], [0, 2, 3, 1]),
        (["n", 64, 64, 32], [0, 3, 1, 2]),
        ([64, "s"], [1, 0]),
    ],
)
def test_matrices_one_of_whose_sizes_is_known_are_copied_by_squares(dims, perm, partitions) -> None:
    transposed(dims, perm, np.float32)
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert len(steps) == 1
    assert "layout_" in str(steps[0].kernel)
