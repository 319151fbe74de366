"""The smaller tools beside onnxruntime's: what they write, what they print, what they refuse."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime_tools import theirs

DYNAMIC = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3, n] x, float[m, 4] z) => (float[batch, 3, n] y, float[batch, q] w)
<float[4] b = {1, 2, 3, 4}>
{ y = Relu(x)  s = ReduceMax<axes = [2], keepdims = 0>(y)  w = Identity(s) }
"""
LINEAR = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, float[3, 4] w) => (float[n, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{ d = MatMul(x, w)  y = Relu(d) }
"""


def ours(module):
    return importlib.import_module(f"ort_tools.{module}")


ENTRIES = {
    "update_onnx_opset": "update_onnx_opset_helper", "make_dynamic_shape_fixed": "make_dynamic_shape_fixed_helper",
    "optimize_onnx_model": "optimize_model_helper", "qdq_helpers.optimize_qdq_model": "optimize_qdq_model",
}  # fmt: skip


@dataclass
class Done:
    """What a command line left."""

    returncode: int
    stdout: str
    stderr: str


def program(module, *arguments):
    """Call a module's command line here, which takes a hundredth of a process's time."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            getattr(ours(module), ENTRIES.get(module, "main"))([str(each) for each in arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
            err.write(end.code if isinstance(end.code, str) else "")
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture
def dynamic(tmp_path):
    onnx.save(parser.parse_model(DYNAMIC), tmp_path / "dynamic.onnx")
    return tmp_path / "dynamic.onnx"


@pytest.fixture
def linear(tmp_path):
    onnx.save(parser.parse_model(LINEAR), tmp_path / "linear.onnx")
    return tmp_path / "linear.onnx"


# ---- sizes


@pytest.mark.parametrize("change", ["make_dim_param_fixed", "make_input_shape_fixed", "remove_invalid_dim_values"])
def test_sizes_are_fixed_as_onnxruntime_fixes_them(change):
    given = {"make_dim_param_fixed": ("batch", 5), "make_input_shape_fixed": ("x", [5, 3, 7])}.get(change, ())
    models = [parser.parse_model(DYNAMIC) for _ in range(2)]
    for model, module in zip(models, (ours("onnx_model_utils"), theirs("onnx_model_utils")), strict=True):
        model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = -1
        getattr(module, change)(model.graph, *given)
        module.fix_output_shapes(model)
    assert models[0] == models[1]


@pytest.mark.parametrize(("name", "shape"), [("nothing", [1]), ("x", [1, 2]), ("x", [1, 4, 2])])
def test_shapes_that_do_not_fit_are_refused_in_onnxruntimes_words(name, shape):
    texts = []
    for module in (ours("onnx_model_utils"), theirs("onnx_model_utils")):
        with pytest.raises(ValueError, match=r".") as caught:
            module.make_input_shape_fixed(parser.parse_model(DYNAMIC).graph, name, shape)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_the_command_line_fixes_a_size(dynamic, tmp_path):
    done = program(
        "make_dynamic_shape_fixed", "--dim_param", "batch", "--dim_value", "2", dynamic, tmp_path / "out.onnx"
    )
    assert done.returncode == 0, done.stderr
    assert onnx.load(tmp_path / "out.onnx").graph.output[1].type.tensor_type.shape.dim[1].dim_value == 3


@pytest.mark.parametrize("given", [(), ("--dim_param", "batch"), ("--input_name", "x", "--input_shape", "1,0,2")])
def test_a_command_line_that_says_too_little_is_refused(given, dynamic):
    done = program("make_dynamic_shape_fixed", *given, dynamic, dynamic)
    assert done.returncode != 0
    assert "Invalid usage." in done.stdout


# ---- walks


def test_maps_of_makers_and_readers_are_onnxruntimes():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[2] x) => (float[2] y) {
      a = Relu(x)
      y = If (c) <then_branch = t () => (float[2] u) { b = Neg(a)  u = Abs(b) },
                  else_branch = e () => (float[2] w) { w = Identity(a) }>
    }
    """
    model = parser.parse_model(text)
    wanted, found = (
        [
            {key.output[0]: sorted(each.output[0] for each in nodes) for key, nodes in table.items() if nodes}
            for table in module.get_producer_consumer_maps(model.graph)
        ]
        for module in (theirs("onnx_model_utils"), ours("onnx_model_utils"))
    )
    assert found == wanted
    seen = [[], []]
    for names, module in zip(seen, (ours("onnx_model_utils"), theirs("onnx_model_utils")), strict=True):
        module.iterate_graph_per_node_func(model.graph, lambda node, names: names.append(node.op_type), names=names)
        module.iterate_graph_per_graph_func(model.graph, lambda graph, names: names.append(graph.name), names=names)
    assert seen[0] == seen[1]


def test_a_value_that_nothing_makes_is_named():
    model = parser.parse_model(LINEAR)
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ValueError, match="nowhere"):
        ours("onnx_model_utils").get_producer_consumer_maps(model.graph)


@pytest.mark.parametrize("name", ["disable", "basic", "extended", "layout", "all"])
def test_levels_have_onnxruntimes_numbers(name):
    levels = [module.get_optimization_level(name) for module in (ours("onnx_model_utils"), theirs("onnx_model_utils"))]
    assert int(levels[0]) == int(levels[1].value if hasattr(levels[1], "value") else levels[1])


def test_a_level_that_is_none_is_refused():
    with pytest.raises(ValueError, match="Invalid optimization level of most"):
        ours("onnx_model_utils").get_optimization_level("most")


def test_a_model_with_shapes_has_them(linear):
    model = ours("onnx_model_utils").ModelProtoWithShapeInfo(linear).model_with_shape_info
    assert [each.name for each in model.graph.value_info] == ["d"]


# ---- programs


def test_the_opset_is_updated_up_and_down(linear, tmp_path):
    for opset in (9, 21):
        done = program("update_onnx_opset", "--opset", opset, linear, tmp_path / "out.onnx")
        assert done.returncode == 0, done.stderr
        assert onnx.load(tmp_path / "out.onnx").opset_import[0].version == opset


def test_an_opset_without_a_form_is_refused_in_a_sentence(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (bool[2] y) { y = IsNaN(x) }'
    onnx.save(parser.parse_model(text), tmp_path / "in.onnx")
    done = program("update_onnx_opset", "--opset", 8, tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert done.returncode == 1
    assert "IsNaN" in done.stderr
    assert "Traceback" not in done.stderr


def test_initializers_are_taken_off_the_inputs(linear, tmp_path):
    models = [onnx.load(linear) for _ in range(2)]
    for model, module in zip(models, (ours, theirs), strict=True):
        assert module("remove_initializer_from_input").remove_initializer_from_input(model)
        assert not module("remove_initializer_from_input").remove_initializer_from_input(model)
    assert models[0] == models[1]
    done = program("remove_initializer_from_input", "--input", linear, "--output", tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    assert onnx.load(tmp_path / "out.onnx") == models[1]


def test_old_models_keep_initializers_among_the_inputs(capsys):
    model = parser.parse_model(LINEAR)
    model.ir_version = 3
    assert not ours("remove_initializer_from_input").remove_initializer_from_input(model)
    assert "ir_version below 4" in capsys.readouterr().out


def test_an_optimized_model_is_written(linear, tmp_path):
    done = program("optimize_onnx_model", "--opt_level", "extended", linear, tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_weights_become_random_within_their_range_and_shapes_stay(linear, tmp_path):
    done = program("onnx_randomizer", "-m", linear, "-o", tmp_path / "random/out.onnx")
    assert done.returncode == 0, done.stderr
    before, behind = (
        numpy_helper.to_array(onnx.load(p).graph.initializer[0]) for p in (linear, tmp_path / "random/out.onnx")
    )
    assert before.shape == behind.shape
    assert before.dtype == behind.dtype
    assert not np.array_equal(before, behind)
    assert behind.min() >= before.min()
    assert behind.max() <= before.max()
    small = parser.parse_model(DYNAMIC)
    ours("onnx_randomizer").graph_iterator(small, ours("onnx_randomizer").randomize_graph_initializer)
    assert small == parser.parse_model(DYNAMIC)


def test_texts_are_no_weights():
    model = parser.parse_model(DYNAMIC)
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.STRING, [12], [b"a"] * 12))
    ours("onnx_randomizer").graph_iterator(model, ours("onnx_randomizer").randomize_graph_initializer)
    assert model.graph.initializer[-1].string_data[0] == b"a"


def test_a_model_is_run_on_made_up_inputs(linear, capsys):
    status, feeds, outputs = ours("onnxruntime_test").run_model(str(linear), 3, symbolic_dims={"n": 6})
    assert status == 0
    assert {name: value.shape for name, value in feeds.items()} == {"x": (6, 3), "w": (3, 4)}
    np.testing.assert_allclose(outputs[0], np.maximum(feeds["x"] @ feeds["w"], 0), rtol=1e-5)
    printed = capsys.readouterr().out
    theirs("onnxruntime_test").run_model(str(linear), 3, symbolic_dims={"n": 6})
    wanted = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()] == [line.split(":")[0] for line in wanted.splitlines()]


def test_the_test_tool_is_a_program(linear, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ort_tools.onnxruntime_test", str(linear), "2", "--profile", "--symbolic_dims", "n=4"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "trace file written to" in done.stdout


RESULTS = [
    {"ep": "ROCMExecutionProvider", "validators": {"v": "1"}, "results": {"Gemm": {"a": 1, "b": 2}}},
    {"ep": "ROCMExecutionProvider", "validators": {"v": "2"}, "results": {"Gemm": {"a": 3}}},
]


def test_tuning_results_are_embedded_extracted_and_merged_as_by_onnxruntime(linear, tmp_path):
    for name, results in (("one", RESULTS), ("two", [{**RESULTS[0], "results": {"Gemm": {"a": 9, "c": 4}}}])):
        (tmp_path / f"{name}.json").write_text(json.dumps(results), encoding="utf-8")
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    assert program("offline_tuning", "merge", tmp_path / "all.json", *files).returncode == 0
    assert program("offline_tuning", "embed", tmp_path / "tuned.onnx", linear, *files).returncode == 0
    assert program("offline_tuning", "extract", tmp_path / "tuned.onnx", tmp_path / "again.json").returncode == 0
    merger = theirs("offline_tuning").Merger()
    for each in files:
        merger.merge(json.loads(each.read_text(encoding="utf-8")))
    wanted = merger.get_merged()
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8")) == wanted
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8")) == wanted
    assert theirs("offline_tuning").extract(onnx.load(tmp_path / "tuned.onnx")) == wanted
    assert "Gemm" in program("offline_tuning", "pprint", tmp_path / "tuned.onnx").stdout
    with pytest.raises(AssertionError, match="already"):
        ours("offline_tuning").embed(onnx.load(tmp_path / "tuned.onnx"), RESULTS)


def test_a_model_without_tuning_results_is_told(linear, tmp_path):
    done = program("offline_tuning", "extract", linear, tmp_path / "none.json")
    assert done.returncode != 0
    assert "does not have tuning results" in done.stderr


def test_a_qdq_model_is_copied(linear, tmp_path):
    assert program("qdq_helpers.optimize_qdq_model", linear, tmp_path / "out.onnx").returncode == 0
    assert onnx.load(tmp_path / "out.onnx") == onnx.load(linear)


def test_files_are_found_below_a_folder_or_one_by_itself(linear, dynamic, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/THIRD.ONNX").write_bytes(b"")
    for module in (ours("file_utils"), theirs("file_utils")):
        is_model = functools.partial(module.path_match_suffix_ignore_case, suffix=".onnx")
        found = module.files_from_file_or_dir(tmp_path, is_model)
        assert sorted(each.name for each in found) == ["THIRD.ONNX", "dynamic.onnx", "linear.onnx"]
        assert module.files_from_file_or_dir(linear) == [linear]
