"""Checkpoints become models whose answers are transformers', in both engines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from genai_tiny_models import FAMILIES, PROMPTS, write_checkpoint

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
