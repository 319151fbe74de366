"""The benchmark's own parts: its table of workloads, its rows as a page, and engines from files."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"


def module(name: str) -> ModuleType:
    """Return a module of the benchmarks' folder, which is no package."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def latency(model: str, speedup: float, group: str = "float32") -> dict[str, object]:
    engine = {"latency_ms": {"p50": 2.0}, "peak_memory_nbytes": 3 << 20}
    return {"kind": "latency", "model": model, "group": group, "against": "onnxruntime", "engines": [engine, engine],
            "speedup": speedup, "interval_95": [1.0, 3.0], "outputs_equal": True}  # fmt: skip


MACHINE = {
    "kind": "machine", "processor": "P", "features": [], "cores": 2, "memory_nbytes": 1 << 30, "system": "Linux",
    "threads": 2, "date": "2026-01-02", "python": "3.11", "versions": {"ort-core": "1"},
}  # fmt: skip


def test_page_gives_the_geometric_mean_of_each_group_and_says_what_was_not_run():
    failed = {
        "kind": "latency",
        "model": "c",
        "group": "float32",
        "against": "onnxruntime",
        "error": "no such operator",
    }
    rows = [MACHINE, latency("a", 2.0), latency("b", 0.5), latency("d", 3.0, "trees"), failed]
    page = module("performance_page").performance_page(rows, "rows.jsonl")
    assert "### Float32, geometric mean 1.00" in page
    assert "### Trees, geometric mean 3.00" in page
    assert "- c was not run: no such operator" in page
    assert "measured on 2026-01-02 on P" in page


def test_committed_page_is_what_the_rows_that_it_names_give():
    committed = ROOT / "docs" / "performance.md"
    if not committed.exists():
        pytest.skip("no full run has been committed yet")
    text = committed.read_text(encoding="utf-8")
    source = re.search(r"`benchmarks/results/([^`]+)`", text)
    assert source is not None
    lines = (BENCHMARKS / "results" / source[1]).read_text(encoding="utf-8").splitlines()
    assert module("performance_page").performance_page([json.loads(line) for line in lines], source[1]) == text


def test_small_models_run_as_the_reference_says(tmp_path):
    import numpy as np

    import ort_core as ort

    for workload in module("workloads").generated_models(tmp_path):
        feeds = {"v0": np.full((1, 8), 0.25, np.float32)}
        ours = ort.InferenceSession(str(workload.path)).run(None, feeds)[0]
        oracle = ort.InferenceSession(str(workload.path), providers=["ReferenceExecutionProvider"]).run(None, feeds)[0]
        np.testing.assert_allclose(ours, oracle, rtol=1e-4, atol=1e-5)


def test_workloads_are_those_of_the_folder_with_their_sizes(tmp_path):
    (tmp_path / "skl_rf100.onnx").write_bytes(b"")
    found = list(module("workloads").workloads(tmp_path))
    assert [workload.title for workload in found] == ["skl_rf100, 1 row", "skl_rf100, 10000 rows"]
    assert found[1].options() == ["--shape", "X=10000x20"]
