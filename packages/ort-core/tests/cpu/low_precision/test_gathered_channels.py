"""Gather of a quantized table with a scale for each channel: integers are gathered, not the whole table made real."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core

SHAPE = (30, 40, 50)  # more numbers than constants have that are made real at load


def model_of(dtype: type, scale_axis: int, gather_axis: int, has_point: bool) -> tuple[bytes, np.ndarray]:
    """A table that a DequantizeLinear makes real and a Gather reads, and its real numbers."""
    random = np.random.default_rng(scale_axis)
    span, count = np.iinfo(dtype), SHAPE[scale_axis]
    table = random.integers(span.min, span.max + 1, SHAPE).astype(dtype)
    scale = random.uniform(0.01, 0.02, count).astype(np.float32)
    point = random.integers(span.min, span.max + 1, count).astype(dtype)
    fixed = {"q": table, "s": scale} | ({"z": point} if has_point else {})
    nodes = [
        helper.make_node("DequantizeLinear", list(fixed), ["w"], axis=scale_axis),
        helper.make_node("Gather", ["w", "i"], ["e"], axis=gather_axis),
        helper.make_node("Neg", ["e"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("i", TensorProto.INT64, ["m", "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(each, name) for name, each in fixed.items()],
    )  # fmt: skip
    along = [1, 1, 1]
    along[scale_axis] = count
    shifted = table.astype(np.float32) - (point.reshape(along).astype(np.float32) if has_point else 0)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString(), shifted * scale.reshape(along)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("scale_axis", [0, 1, 2])
@pytest.mark.parametrize("gather_axis", [0, 1, -1])
@pytest.mark.parametrize("has_point", [False, True])
def test_rows_are_those_of_the_real_table(dtype: type, scale_axis: int, gather_axis: int, has_point: bool) -> None:
    content, real = model_of(dtype, scale_axis, gather_axis, has_point)
    session = ort_core.InferenceSession(content)
    indices = np.array([[3, -1, 0], [29, 5, -30]], np.int64)
    np.testing.assert_array_equal(session.run(None, {"i": indices})[0], -np.take(real, indices, axis=gather_axis))
    assert "numpy" not in str(session.explain())


def test_an_index_outside_of_the_table_is_told() -> None:
    session = ort_core.InferenceSession(model_of(np.int8, 0, 0, True)[0])
    with pytest.raises(ort_core.errors.OrtError, match="30"):
        session.run(None, {"i": np.array([[30]], np.int64)})


def test_a_run_takes_no_memory_for_the_whole_table() -> None:
    content, real = model_of(np.int8, 0, 0, True)
    session = ort_core.InferenceSession(content)
    session.run(None, {"i": np.array([[3]], np.int64)})  # what is made once
    tracemalloc.start()
    try:
        session.run(None, {"i": np.array([[3, 4]], np.int64)})  # other sizes need other memory
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < real.nbytes / 2, peak
