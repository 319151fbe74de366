"""Graphs of one search around decoders that are there already: neither torch nor transformers is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from tiny_models import assert_close, onnxruntime_results

import ort_core
from ort_transformers import convert_generation
from ort_transformers.generation import generation_comparison
from ort_transformers.generation.generation_decoders import keep_last_place, pad_head, remove_shared_initializers

# A decoder of GPT-2's interface: what it adds to its cache is what it knows of a token, and it averages the cache.
DECODER = """
<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
decoder (int32[batch_size, seq_len] input_ids, int32[batch_size, seq_len] position_ids,
         int32[batch_size, total_seq_len] attention_mask, float[2, batch_size, 1, past_seq_len, 8] past_0)
  => (float[batch_size, seq_len, 160] logits, float[2, batch_size, 1, total_seq_len, 8] present_0)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] fifth = {4}, int64[4] heads = {0, 1, -1, 8}, int64[1] three = {3}>
{
  words = Gather(table, input_ids)
  places = Gather(spots, position_ids)
  x = Add(words, places)
  new = Reshape(x, heads)
  both = Unsqueeze(new, zero)
  twice = Concat<axis=0>(both, both)
  present_0 = Concat<axis=3>(past_0, twice)
  shown = Cast<to=1>(attention_mask)
  wide = Unsqueeze(shown, one)
  keys = Gather<axis=0>(present_0, zero)
  flat = Squeeze(keys, zero)
  known = Squeeze(flat, one)
  turned = Transpose<perm=[0, 2, 1]>(known)
  scores = MatMul(x, turned)
  hidden = Mul(scores, wide)
  seen = MatMul(hidden, known)
  y = Add(seen, x)
  normed = LayerNormalization<axis=-1>(y, scale, bias)
  logits = MatMul(normed, head)
}
"""
VOCABULARY, WIDTH, END = 160, 8, 159


def decoder() -> onnx.ModelProto:
    """Return the decoder with random weights, large enough to be shared."""
    model = parser.parse_model(DECODER)
    random = np.random.default_rng(5)
    sizes = {"table": (VOCABULARY, WIDTH), "spots": (64, WIDTH), "head": (WIDTH, VOCABULARY)}
    arrays = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    arrays |= {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in arrays.items())
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a decoder and the configuration of its tokens."""
    facts = {"model_type": "gpt2", "eos_token_id": END, "vocab_size": VOCABULARY, "n_positions": 64}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    return tmp_path


def greedy(model: onnx.ModelProto, ids: np.ndarray, length: int) -> np.ndarray:
    """Return what a decoder writes token by token, from its beginning each time."""
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    while ids.shape[1] < length:
        places = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
        past = np.zeros((2, len(ids), 1, 0, WIDTH), np.float32)
        feeds = {"input_ids": ids, "position_ids": places, "attention_mask": np.ones_like(ids), "past_0": past}
        logits = session.run(["logits"], feeds)[0][:, -1]
        ids = np.concatenate([ids, logits.argmax(-1).astype(np.int32)[:, None]], axis=1)
    return ids


@pytest.mark.parametrize("bodies", [[], ["-dsgd"], ["-i"]], ids=["first and later", "one", "nothing shared"])
@pytest.mark.parametrize("beams", ["1", "3"])
def test_a_search_writes_the_same_in_both_engines(folder, bodies, beams):
    path = str(folder / "search.onnx")
    given = ["-m", str(folder), "--decoder_onnx", str(folder / "decoder.onnx"), "--output", path, "--num_beams", beams]
    before = (folder / "decoder.onnx").read_bytes()
    result = convert_generation.main([*given, "--max_length", "14", "--disable_parity", *bodies])
    assert result is not None
    assert (folder / "decoder.onnx").read_bytes() == before, "the decoder that was given stays as it is"
    assert (folder / "gpt2_init_past_fp32.onnx").exists() is (bodies != ["-dsgd"])
    args = convert_generation.parse_arguments([*given, "--max_length", "14"])
    ids = np.random.default_rng(1).integers(0, END, (2, 5)).astype(np.int32)
    prompts = generation_comparison.Prompts(ids, np.ones_like(ids), [], str)
    feeds = generation_comparison.search_inputs(args, prompts, VOCABULARY, END)
    session = generation_comparison.create_ort_session(path, False, False)
    names = {each.name for each in session.get_inputs()}
    (found,) = session.run(None, {name: each for name, each in feeds.items() if name in names})
    assert_close(found, onnxruntime_results(path, feeds)[0], "exact")
    if beams == "1":
        wanted = greedy(decoder(), ids, 14)
        ends = np.cumsum(wanted == END, axis=1) > 0
        np.testing.assert_array_equal(np.where(ends, 0, found), np.where(ends, 0, wanted))


def test_sampling_has_its_seed_and_numbers(folder):
    path = folder / "sampling.onnx"
    given = ["-m", str(folder), "--decoder_onnx", str(folder / "decoder.onnx"), "--output", str(path)]
    assert (
        convert_generation.main([*given, "--num_beams", "1", "--top_p", "0.8", "--seed", "--temperature", "2"]) is None
    )
    model = onnx.load(path)
    (node,) = model.graph.node
    assert node.op_type == "Sampling"
    numbers = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute if each.type != 5}
    assert (round(numbers["top_p"], 3), numbers["temperature"], numbers["eos_token_id"]) == (0.8, 2.0, END)
    assert [each.name for each in model.graph.input][-1] == "seed"
    assert list(node.input)[-2:] == ["", "seed"]


def test_the_first_step_computes_the_last_place_alone(folder):
    whole, first = decoder(), decoder()
    assert keep_last_place(first)
    ids = np.random.default_rng(2).integers(0, END, (3, 6)).astype(np.int32)
    feeds = {
        "input_ids": ids, "position_ids": np.broadcast_to(np.arange(6, dtype=np.int32), ids.shape),
        "attention_mask": np.ones_like(ids), "past_0": np.zeros((2, 3, 1, 0, WIDTH), np.float32),
    }  # fmt: skip
    results = [
        ort_core.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (whole, first)
    ]
    assert_close(results[1][0], results[0][0][:, -1:], "rounding")
    assert_close(results[1][1], results[0][1], "exact")
    slices = [node.input[0] for node in first.graph.node if node.op_type == "Slice"]
    assert sorted(slices) == ["seen", "x"], "the sum, the norm and the head come behind"


def test_logits_that_no_head_makes_have_no_first_step():
    model = decoder()
    del model.graph.node[-1]
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.node.append(onnx.helper.make_node("Softmax", ["normed"], ["logits"]))
    for size in ("batch_size", "seq_len", WIDTH):
        kind = {"dim_param": size} if isinstance(size, str) else {"dim_value": size}
        model.graph.output[0].type.tensor_type.shape.dim.add(**kind)
    before = model.SerializeToString()
    assert not keep_last_place(model)
    assert model.SerializeToString() == before


def test_equal_tensors_leave_both_bodies():
    one, other = decoder(), decoder()
    table = next(each for each in other.graph.initializer if each.name == "table")
    table.name = "words_table"
    for node in other.graph.node:
        node.input[:] = ["words_table" if each == "table" else each for each in node.input]
    shared = remove_shared_initializers(one.graph, other.graph, "s_")
    assert sorted(each.name for each in shared) == ["s_head", "s_words_table"]
    for body in (one, other):
        assert not {"table", "words_table", "head"} & {each.name for each in body.graph.initializer}
        assert {"s_head", "s_words_table"} <= {name for node in body.graph.node for name in node.input}
        assert {"s_head", "s_words_table"} <= {each.name for each in body.graph.value_info}


def test_a_head_of_float16_is_padded_to_a_multiple_of_eight():
    model = decoder()
    assert not pad_head(model), "only float16 is"
    head = next(each for each in model.graph.initializer if each.name == "head")
    weights = numpy_helper.to_array(head)[:, :155].astype(np.float16)
    head.CopyFrom(numpy_helper.from_array(weights, "head"))
    assert pad_head(model)
    padded = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "head"))
    assert padded.shape == (WIDTH, 160)
    np.testing.assert_array_equal(padded[:, :155], weights)
    assert not padded[:, 155:].any()


@pytest.mark.parametrize(
    ("change", "word"),
    [("past_0", "past_0"), ("position_ids", "position_ids")],
)
def test_a_decoder_with_other_names_is_refused(folder, change, word):
    model = decoder()
    for each in model.graph.input:
        each.name = "other" if each.name == change else each.name
    for node in model.graph.node:
        node.input[:] = ["other" if each == change else each for each in node.input]
    onnx.save(model, folder / "decoder.onnx")
    with pytest.raises(ValueError, match=f"wanted are .*{word}"):
        convert_generation.main(
            ["-m", str(folder), "--decoder_onnx", str(folder / "decoder.onnx"), "--output", str(folder / "x.onnx")]
        )


def test_tokens_that_nobody_says_are_asked_for(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    given = [
        "-m",
        str(tmp_path),
        "--decoder_onnx",
        str(tmp_path / "decoder.onnx"),
        "--output",
        str(tmp_path / "x.onnx"),
    ]
    try:
        import transformers  # noqa: F401 - with it, what the file leaves out is known
    except ModuleNotFoundError:
        with pytest.raises(ValueError, match="--eos_token_id gives one"):
            convert_generation.main(given)
