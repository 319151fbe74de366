"""The benchmark of the CUDA provider, proven without a GPU: its budget, its rows, what it says of absent engines."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import parser

import ort_core as ort
from ort_core.plugin import Available
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


class FakeClock:
    """Seconds that pass only when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TickingClock(FakeClock):
    """Seconds that pass when somebody looks: as many steps fit a budget on a busy machine as on an idle one."""

    def __call__(self) -> float:
        self.now += 0.2
        return self.now


class FakeCard:
    """A card whose rates are round numbers; runs take as long as a clock says."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock

    def launch_seconds(self) -> tuple[float, float]:
        return 1e-5, 1e-6

    def seconds(self, run) -> float:
        assert run.stream == 7
        start = self.clock()
        run.call()
        return self.clock() - start

    def facts(self) -> dict[str, str]:
        return {"name": "fake"}

    def copy_rate(self) -> float:
        return 1000.0

    def product_rate(self, precision: str) -> float:
        return {"float32": 1.0, "tf32": 2.0, "float16": 4.0}[precision]


@pytest.fixture
def cuda(monkeypatch) -> ModuleType:
    """The benchmark's module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("cuda_engines", "cuda_report", "half_models", "model_work", "workloads"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("cuda_benchmark", BENCHMARKS / "cuda.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cuda_benchmark", made)
    spec.loader.exec_module(made)
    sys.path.remove(str(BENCHMARKS))  # as its main does: CuPy imports a package named as the benchmark is
    return made


@pytest.fixture
def chosen(cuda, tmp_path) -> list:
    """A model of 48 bytes of weights, by a name of the table."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[batch, 4] x, int64[batch] k) => (float[batch, 3] y)
        <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) }"""
    onnx.save(parser.parse_model(text), tmp_path / "resnet50.onnx")
    return list(cuda.workloads(tmp_path))


def engine_of(cuda: ModuleType, clock: FakeClock, name: str, run_s: float, load_s: float = 1.0) -> type:
    """An engine whose runs and loads take so long."""

    def load(cls, workload, batch, precision):
        clock.now += load_s

        def call() -> None:
            clock.now += run_s * batch

        return cuda.Run(call, 7)

    return type(name, (cuda.Engine,), {"name": name, "load": classmethod(load)})


def test_every_row_gets_its_share_of_the_budget_and_engines_take_turns(cuda, chosen) -> None:
    clock, rows = FakeClock(), []
    engines = [engine_of(cuda, clock, "ours", 0.01), engine_of(cuda, clock, "other", 0.02)]
    cuda.run(FakeCard(clock), engines, chosen, 100.0, rows.append, clock)
    runs = [row for row in rows if row["kind"] == "run"]
    assert [(r["engine"], r["batch"], r["precision"]) for r in runs] == [
        (name, batch, precision) for batch in (1, 32) for precision in cuda.PRECISIONS for name in ("ours", "other")
    ]
    assert [round(r["median_s"] / r["batch"], 6) for r in runs] == [0.01, 0.02] * 6
    assert clock.now <= 100.0
    assert runs[0]["share_of_bandwidth"] == pytest.approx(48 / 0.01 / 1000.0)
    assert runs[0]["product_flops"] == 2 * 4 * 3
    assert runs[2]["share_of_flops"] == pytest.approx(24 / 0.01 / 2.0)
    assert runs[4]["weights_nbytes"] == 24, "float16"
    assert rows[0]["product_flops"] == {"float32": 1.0, "tf32": 2.0, "float16": 4.0}


def test_what_the_budget_does_not_reach_is_said(cuda, chosen) -> None:
    clock, rows = FakeClock(), []
    cuda.run(FakeCard(clock), [engine_of(cuda, clock, "ours", 1.0, load_s=30.0)], chosen, 50.0, rows.append, clock)
    assert rows[-1]["kind"] == "left out"
    assert rows[-1]["count"] + sum(row["kind"] == "run" for row in rows) == 6
    assert "budget of 50 s" in rows[-1]["reason"]


def test_an_engine_that_cannot_run_a_model_is_a_row_with_the_reason(cuda, chosen) -> None:
    def load(cls, workload, batch, precision):
        raise cuda.EngineError("no such operator")

    broken = type("broken", (cuda.Engine,), {"name": "broken", "load": classmethod(load)})
    clock, rows = FakeClock(), []
    cuda.run(FakeCard(clock), [engine_of(cuda, clock, "ours", 0.001), broken], chosen, 20.0, rows.append, clock)
    assert {row.get("error") for row in rows if row.get("engine") == "broken"} == {"no such operator"}
    assert all("median_s" in row for row in rows if row.get("engine") == "ours")
    text = cuda.table(rows)
    assert text.row_count == 6
    headers = [column.header for column in text.columns]
    assert headers == ["model", "batch", "precision", "ours, ms", "broken, ms", "bandwidth", "FLOP rate"]


def test_the_engines_of_a_machine_without_a_gpu_say_why(cuda, chosen) -> None:
    for engine in cuda.ENGINES:
        with pytest.raises(cuda.EngineError, match=r"is not installed|has no CUDA provider|CUDA|sees no GPU"):
            engine.load(chosen[0], 1, "float32")


def test_inputs_have_the_sizes_of_the_table_and_of_the_batch(cuda, chosen) -> None:
    feeds = sys.modules["cuda_engines"].feeds_of(chosen[0], 32)
    assert {name: array.shape for name, array in feeds.items()} == {"x": (32, 4), "k": (32,)}
    assert feeds["k"].dtype == np.int64


def test_decoding_continues_a_conversation_of_512_tokens(cuda, tmp_path) -> None:
    workload = cuda.Workload("gpt2_past", tmp_path / "gpt2_past.onnx", "float32", {"batch": 1, "past_sequence": 128})
    assert cuda.with_past(workload).dims == {"batch": 1, "past_sequence": 512, "total_sequence": 513}
    assert cuda.with_past(replace(workload, dims={"batch": 1})).dims == {"batch": 1}


def test_a_model_in_float16_computes_what_it_did(cuda, tmp_path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 1, 4, 4] x, int64[N] i) => (float[N, 1, 8, 8] y)
        <float[4] scales = {1.0, 1.0, 2.0, 2.0}, float least = {-1e9}> {
        h = Constant<value_float = 0.5>() a = Mul(x, h) c = Cast<to = 1>(i) s = ReduceSum<keepdims = 0>(c)
        b = Add(a, s) m = Max(b, least) y = Resize<mode = "nearest">(m, , scales) }"""
    onnx.save(parser.parse_model(text), tmp_path / "whole.onnx")
    half = sys.modules["half_models"].to_half(tmp_path / "whole.onnx", tmp_path / "made" / "half.onnx")
    feeds = {"x": np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4) / 8, "i": np.array([1, 2])}
    expected = ort.InferenceSession(str(tmp_path / "whole.onnx")).run(None, feeds)[0]
    found = ort.InferenceSession(str(half)).run(None, {**feeds, "x": feeds["x"].astype(np.float16)})[0]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_operations_of_products_are_counted_and_unknown_sizes_told(cuda, tmp_path) -> None:
    work = sys.modules["model_work"]
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[batch, 4, 8, 8] x, float[6, 2, 3, 3] w, float[6, 5] u, float[k, 2] o) => (float[a, 5] y, float[b, 5] z)
        { c = Conv<group = 2, pads = [1, 1, 1, 1]>(x, w) p = GlobalAveragePool(c) f = Flatten(p) y = Gemm(f, u)
          i = NonZero(y) t = Cast<to = 1>(i) s = Transpose(t) z = MatMul(s, o) }"""
    unknown = parser.parse_model(text)
    onnx.save(unknown, tmp_path / "unknown.onnx")
    assert work.product_flops(tmp_path / "unknown.onnx", {"batch": 3}) is None
    model = parser.parse_model(text.partition("i = NonZero")[0] + " z = Identity(y) }")
    onnx.save(model, tmp_path / "counted.onnx")
    assert work.product_flops(tmp_path / "counted.onnx", {"batch": 3}) == 2 * 3 * 6 * 64 * 18 + 2 * 3 * 6 * 5


def rows_of(times: dict[str, float], **more: object) -> list[dict]:
    """Rows of one configuration by several engines."""
    return [
        {"kind": "run", "engine": name, "model": "m", "batch": 1, "precision": "tf32", "median_s": seconds, **more}
        for name, seconds in times.items()
    ]


def test_goals_are_met_missed_or_not_measured(cuda) -> None:
    goals = sys.modules["cuda_report"].goals
    assert [text.split(":")[0] for text in goals([])] == ["Not measured", "Not measured"]
    ahead = rows_of({"ort-core": 1.0, "torch.compile": 1.4})
    assert goals(ahead)[0].startswith("Met: 1.40 times")
    behind = [{**row, "batch": 32} for row in rows_of({"ort-core": 1.0, "torch.compile": 0.9})]
    assert "behind on m 32 tf32 0.90" in goals([*ahead, *behind])[0]
    decode = {"kind": "run", "engine": "ort-core", "model": "gpt2_past", "batch": 1, "precision": "float16"}
    assert goals([{**decode, "share_of_bandwidth": 0.9}])[1].startswith("Met")
    assert goals([{**decode, "share_of_bandwidth": 0.8}])[1].startswith("Missed")


@pytest.fixture
def emulated(cuda, monkeypatch):
    """The benchmark on a device that is this machine's processor; a function that returns its engine."""
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "packages" / "ort-ep-cuda" / "tests"))
    if find_compiler() is None:
        pytest.skip("CUDA is emulated by a C++ compiler; none is here")
    from emulated_gpu import EmulatedGpu
    from emulated_provider import EmulatedCudaProvider

    EmulatedCudaProvider.device = EmulatedGpu()

    def load(cls, workload, batch, precision):
        session = ort.InferenceSession(
            str(workload.path), providers=[EmulatedCudaProvider.name, "CPUExecutionProvider"]
        )
        assert session.explain().on(EmulatedCudaProvider.name)
        feeds = sys.modules["cuda_engines"].feeds_of(workload, batch)
        return cuda.Run(lambda: session.run(None, feeds), 7)

    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        yield type("Emulated", (cuda.Engine,), {"name": "ort-core", "load": classmethod(load)})


def test_the_whole_script_runs_on_a_made_up_device(cuda, emulated, chosen, tmp_path, monkeypatch, capsys) -> None:
    commands: list[list[str]] = []

    def run(command, **named):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "12 ran\n2 refused\n", "")

    monkeypatch.setattr(cuda.subprocess, "run", run)
    clock = TickingClock()
    monkeypatch.setattr(cuda, "run", functools.partial(cuda.run, clock=clock))
    monkeypatch.setattr(cuda, "CupyCard", lambda: FakeCard(clock))
    monkeypatch.setattr(cuda, "ENGINES", (emulated, *cuda.ENGINES[1:]))
    monkeypatch.setattr(cuda.CudaExecutionProvider, "check", classmethod(lambda cls: Available("made up")))
    rows, page = tmp_path / "out" / "rows.jsonl", tmp_path / "page.md"
    arguments = [str(tmp_path), "resnet50", "gpt2", "--budget", "90", "--rows", str(rows), "--page", str(page)]
    assert cuda.main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "left out: gpt2" in shown
    assert "Not measured" in shown
    assert "CUDAExecutionProvider" in commands[0]
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert [row["kind"] for row in found[:3]] == ["machine", "conformance", "card"]
    runs = [row for row in found if row["kind"] == "run"]
    assert {row["precision"] for row in runs} == {"float32", "tf32", "float16"}
    assert all("median_s" in row and "share_of_flops" in row for row in runs if row["engine"] == "ort-core")
    assert all(row.get("error") for row in runs if row["engine"] != "ort-core")
    text = page.read_text(encoding="utf-8")
    assert "| resnet50 | 32 | float16 |" in text
    assert "Conformance: status 0, 2 refused" in text
