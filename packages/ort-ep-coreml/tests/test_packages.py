"""Packages: found again by their whole content, stored as bytes, and opened by Core ML as its API says."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import new_run_state, request_for
from ort_ep_coreml import _sdk
from ort_ep_coreml.capability import program_of
from ort_ep_coreml.options import CoreMlOptions
from ort_ep_coreml.package import content_key
from ort_ep_coreml.provider import CoreMlEvaluationProvider


def requested(view, text: str):
    seen = view(text)
    (claim,) = [each for each in CoreMlEvaluationProvider().get_capability(seen) if isinstance(each, Claim)]
    return request_for(seen, claim)


def text_with(value: float) -> str:
    """Return a model whose weight is beyond what a program's text shows."""
    weights = ",".join(["1"] * 35 + [str(value)])
    return f"g (float[n,4] x) => (float[n,9] y) <float[4,9] w = {{{weights}}}> {{ y = MatMul(x, w) }}"


def test_the_key_of_a_package_holds_every_weight(view):
    keys = {content_key(program_of(requested(view, text_with(value)), CoreMlOptions()), "facts") for value in (1, 2, 1)}
    assert len(keys) == 2
    program = program_of(requested(view, text_with(1)), CoreMlOptions())
    assert content_key(program, "facts") != content_key(program, "other facts")


def test_a_folder_of_packages_is_used_again(sdk, view, tmp_path, monkeypatch):
    provider = CoreMlEvaluationProvider({"ModelCacheDirectory": str(tmp_path)})
    provider.compile(requested(view, text_with(2))).close()
    provider.compile(requested(view, text_with(3))).close()
    assert len(list(tmp_path.iterdir())) == 2

    def build_anew(*given: object) -> None:
        pytest.fail("a package that lies there was built anew")

    monkeypatch.setattr(_sdk, "save_package", build_anew)
    x, outputs = np.ones((1, 4), np.float32), [None]
    found = provider.compile(requested(view, text_with(2)))
    found.run(found.plan([x.shape], {}), [x], outputs, new_run_state())
    assert outputs[0].tolist() == [[4] * 8 + [5]]


def test_a_stored_partition_is_restored_and_foreign_bytes_are_refused(sdk, view):
    provider = CoreMlEvaluationProvider()
    request = requested(view, text_with(2))
    blob = provider.compile(request).serialize()
    assert isinstance(blob, bytes)
    restored = provider.load(blob, request)
    x, outputs = np.ones((2, 4), np.float32), [None]
    restored.run(restored.plan([x.shape], {}), [x], outputs, new_run_state())
    assert outputs[0].tolist() == [[4] * 8 + [5]] * 2
    assert isinstance(provider.load(blob[:-40], request), Rejection)
    assert isinstance(provider.load(blob, requested(view, text_with(3))), Rejection)
    assert isinstance(CoreMlEvaluationProvider({"MaximumSize": "9"}).load(blob, request), Rejection)


@pytest.mark.parametrize(("given", "expected"), [("ALL", "ALL"), ("CPUAndNeuralEngine", "CPU_AND_NE")])
def test_options_reach_core_mls_own_class(sdk, monkeypatch, tmp_path, given, expected):
    import coremltools

    seen = {}

    class Recorded:
        def __init__(self, path: str, **given: object) -> None:
            seen.update(given, path=path)

        def predict(self, features: dict) -> dict:
            raise RuntimeError("Error computing NN outputs")

    monkeypatch.setattr(coremltools.models, "MLModel", Recorded)
    model = _sdk.Model(tmp_path / "m.mlpackage", given, "FastPrediction", True, ())
    assert seen["compute_units"] is coremltools.ComputeUnit[expected]
    assert seen["optimization_hints"] == {
        "specializationStrategy": coremltools.SpecializationStrategy.FastPrediction,
        "allowLowPrecisionAccumulationOnGPU": True,
    }
    with pytest.raises(_sdk.SdkError, match="Error computing"):
        model.predict({})


@pytest.mark.parametrize("is_frozen", [False, True])
def test_building_leaves_frozen_what_was_and_nothing_else(session, is_frozen):
    gc.unfreeze()
    if is_frozen:
        gc.freeze()
    try:
        session("g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }")
        assert (gc.get_freeze_count() > 0) == is_frozen
    finally:
        gc.freeze()  # as the tests' collection left it
