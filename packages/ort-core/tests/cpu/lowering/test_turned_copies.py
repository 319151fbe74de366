"""Transposed matrices are copied by squares of vectors: right for all sizes, within their memory, in one step."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort

ELEMENTS = (
    (np.float32, onnx.TensorProto.FLOAT), (np.int32, onnx.TensorProto.INT32), (np.uint8, onnx.TensorProto.UINT8),
    (np.int64, onnx.TensorProto.INT64), (np.bool_, onnx.TensorProto.BOOL), (np.float64, onnx.TensorProto.DOUBLE),
    (np.int16, onnx.TensorProto.INT16), (np.int8, onnx.TensorProto.INT8), (np.uint64, onnx.TensorProto.UINT64),
    (np.uint16, onnx.TensorProto.UINT16),
)  # fmt: skip


def transposed(dims: list[int | str], perm: list[int], dtype: type) -> ort.InferenceSession:
    elements = dict(ELEMENTS)[dtype]
    inputs = [helper.make_tensor_value_info("x", elements, dims)]
    outputs = [helper.make_tensor_value_info("y", elements, [dims[axis] for axis in perm])]
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=perm)], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def any_bits(generator: np.random.Generator, sizes: list[int], dtype: type) -> np.ndarray:
    """Return elements of any bits, NaNs among them; of bools the two that there are."""
    if dtype is np.bool_:
        return generator.random(sizes) < 0.5
    return np.frombuffer(generator.bytes(int(np.prod(sizes)) * np.dtype(dtype).itemsize), dtype).reshape(sizes)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_a_transpose_of_any_axes_and_sizes_moves_every_element_to_its_place(seed: int, monkeypatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(2, 5))
    sizes = [int(size) for size in generator.integers(1, 70, rank)]
    dims = [f"d{axis}" if generator.random() < 0.5 else size for axis, size in enumerate(sizes)]
    perm, dtype = [int(axis) for axis in generator.permutation(rank)], ELEMENTS[seed % len(ELEMENTS)][0]
    session = transposed(dims, perm, dtype)
    for _ in range(3):
        x = any_bits(generator, sizes, dtype)
        (y,) = session.run(None, {"x": x})
        assert y.dtype == x.dtype
        assert y.tobytes() == np.ascontiguousarray(x.transpose(perm)).tobytes()
        sizes = [int(generator.integers(0, 80)) if isinstance(dim, str) else dim for dim in dims]


@pytest.mark.parametrize("dtype", [each for each, _ in ELEMENTS])
@pytest.mark.parametrize(
    ("dims", "perm"),
    [
        (["n", 64, 1024], [0, 2, 1]),
        (["n", 64, "s"], [0, 2, 1]),
        (["n", "s", 64], [0, 2, 1]),
        (["n", 32, 64, 64], [0, 2, 3, 1]),
        (["n", 64, 64, 32], [0, 3, 1, 2]),
        ([64, "s"], [1, 0]),
        (["n", 48, 48, 3], [0, 3, 1, 2]),
        (["n", 3, 48, 48], [0, 2, 3, 1]),
        (["n", 100, 5], [0, 2, 1]),
        (["n", 5, 100], [0, 2, 1]),
    ],
)
def test_matrices_one_of_whose_sizes_is_known_are_copied_by_squares(dims, perm, dtype, partitions) -> None:
    transposed(dims, perm, dtype)
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert len(steps) == 1
    assert "layout_" in str(steps[0].kernel)
