"""Options and availability: what is refused, and with which words."""

from __future__ import annotations

import sys

import pytest

from ort_core.plugin import InvalidArgument, Unavailable, describe_options
from ort_ep_coreml.plugin import ort_cli_commands, ort_providers
from ort_ep_coreml.provider import CoreMlEvaluationProvider, CoreMlExecutionProvider


def test_elsewhere_than_on_a_mac_the_reason_names_the_system_and_what_works(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    found = CoreMlExecutionProvider.check()
    assert isinstance(found, Unavailable)
    assert "linux" in found.reason
    assert "export-coreml" in found.remedy


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ModelFormat": "NeuralNetwork"}, "MLProgram"),
        ({"ProfileComputePlan": "1"}, "performance report"),
        ({"MaximumSize": "0"}, "1 or more"),
        ({"MLComputeUnits": "NPU"}, "MLComputeUnits"),
        ({"Precision": "INT8"}, "Precision"),
    ],
)
def test_an_option_without_effect_is_refused_where_it_is_given(options, why):
    with pytest.raises(InvalidArgument, match=why):
        CoreMlExecutionProvider(options)


def test_options_have_onnxruntimes_names():
    given = {
        "MLComputeUnits": "CPUAndGPU",
        "ModelFormat": "MLProgram",
        "RequireStaticInputShapes": "1",
        "EnableOnSubgraphs": "0",
        "SpecializationStrategy": "FastPrediction",
        "ProfileComputePlan": "0",
        "AllowLowPrecisionAccumulationOnGPU": "1",
        "ModelCacheDirectory": "packages",
    }
    found = CoreMlExecutionProvider(given).options
    assert found.MLComputeUnits == "CPUAndGPU"
    assert found.RequireStaticInputShapes
    assert found.AllowLowPrecisionAccumulationOnGPU


def test_the_plugin_brings_both_providers_and_the_subcommand():
    assert ort_providers() == [CoreMlExecutionProvider, CoreMlEvaluationProvider]
    assert set(ort_cli_commands()) == {"export-coreml"}


@pytest.mark.parametrize("provider", [CoreMlExecutionProvider, CoreMlEvaluationProvider], ids=lambda cls: cls.name)
def test_every_option_has_a_sentence(provider):
    assert [option.name for option in describe_options(provider.options_type) if not option.sentence] == []
