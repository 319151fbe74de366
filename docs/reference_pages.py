"""A hook of mkdocs: one reference page for each layer of ort_core, written from its docstrings.

Pages follow the layer contract of pyproject.toml from the lowest layer up, so a module that lands is documented
without anyone adding a page.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages/ort-core/src/ort_core"
CONFORMANCE = ("profile", "test_function", "expectations", "outcome", "check", "catalogue", "running", "reports.report")


def layers() -> list[str]:
    """Return the names of the layers that exist, lowest first."""
    tooling = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contract = next(c for c in tooling["importlinter"]["contracts"] if c["id"] == "layers")
    names = [name for row in reversed(contract["layers"]) for name in re.findall(r"\w+", row)]
    return [name for name in names if (CORE / name).is_dir() or (CORE / f"{name}.py").is_file()]


def modules(layer: str) -> list[str]:
    """Return the import names of a layer's modules that define or re-export something, the package first."""
    single = CORE / f"{layer}.py"
    files = [single] if single.is_file() else sorted((CORE / layer).rglob("*.py"))
    parts = [file.relative_to(CORE.parent).with_suffix("").parts for file in files if has_content(file)]
    return [
        ".".join(p[:-1] if p[-1] == "__init__" else p) for p in parts if not p[-1].startswith("_") or "__init__" in p
    ]


def has_content(file: Path) -> bool:
    """Return whether a module holds more than its docstring."""
    return len(ast.parse(file.read_text(encoding="utf-8")).body) > 1


def page(layer: str) -> str:
    """Return the text of a layer's page: its idea, then each of its modules."""
    source = CORE / layer / "__init__.py"
    source = source if source.is_file() else CORE / f"{layer}.py"
    idea = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n")[0]
    entries = "\n\n".join(f"::: {module}" for module in modules(layer))
    return f"# ort_core.{layer}\n\n{idea}\n\n{entries or 'Nothing of it is written yet.'}\n"


def conformance_page() -> str:
    """Return the text of the page on the conformance suite: what a vendor writes, and what a report says."""
    entries = "\n\n".join(f"::: ort_conformance.{module}" for module in CONFORMANCE)
    return f"# ort_conformance\n\nWhat every provider promises, checked on any of them.\n\n{entries}\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the section to the navigation."""
    pages = [{f"ort_core.{layer}": f"reference/{layer}.md"} for layer in layers()]
    pages.append({"ort_conformance": "reference/ort_conformance.md"})
    config.nav = [*(config.nav or []), {"Reference": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for layer in layers():
        files.append(File.generated(config, f"reference/{layer}.md", content=page(layer)))
    files.append(File.generated(config, "reference/ort_conformance.md", content=conformance_page()))
    return files
