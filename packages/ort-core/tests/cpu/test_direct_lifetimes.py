"""Functions of direct calls that the garbage collector takes apart, in an order that nobody chooses."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import gc
import numpy as np
from onnx import parser
import ort_core as ort
import ort_core.cpu.direct.direct_calls as direct_calls

build, made = direct_calls.build_call, []

def watched(layout, head, name):
    made.append((head, build(layout, head, name)))
    return made[-1][1]

direct_calls.build_call = watched
model = parser.parse_model('<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y) {'
                           ' a = Add(x, x) b = Tanh(a) y = Exp(b) }').SerializeToString()
for _ in range(3):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        session.run(None, {"x": np.ones(3, np.float32)})
    assert made, "no run went directly"
    for head, function in made:
        head.kept = (function, *head.kept)  # a tuple goes from its end: the definition before the function
    made.clear()
    del session, head, function
    gc.collect()
print("fine")
"""


def test_function_and_its_head_in_one_cycle_are_collected() -> None:
    # freed memory is filled with ones, in which a function that is taken apart late would find flags
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "255"}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
