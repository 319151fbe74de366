"""Functions of direct calls that the garbage collector takes apart, in an order that nobody chooses."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest

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


_MODEL = """
import gc, threading
import numpy as np
from onnx import parser
import ort_core as ort

model = parser.parse_model('<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y) {'
                           ' a = Add(x, x) b = Tanh(a) y = Exp(b) }').SerializeToString()
options = ort.SessionOptions()
options.intra_op_num_threads = 2
"""
_THREADS = (
    _MODEL
    + """
sessions = [ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]) for _ in range(4)]
start = threading.Barrier(len(sessions))

def run(session):
    start.wait()
    for _ in range(4):
        session.run(None, {"x": np.ones(3, np.float32)})

threads = [threading.Thread(target=run, args=(each,)) for each in sessions]
for each in threads: each.start()
for each in threads: each.join()
gc.collect()
for each in sessions: run_again = each.run(None, {"x": np.ones(3, np.float32)})
print("fine")
"""
)
_END = (
    _MODEL
    + """
class Holder:
    def __init__(self, session):
        self.me, self.session = self, session  # a cycle: it goes with the last collection, behind all modules

session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
for _ in range(4):
    session.run(None, {"x": np.ones(3, np.float32)})
holder = Holder(session)
print("fine")
"""
)


@pytest.mark.unguarded
def test_function_and_its_head_in_one_cycle_are_collected() -> None:
    _check(_PROGRAM)


def test_threads_that_learn_their_first_direct_call_together_share_what_stays() -> None:
    _check(_THREADS)


def test_a_direct_call_that_lives_to_the_interpreters_end_finds_its_definition() -> None:
    _check(_END)


def _check(program: str) -> None:
    # freed memory is filled with ones, in which a function that is taken apart late would find flags
    # (builds without an interpreter lock have one allocator only, which marks freed memory by itself in this mode)
    allocator = "mimalloc_debug" if sysconfig.get_config_var("Py_GIL_DISABLED") else "malloc"
    environment = {**os.environ, "PYTHONMALLOC": allocator, "MALLOC_PERTURB_": "255"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "fine", ""), done.stderr
