"""OpenVINOExecutionProvider, held to what every provider promises."""

from pathlib import Path

import pytest

from ort_conformance import EpProfile, Feature, conformance_tests

PROFILE = EpProfile(
    "OpenVINOExecutionProvider",
    features=frozenset(
        {Feature.DYNAMIC_SHAPES, Feature.CONCURRENT_RUNS, Feature.FILLS_BUFFERS, Feature.STORES_COMPILED}
    ),
    tolerances={"operators/test_attention_*fp16*": "approximate"},  # it rounds to float16 at other places
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)
pytest.importorskip("openvino", reason="the openvino package is not installed")

test_conformance = conformance_tests(PROFILE, share=0.05)
