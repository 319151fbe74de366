"""onnxruntime's own modules of transformers, imported as they want to be: their folder on the path, and a torch."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def importable() -> Iterator[None]:
    """Let onnxruntime's modules be imported, which look for each other, and for torch, at their top."""
    fake = types.ModuleType("torch")
    fake.Tensor = type("Tensor", (), {})
    (folder,) = importlib.import_module("onnxruntime.transformers").__path__
    with mock.patch.dict(sys.modules, {"torch": fake}), mock.patch.object(sys, "path", [*sys.path, folder]):
        yield


def theirs(module: str) -> types.ModuleType:
    """Return a module of onnxruntime.transformers."""
    with importable():
        return importlib.import_module(f"onnxruntime.transformers.{module}")
