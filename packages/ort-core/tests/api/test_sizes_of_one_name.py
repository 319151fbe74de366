"""Inputs whose dimensions have one name and different sizes: the name is a claim, the sizes are facts."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import ort_core as ort

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, float[n, 2] y, float[n, n] square)
  => (int64[2] sizes, float[n, 2] filled, float[m] rows, float[k] flat, int64 count)
<float[1, 1] one = {1}, int64[1] minus = {-1}>
{
  s = Shape (x)
  t = Shape (y)
  sizes = Add (s, t)
  summed = ReduceSum <keepdims = 0> (x)
  expanded = Expand (one, t)
  filled = Add (expanded, summed)
  sine = Sin (square)
  rows = ReduceSum <keepdims = 0> (sine, last)
  last = Squeeze (minus)
  zipped = Concat <axis = 0> (x, y)
  flat = Reshape (zipped, minus)
  count = Size (square)
}
"""
AGREEING = {"x": (4, 2), "y": (4, 2), "square": (4, 4)}
DIFFERING = [
    {"x": (3, 2), "y": (5, 2), "square": (3, 3)},
    {"x": (3, 2), "y": (3, 2), "square": (3, 7)},
    {"x": (1, 2), "y": (0, 2), "square": (6, 1)},
]


def _content() -> bytes:
    text = MODEL.replace("(sine, last)", "(sine, minus)").replace("  last = Squeeze (minus)\n", "")
    return onnx.parser.parse_model(text).SerializeToString()


def _feeds(shapes: dict[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _check(session: ort.InferenceSession, expected: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> None:
    for ours, truth in zip(session.run(None, feeds), expected.run(None, feeds), strict=True):
        assert ours.shape == truth.shape
        np.testing.assert_allclose(ours, truth, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def truth() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(_content(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("level", [0, 99])
def test_sizes_that_differ_under_one_name_are_those_of_the_arrays(truth, provider: str, level: int) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    session = ort.InferenceSession(_content(), options, providers=[provider])
    for shapes in [AGREEING, *DIFFERING, AGREEING]:
        for _ in range(3):  # planned, learned, then by one native call
            _check(session, truth, _feeds(shapes))


def test_a_session_out_of_the_cache_takes_them_for_different_sizes_too(truth, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_content())
    for _ in range(2):
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        for shapes in [AGREEING, *DIFFERING]:
            _check(session, truth, _feeds(shapes))


def test_bound_inputs_are_taken_for_different_sizes_too(truth) -> None:
    session = ort.InferenceSession(_content(), providers=["CPUExecutionProvider"])
    for shapes in [AGREEING, DIFFERING[0], DIFFERING[0], AGREEING]:
        feeds, binding = _feeds(shapes), session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)
        session.run_with_iobinding(binding)
        for ours, expected in zip(binding.copy_outputs_to_cpu(), truth.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_sizes_that_differ_are_warned_of_once_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    session = ort.InferenceSession(_content(), providers=["CPUExecutionProvider"])
    with caplog.at_level(logging.WARNING, "ort_core"):
        for _ in range(3):
            session.run(None, _feeds(DIFFERING[0]))
    texts = [record.getMessage() for record in caplog.records if "dimension 'n'" in record.getMessage()]
    assert len(texts) == 1, texts
    assert "has size 3 in input 'x' and 5 in input 'y'" in texts[0]
