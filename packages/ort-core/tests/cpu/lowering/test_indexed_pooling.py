"""MaxPool with indices compiled: values and places are those of the reference kernel and of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ort_core as ort

TYPES = (np.float32, np.float64, np.int8, np.uint8)


def pooled(x: np.ndarray, provider: str, **attributes: Any) -> list[np.ndarray]:
    dims: list[int | str] = [f"d{axis}" for axis in range(x.ndim)]
    given = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims)]
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)], "g", given,
        [onnx.ValueInfoProto(name=name) for name in "yi"],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    if provider == "onnxruntime":
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session = ort.InferenceSession(model, providers=[provider])
    assert provider != "CPUExecutionProvider" or "numpy:" not in str(session.explain())
    return session.run(None, {"x": x})


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_values_and_places_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    axes = 1 + seed % 3
    shape = [2, 3, *(int(size) for size in generator.integers(6, 14, axes))]
    x = generator.integers(0, 5, shape).astype(TYPES[seed // 3 % 4])  # many are equal
    kernel = [int(each) for each in generator.integers(1, 4, axes)]
    dilations = [int(each) for each in generator.integers(1, 3, axes)]
    given: dict[str, Any] = {"kernel_shape": kernel, "storage_order": int(generator.integers(0, 2))}
    given["strides"] = [int(each) for each in generator.integers(1, 4, axes)]
    if generator.random() < 0.5:
        given["dilations"] = dilations
    if generator.random() < 0.6:
        given["pads"] = [int(generator.integers(0, each)) for each in (*kernel, *kernel)]
    if generator.random() < 0.3:
        given["ceil_mode"] = 1
    found = pooled(x, "CPUExecutionProvider", **given)
    for left, right in zip(found, pooled(x, "ReferenceExecutionProvider", **given), strict=True):
        assert np.array_equal(left, right)
    if not given["storage_order"]:  # onnxruntime counts other places by columns than the operator says
        for left, right in zip(found, pooled(x, "onnxruntime", **given), strict=True):
            assert np.array_equal(left, right)


def test_an_open_axis_that_is_smaller_than_its_window_has_a_place() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 8, 3)
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        found = pooled(x, provider, kernel_shape=[5, 4], pads=[1, 0, 1, 0], strides=[1, 2])
        for left, right in zip(found, pooled(x, "onnxruntime", kernel_shape=[5, 4], pads=[1, 0, 1, 0], strides=[1, 2])):
            assert np.array_equal(left, right), provider


def test_a_nan_is_the_largest_and_the_first_of_several_is_taken() -> None:
    x = np.array([[[1, np.nan, 2, np.nan, np.inf, 3, np.nan, -np.inf, -np.inf, 0]]], np.float32)
    for pads in ([0, 0], [1, 1]):
        given: dict[str, Any] = {"kernel_shape": [3], "strides": [1], "pads": pads}
        found = pooled(x, "CPUExecutionProvider", **given)
        for left, right in zip(found, pooled(x, "ReferenceExecutionProvider", **given), strict=True):
            assert np.array_equal(left, right, equal_nan=True)
