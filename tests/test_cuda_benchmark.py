"""The benchmark of the CUDA provider, proven without a GPU: its budget, its rows, what it says of absent engines."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import parser

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


class FakeClock:
    """Seconds that pass only when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeCard:
    """A card whose rates are round numbers."""

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
    for name in ("cuda_engines", "workloads"):
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

    def load(cls, workload, batch, precision) -> Callable[[], None]:
        clock.now += load_s

        def call() -> None:
            clock.now += run_s * batch

        return call

    return type(name, (cuda.Engine,), {"name": name, "load": classmethod(load)})


def test_every_row_gets_its_share_of_the_budget_and_engines_take_turns(cuda, chosen) -> None:
    clock, rows = FakeClock(), []
    engines = [engine_of(cuda, clock, "ours", 0.01), engine_of(cuda, clock, "other", 0.02)]
    cuda.run(FakeCard(), engines, chosen, 100.0, rows.append, clock)
    runs = [row for row in rows if row["kind"] == "run"]
    assert [(r["engine"], r["batch"], r["precision"]) for r in runs] == [
        (name, batch, precision) for batch in (1, 32) for precision in ("float32", "tf32") for name in ("ours", "other")
    ]
    assert [round(r["median_s"] / r["batch"], 6) for r in runs] == [0.01, 0.02] * 4
    assert clock.now <= 100.0
    assert runs[0]["share_of_bandwidth"] == pytest.approx(48 / 0.01 / 1000.0)
    assert rows[0]["product_flops"] == {"float32": 1.0, "tf32": 2.0, "float16": 4.0}


def test_what_the_budget_does_not_reach_is_said(cuda, chosen) -> None:
    clock, rows = FakeClock(), []
    cuda.run(FakeCard(), [engine_of(cuda, clock, "ours", 1.0, load_s=30.0)], chosen, 50.0, rows.append, clock)
    assert rows[-1]["kind"] == "left out"
    assert rows[-1]["count"] + sum(row["kind"] == "run" for row in rows) == 4
    assert "budget of 50 s" in rows[-1]["reason"]


def test_an_engine_that_cannot_run_a_model_is_a_row_with_the_reason(cuda, chosen) -> None:
    def load(cls, workload, batch, precision):
        raise cuda.EngineError("no such operator")

    broken = type("broken", (cuda.Engine,), {"name": "broken", "load": classmethod(load)})
    clock, rows = FakeClock(), []
    cuda.run(FakeCard(), [engine_of(cuda, clock, "ours", 0.001), broken], chosen, 20.0, rows.append, clock)
    assert {row.get("error") for row in rows if row.get("engine") == "broken"} == {"no such operator"}
    assert all("median_s" in row for row in rows if row.get("engine") == "ours")
    text = cuda.table(rows)
    assert text.row_count == 4
    headers = [column.header for column in text.columns]
    assert headers == ["model", "batch", "precision", "ours, ms", "broken, ms", "bandwidth"]


def test_the_engines_of_a_machine_without_a_gpu_say_why(cuda, chosen) -> None:
    for engine in cuda.ENGINES:
        with pytest.raises(cuda.EngineError, match=r"is not installed|has no CUDA provider|CUDA|sees no GPU"):
            engine.load(chosen[0], 1, "float32")


def test_inputs_have_the_sizes_of_the_table_and_of_the_batch(cuda, chosen) -> None:
    feeds = sys.modules["cuda_engines"].feeds_of(chosen[0], 32)
    assert {name: array.shape for name, array in feeds.items()} == {"x": (32, 4), "k": (32,)}
    assert feeds["k"].dtype == np.int64
