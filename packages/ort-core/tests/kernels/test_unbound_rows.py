"""SplitToSequence as PyTorch exports ``unbind``: one number, 1, as the size of parts that lose their axis.

The specification ignores ``keepdims`` where there are sizes; onnxruntime and the models that are there do not.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import ort_core as ort

UNBOUND = """
    <ir_version: 8, opset_import: ["": 17]>
    rows (float[N, 4] x) => (float[a, b] y, int64[c] sizes) <int64{rank} size = {{{value}}}, int64 last = {{-1}}> {{
        parts = SplitToSequence <axis = {axis}, keepdims = 0> (x, size)
        part = SequenceAt(parts, last)
        sizes = Shape(part)
        y = ConcatFromSequence <axis = 0, new_axis = 1> (parts)
    }}"""
FED = """
    <ir_version: 8, opset_import: ["": 17]>
    rows (float[N, 4] x, int64{rank} size) => (seq(float) parts) {{
        parts = SplitToSequence <keepdims = 0> (x, size)
    }}"""
X = np.arange(12, dtype=np.float32).reshape(3, 4)
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]


def results(module, model: ModelProto, feeds: dict, level: str) -> list:
    options = module.SessionOptions()
    options.graph_optimization_level = getattr(module.GraphOptimizationLevel, level)
    session = module.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices_of_one_row_lose_their_axis(axis: int, level: str) -> None:
    y, sizes = results(ort, parser.parse_model(UNBOUND.format(rank="", value=1, axis=axis)), {"x": X}, level)
    np.testing.assert_array_equal(y, np.stack(list(np.moveaxis(X, axis, 0))))
    assert sizes.tolist() == [X.shape[1 - axis % 2]]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("rank", "size", "shapes"), [
    ("", 1, [(4,)] * 3), ("[n]", [1, 1, 1], [(1, 4)] * 3), ("[n]", [3], [(3, 4)]), ("[n]", [1, 2], [(1, 4), (2, 4)]),
])  # fmt: skip
def test_fed_sizes_decide_in_each_run_as_in_onnxruntime(rank: str, size, shapes, level: str) -> None:
    model, feeds = parser.parse_model(FED.format(rank=rank)), {"x": X, "size": np.array(size, np.int64)}
    (found,) = results(ort, model, feeds, level)
    assert [each.shape for each in found] == shapes
    (expected,) = results(pytest.importorskip("onnxruntime"), model, feeds, level)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("level", LEVELS)
def test_other_numbers_keep_the_axis_as_specified(level: str) -> None:
    (found,) = results(ort, parser.parse_model(FED.format(rank="")), {"x": X, "size": np.array(2)}, level)
    assert [each.shape for each in found] == [(2, 4), (1, 4)]
