"""What the tests share: models from text, sessions on this provider, a skip with a reason where there is no SDK."""

from __future__ import annotations

import importlib.util
import warnings

import onnx
import pytest

import ort_core as ort
from ort_core.plugin import GraphView
from ort_core.testing.claims import typed_model, view_of

NAME = "OpenVINOExecutionProvider"
HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
ABSENT = "the openvino package is not installed: tests that run OpenVINO are skipped"


def pytest_report_header() -> str | None:
    return None if importlib.util.find_spec("openvino") else ABSENT


@pytest.fixture(scope="session")
def sdk() -> None:
    """Skip where OpenVINO is absent."""
    if importlib.util.find_spec("openvino") is None:
        pytest.skip(ABSENT)


@pytest.fixture(scope="session")
def parse():
    """Return a function from ONNX text to a model."""
    return lambda text: onnx.parser.parse_model(HEADER + text)


@pytest.fixture(scope="session")
def view(parse):
    """Return a function from ONNX text to the view that a provider is asked with, before any pass."""

    def build(text: str) -> GraphView:
        return view_of(typed_model(parse(text)))

    return build


@pytest.fixture
def session(sdk, parse):
    """Return a function that makes a session on this provider, then the CPU, without optimizing the model."""

    def make(text: str, **options: object) -> ort.InferenceSession:
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ort.InferenceSession(
                parse(text).SerializeToString(), settings, providers=[(NAME, options)], enable_fallback=False
            )

    return make
