"""Results do not depend on the number of threads, on how they wait, on who else runs, or on the run: bit for bit."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from random_graphs.cases import case_of_seed
from random_graphs.engines import Engine

import ort_core as ort
from ort_core.cpu.program import order, program

Feeds = dict[str, np.ndarray]


def session(model: ModelProto, threads: int, **settings: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for key, value in settings.items():
        options.add_session_config_entry(f"session.{key.replace('__', '.')}", value)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def results(ran: ort.InferenceSession, feeds: Feeds) -> list[bytes] | str:
    with np.errstate(all="ignore"):
        try:
            return [bits_of(value) for value in ran.run(None, feeds)]
        except ort.OrtError as error:
            return str(error)


def bits_of(value: object) -> bytes:
    """Return what tells a result from another: the bytes of numbers; the content of text, maps and sequences."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.ascontiguousarray(value).tobytes()
    return repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def layered() -> tuple[ModelProto, Feeds]:
    """Return a model of products, sums over rows and columns, and softmax, large enough to be shared by threads."""
    random = np.random.default_rng(3)
    weights = [(random.standard_normal((96, 96)) * 0.1).astype(np.float32) for _ in range(3)]
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]), node("Gelu", ["a"], ["b"]), node("MatMul", ["b", "w1"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=-1), node("ReduceSum", ["d"], ["e"], keepdims=1),
        node("ReduceMean", ["c", "axes"], ["f"], keepdims=1), node("Add", ["c", "f"], ["g"]),
        node("MatMul", ["g", "w2"], ["y"]),
    ]  # fmt: skip
    axes = numpy_helper.from_array(np.array([0], np.int64), "axes")
    initializers = [axes, *(numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 96])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "e")]
    graph = helper.make_graph(nodes, "layered", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model, {"x": random.standard_normal((301, 96)).astype(np.float32)}


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads claim pieces of every step, however small."""
    monkeypatch.setattr(order, "PIECE_WORK", 1)
    monkeypatch.setattr(order, "SERIAL_WORK", 0)
    monkeypatch.setattr(program, "PARALLEL_WORK", 0)
    monkeypatch.setattr(program, "WAKING_WORK", 0)


@pytest.mark.usefixtures("claimed")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(100, 112))
def test_random_graph_gives_the_same_bits_whichever_thread_claims_what(seed: int) -> None:
    case = case_of_seed(seed)
    assert case is not None
    alone, *together = [Engine("cpu", threads=threads).session(case) for threads in (1, 2, 3)]
    for feeds in case.feeds:
        expected = results(alone, dict(feeds))
        assert all(results(each, dict(feeds)) == expected for each in together for _ in range(5)), f"graph {seed}"


@pytest.mark.usefixtures("claimed")
def test_products_sums_and_softmax_give_the_same_bits_whichever_thread_claims_what() -> None:
    model, feeds = layered()
    expected = results(session(model, 1), feeds)
    for threads in (2, 3, 4):
        assert results(session(model, threads), feeds) == expected, f"{threads} threads"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(100, 112))
def test_random_graph_gives_the_same_bits_with_any_number_of_threads(seed: int) -> None:
    case = case_of_seed(seed)
    assert case is not None
    sessions = [Engine("cpu", threads=threads).session(case) for threads in (1, 2, 3)]
    for feeds in case.feeds:
        first, *others = [results(each, dict(feeds)) for each in sessions]
        assert all(other == first for other in others), f"graph {seed} depends on the number of threads"


def test_products_sums_and_softmax_give_the_same_bits_with_any_number_of_threads() -> None:
    model, feeds = layered()
    expected = results(session(model, 1), feeds)
    for threads in (2, 3, 4):
        assert results(session(model, threads), feeds) == expected, f"{threads} threads"


def test_ways_to_wait_change_no_result() -> None:
    model, feeds = layered()
    expected = results(session(model, 2), feeds)
    for settings in (
        {"intra_op__allow_spinning": "0"},
        {"intra_op__spin_duration_us": "20"},
        {"force_spinning_stop": "1"},
        {"intra_op_thread_affinities": "1"},
    ):
        assert results(session(model, 2, **settings), feeds) == expected, settings


def test_sixty_four_concurrent_runs_of_one_session_give_the_bits_of_a_single_one() -> None:
    model, feeds = layered()
    shared = session(model, 2)
    expected = {rows: results(shared, {"x": feeds["x"][:rows]}) for rows in (1, 7, 64, 301)}
    wrong: list[tuple[int, int]] = []
    start = threading.Barrier(64)

    def caller(number: int) -> None:
        rows = (1, 7, 64, 301)[number % 4]
        mine = {"x": feeds["x"][:rows].copy()}
        start.wait()
        for _ in range(5):
            if results(shared, mine) != expected[rows]:
                wrong.append((number, rows))

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"(caller, rows) of wrong results: {wrong[:5]}"


EXIT = """
import sys, threading
import numpy as np
import ort_core as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 3
session = ort.InferenceSession(sys.argv[1], options)
feeds = {"x": np.ones((301, 96), np.float32)}
session.run(None, feeds)
def forever():
    while True:
        session.run(None, feeds)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
for _ in range(5):
    session.run(None, feeds)
"""


def test_interpreter_ends_while_other_threads_run_the_session(tmp_path: Path) -> None:
    model, _ = layered()
    (tmp_path / "layered.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", EXIT, str(tmp_path / "layered.onnx")]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
