"""Who imports whom goes one way: no module imports, by way of others, itself.

Imports inside of functions count: put off is not mended. Those for type checking do not: they import nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_no_module_imports_itself_by_way_of_others():
    modules = dict(modules_of(ROOT))
    found = circles({name: imports_of(name, path, modules) for name, path in modules.items()})
    assert not found, f"break these circles: {found}"


def test_circles_are_found_through_late_imports_and_not_through_those_for_types(tmp_path):
    source = tmp_path / "packages" / "any" / "src" / "any"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("", encoding="utf-8")
    (source / "a.py").write_text("from any.b import b\n", encoding="utf-8")
    (source / "b.py").write_text("def b():\n    from any import c\n    return c\n", encoding="utf-8")
    (source / "c.py").write_text("import any.a\n", encoding="utf-8")
    (source / "d.py").write_text(
        "from typing import TYPE_CHECKING\nfrom any.a import a\nif TYPE_CHECKING:\n    from any.e import e\n",
        encoding="utf-8",
    )
    (source / "e.py").write_text("from any.d import d\n", encoding="utf-8")
    modules = dict(modules_of(tmp_path))
    found = circles({name: imports_of(name, path, modules) for name, path in modules.items()})
    assert found == [["any.a", "any.b", "any.c"]]


def modules_of(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and files of all modules of the repository's packages."""
    for source in (*root.glob("packages/*/src"), root / "conformance" / "src"):
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(name: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Return the modules among ours that a file imports, anywhere in it but for type checking."""
    return set(_imported(ast.parse(path.read_text(encoding="utf-8")), modules)) - {name}


def _imported(node: ast.AST, modules: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        named = (f"{node.module}.{each.name}" for each in node.names)
        yield from (full if full in modules else node.module for full in named if {full, node.module} & modules.keys())
    elif isinstance(node, ast.Import):
        yield from (each.name for each in node.names if each.name in modules)
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    for child in node.orelse if isinstance(node, ast.If) and is_for_types else ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # nothing else holds an import
            yield from _imported(child, modules)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of more than one module of which each reaches each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], index[other])
        if lowest[name] == index[name]:
            place = stack.index(name)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for name in graph:
        if name not in index:
            visit(name)
    return found
