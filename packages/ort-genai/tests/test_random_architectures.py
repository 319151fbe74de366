"""Decoders of random sizes answer as plain numpy does, and folders of every precision can be opened."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from genai_numpy_decoder import logits_of
from genai_random_architectures import FAMILIES, random_configuration, write_random_checkpoint

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Method, Precision

TOKENS = [int(each) for each in np.random.default_rng(8).integers(0, 283, 24)]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "vocab_size": 288, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu", "eos_token_id": 285,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*encountered in")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_random_sizes_are_those_of_numpy(tmp_path, family, seed):
    config = random_configuration(family, seed)
    weights = write_random_checkpoint(tmp_path / "source", config)
    build(tmp_path / "source", tmp_path / "built", BuildOptions(precision=Precision.FP32))
    model, expected = og.Model(tmp_path / "built"), logits_of(config, weights, TOKENS)
    generator = og.Generator(model, og.GeneratorParams(model))
    for first, end in ((0, 17), (17, 20), (20, 21), (21, 24)):
        generator.append_tokens(TOKENS[first:end])
        tolerance = 1e-3 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(generator.get_logits()[0, 0], expected[end - 1], atol=tolerance, err_msg=str(config))


@pytest.mark.parametrize(
    ("is_tied", "method", "head_bits", "block_size"),
    [
        (True, Method.REAL, 4, 32), (True, Method.REAL, 4, 64), (True, Method.DEFAULT, 4, 64),
        (True, Method.K_QUANT, 4, 16), (True, Method.RTN, 4, 32), (True, Method.REAL, 8, 32),
        (True, Method.REAL, 8, 128), (True, Method.REAL, 0, 64), (False, Method.REAL, 4, 64),
        (False, Method.REAL, 8, 128),
    ],
)  # fmt: skip
def test_tables_of_any_size_and_number_of_bits_can_be_read(tmp_path, is_tied, method, head_bits, block_size):
    config = {**LLAMA, "hidden_size": 96 if block_size > 32 else 72, "tie_word_embeddings": is_tied}
    weights = write_random_checkpoint(tmp_path / "source", config)
    options = BuildOptions(
        precision=Precision.INT4, method=method, head_bits=head_bits, block_size=block_size, accuracy_level=0
    )
    build(tmp_path / "source", tmp_path / "built", options)
    model, expected = og.Model(tmp_path / "built"), logits_of(config, weights, TOKENS)
    found = model.decoder.run_alone(np.array(TOKENS), "logits")[0]
    assert model.decoder.paged is not None, "tables do not keep caches from blocks"
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.8
    session = onnxruntime.InferenceSession(tmp_path / "built" / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {each.name: np.zeros((1, 2, 0, 16), np.float32) for each in session.get_inputs() if "past" in each.name}
    feeds.update(input_ids=np.array([TOKENS]), attention_mask=np.ones((1, len(TOKENS)), np.int64))
    np.testing.assert_allclose(session.run(["logits"], feeds)[0][0], found, atol=2e-3 * np.abs(found).max())
