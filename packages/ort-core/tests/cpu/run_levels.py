"""Run a file of tests as a program in code for another level of instructions, in guarded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_at_level(file: str, level: str) -> None:
    """Run a file by itself; skip where this machine has no such level, fail where the program fails."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "ORT_CPU_TARGET": level, "ORT_GUARDED_MEMORY": "end", "PYTHONPATH": path}
    command = [sys.executable, file]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    if "which this machine or LLVM does not know" in done.stderr:
        pytest.skip(f"this machine runs no code of {level}")
    assert done.returncode == 0, done.stderr
