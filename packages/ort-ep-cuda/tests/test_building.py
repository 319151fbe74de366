"""Claims built without a device: lowered, and compiled by NVRTC where it is installed."""

from __future__ import annotations

import pytest

from ort_core.plugin import Claim, Rejection, Unavailable
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_cuda import _sdk
from ort_ep_cuda.building import ARCHITECTURE
from ort_ep_cuda.provider import CudaExecutionProvider

CHAIN = "g (float[N,4] x) => (float[N,4] y) { a = Softmax(x) y = Neg(a) }"


def built(body: str) -> Rejection | None:
    """What the provider says of building its only claim."""
    view, provider = view_of(typed_model(model_of(body, opsets='"" : 21'))), CudaExecutionProvider()
    (claim,) = [answer for answer in provider.get_capability(view) if isinstance(answer, Claim)]
    return provider.build(request_for(view, claim))


@pytest.fixture
def compiled(monkeypatch, tmp_path) -> list[tuple[str, str]]:
    """Sources and architectures that a compiler was given."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    given: list[tuple[str, str]] = []

    def compile_cubin(source: str, architecture: str, *options: str) -> _sdk.Compiled:
        given.append((source, architecture))
        return _sdk.Compiled(b"\x7fELF", "")

    monkeypatch.setattr(_sdk, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr(_sdk, "compile_cubin", compile_cubin)
    return given


def test_kernels_of_a_claim_are_compiled_without_a_device(compiled) -> None:
    assert built(CHAIN) is None
    ((source, architecture),) = compiled
    assert architecture == ARCHITECTURE
    assert source.count("__global__") >= 1


def test_contents_that_decide_sizes_leave_a_claim_unbuilt(compiled) -> None:
    refused = built("g (float[N,4] x, int64[2] s) => (float[a,b] y) { y = Expand(x, s) }")
    assert refused.reason == "nothing was built: the content of 's' decides sizes"
    assert compiled == []


def test_without_nvrtc_the_refusal_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(_sdk, "find_compiler", lambda: Unavailable("no NVRTC", "pip install it"))
    assert built(CHAIN).reason == "nothing was built: no NVRTC (pip install it)"
