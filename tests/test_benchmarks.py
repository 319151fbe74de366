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
    page = module("performance_page").performance_page({"rows.jsonl": rows})
    assert "#### Float32, geometric mean 1.00" in page
    assert "#### Trees, geometric mean 3.00" in page
    assert "- c was not run: no such operator" in page
    assert "## P with no wide vectors, without products of bytes" in page
    assert "Measured on 2026-01-02" in page


def test_page_counts_by_intervals_what_is_faster_level_and_slower():
    page_of = module("performance_page").performance_page
    intervals = {"sure": [1.1, 1.3], "open": [0.8, 1.9], "lost": [0.5, 0.9]}
    rows = [MACHINE, *({**latency(name, 1.2), "interval_95": each} for name, each in intervals.items())]
    page = page_of({"rows.jsonl": rows})
    assert "1 of 3 faster, 1 level (open), 1 slower (lost)." in page


def test_page_says_how_far_outputs_differ_where_the_row_knows():
    page_of = module("performance_page").performance_page
    facts = {"name": "y", "text": "", "mismatches": 3, "count": 1000, "max_absolute": 0.0152}
    rows = [MACHINE, {**latency("a", 2.0), "outputs_equal": False, "difference": facts}]
    assert "| differ: 3 of 1000, by 0.015 at most |" in page_of({"rows.jsonl": rows})
    rows[1].pop("difference")
    page = page_of({"rows.jsonl": rows})
    assert "| differ |" in page
    assert "*differ* where at least one does not" in page


def test_page_shows_what_the_machine_allows_and_the_step_that_loses_most():
    worst = {"operator": "Conv+Clip", "output": "float[1,8]", "ms": 1.0, "least_ms": 0.25, "lost_ms": 0.75}
    known = {"kind": "roofline", "model": "a", "group": "float32", "least_ms": 1.5, "p50_ms": 2.0, "share": 0.75,
             "unknown_ms": 0, "ceilings": {}, "worst": worst}  # fmt: skip
    failed = {"kind": "roofline", "model": "b", "group": "float32", "error": "no such operator"}
    page = module("performance_page").performance_page({"rows.jsonl": [MACHINE, latency("a", 2.0), known, failed]})
    assert "| a | 1.5 ms | 2 ms | 0.75 | Conv+Clip to float[1,8]: 750 us |" in page
    assert "| b |" not in page


def test_committed_page_is_what_the_rows_that_it_names_give():
    committed = ROOT / "docs" / "performance.md"
    if not committed.exists():
        pytest.skip("no full run has been committed yet")
    text = committed.read_text(encoding="utf-8")
    names = re.findall(r"`benchmarks/results/([^`]+)`", text)
    assert names
    runs = {name: rows_of(name) for name in names}
    assert module("performance_page").performance_page(runs) == text


def rows_of(name: str) -> list[dict[str, object]]:
    lines = (BENCHMARKS / "results" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_committed_tables_of_measured_placement_are_what_the_rows_that_they_name_give():
    text = (ROOT / "docs/howto/measured_placement.md").read_text(encoding="utf-8")
    sources = re.findall(r"`benchmarks/results/([^`]+)`", text)
    assert sources
    assert module("measured_placement_page").with_results(text, {name: rows_of(name) for name in sources}) == text


PLACED = {
    "kind": "placement", "model": "m", "alone_ms": {"AExecutionProvider": 2.0, "BExecutionProvider": 1.0},
    "measured_ms": 1.1, "ratio": 1.1, "nodes": {"BExecutionProvider": 3}, "load_s": {"measured": 2.0},
    "largest_difference": 0.0,
}  # fmt: skip


def test_table_of_measured_placement_names_what_is_above_the_limit():
    rows = [MACHINE, {**PLACED, "interval_95": [1.02, 1.2]}, {**PLACED, "model": "n", "interval_95": [1.04, 1.2]}]
    section = module("measured_placement_page").section(rows, "rows.jsonl")
    assert "The lower end is above 1.03 for n.\n" in section
    assert "| m | 1.1 ms | 1 ms (B) | 2 ms | 1.10 | 1.02 to 1.20 | B 3 | 2.0 s |" in section
    assert "No lower end is above 1.03." in module("measured_placement_page").section(rows[:2], "rows.jsonl")


def test_measured_placement_is_compared_with_its_providers_alone(tmp_path):
    """The whole way, with one turn of one run each: a session placed by measuring beside two placed by priority."""
    import onnx

    from ort_core.cli.measuring.bench_worker import TurnRequest

    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] x) => (float[N, 3] y) { y = Sigmoid (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    workload = module("workloads").Workload("m", tmp_path / "m.onnx", "small models", {"N": 2})
    providers = ("ReferenceExecutionProvider", "CPUExecutionProvider")
    row = module("measured_placement").measured(workload, providers, 1, TurnRequest(0, 1, 0.0), 1)
    assert "error" not in row, row
    assert set(row["alone_ms"]) == set(providers)
    assert row["interval_95"][0] > 0
    assert sum(row["nodes"].values()) == 1
    assert row["largest_difference"] < 1e-6


def test_small_models_run_as_the_reference_says(tmp_path):
    import numpy as np

    import ort_core as ort

    for workload in module("workloads").generated_models(tmp_path):
        feeds = {"v0": np.full((1, 8), 0.25, np.float32)}
        ours = ort.InferenceSession(str(workload.path)).run(None, feeds)[0]
        oracle = ort.InferenceSession(str(workload.path), providers=["ReferenceExecutionProvider"]).run(None, feeds)[0]
        np.testing.assert_allclose(ours, oracle, rtol=1e-4, atol=1e-5)


def test_trained_models_run_on_their_own_data(tmp_path):
    (tmp_path / "digits" / "test_data_set_0").mkdir(parents=True)
    (tmp_path / "digits" / "model.onnx").write_bytes(b"")
    [found] = module("workloads").trained_models(tmp_path)
    assert found.name == "digits"
    assert found.options() == ["--input", str(tmp_path / "digits" / "test_data_set_0")]


def test_workloads_are_those_of_the_folder_with_their_sizes(tmp_path):
    (tmp_path / "skl_rf100.onnx").write_bytes(b"")
    found = list(module("workloads").workloads(tmp_path))
    assert [workload.title for workload in found] == ["skl_rf100, 1 row", "skl_rf100, 10000 rows"]
    assert found[1].options() == ["--shape", "X=10000x20"]
