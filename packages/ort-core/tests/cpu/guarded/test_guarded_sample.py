"""A small part of `nox -s guarded`: one model of each family of kernels, at some levels and counts of threads."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("sample.py")


@functools.cache
def has_level(level: str) -> bool:
    """Return whether this machine runs code of a level."""
    code = "from ort_core.cpu.codegen.machine_code.llvm_targets import host_target; host_target()"
    environment = {**os.environ, "ORT_CPU_TARGET": level}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "edge", "threads", "pieces"),
    [("", "end", 1, 0), ("", "begin", 4, 8), ("x86-64-v2", "end", 2, 8), ("x86-64-v3", "end", 3, 8)],
)
def test_every_family_of_kernels_stays_within_its_buffers(level: str, edge: str, threads: int, pieces: int) -> None:
    if level and not has_level(level):
        pytest.skip(f"this machine has no {level}")
    environment = {
        **os.environ,
        "ORT_GUARDED_MEMORY": edge,
        "ORT_CPU_TARGET": level,
        "ORT_INTRA_OP_NUM_THREADS": str(threads),
        "ORT_STEP_PIECES": str(pieces),
        "ORT_OPTIMIZED_MODEL_CACHE": "0",
    }
    command = [sys.executable, "-X", "faulthandler", str(SAMPLE)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    assert int(done.stdout) >= 29
