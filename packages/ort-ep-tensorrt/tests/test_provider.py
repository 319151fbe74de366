"""The providers as the core sees them: names, plugins, and why they cannot run where something is missing."""

import sys
import types

import fake_tensorrt
import pytest

from ort_core.plugin import Available, NotImplemented, Rejection, Unavailable
from ort_ep_tensorrt import _sdk, plugin
from ort_ep_tensorrt.provider import NvTensorRtRtxExecutionProvider, TensorrtExecutionProvider

PROVIDERS = [TensorrtExecutionProvider, NvTensorRtRtxExecutionProvider]


def test_the_plugin_offers_both_under_onnxruntimes_names():
    assert [each.name for each in plugin.ort_providers()] == [
        "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider",
    ]  # fmt: skip


def test_importing_the_plugin_loads_no_sdk():
    assert not {"tensorrt", "tensorrt_rtx"} & set(plugin.__dict__)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_missing_sdk_is_said_with_the_line_that_installs_it(provider, monkeypatch):
    monkeypatch.setitem(sys.modules, provider.kind, None)  # what makes an import fail
    found = provider.check()
    assert isinstance(found, Unavailable)
    assert "cannot be loaded" in found.reason
    assert "pip install ort-ep-tensorrt" in found.remedy


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_sdk_that_is_too_old_is_said(provider, monkeypatch):
    old = types.ModuleType(provider.kind)
    old.__version__ = "1.0.0"
    monkeypatch.setitem(sys.modules, provider.kind, old)
    assert "is too old" in str(provider.check())


def test_a_driver_that_is_there_makes_a_provider_available(fake):
    assert _sdk.device_of(fake) == Available("TensorRT 11.4.0.0")


def test_a_driver_that_is_missing_is_said_in_the_sdks_words(fake, monkeypatch):
    def deserialize(self, content):
        self._logger.log(fake_tensorrt.ILogger.Severity.ERROR, "Cuda Runtime (cudaError 35: driver is insufficient)")

    monkeypatch.setattr(fake_tensorrt.Runtime, "deserialize_cuda_engine", deserialize)
    assert "cudaError 35: driver is insufficient" in str(_sdk.device_of(fake))


def test_where_tensorrt_is_absent_the_parser_of_the_other_is_asked_and_that_is_said(view, rtx, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    text = "g (float[n,4,4] x) => (float[n] y) { a = Relu(x)  y = Det(a) }"
    found = TensorrtExecutionProvider({}).get_capability(view(text))
    assert [type(each).__name__ for each in found] == ["Claim", "Rejection"]
    assert "those of the parser of TensorRT-RTX" in caplog.text


def test_where_neither_is_installed_the_error_says_how_to_install_it(view, monkeypatch):
    for kind in ("tensorrt", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(NotImplemented, match="pip install ort-ep-tensorrt"):
        TensorrtExecutionProvider({}).get_capability(view("g (float[4] x) => (float[4] y) { y = Relu(x) }"))


def test_without_its_own_sdk_nothing_is_built_and_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    answer = TensorrtExecutionProvider({}).build(None)
    assert isinstance(answer, Rejection)
    assert "nothing was built: TensorRT cannot be loaded" in answer.reason
