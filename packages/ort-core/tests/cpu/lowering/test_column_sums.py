"""Col2Im compiled: the same bits as the numpy kernel, which adds the taps in the same order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(40))
def test_columns_are_added_as_by_the_numpy_kernel(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    image, block = generator.integers(5, 40, 2), generator.integers(1, 4, 2)
    given: dict[str, Any] = {}
    strides, dilations, pads = [1, 1], [1, 1], [0, 0, 0, 0]
    if seed % 2:
        strides = given["strides"] = [int(each) for each in generator.integers(1, 4, 2)]
    if seed // 2 % 2:
        dilations = given["dilations"] = [int(each) for each in generator.integers(1, 3, 2)]
    if seed // 4 % 2:
        pads = given["pads"] = [int(each) for each in generator.integers(0, 5, 4)]
    windows = [
        (int(image[a]) + pads[a] + pads[a + 2] - (int(block[a]) - 1) * dilations[a] - 1) // strides[a] + 1
        for a in range(2)
    ]
    channels, taps = 1 + seed % 3, int(block.prod())
    x = generator.standard_normal((2, channels * taps, windows[0] * windows[1])).astype(np.float32)
    special = itertools.cycle([np.inf, np.nan, -0.0, -np.inf])
    x.reshape(-1)[:: max(1, x.size // 7)] = [next(special) for _ in range(len(x.reshape(-1)[:: max(1, x.size // 7)]))]
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **given)
    fixed = [numpy_helper.from_array(each, name) for name, each in (("image", image), ("block", block))]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, ["N", x.shape[1], x.shape[2] if seed % 3 else "L"])],
        [onnx.ValueInfoProto(name="y")], fixed,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    oracle = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(session.run(None, {"x": x})[0], oracle.run(None, {"x": x})[0], equal_nan=True)
