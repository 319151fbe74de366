"""Makes the modules beside the tests importable, and notes what a load lowers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ort_core.cpu.partition import partition
from ort_core.cpu.program.program import NativeProgram

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def lowered(monkeypatch, tmp_path):
    """The programs that are lowered and compiled from now on."""
    found: list[NativeProgram] = []
    build = partition.build_program

    def note(*arguments: object) -> NativeProgram:
        found.append(build(*arguments))
        return found[-1]

    monkeypatch.setattr(partition, "build_program", note)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    return found
