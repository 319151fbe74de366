"""The names of a door are written once: its lists are those of its imports."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def door_names() -> ModuleType:
    spec = importlib.util.spec_from_file_location("door_names", ROOT / "tools" / "door_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_door_lists_the_names_of_its_imports(door_names: ModuleType) -> None:
    paths = door_names.doors()
    assert len(paths) > 10
    stale = [path.name for path in paths if door_names.written(path.read_text("utf-8")) != path.read_text("utf-8")]
    assert not stale, f"run {Path(sys.executable).name} tools/door_names.py"


def test_a_name_that_is_imported_and_one_that_is_not_any_more_change_the_lists(door_names: ModuleType) -> None:
    source = """from typing import TYPE_CHECKING
from ort_core.lazy_names import lazy_names
from here import Kept as Kept

if TYPE_CHECKING:
    from a import new
    from b import LIMIT, Old

__all__ = ["Old", "gone"]

__getattr__, __dir__ = lazy_names(  # for a reason
    __name__,
    {
        "c": ("gone",),
    },
)

AFTER = 1
"""
    found = door_names.written(source)
    assert '__all__ = ["AFTER", "LIMIT", "Kept", "Old", "new"]' in found
    assert '        "a": ("new",),\n        "b": ("LIMIT", "Old"),\n' in found
    assert "# for a reason" in found
    assert "gone" not in found
    assert door_names.written(found) == found
