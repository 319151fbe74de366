"""Execution providers, the CPU's among them, import ort_core by its doors alone, and never each other.

The list of packages is that of the repository: a new one is held to it on its first day.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CPU = ROOT / "packages" / "ort-core" / "src" / "ort_core" / "cpu"
PROVIDERS = {"ort_core.cpu": CPU, **{path.name: path for path in sorted(ROOT.glob("packages/ort-ep-*/src/ort_ep_*"))}}
OURS = "ort_"


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_imports_only_the_doors(name):
    found = {
        f"{path.relative_to(ROOT).as_posix()} imports {module}"
        for path in PROVIDERS[name].rglob("*.py")
        for module in imported_by(path.read_text(encoding="utf-8"))
        if module.startswith(OURS) and not may_import(name, module)
    }
    assert not found


def test_what_is_no_door_is_told_from_what_is():
    assert may_import("ort_ep_any", "ort_core.plugin.ir")
    assert may_import("ort_ep_any", "ort_core")
    assert may_import("ort_ep_any", "ort_ep_any.lowering")
    assert not may_import("ort_ep_any", "ort_core.plugins")
    assert not may_import("ort_ep_any", "ort_core.ir.graph")
    assert not may_import("ort_ep_any", "ort_ep_other")
    assert not may_import("ort_core.cpu", "ort_core")
    source = "def f():\n    from ort_core import ir, OrtError\n    import ort_conformance.case\n"
    assert sorted(imported_by(source)) == ["ort_conformance.case", "ort_core", "ort_core.ir"]


def may_import(package: str, module: str) -> bool:
    """Return whether a provider's package may import a module of ours: the authors' door, the users', and itself."""
    if module == "ort_core":
        return package != "ort_core.cpu"
    return any(module == door or module.startswith(f"{door}.") for door in ("ort_core.plugin", package))


def imported_by(source: str) -> Iterator[str]:
    """Yield the modules that a file imports, wherever it does: of names below ort_core those that are modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{each.name}" for each in node.names if is_module(f"{node.module}.{each.name}")]
            yield from below
            if len(below) < len(node.names):
                yield node.module


def is_module(name: str) -> bool:
    """Return whether ort_core has a module of that name."""
    path = ROOT.joinpath("packages", "ort-core", "src", *name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
