"""Programs run on the emulated GPU agree with numpy: every family, every element type, compiled together."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu, compile_together
from emulated_provider import EmulatedCudaProvider, session_of
from graph_cases import CASES, GraphCase, chosen_cases
from library_numbers import FuseEverything

import ort_core as ort
from ort_core import tolerances
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.models import model_of
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")


LIBRARIES = {
    "nothing fused": NOTHING_FUSED,
    "fused": FuseEverything(),
    "fused, channels last": FuseEverything(is_channels_last=True),
}


def _results(case: GraphCase, runs: int = 1) -> list[np.ndarray]:
    session = session_of(case.body, opset=case.opset)
    assert "CPUExecutionProvider:" not in str(session.explain()), "a case must run on the device, all of it"
    for _ in range(runs):
        found = session.run(None, case.feeds)
    return found


@pytest.fixture(scope="module")
def compiled(request) -> EmulatedGpu:
    """Lower every case that runs once without running it, and compile all kernels by one call of the compiler."""
    collecting = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    for case, libraries in chosen_cases(request):
        collecting.libraries = LIBRARIES[libraries]
        _results(case)
    compile_together(list(collecting.collected.values()))
    EmulatedCudaProvider.device = EmulatedGpu()
    return EmulatedCudaProvider.device


def _calls_a_library(case: GraphCase) -> bool:
    return any(name in case.body for name in ("MatMul(", "Gemm", "Conv", "Attention", "Einsum", "Norm"))


@pytest.mark.sweep(parts=16)
@pytest.mark.parametrize(
    ("case", "libraries"),
    [(case, name) for case in CASES for name in (LIBRARIES if _calls_a_library(case) else ("nothing fused",))],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_program_agrees_with_numpy(case: GraphCase, libraries: str, compiled: EmulatedGpu) -> None:
    expected = _expected(case)
    compiled.libraries = LIBRARIES[libraries]
    for runs in (1, 3):  # launched one by one, and replayed from a captured graph
        for found, wanted in zip(_results(case, runs), expected, strict=True):
            limit = tolerances.tolerance(case.tolerance, wanted.dtype)
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(
                found.astype(np.float64), wanted.astype(np.float64), limit.relative, limit.absolute, err_msg=case.name
            )


def _expected(case: GraphCase) -> list[np.ndarray]:
    reference = ort.InferenceSession(
        model_of(case.body, opsets=f'"" : {case.opset}'), providers=["ReferenceExecutionProvider"]
    ).run(None, case.feeds)
    if case.truth is not None:
        truth = np.asarray(case.truth(*case.feeds.values())).astype(reference[0].dtype)
        limit = tolerances.tolerance("approximate", truth.dtype)
        np.testing.assert_allclose(reference[0], truth, limit.relative, limit.absolute)
    return reference
