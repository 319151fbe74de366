"""What the tests share: models from text, sessions that evaluate programs, a skip with a reason without coremltools."""

from __future__ import annotations

import importlib.util
import math
import re
import warnings

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.plugin import GraphView
from ort_core.testing.claims import typed_model, view_of

EVALUATION = "CoreMLEvaluationExecutionProvider"
HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
ABSENT = "the coremltools package is not installed: tests that build packages are skipped"


def pytest_report_header() -> str | None:
    return None if importlib.util.find_spec("coremltools") else ABSENT


@pytest.fixture(scope="session")
def sdk() -> None:
    """Skip where coremltools is absent."""
    if importlib.util.find_spec("coremltools") is None:
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
    """Return a function that makes a session in which every node is lowered, the model not optimized."""

    def make(text: str, **options: object) -> ort.InferenceSession:
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.strict_placement = True
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ort.InferenceSession(
                parse(text).SerializeToString(), settings, providers=[(EVALUATION, options)], enable_fallback=False
            )

    return make


@pytest.fixture(scope="session")
def weighted():
    """Return a function that gives seeded values to the weights of a text that states none."""
    generator = np.random.default_rng(11)

    def fill(match: re.Match[str]) -> str:
        count = math.prod(int(size) for size in match[1].split(","))
        values = ",".join(f"{value:.4f}" for value in generator.standard_normal(count))
        return f"{match[0]} = {{{values}}}"

    def build(text: str) -> str:
        border, _, rest = text.partition("<")
        stated, _, body = rest.partition("> {")
        weights = re.sub(r"float\[([\d,]+)\] \w+(?! ?[=\w])", fill, stated)
        return f"{border}<{weights}> {{{body}" if body else text

    return build
