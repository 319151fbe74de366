"""The provider on the emulated GPU, held to what every provider promises."""

from pathlib import Path

import pytest
from emulated_provider import EmulatedCudaProvider

from ort_conformance import EpProfile, Feature, conformance_tests
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

PROFILE = EpProfile(
    EmulatedCudaProvider.name,
    features=frozenset(
        {Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.FILLS_BUFFERS, Feature.CONCURRENT_RUNS}
    ),
    tolerances={"operators/*": "approximate"},
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)


@pytest.fixture(autouse=True, scope="module")
def _installed_provider():
    from emulated_gpu import EmulatedGpu

    EmulatedCudaProvider.device = EmulatedGpu()
    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        yield


test_conformance = conformance_tests(PROFILE, share=0.05)
