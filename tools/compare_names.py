"""Public names of onnxruntime.transformers and onnxruntime.tools that the packages here do not have.

    python tools/compare_names.py [--all]

onnxruntime's modules are read, not imported: many want torch. Of each module that is here, too, functions, classes,
methods, constants and the names of parameters are looked for. Modules that are left out on purpose are not, unless
--all lists them with their reasons.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

PACKAGES = {"transformers": "ort_transformers", "tools": "ort_tools"}
_NOT_NAMES = ("logger", "log", "parser", "args", "file_path")


@dataclass(frozen=True)
class Name:
    """A public name of a module or a class, with its parameters where it is a function."""

    path: str
    parameters: tuple[str, ...] | None


def public_names(tree: ast.Module) -> Iterator[Name]:
    """Return what a module defines: functions, classes with their methods, and constants."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield Name(node.name, None)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and (inner.name == "__init__" or inner.name[0] != "_"):
                    yield Name(f"{node.name}.{inner.name}", _parameters(inner))
        elif isinstance(node, ast.FunctionDef) and node.name[0] != "_":
            yield Name(node.name, _parameters(node))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id[0] != "_" and target.id not in _NOT_NAMES:
                    yield Name(target.id, None)


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    given = function.args
    return tuple(
        each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs) if each.arg not in ("self", "cls")
    )


def missing_name(ours: ModuleType, name: Name) -> str | None:
    """Return what a module here lacks of a name, ``None`` where it lacks nothing."""
    found: object = ours
    for part in name.path.split("."):
        if not hasattr(found, part):
            return "missing"
        found = getattr(found, part)
    if name.parameters is None or not callable(found):
        return None
    known = inspect.signature(found).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return None
    lacking = [each for each in name.parameters if each not in known]
    return f"without {', '.join(lacking)}" if lacking else None


def modules_of(package: str) -> Iterator[tuple[str, Path]]:
    """Return names and files of onnxruntime's modules below a package."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise SystemExit("onnxruntime is not installed")
    folder = Path(spec.origin).parent / package
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        if not name.endswith("__init__"):
            yield name, path


def compare(package: str, *, lists_absent: bool) -> Iterator[str]:
    """Return a line for each difference below a package."""
    own = PACKAGES[package]
    absent = importlib.import_module(f"{own}.absent_modules")
    for name, path in modules_of(package):
        try:
            ours = importlib.import_module(f"{own}.{name}")
        except ModuleNotFoundError as error:
            if error.name is not None and not error.name.startswith(own):
                yield f"{package}.{name}: not looked at, {error.name} is not installed"
            elif absent.reason_of(name) is None:
                yield f"{package}.{name}: missing, without a reason"
            elif lists_absent:
                yield f"{package}.{name}: left out: {absent.reason_of(name)}"
            continue
        for each in public_names(ast.parse(path.read_text(encoding="utf-8"))):
            what = missing_name(ours, each)
            if what is not None:
                yield f"{package}.{name}.{each.path}: {what}"


def main() -> None:
    """Write the differences, and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="list modules that are left out on purpose, too")
    args = parser.parse_args()
    lines = [line for package in PACKAGES for line in compare(package, lists_absent=args.all)]
    print("\n".join(lines))
    print(f"{len(lines)} differences")


if __name__ == "__main__":
    main()
