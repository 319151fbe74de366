"""What the command line says of plugins: those that are missing, and those that fail while others take over."""

from __future__ import annotations

from importlib import metadata

import pytest

from ort_core.cli import plugin_commands
from ort_core.cli.app import build_app
from ort_core.environment import PACKAGES
from ort_core.onnx_io.save import save_model
from ort_core.settings import _OTHER_EP as OTHER_EP
from ort_core.settings import KNOWN_PROVIDERS, Scope, all_settings, suggested_names
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import FailsInClaim, FailsInCompile, plugin_of
from ort_core.testing.models import model_of


@pytest.fixture
def model(tmp_path):
    save_model(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("provider", "where"), [(FailsInCompile, "the vendor's compiler gave up"), (FailsInClaim, "forgot this operator")]
)
def test_debug_shows_where_a_plugin_failed_whose_nodes_went_elsewhere(ort, model, monkeypatch, provider, where):
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with installed(plugin_of(provider)):
        plain = ort("run", model, "-p", provider.name, "-p", "cpu")
        shown = ort("--debug", "run", model, "-p", provider.name, "-p", "cpu")
    assert (plain.code, shown.code) == (0, 0), "another provider took over"
    assert "Traceback" not in plain.err
    assert "fake_providers.py" in shown.err
    assert where in shown.err


def test_debug_of_a_run_in_which_nothing_fails_shows_no_traceback(ort, model):
    assert "Traceback" not in ort("--debug", "run", model).err


@pytest.mark.parametrize("name", ["new-ep", "conformance"])
def test_a_command_of_a_package_that_is_not_installed_says_what_to_install(ort, monkeypatch, name):
    monkeypatch.setattr("ort_core.cli.app.find_plugin_commands", dict)
    result = ort(name, "acme")
    assert result.code == 2
    said = " ".join(result.err.replace("│", " ").split())
    assert f"`ort {name}` comes with the package ort-conformance, which is not installed here" in said
    assert "pip install ort-conformance" in said


def test_a_command_of_a_package_whose_plugin_fails_says_why(monkeypatch):
    monkeypatch.setitem(plugin_commands.PACKAGES_OF_COMMANDS, "acme", ("ort-fake-acme", "./acme"))
    with installed(plugin_of(name="acme", api=(0, 9))):
        assert "written for plugin API 0.9" in plugin_commands.missing_command_text("acme")


def test_every_command_that_is_known_elsewhere_is_one_that_its_package_brings():
    present = {each.name for each in metadata.distributions()}
    expected = {name for name, (package, _) in plugin_commands.PACKAGES_OF_COMMANDS.items() if package in present}
    assert expected, "no package that brings commands is installed"
    assert expected == set(plugin_commands.find_plugin_commands())


@pytest.mark.parametrize("name", ["nnapy", "vitisay", "Xnpack", "rknp"])
def test_providers_that_nobody_ships_are_not_suggested(ort, model, name):
    result = ort("run", model, "-p", name)
    assert result.code == 2
    assert f"no provider is called '{name}'" in " ".join(result.err.split())
    unshipped = {each.removesuffix("ExecutionProvider").lower() for each in KNOWN_PROVIDERS if each not in PACKAGES}
    assert not [each for each in unshipped - {"cpu"} if f"'{each}'" in result.err.lower()]


def test_keys_of_providers_that_nobody_ships_are_not_suggested(ort, model):
    idle = [
        name for (scope, name), each in all_settings().items() if scope is Scope.SESSION and each.no_effect == OTHER_EP
    ]
    assert idle
    assert not set(idle) & set(suggested_names(Scope.SESSION))
    result = ort("run", model, "--config", f"{idle[0]}x=1")
    assert result.code == 2
    assert f"{idle[0]}'" not in result.err


def test_commands_elsewhere_do_not_change_unknown_ones():
    with pytest.raises(SystemExit) as ended:
        build_app()(["nothing-of-the-sort"], prog_name="ort")
    assert ended.value.code == 2
