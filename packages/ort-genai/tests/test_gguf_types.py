"""Numbers of GGUF files are those of a reading in plain Python; heads that claim too much are refused at once."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from genai_plain_gguf import FORMATS
from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from tokenizers import Tokenizer

from ort_genai.builder.build import build
from ort_genai.builder.gguf_source import GgufSource
from ort_genai.builder.gguf_tokenizer import write_tokenizer
from ort_genai.errors import InvalidModelFolder

ROWS, WIDTH, HEADS = 8, 512, 2


def random_blocks(form, seed):
    """Return random bytes (ROWS, …) of numbers of a type; those of float16 among them are not too large."""
    size, halves, _ = FORMATS[form]
    width, _ = GGML_QUANT_SIZES[GGMLQuantizationType[form]]
    random = np.random.default_rng(seed)
    count = ROWS * WIDTH // width
    data = random.integers(0, 256, (count, size), np.uint8)
    for at in halves:
        steps = random.normal(0, 0.1, (count, 1)).astype("<f2")
        data[:, at : at + 2] = steps.view(np.uint8)
    if form in ("F32", "BF16"):
        data = random.normal(0, 1, (count, 1)).astype("<f4").view(np.uint8)[:, -size:].copy()
    if form == "MXFP4":
        data[:, 0] = random.integers(0, 254, count)
    return data.reshape(ROWS, -1)


def plain(data, form):
    """Return float64 (ROWS, WIDTH)."""
    size, _, read = FORMATS[form]
    blocks = data.reshape(-1, size)
    return np.array([read(each.tobytes()) for each in blocks]).reshape(ROWS, WIDTH)


def file_of(folder, tensors, endian=GGUFEndian.LITTLE, fields=()):
    writer = GGUFWriter(folder / "a.gguf", "llama", endianess=endian)
    writer.add_head_count(HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{place}" for place in range(ROWS)])
    for name, value in fields:
        writer.add_array(name, value)
    for name, data, form in tensors:
        writer.add_tensor(name, data, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "a.gguf"


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_are_those_of_a_plain_reading(tmp_path, form):
    kind, data = GGMLQuantizationType[form], random_blocks(form, 3)
    stored = data.view({"F32": np.float32, "F16": np.float16}.get(form, np.uint8))
    names = ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.ffn_up.weight")
    source = GgufSource(file_of(tmp_path, [(name, stored, kind) for name in names]))
    exact = plain(data, form)
    scale = np.abs(exact).max()
    assert scale > 0
    for name in ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"):
        np.testing.assert_allclose(source.read(name), exact, rtol=1e-5, atol=1e-6 * scale)
    rows = [head * 4 + pair * 2 + part for head in range(HEADS) for part in range(2) for pair in range(2)]
    for part in "qk":  # without a number of heads of keys there are as many as of queries, as llama.cpp takes it
        found = source.read(f"model.layers.0.self_attn.{part}_proj.weight")
        np.testing.assert_allclose(found, exact[rows], rtol=1e-5, atol=1e-6 * scale)


def test_the_other_byte_order_is_refused(tmp_path):
    """The reader gives numbers of it as if they were of this one."""
    data = np.ones((ROWS, WIDTH), np.float32)
    file = file_of(tmp_path, [("token_embd.weight", data, GGMLQuantizationType.F32)], GGUFEndian.BIG)
    with pytest.raises(InvalidModelFolder, match="byte order"):
        GgufSource(file)


def head(values, tensors=b"", count=1, tensor_count=0):
    return struct.pack("<4sIQQ", b"GGUF", 3, tensor_count, count) + values + tensors


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "data",
    [
        head(text(b"a") + struct.pack("<IIQ", 9, 0, 1 << 40)),
        head(text(b"a") + struct.pack("<IIQ", 9, 12, 1 << 61)),
        head(text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 63)),
        head(text(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000),
        head(text(b"a") + struct.pack("<I", 99)),
        head(b"", count=1 << 63),
        head(struct.pack("<Q", 1 << 62)),
        head(b"", text(b"t") + struct.pack("<I", 1 << 31), 0, 1),
        head(b"", text(b"t") + struct.pack("<I", 2), 0, 1),
        head(b"", b"", 0, 1 << 50),
        b"GGUF", b"",
    ],
)  # fmt: skip
def test_heads_that_claim_more_than_there_is_are_refused_at_once(tmp_path, data):
    """An array of numbers that says it has 2 ** 40 of them was read for as long as there was memory."""
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(InvalidModelFolder, match="cannot be read as GGUF"):
        build(tmp_path / "a.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_of_another_number_of_axes_is_refused(tmp_path):
    file = file_of(tmp_path, [("token_embd.weight", np.ones(8, np.float32), GGMLQuantizationType.F32)])
    with pytest.raises(InvalidModelFolder, match="1 axes"):
        GgufSource(file)


@pytest.mark.parametrize(
    "change",
    [
        {"model": ["gpt2"]}, {"model": 3}, {"scores": ["x"] * 4}, {"scores": [0.0] * 3}, {"tokens": ["a" * 5000, "b"]},
        {"tokens": [1, 2]},
    ],
)  # fmt: skip
def test_tokenizers_that_are_none_are_refused(tmp_path, change):
    fields = {"model": "llama", "tokens": ["a", "b", "ab", "<s>"], "scores": [0.0] * 4}
    fields |= {"scores": [0.0] * len(change["tokens"])} if "tokens" in change else {}
    stated = {f"tokenizer.ggml.{name}": value for name, value in {**fields, **change}.items()}
    with pytest.raises(InvalidModelFolder):
        write_tokenizer(stated, tmp_path)


@pytest.mark.parametrize("name", ["<s>", "a:b", "$A", "$0", "x y", ":1", "[bos]:7"])
def test_a_first_token_of_any_name_stands_before_each_text(tmp_path, name):
    """Some names read as a template themselves."""
    fields = {"model": "gpt2", "tokens": ["a", "b", name], "merges": [], "bos_token_id": 2, "add_bos_token": True}
    write_tokenizer({f"tokenizer.ggml.{key}": value for key, value in fields.items()}, tmp_path)
    made = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert made.encode("ab").ids == [2, 0, 1]
    assert json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))["bos_token"] == name
