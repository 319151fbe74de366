"""The list of onnxruntime's public names: what a module here lacks is told, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

THEIRS = """
LIMIT = 3
_hidden = 4
logger = None
def scale(model, factor, *, keep=False): ...
class Helper:
    def __init__(self, path): ...
    def run(self, feeds, verbose=False): ...
    def _inside(self): ...
"""
OURS = """
LIMIT = 3
def scale(model, factor, **rest): ...
class Helper:
    def __init__(self): ...
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "compare_names.py"
    spec = importlib.util.spec_from_file_location("compare_names", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_a_module_lacks_is_told_by_name_and_parameter(tool):
    ours = ModuleType("ours")
    exec(OURS, vars(ours))
    found = {each.path: tool.missing_name(ours, each) for each in tool.public_names(ast.parse(THEIRS))}
    assert found == {
        "LIMIT": None, "scale": None, "Helper": None, "Helper.__init__": "without path", "Helper.run": "missing",
    }  # fmt: skip
