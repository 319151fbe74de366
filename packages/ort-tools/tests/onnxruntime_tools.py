"""onnxruntime's own tools, the independent truth of these tests."""

from __future__ import annotations

import importlib
from types import ModuleType


def theirs(module: str) -> ModuleType:
    """Return a module of the installed onnxruntime.tools."""
    return importlib.import_module(f"onnxruntime.tools.{module}")
