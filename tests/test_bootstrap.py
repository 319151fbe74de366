"""The bootstrap script: what it reads from pyproject.toml, and when it installs again."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

SCRIPT = Path(__file__).resolve().parent.parent / "tools/bootstrap.py"


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_requirements_include_those_of_included_groups(bootstrap, monkeypatch, tmp_path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[dependency-groups]\ntest = ["a>=1"]\nlint = ["b"]\ndev = ["c", {include-group = "test"}]\n'
    )
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    assert bootstrap.requirements(["dev"]) == ["a>=1", "c"]
    assert bootstrap.requirements(["dev", "lint"]) == ["a>=1", "b", "c"]
    assert bootstrap.requirements([]) == []


def test_every_command_names_groups_that_exist(bootstrap) -> None:
    for groups in bootstrap.GROUPS.values():
        bootstrap.requirements(groups)


def test_the_tests_need_what_the_other_checks_of_ci_need_too(bootstrap) -> None:
    assert set(bootstrap.requirements(["lint", "types", "layers"])) <= set(bootstrap.requirements(["dev"]))


def test_nothing_is_installed_when_the_requirements_are_those_installed_before(
    bootstrap, monkeypatch, tmp_path
) -> None:
    calls = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if "venv" in command:
            bootstrap.PYTHON.parent.mkdir(parents=True)
            bootstrap.PYTHON.touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(bootstrap, "VENV", tmp_path / "venv")
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / "venv" / "bin" / "python")
    monkeypatch.setattr(bootstrap.subprocess, "run", run)
    assert bootstrap.install("test") == 0
    assert len(calls) == 3, "one environment is made, one pip run fills it, one adds the packages of vendors"
    assert bootstrap.install("test") == 0
    assert len(calls) == 3
    monkeypatch.setattr(bootstrap, "fingerprint", lambda files: "other requirements")
    assert bootstrap.install("test") == 0
    assert len(calls) == 5, "other requirements go into the environment that is there"


def test_an_unknown_command_explains_the_known_ones() -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    asked = subprocess.run([sys.executable, SCRIPT, "tset"], capture_output=True, text=True, env=environment)
    assert asked.returncode == 2
    assert "tools/bootstrap.py demo" in asked.stdout
    assert "tools/bootstrap.py test" in asked.stdout


def test_what_is_installed_alone_finds_what_it_needs(bootstrap) -> None:
    """Groups that are installed without their requirements have these in the group of the tests, by name."""
    listed = {Requirement(each).name.lower() for each in bootstrap.requirements(["test"])}
    brought = {"aiohttp", "greenlet", "ml-dtypes", "numpy", "protobuf"}  # by ort-serve and by what is listed, or unused
    for text in bootstrap.requirements([bootstrap.ALONE]):
        needs = [Requirement(each) for each in importlib.metadata.requires(Requirement(text).name) or []]
        wanted = [
            each for each in needs if each.marker is None or "grpc" in str(each.marker) or "http" in str(each.marker)
        ]
        assert {each.name.lower() for each in wanted} <= listed | brought
        assert wanted
