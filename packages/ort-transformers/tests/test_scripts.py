"""onnxruntime.transformers' scripts: made-up inputs, comparisons, tables of times, constant shapes, own fusions."""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import inspect
import json
import logging
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import onnx
import pytest
from exported_graphs import random_weights
from onnx import helper, parser

import ort_core
from ort_transformers import (
    affinity_helper,
    bert_perf_test,
    bert_test_data,
    compare_bert_results,
    machine_info,
    metrics,
    profile_result_processor,
    profiler,
    shape_optimizer,
)
from ort_transformers.fusion_base import Fusion
from ort_transformers.fusion_utils import FusionUtils, NumpyHelper
from ort_transformers.io_binding_helper import TypeHelper
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model
from ort_transformers.shape_infer_helper import SymbolicShapeInferenceHelper

SCRIPTS = (
    "affinity_helper", "benchmark_helper", "bert_perf_test", "bert_test_data", "compare_bert_results", "constants",
    "fusion_base", "fusion_utils", "import_utils", "machine_info", "metrics", "profile_result_processor", "profiler",
    "quantize_helper", "shape_optimizer", "torch_onnx_export_helper",
)  # fmt: skip
ELSEWHERE = {  # what a script needs of torch for itself, and parts of its own work
    "benchmark_helper": {"RocmMemoryMonitor.get_used_memory"},
    "bert_perf_test": {"numpy_type", "create_input_output_tensors", "create_io_binding", "launch_test"},
    "shape_optimizer": {"setup_logging"},
}
BERT = """
<ir_version: 10, opset_import: ["": 18]>
bert (int64[batch, length] input_ids, int64[batch, length] token_type_ids, int64[batch, length] attention_mask)
  => (float[batch, length, 8] y)
<int64[1] last = {2}, int64[1] first = {0}, int64[1] second = {1}, int64 place0 = {0}, int64 place1 = {1},
 int64[2] parts = {2, 4}, int64[2] axes = {1, 2}>
{
  words = Gather(w0_20_8, input_ids)
  kinds = Gather(w1_2_8, token_type_ids)
  x = Add(words, kinds)
  sizes = Shape(x)
  batch = Gather(sizes, first)
  length = Gather(sizes, second)
  split = Concat<axis=0>(batch, length, parts)
  heads = Reshape(x, split)
  weights = Cast<to=1>(attention_mask)
  four = Unsqueeze(weights, last)
  many = Unsqueeze(four, last)
  kept = Mul(heads, many)
  y = Reshape(kept, sizes)
}
"""
CPU, CUDA = {"provider": "CPUExecutionProvider"}, {"provider": "CUDAExecutionProvider"}
FEEDS = ("--batch_size", "2", "--sequence_length", "6")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a model with a BERT's three inputs."""
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    onnx.save(random_weights(parser.parse_model(BERT)), path)
    return path


def signatures(source: str) -> dict[str, list[str]]:
    """Return the parameters of the functions and methods of a source by name."""
    found = {}
    for node in ast.parse(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in (one for one in inner if isinstance(one, ast.FunctionDef)):
            found[prefix + each.name] = [one.arg for one in (*each.args.args, *each.args.kwonlyargs)]
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_onnxruntimes_functions_and_parameters(name):
    pytest.importorskip("onnxruntime")
    installed = PathFinder.find_spec("onnxruntime")
    assert installed is not None
    assert installed.origin is not None
    source = Path(installed.origin).parent / "transformers" / f"{name}.py"  # read alone: some import torch at once
    wanted = signatures(source.read_text(encoding="utf-8"))
    module = importlib.import_module(f"ort_transformers.{name}")
    for key, parameters in wanted.items():
        if "._" in key or key.startswith("_") or key in ELSEWHERE.get(name, ()) or key.endswith("__str__"):
            continue
        ours = module
        for part in key.split("."):
            assert hasattr(ours, part), key
            ours = getattr(ours, part)
        found = [each for each in inspect.signature(ours).parameters if each not in ("self", "cls")]
        assert (
            found[: len(parameters)] == [each for each in parameters if each not in ("self", "cls")] or parameters == []
        ), key


def test_flags_of_scripts_are_onnxruntimes():
    pytest.importorskip("onnxruntime")
    installed = PathFinder.find_spec("onnxruntime")
    assert installed is not None
    assert installed.origin is not None
    for name in ("bert_perf_test", "bert_test_data", "compare_bert_results", "profiler", "profile_result_processor",
                 "shape_optimizer", "machine_info"):  # fmt: skip
        sources = [Path(installed.origin).parent / "transformers" / f"{name}.py",
                   Path(str(inspect.getsourcefile(importlib.import_module(f"ort_transformers.{name}"))))]  # fmt: skip
        flags = [
            {each.value for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("--")}
            for path in sources
        ]  # fmt: skip
        shared = {"--threshold", "--provider", "--kernel_time_only", "--input_ids_name", "--segment_ids_name",
                  "--input_mask_name", "--average_sequence_length", "--random_sequence_length", "--mask_type",
                  "--verbose", "--input", "--output", "--input_ids", "--segment_ids", "--input_mask"}  # fmt: skip
        assert flags[0] - flags[1] - shared == set(), name


def test_test_data_is_written_with_the_models_results(bert, tmp_path):
    bert_test_data.main(["--model", str(bert), "--output_dir", str(tmp_path), *FEEDS, "--samples", "2", "-a", "4"])
    for place in range(2):
        folder = tmp_path / f"test_data_set_{place}"
        tensors = [onnx.load_tensor(folder / f"input_{each}.pb") for each in range(3)]
        feeds = {each.name: onnx.numpy_helper.to_array(each) for each in tensors}
        assert feeds["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0]] * 2
        expected = ort_core.InferenceSession(str(bert)).run(None, feeds)[0]
        found = onnx.numpy_helper.to_array(onnx.load_tensor(folder / "output_0.pb"))
        assert np.array_equal(found, np.asarray(expected))


@pytest.mark.parametrize(
    ("mask_type", "expected"), [(1, [3, 3]), (2, [[1, 1, 1, 0]] * 2), (3, [3, 3, 0, 3, 6, 0, 3, 6])]
)
def test_masks_have_three_forms(mask_type, expected):
    declared = helper.make_tensor_value_info("mask", onnx.TensorProto.INT32, None)
    found = bert_test_data.fake_input_mask_data(declared, 2, 4, 3, False, mask_type)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_drawn_lengths_have_the_average_and_stay_within_the_length():
    bert_test_data.random.seed(1)
    for length, average in ((8, 6), (8, 2), (5, 5), (1, 1)):
        drawn = [bert_test_data.get_random_length(length, average) for _ in range(2000)]
        assert min(drawn) >= 1
        assert max(drawn) <= length
        assert abs(np.mean(drawn) - average) < 0.15


def test_two_forms_of_a_model_are_compared(bert, tmp_path, caplog):
    other = onnx.load(bert)
    table = next(each for each in other.graph.initializer if each.name == "w0_20_8")
    shifted = onnx.numpy_helper.to_array(table) + np.float32(0.5)
    table.CopyFrom(onnx.numpy_helper.from_array(shifted, table.name))
    onnx.save(other, tmp_path / "other.onnx")
    same = compare_bert_results.run_test(
        str(bert), str(bert), None, 2, 5, False, 3, 1, False, 1e-3, 1e-4, None, None, None, 2, dictionary_size=20
    )
    assert same == (0.0, None)
    caplog.set_level(logging.INFO)
    worst, case = compare_bert_results.run_test(
        str(bert), str(tmp_path / "other.onnx"), str(tmp_path), 2, 5, False, 3, 1, True, 1e-3, 1e-4, None, None, None,
        2, dictionary_size=20,
    )  # fmt: skip
    assert abs(worst - 0.5) < 1e-5
    assert case is not None
    assert "3 results differ" in caplog.text
    assert (tmp_path / "test_data_set_2" / "input_0.pb").exists()


def test_speed_is_written_as_a_table_beside_the_model(bert, tmp_path):
    path = tmp_path / "bert.onnx"
    path.write_bytes(bert.read_bytes())
    names = ("--input_ids_name", "input_ids", "--segment_ids_name", "token_type_ids", "--input_mask_name",
             "attention_mask")  # fmt: skip
    results: dict[str, tuple[float, ...]] = {}
    asked = bert_perf_test.parse_arguments(
        ["--model", str(path), "-b", "2", "-s", "5", "--samples", "2", "-t", "2", "-n", "1", *names]
    )
    setting = bert_perf_test.TestSetting(
        2, 5, 2, 2, False, False, None, 1, asked.seed, False, 2, asked.average_sequence_length, False
    )
    model = bert_perf_test.ModelSetting(str(path), *names[1::2], 99, None, None, 2)
    found = bert_test_data.get_bert_inputs(str(path), *names[1::2])
    assert bert_test_data.known_words(str(path), found[0]) == 20
    feeds = bert_test_data.generate_test_data(2, 5, 2, 3, False, *found, 5, False, 2, dictionary_size=20)
    bert_perf_test.run_one_test(model, setting, results, feeds, 1)
    bound = {**vars(setting), "use_io_binding": True}
    bert_perf_test.run_one_test(model, bert_perf_test.TestSetting(**bound), results, feeds, 1)
    assert len(results) == 2
    assert all(figure > 0 for figures in results.values() for figure in figures)
    bert_perf_test.write_summary(tmp_path / "table.txt", results)
    text = (tmp_path / "table.txt").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    assert {row["use_io_binding"] for row in rows} == {"True", "False"}
    assert {row["graph_optimization_level"] for row in rows} == {"ENABLE_ALL"}


def test_the_command_line_tests_each_batch_size(bert, tmp_path):
    path = tmp_path / "bert.onnx"
    path.write_bytes(bert.read_bytes())  # with 20 words: ids are drawn below that
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ort_core.dropin", "-m", "onnxruntime.transformers.bert_perf_test",
         "--model", str(path), "-b", "1", "2", "-s", "4", "--samples", "1", "-t", "2", "-n", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (table,) = tmp_path.glob("perf_results_CPU_B1-2_S4_*.txt")
    assert len(table.read_text(encoding="utf-8").splitlines()) == 3


def test_a_model_is_profiled_and_its_nodes_are_told(bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # profiles are written there
    asked = profiler.parse_arguments(["-m", str(bert), "-b", "2", "-s", "5", "--samples", "3"])
    path = profiler.run(asked)
    lines = profile_result_processor.process_results(path, asked)
    assert any(line.startswith("Grouped by operator") for line in lines)
    assert sum("\tCPU" in line for line in lines) >= 1
    fixed = profiler.create_dummy_inputs(OnnxModel(onnx.load(bert)), 3, 4, 2)
    assert fixed is not None
    assert len(fixed) == 2
    assert {value.shape for value in fixed[0].values()} == {(3, 4)}


def test_profiles_of_onnxruntime_are_told_as_onnxruntime_tells_them(tmp_path):
    """Two nodes, one on a GPU with kernels, one with a body, whose time is that of the nodes inside."""
    events = [
        {"cat": "Session", "name": "session_initialization", "dur": 5},
        {"cat": "Node", "name": "a_kernel_time", "dur": 30, "args": {"op_name": "Add", **CPU}},
        {"cat": "Node", "name": "a_fence_before", "dur": 2, "args": {"op_name": "Add"}},
        {"cat": "Node", "name": "b_kernel_time", "dur": 60, "args": {"op_name": "Mul", **CUDA}},
        {"cat": "Node", "name": "l_kernel_time", "dur": 900, "args": {"op_name": "Loop", **CPU}},
        {"cat": "Kernel", "name": "mul_kernel", "dur": 40, "args": {"op_name": "Mul"}},
        {"cat": "Kernel", "name": "copy", "dur": 10, "args": {"op_name": ""}},
    ]  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    asked = argparse.Namespace(threshold=0.0, kernel_time_only=False)
    text = "\n".join(profile_result_processor.process_results(str(path), asked))
    assert "        40\t80.00\t    1\t    40.0\tmul_kernel" in text
    assert "        10\t20.00\t(copy)" in text
    assert "        60\t65.22\t97.83\t    60.0\t    1\tCUDA    \tb" not in text
    assert "        32\t34.78\t34.78\t    16.0\t    2\tCPU     \ta" in text
    assert "        30\t   100.00\t    1\t          30.0\tCPU     \tAdd" in text
    assert "Loop" not in text


def test_shapes_become_constants_and_results_stay(bert, tmp_path):
    feeds = {
        "input_ids": np.arange(10, dtype=np.int64).reshape(2, 5),
        "token_type_ids": np.ones((2, 5), np.int64),
        "attention_mask": np.tri(2, 5, dtype=np.int64),
    }
    path = tmp_path / "fixed.onnx"
    shape_optimizer.main(
        ["--input", str(bert), "--output", str(path), "--input_ids", "input_ids", "--segment_ids", "token_type_ids",
         "--input_mask", "attention_mask", "--enable_shape_opt", "--enable_reshape_opt", "--batch_size", "2",
         "--sequence_length", "5"]
    )  # fmt: skip
    fixed = onnx.load(path)
    assert "Shape" not in {node.op_type for node in fixed.graph.node}
    results = [ort_core.InferenceSession(str(each)).run(None, feeds)[0] for each in (bert, path)]
    assert np.array_equal(*map(np.asarray, results))
    with pytest.raises(ValueError, match="no input 'mask'; it has input_ids"):
        shape_optimizer.BertOnnxModelShapeOptimizer(OnnxModel(onnx.load(bert))).validate_input("mask")


def test_shapes_are_known_for_numbers_of_named_sizes(bert):
    helper_of_shapes = SymbolicShapeInferenceHelper(onnx.load(bert))
    assert not helper_of_shapes.infer({})
    assert helper_of_shapes.infer({"batch": 2, "length": 5})
    assert helper_of_shapes.get_edge_shape("heads") == [2, 5, 2, 4]
    assert helper_of_shapes.compare_shape("heads", "kept")
    assert not helper_of_shapes.compare_shape("x", "kept")


def test_types_of_all_values_are_inferred_without_numbers_for_named_sizes(bert):
    """Olive's mixed precision takes the types from here."""
    model = onnx.load(bert)
    found = SymbolicShapeInferenceHelper(model, verbose=0).infer_shapes(model, auto_merge=True, guess_output_rank=False)
    types = {each.name: each.type.tensor_type.elem_type for each in (*found.graph.value_info, *found.graph.output)}
    assert {name for node in model.graph.node for name in node.output} <= types.keys()
    assert types["heads"] == onnx.TensorProto.FLOAT
    old = onnx.ModelProto(opset_import=[onnx.helper.make_opsetid("", 6)])
    assert SymbolicShapeInferenceHelper.infer_shapes(old) is None


class DoubleNegation(Fusion):
    """Neg of Neg, as Identity."""

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(model, "Identity", "Neg")

    def fuse(self, node, input_name_to_nodes, output_name_to_node):
        """Replace the second."""
        parent = output_name_to_node.get(node.input[0])
        if parent is None or parent.op_type != "Neg":
            return
        self.nodes_to_add.append(helper.make_node("Identity", [parent.input[0]], [node.output[0]], name="fused"))
        self.add_nodes_to_remove([node, parent, node])
        self.node_name_to_graph_name["fused"] = str(self.this_graph_name)


def test_programs_write_their_own_fusions():
    model = OnnxModel(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["": 18]> g (float[2] x) => (float[2] y) '
            "{ a = Neg(x) b = Neg(a) i = Identity(b) y = Abs(i) }"
        )
    )
    DoubleNegation(model).apply()
    assert [node.op_type for node in model.model.graph.node] == ["Identity", "Identity", "Abs"] or [
        node.op_type for node in model.model.graph.node
    ] == ["Identity", "Abs", "Identity"]
    model.topological_sort()
    FusionUtils(model).remove_identity_nodes()
    assert [node.op_type for node in model.model.graph.node] == ["Abs"]
    found = ort_core.InferenceSession(model.model.SerializeToString()).run(None, {"x": np.float32([-1, 2])})[0]
    assert np.asarray(found).tolist() == [1, 2]


def test_casts_are_put_behind_inputs_and_taken_away():
    model = OnnxModel(
        parser.parse_model('<ir_version: 10, opset_import: ["": 18]> g (int64[2] x) => (int64[2] y) { y = Abs(x) }')
    )
    steps = FusionUtils(model)
    assert steps.cast_graph_input_to_int32("x") == (True, "x_int32")
    assert steps.cast_graph_input_to_int32("nothing") == (False, "nothing")
    assert model.get_nodes_by_op_type("Cast")[0].attribute[0].i == onnx.TensorProto.INT32
    steps.remove_cast_int32("x")
    assert model.get_nodes_by_op_type("Cast") == []
    with pytest.raises(ValueError, match="target_type is 'int9'"):
        steps.cast_input("x", "int9")


def test_tensors_become_arrays_and_zeros():
    tensor = onnx.numpy_helper.from_array(np.float32([[1, 2]]), "t")
    assert NumpyHelper.to_array(tensor).tolist() == [[1, 2]]
    assert NumpyHelper.to_array(tensor, fill_zeros=True).tolist() == [[0, 0]]


def test_records_are_written_as_csv_and_json(tmp_path):
    record = metrics.BenchmarkRecord("tiny", "fp32", "onnxruntime", "cpu", "ort-core", "0.1", trigger_date="now")
    record.metrics.latency_ms_mean = 2.5
    record.metrics.customized["tokens"] = 7
    metrics.BenchmarkRecord.save_as_csv(str(tmp_path / "a.csv"), [record])
    metrics.BenchmarkRecord.save_as_json(str(tmp_path / "a.json"), [record])
    row = next(csv.DictReader((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()))
    assert row["config.model_info.full_name"] == "tiny"
    assert row["metrics.tokens"] == "7"
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == [json.loads(record.to_json())]


def test_the_machine_is_told():
    known = json.loads(machine_info.get_machine_info())
    assert known["packages"]["numpy"] == np.__version__
    assert known["cpu"]["logical_cores"] >= 1
    assert set(json.loads(machine_info.get_device_info())) == {"gpu", "cpu", "memory"}
    setting = affinity_helper.AffinitySetting()
    setting.get_affinity()
    setting.set_affinity()
    assert setting.is_os_supported == (setting.affinity is not None)


def test_fused_models_are_tested_like_others(bert):
    """What the optimizer writes is found again by what makes up inputs."""
    fused = optimize_model(str(bert), "bert")
    assert [each.name for each in bert_test_data.find_bert_inputs(fused) if each is not None] == [
        "input_ids", "token_type_ids", "attention_mask",
    ]  # fmt: skip


def test_types_of_inputs_and_outputs_are_told_as_numpys():
    text = """<ir_version: 10, opset_import: ["": 18]>
      g (float16[2] x, bool[2] c) => (float16[2] y) { y = Where(c, x, x) }"""
    session = ort_core.InferenceSession(parser.parse_model(text).SerializeToString())
    assert TypeHelper.get_io_numpy_type_map(session) == {"x": np.float16, "c": bool, "y": np.float16}
    assert TypeHelper.torch_type_to_numpy_type("torch.uint8") is np.uint8
    with pytest.raises(ort_core.OrtError, match=r"numpy has no type for torch\.qint8"):
        TypeHelper.torch_type_to_numpy_type("torch.qint8")
