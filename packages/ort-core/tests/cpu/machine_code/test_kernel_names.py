"""Names of kernels follow every source that their texts are made of, wherever it is moved to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ort_core
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import SOURCES, digest_of_sources

PACKAGE = Path(ort_core.__file__).parent
SAY_NOTHING_OF_TEXTS = ("errors", "ir", "plugin", "lazy_names", "lifetimes", "frozen", "settings", "forks", "cache")
"""Parts of the package that generators may import: types, doors, and what finds and keeps compiled code."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "flat.py").write_text("flat = 1\n", encoding="utf-8")
    (tmp_path / "deep" / "deeper" / "nested.py").write_text("nested = 1\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["flat.py", "deep/deeper/nested.py"])
def test_a_digest_of_sources_changes_with_every_file_however_deep(folder, name):
    before = digest_of_sources([folder])
    (folder / name).write_text("flat = 2\n", encoding="utf-8")
    assert digest_of_sources([folder]) != before


def test_a_digest_of_sources_changes_when_a_file_is_moved_or_its_end_goes_to_the_next_one(folder):
    before = digest_of_sources([folder])
    (folder / "flat.py").rename(folder / "deep" / "flat.py")
    moved = digest_of_sources([folder])
    (folder / "deep" / "flat.py").rename(folder / "flat.py")
    assert moved != before == digest_of_sources([folder])


def test_a_digest_of_sources_is_the_same_wherever_the_folder_lies(folder, tmp_path_factory):
    elsewhere = folder.rename(tmp_path_factory.mktemp("elsewhere") / "other")
    before = digest_of_sources([elsewhere])
    assert digest_of_sources([elsewhere.rename(folder)]) == before


def test_everything_that_generators_import_is_digested_or_says_nothing_of_texts():
    """A polynomial that changes in ``loops`` changes texts of kernels as a generator does."""
    digested = {path for folder in SOURCES for path in folder.rglob("*.py")}
    seen: set[Path] = set()
    waiting = [path for path in digested if "codegen" in path.parts]
    strange = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imported_by(path):
            found = path_of(name)
            part = name.split(".")[1]
            if found in digested:
                waiting.append(found)
            elif part not in SAY_NOTHING_OF_TEXTS:
                strange.add(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not strange
    assert PACKAGE / "loops" / "polynomials.py" in digested


def imported_by(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in found if name.startswith("ort_core.")]


def path_of(name: str) -> Path:
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
