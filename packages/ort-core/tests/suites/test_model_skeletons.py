"""Real architectures and trained models: onnxruntime's outputs, at every optimization level."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from expectations import assert_names_only, read_expectations
from outside_runners import build_worker, find_cases, import_runner
from skeleton_feeds import build_feeds

import ort_core as ort
from ort_core.tolerances import compare

MODELS = find_cases().parent / "models"
REAL = sorted((MODELS / "real").glob("*/model.onnx"))
SKELETONS = sorted(path.stem for path in MODELS.glob("*.onnx"))
# Over 250 MB of weights each: several seconds a level by kernels, and disk space. `nox -s models` runs them too.
BIG = {
    "bert_base", "bert_base_fp16", "bert_base_ort_fused", "gpt2", "gpt2_past", "llama_small_past", "vit_base",
    "bert_base_int8_dynamic", "llama_small_past_int4", "unet_diffusion", "whisper_tiny_encoder",
}  # fmt: skip
WITH_BIG = bool(os.environ.get("ORT_TEST_BIG_MODELS"))
EVERY_LEVEL = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
LEVELS = EVERY_LEVEL if WITH_BIG else ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")  # `nox -s models` runs those between too
EXPECTED = read_expectations("skeletons")


@pytest.fixture(scope="module")
def onnxruntime():
    import_runner("locale_en").ensure()  # onnxruntime's StringNormalizer needs a locale; this project needs none
    return pytest.importorskip("onnxruntime")


@pytest.fixture
def materialized(tmp_path):
    """Return a function that writes a skeleton with its weights; both are removed behind the test."""
    sys.path.append(str(MODELS))
    yield lambda name: importlib.import_module("materialize").materialize(MODELS / f"{name}.onnx", tmp_path)
    sys.path.remove(str(MODELS))
    shutil.rmtree(tmp_path)


def assert_close(found, expected, name):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
    if expected.dtype.kind == "f":  # relative to the largest value: sums of thousands cancel in the small ones
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        found, expected = (found / scale).astype(found.dtype), (expected / scale).astype(found.dtype)
    comparison = compare(found, expected, "approximate")
    assert comparison.passes, f"{name}: {comparison}"


def without_leave_to_be_inexact(path):
    """Return a model whose block-quantized products take activations as they are, not cut to 8 bits, or ``None``.

    ``None``: it gives no such leave.
    """
    model = onnx.load(path, load_external_data=False)
    levels = [a for node in model.graph.node for a in node.attribute if a.name == "accuracy_level"]
    if not levels:
        return None
    for attribute in levels:
        attribute.i = 1  # float32
    exact = f"{path}.exact.onnx"
    onnx.save(model, exact)
    return exact


def distance(found, expected):
    """Return how far values are from what is expected, as a share of its deviation."""
    return float(np.sqrt(np.mean((found.astype(np.float64) - expected) ** 2)) / expected.astype(np.float64).std())


def chosen_skeletons():
    return [EXPECTED.parameter(name, name) for name in SKELETONS if WITH_BIG or name not in BIG]


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen_skeletons())
def test_skeleton_gives_onnxruntimes_outputs_at_every_level(name, materialized, onnxruntime):
    given = str(materialized(name))
    exact = without_leave_to_be_inexact(given)
    path = exact or given
    oracle = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = build_feeds(oracle.get_inputs())
    expected = oracle.run(None, feeds)
    names = [output.name for output in oracle.get_outputs()]
    del oracle
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel[level]
        found = ort.InferenceSession(path, options).run(None, feeds)
        for output, left, right in zip(names, found, expected, strict=True):
            assert_close(np.asarray(left), np.asarray(right), f"{level}, {output}")
    if exact is not None:  # rounded activations are as good here as there; random weights magnify what they lose
        ours, theirs = (
            engine.InferenceSession(given, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
            for engine in (ort, onnxruntime)
        )
        allowed = max(distance(theirs, expected[0]), 1e-4)
        assert distance(ours, expected[0]) < 1.5 * allowed, "with the leave that its nodes give"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.parent.name)
def test_trained_model_gives_its_recorded_outputs_at_every_level(path, level):
    result = build_worker(import_runner("run_onnx_backend"), level).run_case(str(Path(path).parent))
    assert result["status"] == "pass", result.get("msg")


def test_expected_failures_name_skeletons_that_exist():
    assert_names_only("skeletons", set(SKELETONS))
    assert set(SKELETONS) >= BIG
