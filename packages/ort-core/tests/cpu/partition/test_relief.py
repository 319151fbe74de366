"""Runs whose sizes a native program was not made for: told once, and compiled again without the node that minds."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper
from test_groups import BOOL, FLOAT, INT64, Feeds, N, model_of, random, run, session

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.partition.relief import MAX_COMPILED
from ort_core.cpu.partition.segments import LazyKernels
from ort_core.cpu.program.program import NativeProgram, SizesDiffer
from ort_core.cpu.storage.recalled import RecalledPartition
from ort_core.session_api import file_identity

W = random(1, 8, 8)
HEADS = 2
INPUTS = {"x": (FLOAT, ["B", "N", 8]), "m": (FLOAT, ["N", "M"])}


def attending(number: int = 0, source: str = "x", mask: str = "m") -> list[NodeProto]:
    """Products before and behind an attention whose mask may be shorter than the keys, as compiled code has it not."""
    q, a, y = (f"{name}{number}" for name in "qay")
    attention = N("Attention", [q, q, q, mask], [a], q_num_heads=HEADS, kv_num_heads=HEADS, name=f"attention{number}")
    return [N("MatMul", [source, "w"], [q]), attention, N("MatMul", [a, "w"], [y])]


def model(nodes: list[NodeProto] | None = None) -> ModelProto:
    return model_of(nodes or attending(), INPUTS, {"y0": FLOAT}, {"w": W}, opset=24)


def feeds_of(queries: int, keys: int, seed: int = 0) -> Feeds:
    return {"x": random(seed, 2, queries, 8), "m": random(seed + 1, queries, keys)}


def expected(feeds: Feeds) -> np.ndarray:
    """Return what the model computes, in float64."""
    x, mask = (feeds[name].astype(np.float64) for name in "xm")
    q = x @ W
    heads = q.reshape(*q.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)
    scores = heads @ heads.transpose(0, 1, 3, 2) / np.sqrt(heads.shape[-1])
    scores[..., : mask.shape[1]] += mask
    scores[..., mask.shape[1] :] = -np.inf  # a shorter mask forbids the keys behind it
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found = weights / weights.sum(-1, keepdims=True) @ heads
    return found.transpose(0, 2, 1, 3).reshape(q.shape) @ W


def computes(ran: ort.InferenceSession, feeds: Feeds) -> None:
    (found,) = ran.run(None, dict(feeds))
    np.testing.assert_allclose(found, expected(feeds), rtol=1e-4, atol=1e-5)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The operators of each group that runs by kernels."""
    found: list[list[str]] = []
    original = LazyKernels.run

    def noted(self: LazyKernels, *arguments: object) -> object:
        found.append([node.op_type for node in self.nodes])
        return original(self, *arguments)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(LazyKernels, "run", noted)
    return found


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and "does not fit" in r.getMessage()]


def test_only_the_node_whose_code_does_not_fit_is_left_to_kernels(
    by_kernels: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    ran = session(model(), "CPUExecutionProvider")
    computes(ran, feeds_of(5, 5))
    assert by_kernels == []
    computes(ran, feeds_of(5, 3))
    assert by_kernels == [["MatMul", "Attention", "MatMul"], ["Attention"]], "the first run is told from no later one"
    (text,) = warnings_of(caplog)
    assert "attention0" in text
    assert "M is not N (3 and 5)" in text
    by_kernels.clear()
    for queries, keys in [(5, 3), (5, 3), (5, 3), (4, 1), (7, 2), (5, 3)]:  # directly, too
        computes(ran, feeds_of(queries, keys, queries))
    assert by_kernels == [["Attention"]] * 6
    by_kernels.clear()
    for length in (5, 5, 5, 1, 9):
        computes(ran, feeds_of(length, length, length))
    assert by_kernels == [], "what fits the first program runs by it"
    assert len(warnings_of(caplog)) == 1


def test_all_runs_give_the_same_bits() -> None:
    ran, feeds = session(model(), "CPUExecutionProvider"), feeds_of(9, 4)
    start, found = threading.Barrier(4), []

    def work() -> None:
        start.wait()
        found.extend(ran.run(None, dict(feeds))[0].tobytes() for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 20
    assert len(set(found)) == 1


def test_explain_tells_what_runs_did_not_fit() -> None:
    ran = session(model(), "CPUExecutionProvider")
    assert "in runs where" not in str(ran.explain())
    computes(ran, feeds_of(5, 3))
    report = ran.explain()
    (told,) = [each.execution for each in report.nodes if each.op_type == "Attention"]
    assert told is not None
    assert told.is_plain
    assert told.how == "native"
    assert "in runs where M is not N (3 and 5)" in told.reason
    assert [each.execution.is_plain for each in report.nodes if each.execution] == [False, True, False]
    assert "Attention x1: in runs where" in str(report)


def test_sizes_that_the_model_forbids_are_its_error_and_compile_nothing(
    by_kernels: list[list[str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [N("Exp", ["x"], ["e"]), N("MatMul", ["e", "z"], ["m"]), N("Tanh", ["m"], ["y"])]
    wrong = model_of(nodes, {"x": (FLOAT, ["A", "K"]), "z": (FLOAT, ["L", "C"])}, {"y": FLOAT})
    monkeypatch.setattr(CpuPartition, "_compile_without", lambda *_: pytest.fail("compiled for a wrong model"))
    reference, ran = (session(wrong, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    for _ in range(3):
        feeds = {"x": random(1, 2, 3), "z": random(2, 4, 5)}
        found = run(ran, feeds)
        assert isinstance(found, str)
        assert found == run(reference, feeds)
    assert warnings_of(caplog) == []
    assert by_kernels == [["Exp", "MatMul", "Tanh"]] * 3
    assert "in runs where" not in str(ran.explain())


def test_errors_of_a_group_that_was_compiled_again_stay_as_they_were() -> None:
    reference, ran = (session(model(), f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    computes(ran, feeds_of(5, 3))
    for feeds in ({**feeds_of(5, 3), "m": random(0, 4, 3)}, {**feeds_of(5, 3), "m": random(0, 5, 7)}):
        found = run(ran, feeds)
        assert isinstance(found, str)
        assert found == run(reference, feeds)
    computes(ran, feeds_of(5, 3))


def test_all_nodes_that_mind_the_same_sizes_are_left_out_at_once(by_kernels: list[list[str]]) -> None:
    nodes = [*attending(1), *attending(0, "y1")]
    reference, ran = (session(model(nodes), f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    for _ in range(3):
        by_kernels.clear()
        found, wanted = (each.run(None, dict(feeds_of(5, 2)))[0] for each in (ran, reference))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    assert by_kernels == [["Attention"]] * 2


def test_compilations_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    compiled: list[object] = []
    original = CpuPartition._compile_without
    monkeypatch.setattr(CpuPartition, "_compile_without", lambda *given: compiled.append(given) or original(*given))
    count = MAX_COMPILED + 2
    inputs = {"x": INPUTS["x"], **{f"m{number}": (FLOAT, ["N", f"M{number}"]) for number in range(count)}}
    sources = [N("MatMul", ["x", "w"], ["q"])]
    branches = []
    for number in range(count):
        mask = f"m{number}"
        attention = N("Attention", ["q", "q", "q", mask], [f"a{number}"], q_num_heads=HEADS, kv_num_heads=HEADS)
        value = helper.make_tensor_value_info(f"y{number}", FLOAT, None)
        body = helper.make_graph([attention, N("MatMul", [f"a{number}", "w"], [f"y{number}"])], "then", [], [value])
        same = helper.make_graph([N("Identity", ["q"], [f"z{number}"])], "else", [], [
            helper.make_tensor_value_info(f"z{number}", FLOAT, None)
        ])  # fmt: skip
        branches.append(N("If", ["c"], [f"r{number}"], then_branch=body, else_branch=same))
    given = {**inputs, "c": (BOOL, [])}
    made = model_of([*sources, *branches], given, {f"r{n}": FLOAT for n in range(count)}, {"w": W}, opset=24)
    reference, ran = (session(made, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    feeds = {"x": random(0, 2, 5, 8), "c": np.array(True)}
    feeds |= {f"m{number}": random(number, 5, 3) for number in range(count)}
    for _ in range(3):
        for found, wanted in zip(ran.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    assert len(compiled) == MAX_COMPILED
    assert len(warnings_of(caplog)) == count


def test_sizes_that_no_node_minds_are_told_and_compile_nothing(
    caplog: pytest.LogCaptureFixture, by_kernels: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(*_: object, **_named: object) -> None:
        raise SizesDiffer("a size is negative")

    monkeypatch.setattr(CpuPartition, "_compile_without", lambda *_: pytest.fail("compiled without a reason"))
    ran = session(model(), "CPUExecutionProvider")
    monkeypatch.setattr(NativeProgram, "_plan", differ)
    for _ in range(3):
        computes(ran, feeds_of(5, 5))
    assert by_kernels == [["MatMul", "Attention", "MatMul"]] * 3
    (text,) = warnings_of(caplog)
    assert "a size is negative" in text
    assert "in runs where a size is negative, all 3 nodes of its program run by numpy kernels" in str(ran.explain())


def test_many_threads_at_once(by_kernels: list[list[str]], caplog: pytest.LogCaptureFixture) -> None:
    ran = session(model(), "CPUExecutionProvider")
    start, failures = threading.Barrier(8), []

    def work(number: int) -> None:
        start.wait()
        try:
            for turn in range(20):
                queries = 3 + (number + turn) % 4
                computes(ran, feeds_of(queries, queries if turn % 2 else 2, number))
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert len(warnings_of(caplog)) == 1
    by_kernels.clear()
    computes(ran, feeds_of(5, 2))
    assert by_kernels == [["Attention"]]


def test_a_fault_of_the_second_compilation_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.delenv("ORT_STRICT_COMPILATION", raising=False)
    monkeypatch.setattr(CpuPartition, "_compile_without", fail)
    ran = session(model(), "CPUExecutionProvider")
    for _ in range(2):
        computes(ran, feeds_of(5, 3))
    assert len([text for text in caplog.messages if "RuntimeError: on purpose" in text]) == 1
    assert len(warnings_of(caplog)) == 1


def test_recalled_sessions_are_relieved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_kernels: list[list[str]]
) -> None:
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(file_identity, "MIN_AGE_S", -1.0)
    onnx.save(model(), tmp_path / "model.onnx")
    for _ in range(2):
        ran = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (planned,) = ran._loaded.plans._plan.steps
    assert isinstance(planned.step.compiled, RecalledPartition)
    for length in (5, 5, 5):  # learned by direct calls
        computes(ran, feeds_of(length, length))
    computes(ran, feeds_of(5, 3))
    by_kernels.clear()
    for _ in range(4):
        computes(ran, feeds_of(5, 3))
        computes(ran, feeds_of(5, 5))
    assert by_kernels == [["Attention"]] * 4
    by_kernels.clear()
    assert "in runs where" in str(ran.explain())


def test_bodies_of_loops_are_relieved(by_kernels: list[list[str]]) -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [N("Identity", ["go"], ["on"]), *attending(0, "h"), N("Tanh", ["y0"], ["next"])], "body",
        [info("i", INT64, []), info("go", BOOL, []), info("h", FLOAT, ["B", "N", 8])],
        [info("on", BOOL, []), info("next", FLOAT, ["B", "N", 8])],
    )  # fmt: skip
    nodes = [N("Loop", ["rounds", "", "x"], ["y"], body=body)]
    made = model_of(nodes, INPUTS, {"y": FLOAT}, {"w": W, "rounds": np.array(6)}, opset=24)
    ran = session(made, "CPUExecutionProvider")
    for keys in (5, 3, 3):
        feeds, by_kernels[:] = feeds_of(5, keys), []
        wanted: np.ndarray = feeds["x"]
        for _ in range(6):
            wanted = np.tanh(expected({**feeds, "x": wanted}))
        np.testing.assert_allclose(ran.run(None, dict(feeds))[0], wanted, rtol=1e-3, atol=1e-4)
    assert [each for each in by_kernels if "MatMul" in each] == []
