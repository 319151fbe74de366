"""Guesses change no text: those of a generator, and those of a head for several tokens."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from genai_built import built
from onnx import TensorProto, helper, numpy_helper, save_model

import ort_genai as og
from ort_genai.drafts_ahead import SpeculativeOptions
from ort_genai.errors import InvalidGeneration

PROMPTS = ([5], [7, 101, 33, 250, 12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])


def text(model, prompt, drafting=None, **options):
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 60, **options})
    params.set_speculative_options(**(drafting or {}))
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompt))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist(), generator.get_speculative_stats()


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "random_seed": 3, "top_k": 4}], ids=["greedy", "drawn"])
@pytest.mark.parametrize("chained", [False, True])
def test_ngrams_change_no_text_of_a_generator(options, chained):
    model = og.Model(built())
    drafting = {"ngram_size": 1, "max_draft_tokens": 5, "ngram_chained_lookup": chained}
    drafted = 0
    for prompt in PROMPTS:
        plain, _ = text(model, prompt, **options)
        found, stats = text(model, prompt, drafting, **options)
        assert found == plain
        drafted += stats["draft_tokens_proposed"]
    assert drafted > 0


def test_guesses_are_forgotten_where_a_text_is_rewound_or_gone_on_with():
    model, found = og.Model(built()), []
    for drafting in ({}, {"ngram_size": 1}):
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=100)
        params.set_speculative_options(**drafting)
        generator = og.Generator(model, params)
        generator.append_tokens(np.array([3, 1, 4, 1, 5, 1, 4]))
        for _ in range(9):
            generator.generate_next_token()
        generator.rewind_to(10)
        for _ in range(7):
            generator.generate_next_token()
        generator.append_tokens(np.array([4, 1, 5]))
        for _ in range(9):
            generator.generate_next_token()
        found.append(generator.get_sequence(0).tolist())
    assert found[0] == found[1]


def test_unknown_options_are_refused():
    params = og.GeneratorParams(og.Model(built()))
    for options in ({"foo": 1}, {"ngram_size": -1}, {"ngram_size": True}, {"cooldown": 1}, {"max_draft_tokens": 1.5}):
        with pytest.raises(InvalidGeneration):
            params.set_speculative_options(**options)


def write_head(folder, table, feeds_back):
    """Write a head whose logits are a row of a table by the token: it guesses what followed the token last."""
    folder.mkdir()
    size, hidden = table.shape[0], 64
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceSum", ["hidden_states", "axes"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["rows", "nothing"], ["logits"]),
        helper.make_node("Identity", ["hidden_states"], ["hidden_states_out"]),
    ]
    info, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    outputs = [info("logits", kind, ["b", "s", size])]
    outputs += [info("hidden_states_out", kind, ["b", "s", hidden])] if feeds_back else []
    tensors = {"table": table, "axes": np.array([-1]), "zero": np.float32(0)}
    graph = helper.make_graph(
        nodes if feeds_back else nodes[:-1], "head",
        [info("input_ids", TensorProto.INT64, ["b", "s"]), info("hidden_states", kind, ["b", "s", hidden])], outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )  # fmt: skip
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "model.onnx"
    )
    decoder = {"filename": "model.onnx", "num_hidden_layers": 0, "outputs": {"hidden_states": "hidden_states_out"}}
    config = {"model": {"context_length": 128, "vocab_size": size, "decoder": decoder}, "search": {}}
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    return og.Model(folder)


@pytest.mark.parametrize("feeds_back", [False, True])
def test_a_head_changes_no_text(tmp_path, feeds_back):
    config = og.Config(built(has_hidden_states=True))
    config.overlay('{"model": {"mtp": {"main_hidden_states": "hidden_states"}}}')
    main = og.Model(config)
    expected = [text(main, prompt)[0] for prompt in PROMPTS]
    table = np.random.default_rng(1).standard_normal((288, 288)).astype(np.float32)
    for tokens in expected:
        for before, after in itertools.pairwise(tokens):
            table[before, after] = 9  # of several the first: guesses are right and wrong
    head = write_head(tmp_path / "head", table, feeds_back)
    accepted = 0
    for prompt, tokens in zip(PROMPTS, expected, strict=True):
        params = og.GeneratorParams(main)
        params.set_search_options(max_length=60)
        generator = og.MtpGenerator(main, head, params)
        for _ in range(2):
            generator.reset()
            generator.append_tokens(np.array(prompt))
            while not generator.is_done():
                generator.generate_next_token()
            assert generator.get_sequence().tolist() == tokens
        accepted += generator.get_stats()["draft_tokens_accepted"]
    assert accepted > 0


def test_models_that_do_not_fit_are_refused():
    model = og.Model(built())
    with pytest.raises(InvalidGeneration, match="main_hidden_states must name a main-model output"):
        og.MtpGenerator(model, model, og.GeneratorParams(model))


def test_options_that_have_no_effect_are_told_of(caplog):
    SpeculativeOptions().changed({"ngram_size": 2, "cooldown": False})
    assert not caplog.text
    SpeculativeOptions().changed({"min_adaptive_k": 2, "cooldown": True})
    assert "min_adaptive_k, cooldown: taken, to no effect" in caplog.text
