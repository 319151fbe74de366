"""Operator libraries from what a user has: an ``OpLibrary``, operators, a module or its name, or a Python file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from ort_core.custom_ops.custom_op import CustomOp
from ort_core.custom_ops.library import OpLibrary, library_of_module
from ort_core.custom_ops.traceback_text import frames_of_file, place_of
from ort_core.errors import Fail
from ort_core.interruptions import raise_interruption


def load_libraries(sources: Iterable[object]) -> list[OpLibrary]:
    """Return the libraries of sources that ``SessionOptions.register_custom_ops_library`` has taken.

    Raises:
        Fail: a file or module does not load; the message has its own traceback.
        InvalidArgument: it defines no operators.
    """
    return [_load(source) for source in _different(sources)]


def _different(sources: Iterable[object]) -> list[object]:
    """Return sources without those that were given before: an operator, a module, or the path of a file."""
    kept: list[object] = []
    for source in sources:
        if not any(source is other or (isinstance(source, (str, Path)) and source == other) for other in kept):
            kept.append(source)
    return kept


def offered_libraries(name: str, offered: object) -> list[OpLibrary]:
    """Return the libraries that a plugin's hook ``ort_custom_ops`` offers: libraries as they are, operators as one.

    Raises:
        OrtError: something in the list is not an operator.
    """
    items = [offered] if isinstance(offered, OpLibrary) else list(offered)  # type: ignore[call-overload]  # checked by use
    libraries = [item for item in items if isinstance(item, OpLibrary)]
    operators = [item for item in items if not isinstance(item, OpLibrary)]
    return [*libraries, OpLibrary(name, operators)] if operators else libraries


def _load(source: object) -> OpLibrary:
    if isinstance(source, OpLibrary):
        return source
    if isinstance(source, ModuleType):
        return library_of_module(source)
    if isinstance(source, Path):
        return library_of_module(_module_of_file(source), source.name)
    if isinstance(source, str):
        return library_of_module(_module_of_name(source))
    return OpLibrary(_name_of(source), [source])


def _name_of(operator: object) -> str:
    """Return what messages call an operator that was given alone: where it is defined, as far as that is known."""
    if isinstance(operator, CustomOp):
        return place_of(operator.written_as)
    return f"{operator.__module__}.{operator.__qualname__}" if isinstance(operator, type) else type(operator).__name__


def _module_of_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Fail(f"Failed to load library {name}: {type(error).__name__}: {error}") from error


def _module_of_file(path: Path) -> ModuleType:
    """Run a file as a module of its own. It is known by its path, so that what it defines can be pickled."""
    name = f"ort_custom_ops_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    specification = importlib.util.spec_from_file_location(name, path, loader=_FreshLoader(name, str(path)))
    if specification is None or specification.loader is None:
        raise Fail(f"Failed to load library {path}: it is not a Python file")
    module = importlib.util.module_from_spec(specification)
    before = sys.modules.get(name)
    sys.modules[name] = module  # before it runs: dataclasses and type hints look their module up
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # the border to the user's file
        _restore(name, before)
        raise_interruption(error)
        raise Fail(f"Failed to load library {path}: {frames_of_file(error, path)}") from error
    return module


class _FreshLoader(SourceFileLoader):
    """Compiles a file as it is now, and writes nothing beside it.

    Python's own compiled files go by the second and by the number of bytes: an edit that changes neither is missed.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _restore(name: str, before: ModuleType | None) -> None:
    if before is None:
        del sys.modules[name]
    else:
        sys.modules[name] = before
