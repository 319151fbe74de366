"""Commands that work on models: optimize, compare, extract, bench, profile."""

import json

import numpy as np
import pytest

from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.passes.base import Level, Pass
from ort_core.testing.models import model_of


class BreakRelu(Pass):
    """A wrong pass: makes every Relu an Abs."""

    name = "BreakRelu"
    level = Level.BASIC

    def apply(self, context, record):
        for graph in context.graphs():
            for node in graph.nodes:
                if node.op_type == "Relu":
                    node.op_type = "Abs"
                    record.changed("Relu to Abs")


@pytest.fixture
def wrong_pass(monkeypatch):
    import sys
    import types

    module = types.ModuleType("wrong_passes")
    module.BreakRelu = BreakRelu
    monkeypatch.setitem(sys.modules, "wrong_passes", module)
    return "wrong_passes:BreakRelu"


def test_optimize_writes_a_smaller_model_and_says_what_passes_did(ort, model_path, tmp_path):
    result = ort("optimize", model_path("small"), tmp_path / "o.onnx", "--check", "--json")
    assert result.code == 0, result.err
    changed = {row["name"] for row in result.data["rows"] if row["num_rewrites"]}
    assert "EliminateIdentity" in changed
    assert (result.data["nodes_before"], result.data["nodes_after"]) == (3, len(load_model(tmp_path / "o.onnx").graph))
    assert result.data["nodes_after"] == 2


def test_optimize_leaves_out_disabled_passes_and_refuses_unknown_ones(ort, model_path):
    data = ort("optimize", model_path("small"), "--disable", "EliminateIdentity", "--json").data
    assert all(row["name"] != "EliminateIdentity" for row in data["rows"])
    refused = ort("optimize", model_path("small"), "--disable", "EliminateIdentiti")
    assert refused.code == 2
    assert "Did you mean 'EliminateIdentity'" in refused.err


def test_optimize_check_catches_a_pass_that_changes_results(ort, model_path, wrong_pass):
    assert ort("optimize", model_path("small"), "--pass", wrong_pass).code == 0
    result = ort("optimize", model_path("small"), "--pass", wrong_pass, "--check")
    assert result.code == 1
    assert "BreakRelu changed the result" in result.err
    assert "of its largest value" in result.err
    assert ort("optimize", model_path("small"), "--pass", wrong_pass, "--check", "--allow", "1").code == 0
    assert ort("optimize", model_path("small"), "--pass", "nowhere:Pass").code == 2


def test_optimize_lists_passes_by_level_without_a_model(ort):
    names = {row["name"]: row["level"] for row in ort("optimize", "--list", "--json").data["passes"]}
    assert names["EliminateIdentity"] == "basic"
    assert ort("optimize").code == 2


def test_optimize_never_writes_over_the_weights_that_it_reads(ort, tmp_path):
    model = model_of(
        "g (float[N, 600] x) => (float[N, 1] y) <float[600, 1] w = {"
        + ", ".join(["1"] * 600)
        + "}> { y = MatMul(x, w) }"
    )
    save_model(model, tmp_path / "m.onnx", external_file="m.onnx.data")
    result = ort("optimize", tmp_path / "m.onnx", tmp_path / "n.onnx", "--external-data", "m.onnx.data")
    assert result.code == 1
    assert "choose another --external-data" in result.err
    assert ort("optimize", tmp_path / "m.onnx", tmp_path / "n.onnx").code == 0
    assert ort("run", tmp_path / "n.onnx", "--json").code == 0


def test_compare_finds_no_difference_between_levels(ort, model_path):
    result = ort("compare", model_path("small"), "--interior", "--json")
    assert result.code == 0, result.err
    assert result.data["equal"]
    assert result.data["interior"]["different"] == 0


def test_compare_names_the_first_value_that_differs(ort, model_path, tmp_path):
    model = load_model(model_path("small"))
    relu = next(iter(model.graph))
    relu.op_type = "Abs"
    save_model(model, tmp_path / "other.onnx")
    result = ort("compare", model_path("small"), tmp_path / "other.onnx", "--level-a", "disable", "--json")
    assert result.code == 1
    assert result.data["interior"]["first"]["name"] == "a"
    assert (
        "first divergence: value 'a'"
        in ort("compare", model_path("small"), tmp_path / "other.onnx", "--level-a", "disable").out
    )


def test_compare_refuses_models_with_other_inputs(ort, model_path):
    result = ort("compare", model_path("small"), model_path("words"))
    assert result.code == 1
    assert "different inputs" in result.err


def test_extract_records_a_node_so_that_it_runs_alone(ort, model_path, tmp_path):
    result = ort("extract", model_path("small"), tmp_path / "part", "--node", "y", "--json")
    assert result.code == 0, result.err
    run = ort("run", tmp_path / "part", "-i", tmp_path / "part" / "test_data_set_0", "-o", tmp_path / "o.npz")
    assert run.code == 0, run.err
    from ort_core.onnx_io.value_file import read_value

    expected = read_value((tmp_path / "part" / "test_data_set_0" / "output_0.pb").read_bytes(), None)[1]
    np.testing.assert_array_equal(np.load(tmp_path / "o.npz")["y"], expected)
    assert [node.op_type for node in load_model(tmp_path / "part" / "model.onnx").graph] == ["MatMul"]


def test_extract_takes_the_nodes_between_two_values(ort, model_path, tmp_path):
    assert ort("extract", model_path("small"), tmp_path / "p", "--from", "a", "--to", "y").code == 0
    assert [node.op_type for node in load_model(tmp_path / "p" / "model.onnx").graph] == ["Identity", "MatMul"]


def test_extract_reaches_into_the_branch_that_was_taken(ort, model_path, tmp_path):
    (tmp_path / "in.json").write_text(json.dumps({"flag": False, "x": [4.0, 9.0]}))
    arguments = ("-i", tmp_path / "in.json")
    assert ort("extract", model_path("branch"), tmp_path / "p", "--node", "e", *arguments).code == 0
    data = ort("run", tmp_path / "p", "-i", tmp_path / "p" / "test_data_set_0", "--json").data
    assert data["outputs"]["e"]["first"] == [2.0, 3.0]
    refused = ort("extract", model_path("branch"), tmp_path / "q", "--node", "t", *arguments)
    assert refused.code == 1
    assert "did not reach" in refused.err


def test_extract_takes_a_partition_by_the_name_that_explain_shows(ort, model_path, tmp_path):
    name = ort("explain", model_path("small"), "--level", "disable", "--json").data["nodes"][0]["partition"]
    assert ort("extract", model_path("small"), tmp_path / "p", "--partition", name).code == 0
    assert len(load_model(tmp_path / "p" / "model.onnx").graph) == 3
    assert ort("extract", model_path("small"), tmp_path / "q", "--partition", "nowhere").code == 2


def test_extract_asks_for_exactly_one_way_and_keeps_existing_folders(ort, model_path, tmp_path):
    assert ort("extract", model_path("small"), tmp_path / "p").code == 2
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine").write_text("")
    assert ort("extract", model_path("small"), tmp_path / "p", "--node", "y").code == 2
    assert ort("extract", model_path("small"), tmp_path / "p", "--node", "y", "--force").code == 0


def test_bench_reports_percentiles_in_order(ort, model_path):
    data = ort("bench", model_path("small"), "-n", "20", "--dim", "N=4", "--json").data
    latency = data["latency_ms"]
    assert data["runs"] == 20
    assert latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert data["items_per_second"] == pytest.approx(4 * data["runs_per_second"])


def test_bench_against_onnxruntime_takes_turns_and_compares_outputs(ort, model_path):
    pytest.importorskip("onnxruntime")
    result = ort("bench", model_path("small"), "--against", "onnxruntime", "-n", "3", "--rounds", "5", "--json")
    assert result.code == 0, result.err
    data = result.data
    assert [engine["engine"] for engine in data["engines"]] == ["ort-core", "onnxruntime"]
    assert all(output["is_equal"] for output in data["outputs"])
    low, high = data["interval_95"]
    assert low <= data["speedup"] <= high


ENGINE = """
import time
from ort_core.cli.measuring.bench_worker import OpenAnswer

def open_engine(request):
    x = request.feeds["x"]
    def run():
        time.sleep(0.002)
    return run, OpenAnswer("7.1", ("Slow",), 5, 6, (x[:, :2] * 0,))
"""


def test_bench_measures_an_engine_that_a_file_brings(ort, model_path, tmp_path):
    (tmp_path / "slow_engine.py").write_text(ENGINE)
    result = ort(
        "bench", model_path("small"), "--against", tmp_path / "slow_engine.py", "-n", "3", "--rounds", "5", "--json"
    )
    assert result.code == 0, result.err
    _, theirs = result.data["engines"]
    assert (theirs["engine"], theirs["version"], theirs["providers"]) == ("slow", "7.1", ["Slow"])
    assert theirs["latency_ms"]["min"] >= 2
    assert not result.data["outputs"][0]["is_equal"]
    assert ort("bench", model_path("small"), "--against", tmp_path / "none.py").code == 2


def test_bench_refuses_an_unknown_engine(ort, model_path):
    assert ort("bench", model_path("small"), "--against", "tensorflow").code == 2


def test_profile_shares_add_up_and_the_trace_is_kept(ort, model_path, tmp_path):
    options = ("--level", "disable", "--provider", "reference", "--trace", tmp_path / "t.json")
    result = ort("profile", model_path("small"), *options, "--json")
    assert result.code == 0, result.err
    data = result.data
    assert {row["name"] for row in data["operators"]} == {"Relu", "Identity", "MatMul"}
    assert sum(row["share"] for row in data["operators"]) == pytest.approx(1, abs=1e-6) or data["nodes_ms"] == 0
    assert any(event["cat"] == "Node" for event in json.loads((tmp_path / "t.json").read_text()))


def test_profile_sees_the_nodes_of_the_branch_that_was_taken(ort, model_path, tmp_path):
    (tmp_path / "in.json").write_text(json.dumps({"flag": False, "x": [4.0, 9.0]}))
    data = ort("profile", model_path("branch"), "-i", tmp_path / "in.json", "--json").data
    seen = {name for row in data["operators"] for name in row["name"].split("+")}  # compiled steps name all they fuse
    assert seen == {"If", "Abs", "Sqrt"}


def test_compile_writes_a_model_that_computes_the_same(ort, model_path, tmp_path):
    source, target = model_path("small"), tmp_path / "out.onnx"
    result = ort("compile", source, "-o", target, "--embed", "--json")
    assert result.code == 0
    assert result.data["stored"] == ["cpu-0"]
    assert result.data["not_stored"] == {}
    assert [node.op_type for node in load_model(target).graph] == ["EPContext"]
    same = ort("compare", source, target, "--json")
    assert same.code == 0


def test_a_compiled_model_runs_its_code_where_a_configuration_entry_trusts_it(ort, model_path, tmp_path):
    assert ort("compile", model_path("small"), "-o", tmp_path / "ctx.onnx").code == 0
    for command in (["run"], ["explain"], ["bench", "-n", "2"], ["profile"]):
        distrusted = ort(*command, tmp_path / "ctx.onnx")
        assert "is not used" in distrusted.err
        trusted = ort(*command, tmp_path / "ctx.onnx", "--config", "session.trust_compiled_code=1")
        assert trusted.code == 0
        assert "is not used" not in trusted.err + trusted.out


def test_compile_says_what_was_not_stored_and_refuses_to_overwrite_its_input(ort, model_path, tmp_path):
    result = ort("compile", model_path("words"), "-o", tmp_path / "out.onnx")
    assert result.code == 0
    assert "cannot go through an EPContext node" in result.out
    refused = ort("compile", model_path("small"), "-o", model_path("small"))
    assert refused.code == 2
    assert "would overwrite the model" in refused.err
