"""Processes that may not execute memory that they have written, as hardened services of Linux are."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux" or platform.machine() != "x86_64":
    pytest.skip("objects are linked without LLVM on Linux for x86-64 only", allow_module_level=True)

PROGRAM = """
import ctypes, os, sys
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
zero = ctypes.c_ulong(0)
if ctypes.CDLL(None).prctl(PR_SET_MDWE, ctypes.c_ulong(PR_MDWE_REFUSE_EXEC_GAIN), zero, zero, zero):
    print("unknown")
    sys.exit()
if sys.argv[1] == "without files in memory":
    def refuse(*arguments):
        raise OSError("refused")
    os.memfd_create = refuse
import numpy as np
from onnx import parser
import ort_core as ort
text = '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 8] x) => (float[N, 8] y) { s = Softmax(x)  y = Erf(s) }'
session = ort.InferenceSession(parser.parse_model(text).SerializeToString())
x = np.arange(24, dtype=np.float32).reshape(3, 8)
for _ in range(3):
    y = session.run(None, {"x": x})[0]
reference = ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=["ReferenceExecutionProvider"])
np.testing.assert_allclose(y, reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-7)
execution = session.explain().nodes[0].execution
print(execution.how, execution.reason)
"""


def run(tmp_path: Path, case: str) -> tuple[str, str]:
    command = [sys.executable, "-c", PROGRAM, case]
    environment = {**os.environ, "ORT_CACHE_DIR": str(tmp_path / "cache")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    if ended.stdout.strip() == "unknown":
        pytest.skip("this Linux cannot refuse to execute what was written (before 6.3)")
    return ended.stdout.strip(), ended.stderr


def test_code_runs_from_files_in_memory(tmp_path: Path) -> None:
    for _ in ("compiled", "recalled"):
        told, warnings = run(tmp_path, "with files in memory")
        assert told == "native"
        assert "not available" not in warnings


def test_where_nothing_that_was_written_may_be_executed_kernels_run_and_tell_why(tmp_path: Path) -> None:
    run(tmp_path, "with files in memory")  # leaves an entry that cannot be recalled
    told, warnings = run(tmp_path, "without files in memory")
    reason = "the system does not let this process execute memory that it has written"
    assert told == f"numpy the CPU compiler is not available: {reason}"
    assert f"the CPU compiler is not available ({reason}); operators run by numpy kernels" in warnings
