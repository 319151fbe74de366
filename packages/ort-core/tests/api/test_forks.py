"""A forked child lives: it uses sessions of its parent and loads new ones, whatever other threads were doing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import ort_core
from ort_core import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

PRELUDE = """
import faulthandler, multiprocessing, os, sys, threading, time
import numpy as np
import ort_core as ort
X = np.linspace(-1, 1, 3 * 32, dtype=np.float32).reshape(3, 32)

def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

def run(made):
    return float(made.run(None, {"x": X})[0].sum())

def in_child(act):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            act()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
WHILE_LOADING = """
paths = sys.argv[1:]
def load_all():
    for path in paths:
        session(path)
loader = threading.Thread(target=load_all)
loader.start()
forked = 0
while loader.is_alive() or forked == 0:
    time.sleep(0.01 * forked)
    in_child(lambda: run(session(paths[forked % len(paths)])))
    forked += 1
loader.join()
"""
INHERITED = """
first = session(sys.argv[1])
expected = run(first)
for _ in range(4):
    assert run(first) == expected
stop = threading.Event()
def keep_running():
    while not stop.is_set():
        run(first)
runners = [threading.Thread(target=keep_running, daemon=True) for _ in range(2)]
for each in runners:
    each.start()
def both():
    for _ in range(4):
        assert run(first) == expected
    run(session(sys.argv[2]))
    results = []
    first.run_async(None, {"x": X}, lambda found, data, error: results.append(error), None)
    while not results:
        time.sleep(0.01)
    assert results == [""]
for _ in range(8):
    in_child(both)
stop.set()
"""
POOL = """
made = session(sys.argv[1])
expected = run(made)
def work(number):
    return run(made) if number % 2 else run(session(sys.argv[1]))
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, range(8), chunksize=1) == [expected] * 8
"""


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """Models of different code, so that each load compiles."""
    activations = ("Relu", "Tanh", "Sigmoid", "Exp")
    return [_model(tmp_path / f"{number}.onnx", op) for number, op in enumerate(activations)]


def _model(path: Path, op: str) -> str:
    proto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        dense (float[N, 32] x) => (float[N, 48] y) {{
            product = MatMul(x, w)
            y = {op}(product)
        }}""")
    weights = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32) / 8
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, path)
    return str(path)


@pytest.mark.parametrize("program", [WHILE_LOADING, INHERITED, POOL], ids=["while loading", "inherited", "pool"])
def test_a_forked_child_runs_and_loads(program: str, models: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + program, *models],
        capture_output=True, text=True, timeout=250, env={**os.environ, "ORT_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def status_of_child(act: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        os._exit(0 if act() else 1)
    return os.waitpid(child, 0)[1]


def test_locks_that_other_threads_hold_are_open_in_a_child() -> None:
    plain, reentrant, own = forks.new_lock(), forks.new_reentrant_lock(), forks.new_reentrant_lock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with plain, reentrant:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def all_open() -> bool:
        own.release()  # still that of the thread that forked
        return plain.acquire(timeout=5) and reentrant.acquire(timeout=5)

    with own:
        assert status_of_child(all_open) == 0
    release.set()
    thread.join()


def test_a_fork_waits_for_the_work_of_other_threads_and_for_theirs() -> None:
    inside, went_on, is_done = threading.Event(), threading.Event(), []

    def work() -> None:
        with forks.no_fork():
            inside.set()
            helper = threading.Thread(target=help_it)
            helper.start()
            helper.join()
            is_done.append(True)

    def help_it() -> None:
        while not forks._gate.forks:
            time.sleep(0.001)
        with forks.no_fork():
            went_on.set()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert status_of_child(lambda: bool(is_done) and went_on.is_set()) == 0
    thread.join()


def test_a_thread_forks_within_its_own_work_without_waiting_for_others() -> None:
    inside, release = threading.Event(), threading.Event()

    def work() -> None:
        with forks.no_fork():
            inside.set()
            release.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    start = time.monotonic()
    with forks.no_fork():
        assert status_of_child(lambda: True) == 0
    assert time.monotonic() - start < forks.PATIENCE_S / 2, "it waited for one that might wait for it"
    release.set()
    thread.join()


def test_every_lock_is_one_that_a_child_finds_open() -> None:
    folder = Path(ort_core.__file__).parent
    found = [
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if path.name != "forks.py" and re.search(r"threading\.(R?Lock|Condition|Semaphore)\(", path.read_text("utf-8"))
    ]
    assert found == [], "make it by ort_core.forks (ort_core.plugin.forks above the door)"


def test_a_child_imports_anew_what_another_thread_was_importing(tmp_path: Path) -> None:
    program = """
import os, threading, time
import ort_core
from importlib.machinery import SourceFileLoader
from ort_core import forks
forks._IMPORT_PATIENCE_S = 0.1
started, execute = threading.Event(), SourceFileLoader.exec_module
def slowly(self, module):
    if threading.current_thread() is not threading.main_thread():
        started.set()
        time.sleep(3600)
    execute(self, module)
SourceFileLoader.exec_module = slowly
def late():
    import ort_core.tolerances
threading.Thread(target=late, daemon=True).start()
started.wait()
child = os.fork()
if child == 0:
    import ort_core.tolerances
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == "7", done.stderr


def test_locks_of_modules_that_a_load_imports_while_a_fork_waits_are_let_go_once() -> None:
    program = """
import os, threading, time
import ort_core
from ort_core import forks
inside = threading.Event()
def work():
    with forks.no_fork():
        inside.set()
        while not forks._gate.forks:
            time.sleep(0.001)
        import concurrent.futures.thread
thread = threading.Thread(target=work)
thread.start()
inside.wait()
child = os.fork()
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as executor:
    assert executor.submit(int, 7).result(30) == 7
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
