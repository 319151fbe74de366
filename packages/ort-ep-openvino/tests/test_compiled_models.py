"""Models compiled ahead of time: what OpenVINO stored runs again, and anything else is compiled with the reason."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_ep_openvino import _sdk

pytestmark = pytest.mark.usefixtures("sdk")
NAME = "OpenVINOExecutionProvider"
CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = MatMul(x, w)  b = Exp(a)  y = Tanh(b) }"
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def compiled(tmp_path, weighted_chain):
    """Return the path of a compiled model, and what the model that it was compiled from gives."""
    path, out = tmp_path / "model.onnx", tmp_path / "model_ctx.onnx"
    onnx.save(weighted_chain, path)
    asked = options()
    asked.add_provider(NAME, {})
    report = ort.ModelCompiler(asked, str(path)).compile_to_file(str(out))
    assert len(report.stored) == 1
    with opened(path) as session:
        return out, session.run(None, {"x": X})[0]


@pytest.fixture
def weighted_chain(parse):
    model = parse(CHAIN)
    weights = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def options(trusts: str = "1") -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.add_session_config_entry("session.trust_compiled_code", trusts)
    return made


def opened(path, trusts: str = "1") -> ort.InferenceSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ort.InferenceSession(str(path), options(trusts), providers=[NAME])


def test_a_compiled_model_runs_what_openvino_stored(compiled, monkeypatch):
    path, expected = compiled
    monkeypatch.setattr(_sdk, "compile_model", lambda *arguments: pytest.fail("it was compiled anew"))
    with opened(path) as session:
        assert session.explain().fallbacks == ()
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_a_compiled_model_that_is_not_trusted_is_compiled_from_its_graph(compiled):
    path, expected = compiled
    with opened(path, trusts="0") as session:
        (reason,) = session.explain().fallbacks
        assert "session.trust_compiled_code" in reason
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)
