"""A process of its own compiles: the same bytes, its memory and faults are not this one's, and it may be missing."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ort_core.plugin import Rejection

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="elsewhere LLVM links what it compiled"
)
if sys.platform == "linux":
    from ort_core.cpu.codegen.machine_code import compiler_process_linux, compiling_elsewhere, jit
    from ort_core.cpu.codegen.machine_code.compiler_process_linux import CompilerProcess, compiler_process
    from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
    from ort_core.cpu.codegen.machine_code.module_text import ModuleText

TEXT = "define i64 @f%d(i64 %%n) {\nentry:\n  %%y = add i64 %%n, %d\n  ret i64 %%y\n}\n"
LOAD = """
import json, os, signal, sys, time
import numpy as np
import ort_core
from onnx import parser
from ort_core.cpu.codegen.machine_code import compiler_process_linux as processes

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[N,4] x) => (float[N,4] y) { a = OPERATOR(x) y = Softmax(a) }'
OPERATORS = {"Tanh": np.tanh, "Abs": np.abs, "Exp": np.exp}

def is_right(operator):
    model = parser.parse_model(MODEL.replace("OPERATOR", operator)).SerializeToString()
    session = ort_core.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    powers = np.exp(OPERATORS[operator](x.astype(np.float64)))
    return np.allclose(session.run(None, {"x": x})[0], powers / powers.sum(1, keepdims=True), rtol=1e-5)

def has_llvm():
    return "llvmlite.binding" in sys.modules
"""


def printed(code: str, cache: Path, **variables: str) -> list[object]:
    command = [sys.executable, "-c", LOAD + code]
    environment = {**os.environ, "ORT_CACHE_DIR": str(cache), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilerProcess]:
    """One for this process, although its tests have loaded LLVM."""
    monkeypatch.setattr(compiler_process_linux, "_refusal", lambda: None)
    found = compiler_process()
    assert not isinstance(found, Rejection)
    yield found
    compiler_process_linux.give_up()


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # the limit of each test ends it
        time.sleep(0.01)


def texts(count: int) -> list[ModuleText]:
    return [ModuleText(TEXT % (number, number), is_vectorized=bool(number % 2)) for number in range(count)]


def test_it_gives_the_bytes_that_this_process_would(process: CompilerProcess) -> None:
    target = host_target()
    assert process.host() == target
    found = [process.object_codes(texts(9), target, num_threads) for num_threads in (1, 4)]
    assert found[0] == found[1] == [jit.object_of(each, target) for each in texts(9)]
    assert process.object_codes([], target, 2) == []
    assert compiler_process() is process


def test_text_that_is_no_llvm_ir_is_an_error_and_the_next_is_compiled(process: CompilerProcess) -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        compiling_elsewhere.object_codes_elsewhere([*texts(2), ModuleText("no text")], host_target(), 2)
    assert compiling_elsewhere.object_codes_elsewhere(texts(2), host_target(), 2) == [
        jit.object_of(each, host_target()) for each in texts(2)
    ]


def test_error_of_whoever_writes_a_text_ends_the_process(process: CompilerProcess) -> None:
    def failing() -> Iterator[ModuleText]:
        yield texts(1)[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compiling_elsewhere.object_codes_elsewhere(failing(), host_target(), 1)
    assert compiler_process() is not process


def test_process_that_was_killed_is_a_reason_and_another_one_is_started(process: CompilerProcess) -> None:
    def killing() -> Iterator[ModuleText]:
        yield texts(1)[0]
        os.kill(process.process(), signal.SIGKILL)

    refused = compiling_elsewhere.object_codes_elsewhere(killing(), host_target(), 1)
    assert isinstance(refused, Rejection)
    assert "the process that compiles has failed" in refused.reason
    assert isinstance(compiling_elsewhere.object_codes_elsewhere(texts(1), host_target(), 1), list)


def test_process_that_has_ended_by_itself_is_started_again(process: CompilerProcess) -> None:
    assert not process.has_ended()
    os.kill(process.process(), signal.SIGTERM)
    until(process.has_ended)
    assert isinstance(compiling_elsewhere.host_elsewhere(), type(host_target()))


def test_it_ends_where_nobody_asks_for_a_while_and_where_nobody_is_left() -> None:
    code = (
        "import os, socket, sys\n"
        "from ort_core.cpu.codegen.machine_code import compiler_worker\n"
        "compiler_worker.PATIENCE_S = float(sys.argv[1])\n"
        "ours, theirs = socket.socketpair()\n"
        "ours.close() if sys.argv[2] == 'alone' else None\n"
        "compiler_worker.serve(theirs.fileno())\n"
    )
    for patience, company in (("0", "together"), ("1000", "alone")):
        subprocess.run([sys.executable, "-c", code, patience, company], check=True, timeout=100)


def test_first_load_leaves_llvm_out_of_this_process(tmp_path: Path) -> None:
    code = "print(json.dumps([is_right('Tanh'), has_llvm()]))"
    assert printed(code, tmp_path / "elsewhere") == [True, False]
    assert printed(code, tmp_path / "here", ORT_COMPILER_PROCESS="0") == [True, True]


@pytest.mark.parametrize(
    "setup", ["sys.executable = '/no/such/python'", "processes._PROGRAM = 'import no_such_module'"]
)
def test_this_process_compiles_where_the_other_cannot_be_started(setup: str, tmp_path: Path) -> None:
    code = f"{setup}\nprint(json.dumps([is_right('Tanh'), has_llvm(), processes._running.process is None]))"
    assert printed(code, tmp_path) == [True, True, True]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"executable": None}, "None is no interpreter"),
        ({"executable": "/bin/true"}, "'/bin/true' is no interpreter"),
        ({"frozen": True}, "is no interpreter"),
        ({"modules": {**sys.modules, "llvmlite.binding": sys}}, "in this process anyway"),
    ],
)
def test_there_is_none_in_programs_that_could_not_start_it_or_have_no_use_for_it(
    changes: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    for name, value in changes.items():
        monkeypatch.setattr(sys, name, value, raising=False)
    refused = compiler_process()
    assert isinstance(refused, Rejection)
    assert reason in refused.reason


@pytest.mark.parametrize("name", ["ORT_COMPILER_PROCESS", "ORT_SHORT_CUTS"])
def test_there_is_none_where_it_is_switched_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    monkeypatch.setenv(name, "0")
    refused = compiler_process()
    assert isinstance(refused, Rejection)
    assert "switched off" in refused.reason


def test_process_that_ends_between_two_loads_is_no_fault_even_where_broken_pipes_end_programs(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
first = is_right("Tanh")
process = processes._running.process
has_ended = process.has_ended
process.has_ended = lambda: False  # it ends just now
os.kill(process.process(), signal.SIGKILL)
while not has_ended():
    time.sleep(0.01)
print(json.dumps([first, is_right("Abs"), has_llvm(), processes._running.process is None]))
"""
    assert printed(code, tmp_path) == [True, True, True, True]


def test_program_that_waits_for_its_children_meets_none_that_it_did_not_start(tmp_path: Path) -> None:
    code = """
found = is_right("Tanh")
try:
    children = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    children = None
print(json.dumps([found, has_llvm(), children]))
"""
    assert printed(code, tmp_path) == [True, False, None]


def test_forked_child_has_a_process_of_its_own(tmp_path: Path) -> None:
    code = """
first = is_right("Tanh")
mine = processes._running.process
read, write = os.pipe()
if os.fork() == 0:
    found = [is_right("Abs"), processes._running.process is not mine]
    os.write(write, json.dumps(found).encode())
    os._exit(0)
os.wait()
print(json.dumps([first, json.loads(os.read(read, 100)), is_right("Exp"), has_llvm()]))
"""
    assert printed(code, tmp_path) == [True, [True, True], True, False]
