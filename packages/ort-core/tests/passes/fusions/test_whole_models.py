"""Whole exported models: as many fused nodes as onnxruntime finds or more, equal results, by little work."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from fusion_check import assert_close, infer, typed_model

from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.ir.verify import verify
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import evaluate_node
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.ops.registry import SchemaRegistry
from ort_core.passes.base import Level, PassContext
from ort_core.passes.equivalence import random_feeds
from ort_core.passes.pipelines import pipeline_for
from ort_core.passes.runner import PipelineReport, run_pipeline

FOLDER = Path(os.environ.get("ORT_TEST_DATA", "")) / "models"
MAX_CALLS = 1200  # of functions for each node, for all extended passes; today 720 where all nodes are fused
CallsOf = Callable[..., tuple[int, PipelineReport]]

ATTENTION, SKIP, SKIP_RMS = "MultiHeadAttention", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
EXPECTED = {  # onnxruntime 1.31 finds no attention in any of them
    "bert_base": {ATTENTION: 12, SKIP: 24, "Gelu": 12, "EmbedLayerNormalization": 1, "FusedGemm": 1},
    "gpt2": {ATTENTION: 12, SKIP: 24, "FastGelu": 12, "EmbedLayerNormalization": 1},
    "gpt2_past": {ATTENTION: 12, SKIP: 24, "FastGelu": 12, "EmbedLayerNormalization": 1},
    "vit_base": {ATTENTION: 12, SKIP: 24, "Gelu": 12},
    "llama_small_past": {
        ATTENTION: 8,
        "RotaryEmbedding": 16,
        SKIP_RMS: 16,
        "QuickGelu": 8,
        "SimplifiedLayerNormalization": 1,
    },
    "whisper_tiny_encoder": {ATTENTION: 4, SKIP: 8, "Gelu": 6},
    "unet_diffusion": {ATTENTION: 10, SKIP: 10, "Gelu": 5, "QuickGelu": 25},
    "efficientnet_b0": {"QuickGelu": 49, "FusedConv": 16},
    "mobilenet_v2": {"FusedConv": 35},
    "resnet50": {"FusedConv": 33},
    "resnet50_qdq_int8": {"QLinearConv": 53, "QLinearAdd": 16, "QGemm": 1, "QLinearGlobalAveragePool": 1},
    "bert_base_int8_dynamic": {ATTENTION: 12, "DynamicQuantizeMatMul": 37, "MatMulIntegerToFloat": 36, "Gelu": 12},
}
COMPARED = {"whisper_tiny_encoder": 0.0, "unet_diffusion": 0.0, "mobilenet_v2": 0.0, "resnet50_qdq_int8": 0.3}
# the absolute differences allowed beside the tolerance: one step of the grid of the quantized output


def _load(name: str) -> Model:
    if not (FOLDER / f"{name}.weights").exists():
        pytest.skip(f"ORT_TEST_DATA names no folder with models/{name}.onnx and its weights")
    return load_model(FOLDER / f"{name}.onnx")


def _context(model: Model) -> PassContext:
    schemas = SchemaRegistry(find_onnx_schema)
    context = EvaluationContext(reference_kernels(), schemas, model.opset_imports, model.functions)
    return PassContext(model, schemas, lambda node, inputs: evaluate_node(node, inputs, context), infer)


def _prepared(model: Model) -> PassContext:
    """Return what the extended passes work in, behind the basic ones."""
    infer(model)
    context = _context(model)
    run_pipeline(pipeline_for(Level.BASIC), context)
    return context


@pytest.mark.parametrize("name", EXPECTED)
def test_fused_operators_are_found_in_exported_models(name: str, calls_of: CallsOf) -> None:
    model = _load(name)
    context = _prepared(model)
    count = sum(1 for _ in walk(model.graph))
    calls, _ = calls_of(run_pipeline, pipeline_for(Level.EXTENDED), context)
    verify(model)
    found = Counter(node.op_type for node in walk(model.graph))
    fewer = {op_type: found[op_type] for op_type, count in EXPECTED[name].items() if found[op_type] < count}
    assert not fewer, f"found {fewer}, expected {EXPECTED[name]}"
    assert calls < MAX_CALLS * max(count, 50), f"{calls} calls for {count} nodes"


@pytest.mark.parametrize("name", COMPARED)
def test_fused_models_give_equal_results_in_onnxruntime(name: str, tmp_path: Path) -> None:
    model = _load(name)
    feeds = random_feeds(model, sizes={"batch": 1})
    expected = _run(FOLDER / f"{name}.onnx", feeds)
    run_pipeline(pipeline_for(Level.EXTENDED), _prepared(model))
    path = tmp_path / "fused.onnx"
    save_model(model, path, external_file="fused.weights")
    for index, (old, new) in enumerate(zip(expected, _run(path, feeds), strict=True)):
        assert_close(f"output {index} of {name}", old, new, "approximate", COMPARED[name])


def _run(path: Path, feeds: dict[str, np.ndarray]) -> list[object]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_few_calls_fuse_each_node_however_large_the_graph(calls_of: CallsOf) -> None:
    gelu = (
        "d{0} = Div(x{0}, root) e{0} = Erf(d{0}) s{0} = Add(e{0}, one) m{0} = Mul(x{0}, s{0}) g{0} = Mul(m{0}, half) "
    )
    layer = gelu + "r{0} = Add(g{0}, x{0}) l{0} = LayerNormalization(r{0}, w, b) x{1} = MatMul(l{0}, k) "
    weights = "float[4] w = {1,2,3,4}, float[4] b = {1,2,3,4}, float[4,4] k = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}"
    scalars = "float root = {1.4142135}, float one = {1}, float half = {0.5}"
    for layers in (63, 315):
        body = "".join(layer.format(index, index + 1) for index in range(layers))
        model = typed_model(f"g (float[2,3,4] x0) => (float[2,3,4] x{layers}) <{weights}, {scalars}> {{ {body} }}")
        count = len(model.graph)
        calls, report = calls_of(run_pipeline, pipeline_for(Level.EXTENDED), _context(model))
        assert calls < MAX_CALLS * count, f"{calls} calls for {count} nodes"
        assert report.counts() == {"GeluFusionL2": layers, "SkipLayerNormFusion": layers}
