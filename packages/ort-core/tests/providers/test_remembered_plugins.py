"""Sessions know where providers are without a discovery, and discover again as soon as a distribution changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ort_core.environment import Environment
from ort_core.errors import NotFound
from ort_core.providers import remembered_plugins
from ort_core.providers.remembered_plugins import find_remembered

CPU = "CPUExecutionProvider"
PLUGIN = """
from ort_core.plugin import hookimpl
ORT_PLUGIN_API = (2, 0)

@hookimpl
def ort_providers():
    from {package}.provider import OwnProvider
    return [OwnProvider]
"""
PROVIDER = """
from ort_core.cpu.provider import CpuExecutionProvider
class OwnProvider(CpuExecutionProvider):
    name = "OwnExecutionProvider"
    priority = 50
    is_last_resort = False
"""
ASK = """
import json, sys
from ort_core.environment import default_environment
environment = default_environment()
names = environment.default_providers()
print(json.dumps([names, sorted(sys.modules), "plugins" in vars(environment)]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, distributions however young, and a folder for more of them."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(remembered_plugins, "_MIN_AGE_NS", -1)
    installed = tmp_path / "installed"
    installed.mkdir()
    monkeypatch.syspath_prepend(str(installed))
    return installed


def install(folder: Path, package: str, provider: str = PROVIDER) -> None:
    """Write a distribution with one provider, as old as if it had been there for long."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "plugin.py").write_text(PLUGIN.format(package=package))
    (folder / package / "provider.py").write_text(provider)
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[ort.plugins]\nown = {package}.plugin\n")
    os.utime(metadata, (1e9, 1e9))


def discovered() -> Environment:
    environment = Environment()
    assert CPU in environment.plugins.providers
    return environment


def test_second_environment_answers_without_a_discovery_and_as_the_first() -> None:
    first, second = discovered(), Environment()
    assert second.available_providers() == first.available_providers()
    assert second.get_provider(CPU) is first.get_provider(CPU)
    assert second.has_own_passes_or_operators == first.has_own_passes_or_operators
    assert "plugins" not in vars(second)


def test_names_that_are_not_remembered_are_looked_for_by_a_discovery() -> None:
    discovered()
    second = Environment()
    with pytest.raises(NotFound, match="Unknown Provider Type: NoExecutionProvider"):
        second.get_provider("NoExecutionProvider")
    assert "plugins" in vars(second)


def test_a_distribution_that_comes_or_goes_is_seen(folder: Path) -> None:
    discovered()
    install(folder, "ort_own_one")
    assert find_remembered() is None
    assert "OwnExecutionProvider" in Environment().available_providers()
    discovered()
    second = Environment()
    assert second.get_provider("OwnExecutionProvider").__module__ == "ort_own_one.provider"
    assert "plugins" not in vars(second)
    for file in (folder / "ort_own_one-1.0.dist-info").iterdir():
        file.unlink()
    (folder / "ort_own_one-1.0.dist-info").rmdir()
    assert "OwnExecutionProvider" not in Environment().available_providers()


def test_a_changed_plugin_is_discovered_again(folder: Path) -> None:
    install(folder, "ort_own_two")
    discovered()
    assert find_remembered() is not None
    (folder / "ort_own_two" / "provider.py").write_text(PROVIDER.replace("Own", "Other") + "\n")
    assert find_remembered() is None


def test_broken_plugins_are_never_remembered(folder: Path) -> None:
    install(folder, "ort_own_three", "raise RuntimeError('broken')")
    assert "own" in Environment().plugins.unusable
    assert find_remembered() is None


@pytest.mark.parametrize("error", ["RuntimeError('no driver')", "OSError('libvendor.so')", "SystemExit(1)"])
def test_a_remembered_plugin_that_does_not_import_any_more_breaks_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    package = f"ort_own_six_{error[0].lower()}"
    install(folder, package, f"import os\nif 'BREAK_IT' in os.environ:\n    raise {error}\n{PROVIDER}")
    discovered()
    assert find_remembered() is not None
    monkeypatch.setenv("BREAK_IT", "1")
    for name in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    environment = Environment()
    assert environment.available_providers()[-1] == CPU
    assert "OwnExecutionProvider" not in environment.available_providers()
    assert not environment.check("OwnExecutionProvider")
    assert error.partition("(")[0] in environment.plugins.unusable["own"].reason


def test_young_distributions_are_not_remembered(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(remembered_plugins, "_MIN_AGE_NS", 2_000_000_000)
    install(folder, "ort_own_four")
    os.utime(folder / "ort_own_four-1.0.dist-info", (time.time() + 3600,) * 2)  # young for as long as the test takes
    discovered()
    assert find_remembered() is None


def test_damaged_memory_is_discovered_again() -> None:
    environment = discovered()
    (path,) = (Path(os.environ["ORT_CACHE_DIR"]) / "plugins").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    assert find_remembered() is None
    assert Environment().available_providers() == environment.available_providers()


def test_a_process_that_remembers_imports_no_plugin_but_those_it_asks(folder: Path) -> None:
    install(folder, "ort_own_five", PROVIDER.replace("is_last_resort", "is_listed = False\n    is_last_resort"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    answers = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=environment
        )  # fmt: skip
        answers.append(json.loads(done.stdout))
    (names, _, was_discovered), (again, modules, is_discovered) = answers
    assert (again, was_discovered, is_discovered) == (names, True, False)
    unused = {"pluggy", "importlib.metadata", "ort_own_five.plugin", "ort_own_five.provider", "email"}
    assert not unused & set(modules)
