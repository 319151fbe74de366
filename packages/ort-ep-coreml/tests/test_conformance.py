"""The programs that Core ML gets, computed without Core ML, held to what every provider promises."""

import importlib.util
from pathlib import Path

import pytest

from ort_conformance import EpProfile, Feature, conformance_tests

PROFILE = EpProfile(
    "CoreMLEvaluationExecutionProvider",
    features=frozenset({Feature.DYNAMIC_SHAPES, Feature.FILLS_BUFFERS, Feature.STORES_COMPILED}),
    means="packages written, read back, and evaluated by coremltools' value inference and numpy; not by Core ML",
    tolerances={"operators/test_attention_*fp16*": "approximate"},  # it rounds to float16 at other places
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)
if importlib.util.find_spec("coremltools") is None:
    pytest.skip("the coremltools package is not installed", allow_module_level=True)

# Each check builds, saves and reads back packages: `nox -s coreml` takes every suite and node case.
test_conformance = conformance_tests(PROFILE, suites=("contract",))
