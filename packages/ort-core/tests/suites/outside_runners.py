"""The runners that come with the external cases: imported from where they lie, driven in this process."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def find_cases(*parts: str) -> Path:
    """Return a path inside the external cases; skips the module of tests when there are none."""
    from os import environ

    folder = Path(environ.get("ORT_TEST_DATA", "") or "/nonexistent") / "cases"
    if not folder.is_dir():
        pytest.skip("ORT_TEST_DATA is not set to a folder with cases/", allow_module_level=True)
    return folder.joinpath(*parts)


def import_runner(name: str) -> ModuleType:
    """Import a runner by name."""
    folder = str(find_cases())
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def build_worker(runner: ModuleType, opt_level: str | None = None) -> Any:
    """Return the runner's worker for ort_core: ``run_case(case)`` gives a mapping with a ``status``."""
    settings = argparse.Namespace(
        module="ort_core", pythonpath=[], providers="CPUExecutionProvider", threads=1, opt_level=opt_level,
        session_config=[], tolerance="onnx", rtol_floor=0.0, atol_floor=0.0, restamp=False,
    )  # fmt: skip
    return runner.Worker(settings)
