"""Checkpoints become models whose answers are transformers', in both engines."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from genai_tiny_models import FAMILIES, PROMPTS, write_checkpoint
from safetensors.numpy import load_file, save_file

import ort_core
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision

EXPECTED = json.loads(Path(__file__).with_name("expected_answers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("built")


def built(folder, family, precision=Precision.FP32, **options):
    path = folder / f"{family}-{precision}"
    if not path.exists():
        build(write_checkpoint(folder / family, family), path, BuildOptions(precision=precision, **options))
    return path


def greedy(session, prompt, steps):
    """Return tokens and the first logits, growing caches by what the model gives back."""
    tokens, first, past = list(prompt), None, {}
    caches = [each for each in session.get_inputs() if each.name.startswith("past")]
    for each in caches:
        heads, size = each.shape[1], each.shape[3]
        past[each.name] = np.zeros((1, heads, 0, size), np.float32)
    given = np.array([prompt], np.int64)
    for _ in range(steps):
        feeds = {"input_ids": given, "attention_mask": np.ones((1, len(tokens)), np.int64), **past}
        if "position_ids" in {each.name for each in session.get_inputs()}:
            feeds["position_ids"] = np.arange(len(tokens) - given.shape[1], len(tokens))[None]
        logits, *present = session.run(None, feeds)
        past = dict(zip([each.name for each in caches], present, strict=True))
        first = logits[0, -1] if first is None else first
        tokens.append(int(logits[0, -1].argmax()))
        given = np.array([tokens[-1:]], np.int64)
    return tokens[len(prompt) :], first


@pytest.mark.parametrize("engine", [ort_core, onnxruntime], ids=["own", "onnxruntime"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fp32_answers_are_those_of_transformers(folder, family, engine):
    path = built(folder, family)
    session = engine.InferenceSession(path / "model.onnx", providers=["CPUExecutionProvider"])
    for prompt, expected in zip(PROMPTS, EXPECTED[family], strict=True):
        tokens, logits = greedy(session, prompt, len(expected["tokens"]))
        np.testing.assert_allclose(logits[: len(expected["logits"])], expected["logits"], rtol=2e-4, atol=2e-4)
        assert tokens == expected["tokens"], f"{family}: prompt of {len(prompt)} tokens"


@pytest.mark.parametrize("family", ["gpt_oss", "nemotron", "glm4"])
@pytest.mark.parametrize("precision", [Precision.INT8, Precision.BF16])
def test_newer_families_are_built_at_other_precisions(folder, family, precision):
    session = ort_core.InferenceSession(built(folder, family, precision) / "model.onnx")
    caches = {
        each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32 if precision == "int8" else "bfloat16")
        for each in session.get_inputs() if each.name.startswith("past")
    }  # fmt: skip
    feeds = {"input_ids": np.array([PROMPTS[1]]), "attention_mask": np.ones((1, 5), np.int64), **caches}
    logits = np.asarray(session.run(["logits"], feeds)[0][0, -1], np.float64)
    expected = np.array(EXPECTED[family][1]["logits"])
    found = logits[: len(expected)]
    assert np.corrcoef(found, expected)[0, 1] > 0.9


def test_experts_in_mxfp4_are_what_their_numbers_say(folder):
    source = write_checkpoint(folder / "mxfp4-source", "gpt_oss")
    tensors = load_file(source / "model.safetensors")
    random, plain = np.random.default_rng(3), dict(tensors)
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = random.integers(0, 256, (experts, outputs, inputs // 32, 16), np.uint8)
        scales = random.integers(120, 126, (experts, outputs, inputs // 32), np.uint8)
        codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*scales.shape, 32)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * np.exp2(scales[..., None] - np.float32(127))
        plain[name] = np.ascontiguousarray(np.swapaxes(values.reshape(experts, outputs, inputs), 1, 2))
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
    logits = []
    for name, stored in (("packed", tensors), ("plain", plain)):
        save_file(stored, source / "model.safetensors")
        build(source, folder / f"mxfp4-{name}", BuildOptions(precision=Precision.FP32))
        session = ort_core.InferenceSession(folder / f"mxfp4-{name}" / "model.onnx")
        logits.append(greedy(session, PROMPTS[2], 1)[1])
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_onnxruntime_genai_runs_the_folder(folder, family):
    genai = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    model = genai.Model(str(built(folder, family)))
    prompt, expected = PROMPTS[2], EXPECTED[family][2]["tokens"]
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + len(expected), do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array(prompt, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    found = generator.get_sequence(0)[len(prompt) :].tolist()
    assert found == expected[: len(found)]


@pytest.mark.parametrize(("family", "kind"), [("gpt2", "decoder"), ("mixtral", "decoder"), ("gpt_oss", "gptoss")])
def test_families_that_onnxruntime_genai_does_not_name_are_decoders(folder, family, kind):
    config = json.loads((built(folder, family) / "genai_config.json").read_text(encoding="utf-8"))
    assert config["model"]["type"] == kind
