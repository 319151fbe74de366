"""The authors' doors: what they list is what can be had, and tools that complete names see it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import ort_core.plugin

DOORS = [
    "ort_core.plugin",
    *(f"ort_core.plugin.{module.name}" for module in pkgutil.iter_modules(ort_core.plugin.__path__)),
]


@pytest.mark.parametrize("name", DOORS)
def test_every_name_of_a_door_can_be_had(name: str) -> None:
    door = importlib.import_module(name)
    assert door.__all__
    assert all(getattr(door, each) is not None for each in door.__all__)


def test_dir_of_every_door_lists_its_names_before_any_was_used() -> None:
    program = """
import importlib, sys
for name in sys.argv[1:]:
    door = importlib.import_module(name)
    print(name, *sorted(set(door.__all__) - set(dir(door))))
"""
    said = subprocess.run([sys.executable, "-c", program, *DOORS], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == DOORS
