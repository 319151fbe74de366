"""Sandboxes that refuse a system call: a model loads and runs, or the reason is told."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux" or platform.machine() != "x86_64":
    pytest.skip("the filter knows the system calls of Linux on x86-64", allow_module_level=True)

CALLS = {
    "sched_getaffinity": [204],
    "threads": [56, 435],
    "sched_setaffinity": [203],
    "arch_prctl": [158],
    "flock": [73],
}
PROGRAM = """
import ctypes, struct, sys
import numpy as np
import onnx
from onnx import helper, numpy_helper
LOAD, EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
steps = [(LOAD, 0, 0, 0)]
for number in map(int, sys.argv[2].split(",")):
    steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | int(sys.argv[1]))]
steps.append((RETURN, 0, 0, ALLOW))
text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(text)))
system = ctypes.CDLL(None)
if system.prctl(38, 1, 0, 0, 0) or system.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program))):
    print("unknown")  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    sys.exit()
import ort_core as ort
weights = [np.random.default_rng(n).standard_normal((256, 256)).astype(np.float32) / 16 for n in range(3)]
nodes, before = [], "x"
for n, operator in enumerate(["Relu", "Softmax", "Elu"]):
    nodes.append(helper.make_node("MatMul", [before, f"w{n}"], [f"m{n}"]))
    nodes.append(helper.make_node(operator, [f"m{n}"], [f"a{n}"]))
    before = f"a{n}"
ends = [helper.make_tensor_value_info(name, 1, ["N", 256]) for name in ("x", before)]
held = [numpy_helper.from_array(weight, f"w{n}") for n, weight in enumerate(weights)]
graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
x = np.random.default_rng(9).standard_normal((3, 256)).astype(np.float32)
found = []
for providers in (["CPUExecutionProvider"], ["ReferenceExecutionProvider"]):
    session = ort.InferenceSession(model, providers=providers)
    found.append([session.run(None, {"x": x})[0] for _ in range(3)][-1])
    if not len(found) > 1:
        print(session.explain().nodes[0].execution.how)
np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("error", [1, 11, 38])  # EPERM, EAGAIN, ENOSYS
@pytest.mark.parametrize("calls", CALLS)
def test_a_model_loads_and_runs_compiled_where_a_system_call_is_refused(tmp_path: Path, calls: str, error: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(error), ",".join(map(str, CALLS[calls]))]
    environment = {**os.environ, "ORT_CACHE_DIR": str(tmp_path / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    for _ in ("compiled", "recalled"):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 0, ended.stderr
        if ended.stdout.strip() == "unknown":
            pytest.skip("this system lets no process filter its calls")
        assert ended.stdout.strip() == "native", ended.stderr
