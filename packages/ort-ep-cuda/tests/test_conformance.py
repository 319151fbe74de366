"""The provider on the emulated GPU, held to what every provider promises."""

from pathlib import Path

import pytest

from ort_conformance import EpProfile, Feature, conformance_tests
from ort_conformance.catalogue import catalogue, sample
from ort_conformance.subject import Subject
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

SHARE = 0.04  # of the operator cases: the compiler that emulates takes most of the time; --conformance-full runs all
ON_THE_DEVICE = EpProfile(
    "CUDAExecutionProvider",
    means="kernels compiled by NVRTC for sm_90; the same text is held to numpy by emulation on the processor",
)
PROFILE = EpProfile(
    "EmulatedCudaExecutionProvider",
    features=frozenset(
        {Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.FILLS_BUFFERS, Feature.CONCURRENT_RUNS}
    ),
    tolerances={"operators/test_attention_*fp16*": "approximate"},  # fused kernels round to float16 at fewer places
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)


@pytest.fixture(autouse=True, scope="module")
def _installed_provider(request: pytest.FixtureRequest):
    if find_compiler() is None:
        pytest.skip("CUDA is emulated by a C++ compiler; none is here")
    from emulated_gpu import EmulatedGpu, compile_together
    from emulated_provider import EmulatedCudaProvider

    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        share = 1.0 if request.config.getoption("--conformance-full") else SHARE
        collecting = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
        subject = Subject(PROFILE)
        for check in sample(catalogue(["operators"]), share):
            check.run(subject)  # only lowered: what it finds does not count
        kernels = list(collecting.collected.values())
        for start in range(0, len(kernels), 100):  # a call of the compiler for a hundred kernels, not for each
            compile_together(kernels[start : start + 100])
        EmulatedCudaProvider.device = EmulatedGpu()
        yield


test_conformance = conformance_tests(PROFILE, suites=("contract", "operators", "errors", "determinism"), share=SHARE)
