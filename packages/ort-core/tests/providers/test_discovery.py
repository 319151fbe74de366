"""Plugins are found, checked and kept apart: a broken one is shown and never breaks others."""

from __future__ import annotations

import types
from importlib import metadata

import numpy as np
import pytest

import ort_core as ort
from ort_core.custom_ops.custom_op import custom_op
from ort_core.environment import Environment
from ort_core.errors import InvalidArgument, NotFound, ProviderUnavailable, UnknownOption
from ort_core.ir.rejection import Rejection
from ort_core.onnx_io.save import model_to_bytes
from ort_core.providers import discovery
from ort_core.providers.discovery import PluginSource, entry_point_sources
from ort_core.providers.provider import Unavailable
from ort_core.stages import PlacementWarning, PrepareSettings, select_providers
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import (
    BrokenCheckProvider,
    EchoProvider,
    RefusingProvider,
    UnavailableProvider,
    environment_of,
    plugin_of,
)
from ort_core.testing.models import model_of


class _ImportFails:
    name = "broken"

    def load(self) -> types.ModuleType:
        raise SystemExit("this package ends the program when it is imported")


def test_environment_lists_providers_by_priority_when_all_plugins_are_sound() -> None:
    listed = type("Listed", (EchoProvider,), {"is_listed": True})
    environment = environment_of(plugin_of(listed))
    assert environment.available_providers() == ["EchoExecutionProvider", "CPUExecutionProvider"]


def test_own_plugins_are_those_of_the_distribution() -> None:
    named = metadata.distribution("ort-core").entry_points.select(group=discovery.GROUP)
    assert {point.name: point.value for point in named} == discovery.OWN_PLUGINS


def test_a_program_without_metadata_of_distributions_has_the_engines_own_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    environment = Environment(entry_point_sources)
    assert environment.default_providers() == ["CPUExecutionProvider"]


def test_installing_a_provider_that_declares_nothing_moves_no_model() -> None:
    with installed(plugin_of(EchoProvider)):
        model = model_of("g (float[N] x) => (float[N] y) { y = Relu(x) }")
        content = model_to_bytes(model)
        assert ort.InferenceSession(content).get_providers() == ["CPUExecutionProvider"]
        named = ort.InferenceSession(content, providers=["EchoExecutionProvider", "CPUExecutionProvider"])
        assert named.get_providers() == ["EchoExecutionProvider", "CPUExecutionProvider"]


def test_plugin_that_exits_on_import_is_shown_and_others_go_on() -> None:
    environment = environment_of(PluginSource("broken", "ort-broken", _ImportFails()))
    assert environment.available_providers() == ["CPUExecutionProvider"]
    refusal = environment.plugins.unusable["broken"]
    assert "SystemExit" in refusal.reason
    assert "ort-broken" in refusal.remedy


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ((3, 0), "upgrade ort-core"),
        ((2, 99), "upgrade ort-core"),
        ((1, 1), "its CompiledPartition.run takes a workspace, which is gone (upgrade the plugin's package)"),
        ((0, 9), "upgrade the plugin"),
        (None, "pair of integers"),
    ],
)
def test_plugin_of_another_api_version_is_refused_with_advice(api: object, words: str) -> None:
    environment = environment_of(plugin_of(EchoProvider, api=api))
    assert "EchoExecutionProvider" not in environment.provider_classes()
    assert words in str(environment.plugins.unusable["fake"])


@pytest.mark.parametrize("api", [(1, 0), (1, 1)])
def test_plugin_without_providers_of_the_version_before_loads(api: tuple[int, int]) -> None:
    @custom_op("test.versions", "Twice")
    def twice(x: np.ndarray) -> np.ndarray:
        return x + x

    environment = environment_of(plugin_of(api=api, custom_ops=[twice]))
    assert "fake" not in environment.plugins.unusable
    assert not isinstance(environment.schemas.find("test.versions", "Twice", 1), Rejection)


def test_two_plugins_with_one_provider_name_are_both_unusable_and_named() -> None:
    environment = environment_of(plugin_of(EchoProvider, name="one"), plugin_of(EchoProvider, name="two"))
    refusal = environment.plugins.unusable["EchoExecutionProvider"]
    assert "ort-fake-one" in refusal.reason
    assert "ort-fake-two" in refusal.reason
    assert environment.available_providers() == ["CPUExecutionProvider"]


def test_plugin_that_returns_something_else_is_refused() -> None:
    environment = environment_of(plugin_of(int))  # type: ignore[arg-type]  # the point of the test
    assert "not an ExecutionProvider class" in environment.plugins.unusable["fake"].reason


def test_check_that_raises_becomes_unavailable() -> None:
    environment = environment_of(plugin_of(BrokenCheckProvider, UnavailableProvider))
    assert "the driver is upset" in str(environment.check("BrokenCheckExecutionProvider"))
    assert str(environment.check("UnavailableExecutionProvider")) == "no such device here (buy one)"


def test_request_that_goes_on_to_an_available_provider_warns_with_the_reason() -> None:
    environment = environment_of(plugin_of(UnavailableProvider))
    request = [("UnavailableExecutionProvider", {}), ("CPUExecutionProvider", {})]
    with pytest.warns(PlacementWarning, match="no such device here"):
        selection = select_providers(request, environment, PrepareSettings())
    assert selection.names == ("CPUExecutionProvider",)
    assert selection.unavailable == (("UnavailableExecutionProvider", "no such device here (buy one)"),)


class _WithoutItsDevice(EchoProvider):
    def check_device(self) -> Unavailable:
        return Unavailable("there is no device 7 here")


class _StumblesOverItsDevice(EchoProvider):
    def check_device(self) -> Unavailable:
        raise OSError("the driver is upset")


@pytest.mark.parametrize(
    ("provider", "words"), [(_WithoutItsDevice, "no device 7 here"), (_StumblesOverItsDevice, "the driver is upset")]
)
def test_a_provider_whose_options_name_a_device_that_is_not_there_is_not_among_those_that_run(provider, words) -> None:
    environment = environment_of(plugin_of(provider))
    with pytest.warns(PlacementWarning, match=words):
        selection = select_providers(
            [("EchoExecutionProvider", {}), ("CPUExecutionProvider", {})], environment, PrepareSettings()
        )
    assert selection.names == ("CPUExecutionProvider",)
    with pytest.raises(ProviderUnavailable, match=words):
        select_providers([("EchoExecutionProvider", {})], environment, PrepareSettings())


def test_request_without_any_available_provider_raises_with_each_reason() -> None:
    environment = environment_of(plugin_of(UnavailableProvider))
    with pytest.raises(ProviderUnavailable, match="no such device here"):
        select_providers([("UnavailableExecutionProvider", {})], environment, PrepareSettings())


def test_known_provider_without_its_package_says_what_to_install() -> None:
    with pytest.raises(ProviderUnavailable, match="pip install ort-ep-cuda"):
        select_providers([("CUDAExecutionProvider", {})], environment_of(), PrepareSettings())


def test_unknown_provider_gets_a_suggestion() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'CPUExecutionProvider'"):
        select_providers([("CPUExecutionProvide", {})], environment_of(), PrepareSettings())
    with pytest.raises(NotFound):
        environment_of().get_provider("Nothing")


def test_unknown_provider_option_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownOption, match="use_arena"):
        select_providers([("CPUExecutionProvider", {"use_aren": "1"})], environment_of(), PrepareSettings())


def test_last_resort_is_appended_unless_forbidden() -> None:
    environment = environment_of(plugin_of(RefusingProvider))
    request = [("RefusingExecutionProvider", {})]
    assert select_providers(request, environment, PrepareSettings()).names[-1] == "CPUExecutionProvider"
    alone = select_providers(request, environment, PrepareSettings(allow_last_resort=False))
    assert alone.names == ("RefusingExecutionProvider",)
