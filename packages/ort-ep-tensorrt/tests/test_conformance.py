"""NvTensorRTRTXExecutionProvider, held to what every provider promises; needs a GPU."""

from pathlib import Path

import pytest

from ort_conformance import EpProfile, Feature, conformance_tests
from ort_ep_tensorrt.provider import NvTensorRtRtxExecutionProvider

PROFILE = EpProfile(
    "NvTensorRTRTXExecutionProvider",
    features=frozenset({Feature.CONCURRENT_RUNS, Feature.FILLS_BUFFERS}),
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
    device="cuda",
)
FOUND = NvTensorRtRtxExecutionProvider.check()
if not FOUND:
    pytest.skip(f"the suite runs on a GPU: {FOUND}", allow_module_level=True)

test_conformance = conformance_tests(PROFILE, share=0.05)
