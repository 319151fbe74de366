"""Resize with antialias compiled: what the numpy kernel gives, for sizes that are known at load."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort

CENTERS = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("seed", range(30))
def test_images_are_those_of_the_numpy_kernel(seed: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    sizes = [int(size) for size in generator.integers(4, 40, 2)]
    x = generator.standard_normal((2, 1 + seed % 5, *sizes)).astype(np.float32)
    given: dict[str, Any] = {"mode": mode, "antialias": 1, "coordinate_transformation_mode": CENTERS[seed % 5]}
    if mode == "cubic":
        given["exclude_outside"] = seed // 5 % 2
    fixed = {"scales": np.array([1, 1, *generator.uniform(0.3, 1.6, 2)], np.float32)}
    inputs = ["x", "", "scales"]
    if seed % 2:
        fixed, inputs = {"sizes": np.array([*x.shape[:2], *generator.integers(3, 20, 2)])}, ["x", "", "", "sizes"]
    node = helper.make_node("Resize", inputs, ["y"], **given)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, ["N", *x.shape[1:]])], [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(each, name) for name, each in fixed.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    if max(x.shape[axis] / wanted.shape[axis] for axis in (2, 3)) < 3:
        assert "numpy:" not in str(session.explain())
