"""The provider as the core sees it: options, libraries, and why it cannot run where something is missing."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

import pytest
from fake_adapters import Card, Machine

from ort_core.plugin import Claim, InvalidArgument, Rejection, Unavailable, describe_options
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_directml import plugin, windows_libraries
from ort_ep_directml.abi import dml
from ort_ep_directml.provider import DmlExecutionProvider
from ort_ep_directml.runtime.device import NEWEST, DeviceFacts


def test_the_plugin_offers_the_provider_under_onnxruntimes_name():
    assert [each.name for each in plugin.ort_providers()] == ["DmlExecutionProvider"]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_elsewhere_than_on_windows_the_reason_names_the_system(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    found = DmlExecutionProvider.check()
    assert isinstance(found, Unavailable)
    assert "runs on Windows" in found.reason
    assert platform in found.reason
    assert "ort explain" in found.remedy


def test_without_directml_claims_are_asked_for_the_newest_level(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert DmlExecutionProvider({}).facts is NEWEST
    assert NEWEST.level == 0x6400


@pytest.fixture
def windows(monkeypatch, tmp_path):
    """A folder that stands for Windows'."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path / "Windows"))
    (tmp_path / "Windows" / "System32").mkdir(parents=True)
    return tmp_path


def test_the_newest_directml_comes_first_and_a_path_is_the_only_one(windows, monkeypatch):
    package = windows / "site-packages" / "onnxruntime" / "__init__.py"
    spec = importlib.machinery.ModuleSpec("onnxruntime", None, origin=str(package))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    beside = package.parent / "capi" / "DirectML.dll"
    assert windows_libraries.candidates("") == (beside, windows / "Windows/System32/DirectML.dll")
    assert windows_libraries.candidates("mine.dll") == (Path.cwd() / "mine.dll",)


def test_a_missing_library_is_said_with_the_places_and_the_line_that_installs_it(windows, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = windows_libraries.find_libraries()
    assert isinstance(found, Unavailable)
    assert str(windows / "Windows/System32/DirectML.dll") in found.reason
    assert "pip install onnxruntime-directml" in found.remedy


def test_a_python_of_32_bits_is_refused(windows, monkeypatch):
    monkeypatch.setattr(windows_libraries.ctypes, "sizeof", lambda kind: 4)
    found = windows_libraries.find_libraries()
    assert isinstance(found, Unavailable)
    assert "64-bit Python" in found.remedy


def test_a_file_that_is_no_library_is_said(windows):
    broken = windows / "DirectML.dll"
    broken.write_bytes(b"nothing")
    found = windows_libraries.find_libraries(str(broken))
    assert isinstance(found, Unavailable)
    assert "cannot be used" in found.reason


def test_a_device_that_cannot_be_made_is_said_by_check(monkeypatch):
    machine = Machine(Card("Old card"))
    monkeypatch.setattr(DmlExecutionProvider, "libraries", classmethod(lambda cls, path: machine.libraries()))
    found = DmlExecutionProvider.check()
    assert isinstance(found, Unavailable)
    assert "D3D12CreateDevice returned E_OUTOFMEMORY" in found.reason


def test_options_have_onnxruntimes_names():
    given = {
        "performance_preference": "high_performance",
        "device_filter": "any",
        "disable_metacommands": "true",
        "disable_graph_fusion": "1",
        "enable_graph_capture": "1",
        "enable_cpu_sync_spinning": "1",
        "disable_memory_arena": "1",
    }
    found = DmlExecutionProvider(given).options
    assert found.device_filter == "any"
    assert found.execution_flags == dml.EXECUTION_FLAG_DISABLE_META_COMMANDS
    assert DmlExecutionProvider({"device_id": "1"}).options.device_id == 1


def test_half_precision_is_only_allowed_when_asked():
    assert DmlExecutionProvider({}).options.execution_flags == dml.EXECUTION_FLAG_NONE
    context = DmlExecutionProvider({"allow_half_precision": "1"}).options
    assert context.execution_flags == dml.EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device_id": "0", "device_filter": "npu"}, "give either"),
        ({"device_id": "0", "performance_preference": "minimum_power"}, "give either"),
        ({"device_id": "-2"}, "0 or more"),
        ({"device_filter": "tpu"}, "device_filter"),
        ({"performance_preference": "fast"}, "performance_preference"),
        ({"enable_graph_serialization": "1"}, "ort extract"),
        ({"disable_metacommand": "1"}, "Did you mean 'disable_metacommands'"),
    ],
)
def test_an_option_without_meaning_is_refused_where_it_is_given(options, why):
    with pytest.raises(InvalidArgument, match=why):
        DmlExecutionProvider(options)


TEXT = "g (float[4] x, double[4] z) => (float[4] y, double[4] w) { a = Relu(x)  y = Exp(a)  w = Relu(z) }"


def answers(**options: str) -> tuple[list[list[str]], list[str]]:
    found = DmlExecutionProvider(options).get_capability(view_of(typed_model(model_of(TEXT))))
    claims = [[node.op_type for node in each.nodes] for each in found if isinstance(each, Claim)]
    return claims, [each.reason for each in found if isinstance(each, Rejection)]


def test_without_graph_fusion_every_node_is_compiled_on_its_own(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert ["Relu", "Exp"] in answers()[0]
    assert answers(disable_graph_fusion="1")[0].count(["Exp"]) == 1


def test_an_element_type_that_the_device_lacks_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    narrow = DeviceFacts(NEWEST.level, NEWEST.dtypes - {"float32"})
    monkeypatch.setattr(DmlExecutionProvider, "facts", narrow)
    claims, reasons = answers()
    assert ["Relu", "Exp"] not in claims
    assert "'x' is of type float32, which this device has no tensors of" in reasons


def test_every_option_has_a_sentence():
    assert [option.name for option in describe_options(DmlExecutionProvider.options_type) if not option.sentence] == []
