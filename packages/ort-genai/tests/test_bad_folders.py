"""Checkpoints and folders that lack something are refused in a sentence that names it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from genai_built import built
from genai_tiny_models import configuration, write_checkpoint
from safetensors.numpy import load_file, save_file

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration, InvalidModelFolder


def refused(tmp_path, words, **changes):
    write_checkpoint(tmp_path / "source", "llama")
    config = {**configuration("llama"), **changes}
    (tmp_path / "source" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InvalidModelFolder, match=words):
        build(tmp_path / "source", tmp_path / "out", BuildOptions(Precision.FP32))
    assert not (tmp_path / "out").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("value", "precision"), [(1e6, Precision.FP16), (np.inf, Precision.FP32), (np.nan, Precision.INT4)]
)
def test_weights_beyond_their_type_are_refused_by_their_name(tmp_path, value, precision):
    source = write_checkpoint(tmp_path / "source", "llama")
    weights = load_file(source / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = value
    save_file(weights, source / "model.safetensors")
    with pytest.raises(InvalidModelFolder, match=r"layers\.1\.mlp\.up_proj.* infinite or none"):
        build(source, tmp_path / "out", BuildOptions(precision))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["LlamaForCausalML"]}, "Did you mean 'LlamaForCausalLM'"),
        ({"architectures": None}, "names the architecture None"),
        ({"hidden_size": "64"}, "hidden_size = '64', expected a number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 3}, "no tensor 'model.layers.2"),
        ({"num_key_value_heads": 3}, "4 heads of queries for 3 of keys"),
        ({"vocab_size": 300}, r"has shape \(288, 64\), its configuration states \(300, 64\)"),
        ({"hidden_act": "tan"}, "the activation 'tan'"),
        ({"rope_scaling": {"rope_type": "odd"}}, "scaling 'odd'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs factor"),
        ({"rope_scaling": [1]}, "expected an object"),
        ({"head_dim": 21}, "a rotation of 21 of 21 elements"),
        ({"max_position_embeddings": 1 << 30}, "cosines of .* with --context"),
        (
            {"sliding_window": 4, "layer_types": ["full_attention"], "architectures": ["MistralForCausalLM"]},
            "layer_types",
        ),
        ({"eos_token_id": [[]]}, "eos_token_id"),
        ({"model_type": [1]}, "model_type"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor, a number above 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path, changes, words):
    refused(tmp_path, words, **changes)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "[" * 5000])
def test_a_configuration_that_is_no_object_is_refused(tmp_path, text):
    write_checkpoint(tmp_path / "source", "llama")
    (tmp_path / "source" / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidModelFolder, match=r"config\.json"):
        build(tmp_path / "source", tmp_path / "out")


def test_weights_that_end_early_or_are_quantized_are_refused(tmp_path):
    source = write_checkpoint(tmp_path / "source", "llama")
    file = source / "model.safetensors"
    whole, tensors = file.read_bytes(), load_file(file)
    for data in (b"", whole[:9], whole[:5000], whole[:-5], b"\xff" * 100):
        file.write_bytes(data)
        with pytest.raises(InvalidModelFolder, match="cannot be read as safetensors"):
            build(source, tmp_path / "out")
    save_file({name: value.astype(np.int8) for name, value in tensors.items()}, file)
    with pytest.raises(InvalidModelFolder, match="is of type I8"):
        build(source, tmp_path / "out")


def test_other_folders_are_refused(tmp_path):
    for path, words in ((tmp_path / "nothing", "no such folder"), (tmp_path, "found neither")):
        with pytest.raises(InvalidModelFolder, match=words):
            build(path, tmp_path / "out")
    source = write_checkpoint(tmp_path / "source", "llama")
    with pytest.raises(InvalidModelFolder, match="is there already"):
        build(source, source)
    (source / "tokenizer.json").unlink()
    with pytest.raises(InvalidModelFolder, match=r"no tokenizer\.json"):
        build(source, tmp_path / "out")


def test_broken_safetensors_are_refused_in_a_sentence(tmp_path):
    source = write_checkpoint(tmp_path / "source", "llama")
    file = source / "model.safetensors"
    whole, random = file.read_bytes(), np.random.default_rng(6)
    head = 8 + int.from_bytes(whole[:8], "little")
    texts = []
    for number in range(40):
        data = bytearray(whole[: int(random.integers(0, len(whole)))] if number % 4 == 0 else whole)
        for _ in range(int(random.integers(1, 6)) if number % 4 else 0):
            data[int(random.integers(0, 8 if number % 4 == 1 else min(len(data), head)))] = int(random.integers(0, 256))
        file.write_bytes(data)
        try:
            build(source, tmp_path / f"out{number}", BuildOptions(Precision.FP32))
        except InvalidModelFolder as error:
            texts.append(str(error))
    # what ends early, or has a head of another length, is among them; a changed letter may be nobody's fault to see
    assert len(texts) >= 20
    assert min(len(text) for text in texts) > 20
    assert len(list(tmp_path.glob("out*"))) == 40 - len(texts)


def test_what_a_library_panics_at_is_refused_in_a_sentence(tmp_path):
    """A panic of tokenizers is no ``Exception``: it passed by whoever waited for errors."""
    folder = tmp_path / "folder"
    shutil.copytree(built("llama"), folder)
    file = folder / "tokenizer.json"
    stated = json.loads(file.read_text(encoding="utf-8"))
    stated["model"]["continuing_subword_prefix"] = "longer than all that is merged"
    file.write_text(json.dumps(stated), encoding="utf-8")
    with pytest.raises(InvalidModelFolder, match="fault of the library"):
        og.Tokenizer(str(folder))


@pytest.mark.parametrize("name", ["encode", "decode"])
def test_a_panic_later_on_is_an_error_of_its_call(monkeypatch, name):
    panic = type("PanicException", (BaseException,), {})
    text = og.Tokenizer(str(built("llama"))).text

    class Panicking:
        def __getattr__(self, asked):
            assert asked == name
            raise panic("index out of bounds")

    monkeypatch.setattr(text, "library", Panicking())
    with pytest.raises(InvalidGeneration, match="index out of bounds"):
        getattr(text, name)("a" if name == "encode" else [5])


@pytest.mark.parametrize("stated", [10**12, [285, -(10**12)]])
def test_tokens_beyond_any_vocabulary_are_refused(stated):
    config = og.Config(str(built("llama")))
    config.overlay(json.dumps({"model": {"eos_token_id": stated}}))
    with pytest.raises(InvalidModelFolder, match="eos_token_id"):
        og.Model(config)


def test_caches_that_the_graph_does_not_give_back_are_refused():
    config = og.Config(str(built("llama")))
    config.overlay(json.dumps({"model": {"decoder": {"outputs": {"present_key_names": "kept.%d"}}}}))
    with pytest.raises(InvalidModelFolder, match=r"no output 'kept\.0'"):
        og.Model(config)
