"""optimize_model and its companions: what is fused, that results stay, and what is written."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from exported_graphs import encoder, encoder_feeds, random_weights
from onnx import TensorProto, parser
from onnxruntime.transformers import onnx_model as onnxruntime_module

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, OnnxModel, fuse_model, optimizer
from ort_transformers.onnx_model_bert import BertOnnxModel


def results(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs by onnxruntime, which runs the graph as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # more would wait by spinning
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def assert_same_results(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    limits = tolerance("approximate", "float32")
    wanted = results(before, feeds)
    ours = ort_core.InferenceSession(after.SerializeToString()).run(None, feeds)
    for found in (results(after, feeds), ours):
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have, want, limits.relative, limits.absolute)


def test_a_layer_of_bert_is_fused_to_onnxruntimes_operators_with_the_same_results():
    model = encoder()
    optimized = optimizer.optimize_model(model, "bert")
    statistics = optimized.get_fused_operator_statistics()
    assert statistics["MultiHeadAttention"] + statistics["Attention"] == 1
    assert statistics["SkipLayerNormalization"] == 1
    assert statistics["BiasGelu"] == 1
    assert_same_results(model, optimized.model, encoder_feeds())
    assert "Softmax" in {node.op_type for node in model.graph.node}, "the model given was changed"


def test_each_option_leaves_its_operators_in_pieces():
    model = encoder()
    whole = {"enable_attention": "MultiHeadAttention", "enable_gelu": "BiasGelu",
             "enable_layer_norm": "SkipLayerNormalization", "enable_skip_layer_norm": "SkipLayerNormalization",
             "enable_bias_gelu": "BiasGelu"}  # fmt: skip
    for switch, op_type in whole.items():
        options = FusionOptions("bert")
        setattr(options, switch, False)
        optimized = optimizer.optimize_by_fusion(model, "bert", optimization_options=options)
        assert optimized.get_operator_statistics().get(op_type, 0) == 0, switch
        assert_same_results(model, optimized.model, encoder_feeds())


def test_single_fusions_run_by_their_methods():
    for method, op_type in (("fuse_attention", "MultiHeadAttention"), ("fuse_layer_norm", "LayerNormalization"),
                            ("fuse_gelu", "Gelu")):  # fmt: skip
        optimized = BertOnnxModel(encoder())
        getattr(optimized, method)()
        counts = optimized.get_operator_statistics()
        assert counts[op_type] == 1, method
        assert not {"MultiHeadAttention", "LayerNormalization", "Gelu"} - {op_type} & set(counts), method


def test_what_is_not_fused_is_reported_with_its_first_reason():
    fused, report = fuse_model(encoder(axis=2))
    assert report.num_attentions == 0
    (left,) = report.unfused_of("attention")
    assert "last axis" in left.reason
    assert report.num_norms == 1
    assert "not fused: attention" in str(report)
    assert_same_results(encoder(axis=2), fused, encoder_feeds())


def test_each_pass_is_checked_by_evaluation_where_that_is_asked_for():
    fused, report = fuse_model(encoder(), checks=True, feeds=encoder_feeds())
    assert report.num_attentions == 1
    assert_same_results(encoder(), fused, encoder_feeds())


GELU = """
<ir_version: 10, opset_import: ["": 18]> gelu (float[n, 8] x) => (float[n, 8] y)
<float one = {1.0}, float half = {0.5}, float root = {1.4142135}>
{ a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }
"""


@pytest.mark.parametrize("model_type", optimizer.MODEL_TYPES)
def test_every_model_type_fuses_what_the_graph_has(model_type):
    optimized = optimizer.optimize_model(parser.parse_model(GELU), model_type)
    assert type(optimized) is optimizer.MODEL_TYPES[model_type][0]
    assert optimized.get_operator_statistics() == {"Gelu": 1}
    assert set(optimized.get_fused_operator_statistics()) == set(type(optimized).counted)


def test_an_unknown_model_type_gives_the_model_back_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        found = optimizer.optimize_model(encoder(), "no_such_type")
    assert type(found) is OnnxModel
    assert "no_such_type" in caplog.text
    assert len(found.model.graph.node) == len(encoder().graph.node)


def test_a_level_that_is_none_is_refused():
    with pytest.raises(ValueError, match="opt_level is 7"):
        optimizer.optimize_model(encoder(), opt_level=7)
    with pytest.raises(ValueError, match="opt_level is 0"):
        optimizer.optimize_by_onnxruntime(encoder(), opt_level=0)


@pytest.mark.parametrize("level", [0, 1, 2, 99])
def test_models_come_from_files_and_sessions_optimize_them_first_at_higher_levels(tmp_path, level):
    path = tmp_path / "model.onnx"
    onnx.save(encoder(), path)
    optimized = optimizer.optimize_model(str(path), "bert", opt_level=level)
    assert_same_results(encoder(), optimized.model, encoder_feeds())
    assert optimized.get_operator_statistics()["MultiHeadAttention"] == 1


def test_a_session_alone_writes_its_optimized_model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(encoder(), path)
    written = optimizer.optimize_by_onnxruntime(str(path), opt_level=1)
    assert written == str(tmp_path / "model_o1_cpu.onnx")
    assert_same_results(encoder(), onnx.load(written), encoder_feeds())
    alone = optimizer.optimize_model(str(path), opt_level=1, only_onnxruntime=True)
    assert "MultiHeadAttention" not in alone.get_operator_statistics()


def test_statistics_are_read_from_a_file(tmp_path):
    path = str(tmp_path / "fused.onnx")
    optimizer.optimize_model(encoder()).save_model_to_file(path)
    assert optimizer.get_fusion_statistics(path)["SkipLayerNormalization"] == 1


def test_large_weights_are_written_beside_the_file_and_replaced_by_the_next_write(tmp_path):
    path = tmp_path / "folder" / "fused.onnx"
    optimized = optimizer.optimize_model(encoder())
    for _ in range(2):
        optimized.save_model_to_file(str(path), use_external_data_format=True, size_threshold=64)
    beside = path.with_name("fused.onnx.data")
    weights = sum(np.prod(each.dims) * 4 for each in optimized.model.graph.initializer if each.data_type == 1)
    assert 0 < beside.stat().st_size <= 2 * weights, "the second write was appended"
    assert_same_results(encoder(), onnx.load(path), encoder_feeds())


def test_a_fused_model_becomes_float16_with_inputs_as_they_were():
    optimized = optimizer.optimize_model(encoder())
    assert not optimized.use_float16()
    optimized.convert_float_to_float16(keep_io_types=True)
    assert optimized.use_float16()
    assert optimized.model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    found = ort_core.InferenceSession(optimized.model.SerializeToString()).run(None, encoder_feeds())[0]
    np.testing.assert_allclose(found, results(encoder(), encoder_feeds())[0], atol=2e-2)


@pytest.mark.parametrize("keeps", [True, False])
def test_casts_that_convert_nothing_in_float16_are_removed_as_by_onnxruntime(keeps):
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) {
        root = Sqrt (x)
        same = Cast <to = 1> (root)
        size = Shape (x)
        long = Cast <to = 1> (size)
        two = ReduceMean <keepdims = 0> (long)
        y = Mul (same, two)
    }"""
    theirs, ours = onnxruntime_module.OnnxModel(parser.parse_model(text)), OnnxModel(parser.parse_model(text))
    for each in (theirs, ours):
        each.convert_float_to_float16(keep_io_types=keeps)
    types = [[node.op_type for node in each.model.graph.node] for each in (theirs, ours)]
    assert sorted(types[0]) == sorted(types[1])
    x = np.arange(8, dtype=np.float32 if keeps else np.float16).reshape(2, 4)
    np.testing.assert_array_equal(results(ours.model, {"x": x})[0], results(theirs.model, {"x": x})[0])


def test_the_command_line_is_onnxruntimes(tmp_path):
    source, target = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(encoder(), source)
    command = ["--input", str(source), "--output", str(target), "--model_type", "bert", "--num_heads", "2",
               "--hidden_size", "8", "--disable_gelu", "--float16", "--opt_level", "0"]  # fmt: skip
    program = [sys.executable, "-W", "error", "-m", "ort_core.dropin", "-m", "onnxruntime.transformers.optimizer"]
    done = subprocess.run([*program, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = OnnxModel(onnx.load(target))
    counts = written.get_operator_statistics()
    assert counts["MultiHeadAttention"] == 1
    assert "Erf" in counts
    assert written.use_float16()
    assert "'SkipLayerNormalization': 1" in done.stderr


def test_operators_of_the_standard_alone_are_written_where_that_is_asked_for():
    options = FusionOptions("bert")
    options.use_standard_operators = True
    fused, report = fuse_model(encoder(), options, checks=True, feeds=encoder_feeds())
    assert report.fused == {"Attention": 1, "LayerNormalization": 1, "Gelu": 1}
    assert {node.domain for node in fused.graph.node} == {""}
    assert next(each.version for each in fused.opset_import if not each.domain) == 23
    assert_same_results(encoder(), fused, encoder_feeds())


def test_a_model_without_a_form_in_that_opset_is_refused_with_what_to_do():
    options = FusionOptions("bert")
    options.use_standard_operators = True
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
                               g (float[N] x) => (float[N] y) { y = Upsample <mode = "nearest"> (x) }""")
    with pytest.raises(ort_core.errors.Fail, match="Export it at that opset"):
        fuse_model(model, options)


EMBEDDING = """
<ir_version: 10, opset_import: ["": 18]>
words (int64[batch, length] ids, int64[batch, length] segments, int64[batch, length] places)
    => (float[batch, length, 8] y) {
  word = Gather(w_30_8, ids)
  segment = Gather(w_2_8, segments)
  place = Gather(w_12_8, places)
  both = Add(word, segment)
  sum = Add(both, place)
  y = LayerNormalization<axis=-1>(sum, b0_8, b1_8)
}
"""


def test_inputs_of_a_fused_embedding_become_int32_with_the_same_results():
    model = random_weights(parser.parse_model(EMBEDDING))
    optimized = optimizer.optimize_model(model)
    assert optimized.get_operator_statistics()["EmbedLayerNormalization"] == 1
    feeds = {"ids": np.array([[3, 29]]), "segments": np.array([[0, 1]]), "places": np.array([[0, 1]])}
    optimized.change_graph_inputs_to_int32()
    changed = {each.name: each.type.tensor_type.elem_type == TensorProto.INT32 for each in optimized.model.graph.input}
    assert changed["ids"]
    assert sum(changed.values()) == 2, "positions stay: onnxruntime's tool does not change them either"
    narrow = {name: array.astype(np.int32) if changed[name] else array for name, array in feeds.items()}
    limits = tolerance("approximate", "float32")
    found = results(optimized.model, narrow)[0]
    np.testing.assert_allclose(found, results(model, feeds)[0], limits.relative, limits.absolute)


def test_statistics_count_operators_that_onnxruntimes_fusions_do_not_write():
    nodes = [
        onnx.helper.make_node(name, ["x"], [name], domain="com.microsoft") for name in ("GroupQueryAttention", "Gelu")
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [])
    statistics = BertOnnxModel(onnx.helper.make_model(graph)).get_fused_operator_statistics()
    assert (statistics["GroupQueryAttention"], statistics["Gelu"], statistics["Attention"]) == (1, 1, 0)


def test_flags_that_a_programs_namespace_lacks_are_not_set() -> None:
    """optimum-onnx makes the namespace itself, of the flags that onnxruntime's optimizer has."""
    known = argparse.Namespace(model_type="bert", disable_gelu=True, use_raw_attention_mask=True)
    options = FusionOptions.parse(known)
    assert not options.enable_gelu
    assert options.enable_attention
    assert options.enable_experts
    assert not options.use_standard_operators


def test_a_fused_model_has_no_tensor_that_nothing_reads():
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[2, 8] x, float[1] s) => (float[2, 8] y)
      <float[1] root = {1.4142135}, float[1] one = {1}, float[1] half = {0.5}, float[1] s = {3}> {
      a = Div(x, root)
      b = Erf(a)
      c = Add(b, one)
      d = Mul(x, c)
      y = Mul(d, half)
    }"""
    fused = fuse_model(parser.parse_model(text))[0].graph
    assert [node.op_type for node in fused.node] == ["Gelu"]
    assert [each.name for each in fused.initializer] == ["s"], "the default of an input stays"
