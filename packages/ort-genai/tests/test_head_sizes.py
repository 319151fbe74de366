"""Heads of any even size, in every form of caches, beside numpy in float64."""

from __future__ import annotations

import logging

import genai_tiny_models
import numpy as np
import pytest
from safetensors.numpy import load_file

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import CacheType, Precision
from ort_genai.paging.paged_states import PagedState

SIZES = (16, 20, 40, 72, 80)
NEAR = {None: 2e-5, CacheType.FP16: 0.003, CacheType.BF16: 0.03, CacheType.INT8: 0.05}  # of the logits' spread
PROMPTS = [np.random.default_rng(size).integers(3, 250, size) for size in (70, 9)]


@pytest.fixture(scope="module", params=SIZES)
def source(request, tmp_path_factory):
    size = request.param
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": size, "num_attention_heads": 6}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(genai_tiny_models.FAMILIES, "sized", kind)
        return genai_tiny_models.write_checkpoint(tmp_path_factory.mktemp("heads") / f"heads-{size}", "sized"), size


def truth(source, size, tokens, heads=6, groups=2):
    """Return logits of the last token, as LLaMA is defined."""
    weights = {name: value.astype(np.float64) for name, value in load_file(source / "model.safetensors").items()}
    x, count = weights["model.embed_tokens.weight"][tokens], len(tokens)
    angles = np.outer(np.arange(count), 10000.0 ** (-np.arange(0, size, 2) / size))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def normalized(rows, name):
        return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * weights[name]

    def turned(rows):
        first, second = np.split(rows, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    for layer in range(2):
        name = f"model.layers.{layer}"
        read = normalized(x, f"{name}.input_layernorm.weight")
        q, k, v = (
            (read @ weights[f"{name}.self_attn.{part}_proj.weight"].T).reshape(count, -1, size) for part in "qkv"
        )
        q, k = turned(q), turned(k)
        k, v = (np.repeat(each, heads // groups, axis=1) for each in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", shares, v).reshape(count, -1)
        x = x + attended @ weights[f"{name}.self_attn.o_proj.weight"].T
        read = normalized(x, f"{name}.post_attention_layernorm.weight")
        gate = read @ weights[f"{name}.mlp.gate_proj.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (read @ weights[f"{name}.mlp.up_proj.weight"].T)
        x = x + inner @ weights[f"{name}.mlp.down_proj.weight"].T
    return normalized(x[-1:], "model.norm.weight")[0] @ weights["lm_head.weight"].T


@pytest.mark.sweep
@pytest.mark.parametrize("caches", NEAR, ids=lambda each: "float32" if each is None else each.value)
@pytest.mark.parametrize("memory", ["end", "begin"])
def test_logits_are_those_of_float64(source, caches, memory, tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    folder, size = source
    build(folder, tmp_path / "built", BuildOptions(precision=Precision.FP32, caches=caches))
    decoder = og.Model(tmp_path / "built").decoder
    assert {each.size for each in decoder.caches} == {size}
    for state in (decoder.new_state(), PagedState(decoder.paged.new_runs(decoder))):
        for prompt in PROMPTS:
            state.read(state.add_row(), prompt[:-1])
        found = state.step(np.array([prompt[-1] for prompt in PROMPTS]))
        for logits, prompt in zip(found, PROMPTS, strict=True):
            expected = truth(folder, size, prompt)
            assert np.abs(logits - expected).max() <= NEAR[caches] * np.ptp(expected)


def test_sizes_that_onnxruntime_does_not_turn_are_told(source, tmp_path, caplog):
    folder, size = source
    with caplog.at_level(logging.WARNING):
        build(folder, tmp_path / "built", BuildOptions(precision=Precision.FP32))
    assert [f"heads of {size} elements" in each.getMessage() for each in caplog.records] == [True] * bool(size % 16)
