"""GGUF files give the models that checkpoints of the same weights give; broken ones are refused in a sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from genai_tiny_models import FAMILIES, PROMPTS, configuration, write_checkpoint
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file
from test_build import EXPECTED, greedy
from tokenizers import Tokenizer

import ort_core
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.gguf_source import GgufSource
from ort_genai.builder.precision_names import Method, Precision
from ort_genai.errors import InvalidModelFolder
from ort_quantization.weight_only.matmul_nbits_rounding import real_zero_points

_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
_AROUND = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def llama_cpps_name(name, kind):
    start, _, end = name.rpartition(".")
    if start in _WHOLE:
        return f"{_WHOLE[start]}.{end}"
    _, _, place, part = start.split(".", 3)
    parts = {**_PARTS, **(_AROUND if kind == "gemma2" else {"post_attention_layernorm": "ffn_norm"})}
    return f"blk.{place}.{parts[part]}.{end}"


def interleaved(weight, heads):
    """Return rows as llama.cpp has them: of a head's two halves one row each in turn."""
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(folder, family, kind, weights=GGMLQuantizationType.F32, factors=None):
    """Write a checkpoint as llama.cpp's converter does, and return the file."""
    source = write_checkpoint(folder / "source", family)
    config, file = configuration(family), folder / f"{family}.gguf"
    writer = GGUFWriter(file, kind)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    if kind == "gemma2":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind == "phi3":
        add_phi3_keys(writer, config)
    write_tokens(writer, source)
    for name, value in load_file(source / "model.safetensors").items():
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if kind == "llama" and heads is not None:
            value = np.ascontiguousarray(interleaved(value, config[heads]))
        if kind == "gemma2" and name.endswith("norm.weight"):
            value = value + np.float32(1)
        form = weights if value.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(llama_cpps_name(name, kind), quantize(value, form), raw_dtype=form)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_phi3_keys(writer, config):
    """Add what llama.cpp's converter states of Phi-3 and Phi-4."""
    size = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_dimension_count(int(config.get("partial_rotary_factor", 1.0) * size))
    writer.add_sliding_window(config["sliding_window"] or 0)
    scaling = config.get("rope_scaling")
    if scaling is not None:
        original = config["original_max_position_embeddings"]
        share = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(share) / np.log(original))))
        for length in ("short", "long"):
            factors = np.array(scaling[f"{length}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)


def write_tokens(writer, source):
    state = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = state["model"]["vocab"]
    special = {each["content"] for each in state["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(vocabulary))
    writer.add_token_types([3 if token in special else 1 for token in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_bos_token_id(284)
    writer.add_eos_token_id(285)
    writer.add_pad_token_id(286)
    writer.add_add_bos_token(False)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "llama"), ("llama_tied", "llama"), ("qwen3", "qwen3"), ("phi3", "phi3"), ("phi3_long", "phi3"),
        ("phi4", "phi3"),
    ],
)  # fmt: skip
def test_a_gguf_file_answers_as_its_checkpoint(tmp_path, family, kind):
    build(write_gguf(tmp_path, family, kind), tmp_path / "built", BuildOptions(Precision.FP32))
    session = ort_core.InferenceSession(tmp_path / "built" / "model.onnx")
    for prompt, expected in zip(PROMPTS, EXPECTED[family], strict=True):
        assert greedy(session, prompt, len(expected["tokens"]))[0] == expected["tokens"]


def llama3_factors(scaling, width, theta):
    """Return what llama.cpp's converter writes for a scaling of LLaMA 3.1."""
    original, first, last = (
        scaling[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    factors = []
    for step in range(0, width, 2):
        length = 2 * np.pi * theta ** (step / width)
        smooth = (original / length - first) / (last - first)
        between = 1 / ((1 - smooth) / scaling["factor"] + smooth)
        factors.append(1.0 if length < original / last else scaling["factor"] if length > original / first else between)
    return np.array(factors, np.float32)


def test_a_table_that_scales_rotations_is_taken(tmp_path):
    factors = llama3_factors(configuration("llama3")["rope_scaling"], 16, 10000.0)
    assert len(set(factors.tolist())) > 1
    build(write_gguf(tmp_path, "llama3", "llama", factors=factors), tmp_path / "built", BuildOptions(Precision.FP32))
    session = ort_core.InferenceSession(tmp_path / "built" / "model.onnx")
    for prompt, expected in zip(PROMPTS, EXPECTED["llama3"], strict=True):
        tokens, logits = greedy(session, prompt, len(expected["tokens"]))
        np.testing.assert_allclose(logits[: len(expected["logits"])], expected["logits"], rtol=2e-3, atol=2e-3)
        assert tokens == expected["tokens"]
    for wrong in (factors[:3], -factors):
        with pytest.raises(InvalidModelFolder, match="rope_freqs"):
            build(write_gguf(tmp_path, "llama3", "llama", factors=wrong), tmp_path / "other")


@pytest.mark.parametrize(
    ("form", "precision"),
    [("Q4_1", Precision.INT4), ("Q4_0", Precision.INT4), ("Q4_0", Precision.INT8), ("Q8_0", Precision.INT8)],
)
def test_numbers_keep_the_values_of_a_file_that_has_such_numbers(tmp_path, form, precision):
    file = write_gguf(tmp_path, "llama", "llama", GGMLQuantizationType[form])
    logits = {}
    for name, options in (
        ("floats", BuildOptions(Precision.FP32)), ("kept", BuildOptions(precision, accuracy_level=0, head_bits=0)),
    ):  # fmt: skip
        build(file, tmp_path / name, options)
        logits[name] = greedy(ort_core.InferenceSession(tmp_path / name / "model.onnx"), PROMPTS[2], 1)[1]
    assert np.abs(logits["kept"] - logits["floats"]).max() < 1e-3 * np.abs(logits["floats"]).max()


def test_four_bits_with_whole_zero_points_do_not_keep_them(tmp_path):
    file = write_gguf(tmp_path, "llama", "llama", GGMLQuantizationType.Q4_1)
    logits = {}
    for name, options in (
        ("floats", BuildOptions(Precision.FP32)),
        ("whole", BuildOptions(accuracy_level=0, head_bits=0, method=Method.DEFAULT)),
    ):  # fmt: skip
        build(file, tmp_path / name, options)
        logits[name] = greedy(ort_core.InferenceSession(tmp_path / name / "model.onnx"), PROMPTS[2], 1)[1]
    assert np.abs(logits["whole"] - logits["floats"]).max() > 1e-2 * np.abs(logits["floats"]).max()


@pytest.mark.parametrize("form", ["Q4_K", "Q2_K"])
def test_numbers_of_k_quants_come_back_as_they_were(form):
    kind = GGMLQuantizationType[form]
    size = GGML_QUANT_SIZES[kind][1]
    random = np.random.default_rng(3)
    data = random.integers(0, 256, (64, 2 * size), np.uint8)
    places = (
        (0, 2) if form == "Q4_K" else (size - 4, size - 2)
    )  # two float16 of each block: steps of scales and offsets
    for start in (0, size):
        for place in places:
            halves = random.uniform(0.01, 0.02, (64, 1)).astype(np.float16)
            data[:, start + place : start + place + 2] = halves.view(np.uint8)
    values = dequantize(data, kind).astype(np.float32)
    block = 32 if form == "Q4_K" else 16
    found = real_zero_points(np.ascontiguousarray(values.T), 4, block).dequantized().T
    assert np.abs(found - values).max() < 1e-5 * np.abs(values).max()


def test_norms_with_an_offset_are_taken_as_the_file_holds_them(tmp_path):
    config = configuration("gemma2")
    file = write_gguf(tmp_path, "gemma2", "gemma2")
    build(file, tmp_path / "built", BuildOptions(Precision.FP32))
    session = ort_core.InferenceSession(tmp_path / "built" / "model.onnx")
    build(tmp_path / "source", tmp_path / "beside", BuildOptions(Precision.FP32))
    beside = ort_core.InferenceSession(tmp_path / "beside" / "model.onnx")
    logits = [greedy(each, PROMPTS[1], 1)[1] for each in (session, beside)]
    assert config["query_pre_attn_scalar"] == 24  # which GGUF files do not state: 256 is taken, so scores differ
    assert np.isfinite(logits).all()
    assert not np.array_equal(logits[0], logits[1])


@pytest.mark.parametrize(("layers", "scale"), [(4, 32), (46, 16)])
def test_scores_of_the_largest_gemma_are_scaled_by_another_size(tmp_path, monkeypatch, layers, scale):
    monkeypatch.setitem(FAMILIES, "gemma2", {**FAMILIES["gemma2"], "num_hidden_layers": layers})
    source = GgufSource(write_gguf(tmp_path, "gemma2", "gemma2"))
    assert source.config["query_pre_attn_scalar"] == scale


def test_a_share_of_a_head_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "phi3", {**FAMILIES["phi3"], "partial_rotary_factor": 1.5})
    with pytest.raises(InvalidModelFolder, match="dimension_count"):
        build(write_gguf(tmp_path, "phi3", "phi3"), tmp_path / "out")


def test_the_files_tokenizer_is_the_checkpoints(tmp_path):
    build(write_gguf(tmp_path, "llama", "llama"), tmp_path / "built", BuildOptions(Precision.FP32))
    found, expected = (Tokenizer.from_file(str(tmp_path / folder / "tokenizer.json")) for folder in ("built", "source"))
    for text in ("the thin ☃ naïve", "<|im_start|>user\nhi<|im_end|>", "", "  a  12 345\n\n"):
        assert found.encode(text).ids == expected.encode(text).ids
        assert found.decode(found.encode(text).ids) == expected.decode(expected.encode(text).ids)


@pytest.mark.parametrize("form", ["Q8_0", "Q4_0", "Q4_1", "F16", "BF16"])
def test_quantized_tensors_are_read(tmp_path, form):
    file = write_gguf(tmp_path, "llama", "llama", GGMLQuantizationType[form])
    build(file, tmp_path / "built", BuildOptions(Precision.FP32))
    session = ort_core.InferenceSession(tmp_path / "built" / "model.onnx")
    logits = greedy(session, PROMPTS[2], 1)[1][:12]
    exact = np.array(EXPECTED["llama"][2]["logits"])
    share = {"Q8_0": 0.03, "F16": 0.01, "BF16": 0.03}.get(form, 0.5)
    assert np.abs(logits - exact).max() < share * np.abs(exact).max() * 2


def test_broken_files_are_refused_in_a_sentence(tmp_path):
    whole = write_gguf(tmp_path, "llama", "llama").read_bytes()
    random = np.random.default_rng(5)
    texts = []
    for number in range(60):
        data = bytearray(whole[: int(random.integers(0, len(whole)))] if number % 3 == 0 else whole)
        for _ in range(int(random.integers(1, 8)) if number % 3 else 0):
            data[int(random.integers(0, min(len(data), 12000)))] = int(random.integers(0, 256))
        file = tmp_path / "broken.gguf"
        file.write_bytes(data)
        try:
            build(file, tmp_path / f"out{number}", BuildOptions(Precision.FP32))
        except InvalidModelFolder as error:
            texts.append(str(error))
    # every file that ends early is among them; a changed byte of a text or of a weight is nobody's fault to see
    assert len(texts) >= 20
    assert min(len(text) for text in texts) > 20
    assert len(list(tmp_path.glob("out*"))) == 60 - len(texts)
