"""Providers as callers name them: every form, fallback that is asked for and shown, and policies."""

import logging
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as native

import ort_core
from ort_core import session
from ort_core.environment import Environment
from ort_core.errors import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    ProviderUnavailable,
    UnknownOption,
)
from ort_core.options import OrtExecutionProviderDevicePolicy, SessionOptions
from ort_core.providers.discovery import PluginSource, entry_point_sources
from ort_core.providers.hookspecs import PLUGIN_API
from ort_core.session_api.provider_request import normalized
from ort_core.stages import PlacementWarning
from ort_core.testing.environments import alone
from ort_core.testing.fake_providers import FailsInRun

X = np.arange(8, dtype=np.float32).reshape(2, 4)
CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"


@pytest.mark.parametrize(
    ("providers", "options", "expected"),
    [
        (["A", "B"], None, [("A", {}), ("B", {})]),
        ([("A", {"x": 1}), "B"], None, [("A", {"x": 1}), ("B", {})]),
        (["A", "B"], [{"x": 1}, {}], [("A", {"x": 1}), ("B", {})]),
    ],
)
def test_every_form_of_a_request_means_the_same(providers, options, expected):
    assert normalized(providers, options) == expected


def test_a_provider_named_twice_counts_once_with_a_warning():
    with pytest.warns(UserWarning, match="Duplicate provider 'A' encountered, ignoring."):
        assert normalized(["A", "A"], None) == [("A", {})]


@pytest.mark.parametrize(
    ("providers", "options", "error", "message"),
    [
        ("A", None, InvalidType, "expected a list such as"),
        (["A"], [{}, {}], InvalidArgument, "same length"),
        ([("A", {})], [{}], InvalidArgument, "Only string values for 'providers'"),
        ([3], None, InvalidArgument, "must be either strings or"),
    ],
)
def test_a_request_in_another_form_is_refused(providers, options, error, message):
    with pytest.raises(error, match=message):
        normalized(providers, options)


def test_a_list_that_goes_on_to_an_available_provider_falls_back_with_a_warning(session_of):
    with pytest.warns(PlacementWarning, match="CUDAExecutionProvider is not available"):
        session = session_of("two_inputs", providers=["CUDAExecutionProvider", CPU])
    assert session.get_providers() == [CPU]
    assert session.explain().unavailable[0][0] == "CUDAExecutionProvider"
    assert "pip install" in str(session.explain())


def test_a_list_without_an_available_provider_is_an_error(session_of):
    with pytest.raises(ProviderUnavailable, match="pip install ort-ep-cuda"):
        session_of("two_inputs", providers=["CUDAExecutionProvider"])


def test_an_unknown_provider_and_an_unknown_option_are_errors(session_of):
    with pytest.raises(InvalidArgument, match=r"Unknown Provider Type: CPUExecutionProvidr.*Did you mean"):
        session_of("two_inputs", providers=["CPUExecutionProvidr"])
    with pytest.raises(UnknownOption, match="no option 'foo'"):
        session_of("two_inputs", providers=[(CPU, {"foo": 1})])


@pytest.fixture
def with_a_failing_provider(monkeypatch):
    """Let sessions find a provider that fails in every run."""
    plugin = types.ModuleType("failing")
    plugin.ORT_PLUGIN_API = PLUGIN_API
    plugin.ort_providers = lambda: [FailsInRun]
    sources = [*entry_point_sources(), PluginSource("failing", "tests", plugin)]
    environment = Environment(lambda: sources)
    monkeypatch.setattr(session, "default_environment", lambda: environment)


@pytest.mark.usefixtures("with_a_failing_provider")
def test_a_provider_that_fails_in_a_run_gives_way_to_the_next_one_asked_for(session_of):
    made = session_of("two_inputs", providers=[FailsInRun.name, CPU])
    with pytest.warns(PlacementWarning, match=f"running on {CPU} from now on"):
        (total,) = made.run(["total"], {"x": X, "z": X})
    np.testing.assert_array_equal(total, X + X)
    assert made.get_providers() == [CPU]


@pytest.mark.usefixtures("with_a_failing_provider")
def test_many_threads_give_way_together(session_of):
    made = session_of("two_inputs", providers=[FailsInRun.name, CPU])
    with ThreadPoolExecutor(4) as pool, pytest.warns(PlacementWarning):
        totals = list(pool.map(lambda _: made.run(["total"], {"x": X, "z": X})[0], range(8)))
    for total in totals:
        np.testing.assert_array_equal(total, X + X)


@pytest.mark.usefixtures("with_a_failing_provider")
def test_a_provider_that_fails_in_a_run_is_an_error_where_nothing_else_was_asked_for(session_of):
    for made in (
        session_of("two_inputs", providers=[FailsInRun.name]),
        session_of("two_inputs", providers=[FailsInRun.name, CPU], enable_fallback=False),
    ):
        with pytest.raises(EPFail, match=FailsInRun.name):
            made(X, X)
    made.enable_fallback()
    with pytest.warns(PlacementWarning):
        made(X, X)


def test_strict_placement_makes_an_absent_provider_an_error(session_of):
    chosen = SessionOptions()
    chosen.strict_placement = True
    with pytest.raises(ProviderUnavailable, match="strict placement"):
        session_of("two_inputs", chosen, ["CUDAExecutionProvider", CPU])


def test_providers_are_changed_later(session_of):
    session = session_of("two_inputs")
    session.set_providers([REFERENCE])
    assert session.get_providers()[0] == REFERENCE
    np.testing.assert_array_equal(session(X, X).total, X + X)


def test_providers_of_the_options_are_used_and_the_argument_wins(session_of):
    chosen = SessionOptions()
    chosen.add_provider(REFERENCE, {})
    assert session_of("two_inputs", chosen).get_providers()[0] == REFERENCE
    with pytest.warns(UserWarning, match="SessionOptions has already been configured"):
        assert session_of("two_inputs", chosen, [CPU]).get_providers() == [CPU]


@pytest.fixture
def own_plugins_only():
    """Whatever other providers are installed here, policies choose among ort-core's own."""
    with alone():
        yield


@pytest.mark.usefixtures("own_plugins_only")
def test_a_policy_chooses_and_warns_when_it_cannot_have_its_way(session_of):
    chosen = SessionOptions()
    chosen.set_provider_selection_policy(OrtExecutionProviderDevicePolicy.PREFER_CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session_of("two_inputs", chosen).get_providers() == [CPU]
    chosen.set_provider_selection_policy(OrtExecutionProviderDevicePolicy.PREFER_NPU)
    with pytest.warns(UserWarning, match="prefers NPU, but no provider here runs on one"):
        session_of("two_inputs", chosen)


@pytest.mark.usefixtures("own_plugins_only")
def test_a_delegate_chooses_among_the_devices(session_of, model):
    chosen = SessionOptions()
    seen = []
    chosen.set_provider_selection_policy_delegate(lambda devices, *rest: seen.append(rest) or devices[:1])
    assert session_of("scale", chosen).get_providers() == [CPU]
    told = seen[0][0]
    assert told.pop("color") == "blue"
    assert told.keys() == theirs_told(model("scale")).keys() - {"color"}
    chosen.set_provider_selection_policy_delegate(lambda devices, *rest: [])
    with pytest.raises(Fail, match="did not select anything"):
        session_of("scale", chosen)
    chosen.set_provider_selection_policy_delegate(lambda devices, *rest: [3])
    with pytest.raises(Fail, match="delegate returned"):
        session_of("scale", chosen)
    chosen.set_provider_selection_policy_delegate(lambda: [])
    with pytest.raises(Fail, match="EP selection delegate failed: TypeError"):
        session_of("scale", chosen)


def theirs_told(content):
    """Return what onnxruntime tells a delegate of a model."""
    told, options = [], onnxruntime.SessionOptions()
    options.set_provider_selection_policy_delegate(lambda devices, *rest: told.append(rest[0]) or devices[:1])
    onnxruntime.InferenceSession(content, options)
    return told[0]


def test_what_is_there_is_listed():
    assert CPU in ort_core.get_available_providers()
    assert REFERENCE not in ort_core.get_available_providers()
    assert ort_core.get_all_providers()[-1] == CPU
    assert ort_core.get_device() == "CPU"
    (device,) = [d for d in ort_core.get_ep_devices() if d.ep_name == CPU]
    assert device.device.type.name == "CPU"
    assert device.create_sync_stream().get_handle() == 0
    assert device.memory_info(ort_core.OrtDeviceMemoryType.DEFAULT).name == "Cpu"
    assert device.device in ort_core.get_hardware_devices()
    assert ort_core.get_version_string() == ort_core.__version__
    assert ort_core.__version__ in ort_core.get_build_info()
    assert ort_core.get_build_info().split(":")[0] == onnxruntime.get_build_info().split(":")[0]


def test_hardware_on_which_a_provider_does_not_run_is_told_with_the_reason():
    (device,) = [each for each in ort_core.get_ep_devices() if each.ep_name == CPU]
    details = ort_core.get_hardware_device_ep_incompatibility_details(CPU, device.device)
    theirs = native.get_hardware_device_ep_incompatibility_details(CPU, native.get_hardware_devices()[0])
    assert details == theirs
    other = replace(device.device, type=ort_core.OrtHardwareDeviceType.NPU)
    details = ort_core.get_hardware_device_ep_incompatibility_details(CPU, other)
    assert details["reasons_bitmask"] == ort_core.OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE.value
    assert "runs on no NPU" in details["notes"]
    with pytest.raises(InvalidArgument, match="No valid factory found for execution provider 'Nobody'"):
        ort_core.get_hardware_device_ep_incompatibility_details("Nobody", device.device)


def test_the_severity_of_the_process_sets_the_logger():
    logger = logging.getLogger("ort_core")
    before = logger.level
    try:
        for severity, level in enumerate((10, 20, 30, 40, 50)):
            ort_core.set_default_logger_severity(severity)
            assert logger.level == level
        with pytest.raises(RuntimeError, match="0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"):
            ort_core.set_default_logger_severity(5)
        with pytest.raises(TypeError, match="expected an integer"):
            ort_core.set_default_logger_severity("2")
    finally:
        logger.setLevel(before)


def test_a_library_of_a_provider_is_refused_with_the_way_to_go():
    with pytest.raises(Fail, match="Install the plugin package"):
        ort_core.register_execution_provider_library("x", "/nope.so")
    with pytest.raises(Fail, match="library: x was not registered"):
        ort_core.unregister_execution_provider_library("x")


def test_functions_without_meaning_here_do_nothing():
    ort_core.enable_telemetry_events()
    ort_core.disable_telemetry_events()
    ort_core.preload_dlls()
    ort_core.create_and_register_allocator(ort_core.OrtMemoryInfo("Cpu"), ort_core.OrtArenaCfg({"max_mem": 1}))
    assert ort_core.has_collective_ops() is False
    with pytest.raises(InvalidValue, match="Invalid OrtArenaCfg option: nope"):
        ort_core.OrtArenaCfg({"nope": 1})
