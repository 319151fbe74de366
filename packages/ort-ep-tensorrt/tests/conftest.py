"""What the tests share: a provider on a fake SDK and a fake GPU, and TensorRT-RTX itself where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fake_cuda
import fake_tensorrt

import ort_core as ort
from ort_core.plugin import Available
from ort_core.providers.discovery import PluginSource
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.provider import TensorrtExecutionProvider

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
ABSENT = "tensorrt_rtx is not installed: claims and engines are tried with a fake SDK alone"


def pytest_report_header() -> str | None:
    return None if importlib.util.find_spec("tensorrt_rtx") else ABSENT


class FakeTensorrtProvider(TensorrtExecutionProvider):
    """As TensorrtExecutionProvider, on the fake SDK."""

    name = "FakeTensorrtExecutionProvider"

    @classmethod
    def check(cls):
        return Available("fake")

    def sdk(self) -> Sdk:
        found = Sdk(fake_tensorrt, "tensorrt")
        found.load_plugins(self.settings.plugin_paths)
        return found

    def asked_sdk(self) -> Sdk:
        return self.sdk()


@pytest.fixture(scope="session")
def rtx() -> Sdk:
    """TensorRT-RTX itself; skips where it is absent."""
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip(ABSENT)
    import tensorrt_rtx

    return Sdk(tensorrt_rtx, "tensorrt_rtx")


@pytest.fixture(scope="session")
def fake() -> Sdk:
    """The fake SDK."""
    return Sdk(fake_tensorrt, "tensorrt")


@pytest.fixture(scope="session")
def view():
    """Return a function from ONNX text to the view that a provider is asked with, before any pass."""
    return lambda text: view_of(typed_model(onnx.parser.parse_model(HEADER + text)))


@contextmanager
def _opened(text: str, *, has_device: bool = True, is_strict: bool = True, **options: object):
    sources = [plugin_of(FakeTensorrtProvider, name="fake_tensorrt")]
    sources += [PluginSource("fake_cuda", "ort-fake-cuda", fake_cuda)] if has_device else []
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = is_strict  # what the provider refuses or fails to build is an error, not another's work
    with installed(*sources):
        model = onnx.parser.parse_model(HEADER + text).SerializeToString()
        providers = [(FakeTensorrtProvider.name, options)]
        with ort.InferenceSession(model, settings, providers=providers, enable_fallback=False) as session:
            yield session


@pytest.fixture
def session(monkeypatch, tmp_path):
    """Return a function that opens a session on the fake GPU alone, with a cache of the test's own."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(fake_tensorrt, "builds", [])
    return _opened


@pytest.fixture
def builds(session):
    """What the fake SDK built in this test."""
    return fake_tensorrt.builds
