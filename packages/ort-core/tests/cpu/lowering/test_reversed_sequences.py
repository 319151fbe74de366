"""ReverseSequence compiled: time and batch on any two axes, elements of any size, lengths of any kind."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ort_core as ort
from ort_core.errors import InvalidArgument

TYPES = (np.float32, np.uint8, np.float64, np.bool_, np.int64)


def model_of(x: np.ndarray, time: int) -> bytes:
    dims = [f"d{axis}" for axis in range(x.ndim)]
    given = [
        helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims),
        helper.make_tensor_value_info("n", onnx.TensorProto.INT64, ["count"]),
    ]
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=time, batch_axis=1 - time)
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("seed", range(20))
def test_sequences_are_reversed_as_by_onnxruntime(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    time = seed % 2
    shape = [int(size) for size in generator.integers(1, 9, 2 + seed % 3)]
    x = (100 * generator.standard_normal(shape)).astype(TYPES[seed % len(TYPES)])
    feeds = {"x": x, "n": generator.integers(1, shape[time] + 1, shape[1 - time])}
    model = model_of(x, time)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert np.array_equal(session.run(None, feeds)[0], wanted)


@pytest.mark.parametrize("length", [-1, 6, 2**62, -(2**63)])
def test_a_length_outside_of_the_steps_is_refused(length: int) -> None:
    x = np.zeros((5, 3, 2), np.float32)
    session = ort.InferenceSession(model_of(x, 0), providers=["CPUExecutionProvider"])
    with pytest.raises(InvalidArgument, match="Invalid sequence length"):
        session.run(None, {"x": x, "n": np.array([1, length, 5])})


def test_a_sequence_of_no_steps_stays_as_it_is() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    session = ort.InferenceSession(model_of(x, 0), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x, "n": np.array([0, 1])})[0], x)
