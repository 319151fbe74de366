"""onnxruntime-genai's loop gives onnxruntime-genai's tokens (recorded, 0.18), and refuses as it does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from genai_built import built
from genai_generation_cases import CASES, A, generated

import ort_genai as og
from ort_core.errors import OrtError
from ort_genai.appended_state import AppendedState
from ort_genai.builder.precision_names import Precision
from ort_genai.decoder_states import SharedState
from ort_genai.errors import GenerationFailed, InvalidGeneration, InvalidModelFolder

END = 285
EXPECTED = json.loads(Path(__file__).with_name("expected_generations.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


def begun(model, tokens=A, **options):
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 24, "do_sample": False, **options})
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(tokens, np.int32))
    return generator


def finished(generator):
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_onnxruntime_genai(model, case):
    assert generated(og, model, *CASES[case]) == EXPECTED[case]


def test_a_row_of_a_batch_gives_the_tokens_that_it_gives_alone(model):
    rows = [[each, each + 1, 2 * each] for each in range(5)]
    assert [generated(og, model, [row], {})[0] for row in rows] == EXPECTED["batch_of_five"]


def test_a_model_without_shared_caches_gives_the_same_tokens(model):
    config = og.Config(built())
    config.overlay('{"search": {"past_present_share_buffer": false}}')
    other = og.Model(config)
    assert not other.decoder.shares_caches
    for case in ("greedy", "batch_padded", "beams_late", "long"):
        assert generated(og, other, *CASES[case]) == EXPECTED[case], case


@pytest.mark.parametrize("length", [1, 3, 5, 6, 9])
def test_rewinding_and_going_on_gives_the_same_tokens(model, length):
    generator = begun(model)
    whole = finished(generator)
    generator.rewind_to(length)
    assert generator.get_sequence(0).tolist() == whole[:length]
    if length < len(A):
        generator.append_tokens(np.array(A[length:], np.int32))
    assert finished(generator) == whole


def test_tokens_appended_in_parts_are_read_as_one(model):
    generator = begun(model, A[:2])
    generator.append_tokens(np.array(A[2:], np.int32))
    assert finished(generator) == finished(begun(model))


def test_tokens_appended_behind_chosen_ones_follow_them(model):
    generator = begun(model)
    generator.generate_next_token()
    generator.append_tokens(np.array([9, 8], np.int32))
    row = generator.get_sequence(0).tolist()
    assert finished(generator) == finished(begun(model, row))


def test_reading_logits_changes_nothing(model):
    generator, whole = begun(model), finished(begun(model))
    while not generator.is_done():
        assert generator.get_logits().shape == (1, 1, 288)
        generator.generate_next_token()
    assert generator.get_sequence(0).tolist() == whole


def test_logits_that_are_set_choose_the_next_token(model):
    generator = begun(model)
    logits = np.zeros((1, 1, 288), np.float32)
    logits[0, 0, 77] = 5
    generator.set_logits(logits)
    generator.generate_next_token()
    assert generator.get_next_tokens().tolist() == [77]


def test_draws_follow_the_probabilities_of_the_model(model):
    generator = begun(model)
    logits = generator.get_logits()[0, 0].astype(np.float64) / 0.7
    shares = np.exp(logits - logits.max())
    best = np.argsort(-shares)[:6]
    expected = shares[best] / shares[best].sum()
    counts = np.zeros(288)
    for seed in range(600):
        drawn = begun(model, max_length=6, do_sample=True, top_k=6, temperature=0.7, random_seed=seed)
        drawn.generate_next_token()
        counts[drawn.get_next_tokens()[0]] += 1
    assert counts.sum() == counts[best].sum()
    np.testing.assert_allclose(counts[best] / 600, expected, atol=0.09)  # four deviations of 600 draws


def test_a_seed_gives_the_same_tokens_and_another_one_others(model):
    texts = [finished(begun(model, do_sample=True, top_k=0, temperature=2.0, random_seed=seed)) for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda model: begun(model, list(range(40))), "exceeds max length"),
        (lambda model: begun(model, [9999]), "token 9999 is none of the model's"),
        (lambda model: begun(model, [-1]), "token -1"),
        (lambda model: begun(model, []), "is empty"),
        (lambda model: begun(model, [[1, 2], [3, 4]]), "batch_size 1"),
        (lambda model: begun(model).append_tokens(np.array([1.5])), "expected whole numbers"),
        (lambda model: begun(model, max_length=4096), "context_length"),
        (lambda model: begun(model, foo=1), 'Unknown value "foo"'),
        (lambda model: begun(model, do_sample=1), "Expected a bool"),
        (lambda model: begun(model, top_p=3.0), "from 0.0 to 1.0"),
        (lambda model: begun(model, num_return_sequences=2), r"must be in \[1, 1\]"),
        (lambda model: begun(model).rewind_to(99), "Cannot rewind"),
        (lambda model: begun(model).get_input("nothing"), "was not found"),
        (lambda model: begun(model).set_logits(np.zeros(3)), "expected"),
        (lambda model: begun(model, max_length=5).generate_next_token(), "already at max_length"),
        (lambda model: og.Generator(model, og.GeneratorParams(model)).generate_next_token(), "no prior state"),
        (lambda model: og.GeneratorParams(model).set_guidance("foo", "x"), "json_schema, regex, lark_grammar"),
        (lambda model: og.GeneratorParams(model).set_guidance("regex", ""), "must be provided together"),
        (lambda model: begun(model).rewind_to(6), "6 is none of 0 to 5"),
        (lambda model: og.Tokenizer(model).encode_batch([]), "must not be empty"),
        (lambda model: og.Tokenizer(model).encode(b"\xff"), "no UTF-8"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(model, step, words):
    with pytest.raises(InvalidGeneration, match=words):
        step(model)


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(InvalidModelFolder, match=r"genai_config\.json: no such file"):
        og.Model(tmp_path)


def test_a_grammar_that_no_text_follows_is_refused_before_anything_is_read(model):
    params = og.GeneratorParams(model)
    params.set_guidance("json_schema", '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}')
    with pytest.raises(InvalidGeneration, match="cannot be followed") as told:
        og.Generator(model, params)
    assert "Parser" not in str(told.value)


def test_a_grammar_that_cannot_be_read_is_refused_before_anything_is_read(model):
    params = og.GeneratorParams(model)
    params.set_guidance("json_schema", "{")
    with pytest.raises(InvalidGeneration, match="json_schema cannot be read"):
        og.Generator(model, params)


@pytest.mark.parametrize("token", [-1, 1 << 40])
def test_what_is_no_token_is_not_decoded(model, token):
    with pytest.raises(InvalidGeneration, match="not a list of tokens"):
        og.Tokenizer(model).decode(np.array([token]))


def test_bytes_are_read_as_utf_8_and_what_is_no_text_is_refused(model):
    tokenizer = og.Tokenizer(model)
    assert tokenizer.encode("ü the".encode()).tolist() == tokenizer.encode("ü the").tolist()
    with pytest.raises(TypeError, match="takes a text, not NoneType"):
        tokenizer.encode(None)


def test_an_overlay_with_a_misspelled_option_is_refused(model):
    config = og.Config(model.config.folder)
    with pytest.raises(InvalidModelFolder, match=r"max_lenght.*max_length"):
        config.overlay('{"search": {"max_lenght": 9}}')
    config.overlay('{"search": {"max_length": 9}}')
    assert og.Model(config).search.max_length == 9


def test_model_data_that_was_not_given_cannot_be_taken_back(model):
    config = og.Config(model.config.folder)
    with pytest.raises(InvalidModelFolder, match=r"Model data for 'x\.onnx' was not found"):
        config.remove_model_data("x.onnx")


def test_beams_that_should_follow_a_grammar_are_refused(model):
    params = og.GeneratorParams(model)
    params.set_search_options(num_beams=2)
    params.set_guidance("regex", "a")
    with pytest.raises(InvalidGeneration, match="beams cannot follow a grammar"):
        og.Generator(model, params)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pipeline": []}, "several sessions"),
        ({"sliding_window": {"slide_key_value_cache": True}}, "slide"),
        ({"filename": "other.onnx"}, r"other\.onnx"),
        ({"num_hidden_layers": 9}, "no cache 'past_key_values.2.key'"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers = '2'"),
        ({"inputs": {"input_ids": "words"}}, "no input 'words'"),
    ],
)
def test_a_folder_that_cannot_be_run_is_refused(changes, words):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": changes}}))
    with pytest.raises(InvalidModelFolder, match=words):
        og.Model(config)


@pytest.mark.parametrize(
    ("kind", "grammar", "pattern"),
    [
        ("regex", "[ab]{4}", r"[ab]{4}"),
        ("json_schema", '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], '
         '"additionalProperties": false}', r'\{\s*"a"\s*:\s*(true|false)\s*\}'),
        ("lark_grammar", 'start: "x" | "yy"', r"x|yy"),
    ],
)  # fmt: skip
def test_texts_follow_grammars(model, kind, grammar, pattern):
    import re

    params = og.GeneratorParams(model)
    params.set_search_options(max_length=100, do_sample=True, top_k=0, temperature=1.5, random_seed=1)
    params.set_guidance(kind, grammar)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(A, np.int32))
    tokens = finished(generator)[len(A) :]
    assert re.fullmatch(pattern, og.Tokenizer(model).decode(tokens)), tokens


def test_a_stream_of_text_is_the_text(model):
    tokenizer = og.Tokenizer(model)
    text = "the thin ☃ naïve 漢字 🎉 end"
    stream = tokenizer.create_stream()
    assert "".join(stream.decode(token) for token in tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_template_cannot_leave_its_sandbox(model):
    tokenizer = og.Tokenizer(model)
    hostile = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}",
        "{% for i in range(99999999) %}x{% endfor %}", "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ 'x' * 99999999999 }}", "{% include '/etc/passwd' %}", "{{ raise_exception('no') }}", "{{",
    )  # fmt: skip
    for template in hostile:
        with pytest.raises(InvalidGeneration, match="the chat template"):
            tokenizer.apply_chat_template('[{"role": "user", "content": "hi"}]', template_str=template)


def test_a_conversation_is_written_by_the_models_template(model):
    text = og.Tokenizer(model).apply_chat_template('[{"role": "user", "content": "hi"}]')
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def ended_early(model, **options):
    """Return a generator whose next token ends the text: all others are forbidden."""
    generator = begun(model, **options)
    generator.generate_next_token()
    logits = generator.get_logits()
    logits[..., :END] = logits[..., END + 1 :] = -np.inf
    generator.set_logits(logits)
    generator.generate_next_token()
    return generator


@pytest.mark.parametrize("options", [{}, {"do_sample": True}])
def test_a_single_row_does_not_take_the_token_that_ends_it(model, options):
    generator = ended_early(model, **options)
    assert generator.is_done()
    assert generator.get_next_tokens().tolist() == [END]
    row = generator.get_sequence(0).tolist()
    assert (len(row), generator.token_count()) == (6, 6)
    generator.generate_next_token()  # as in onnxruntime-genai nothing more happens
    assert (generator.get_next_tokens().tolist(), generator.token_count()) == ([model.decoder.pad_token], 6)


def test_what_is_appended_behind_an_end_is_read_behind_the_text(model):
    generator = ended_early(model)
    row = generator.get_sequence(0).tolist()
    generator.append_tokens(np.array([3, 4], np.int32))
    whole = begun(model, [*row, 3, 4])
    np.testing.assert_allclose(generator.get_logits(), whole.get_logits(), rtol=1e-4, atol=1e-4)
    generator.generate_next_token()
    assert generator.token_count() == 9
    generator.rewind_to(6)
    generator.generate_next_token()
    plain = begun(model)
    plain.generate_next_token()
    plain.generate_next_token()
    assert generator.get_sequence(0).tolist() == plain.get_sequence(0).tolist()


def test_a_grammar_ends_a_single_row_where_the_text_is_whole(model):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=40, do_sample=False)
    params.set_guidance("regex", "(yes|no)*")
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(A, np.int32))
    generator.generate_next_token()
    while not generator.is_done():
        logits = generator.get_logits()
        logits[..., END] = 1000.0
        generator.set_logits(logits)
        generator.generate_next_token()
    text = og.Tokenizer(model).decode(generator.get_sequence(0)[5:])
    assert re.fullmatch("(yes|no)*", text)
    generator.rewind_to(6)
    assert not generator.is_done()
    generator.generate_next_token()


def test_inputs_and_outputs_are_told_as_onnxruntime_genai_tells_them(model):
    generator = begun(model)
    first = [generator.get_input(name) for name in ("input_ids", "attention_mask")]
    logits = generator.get_output("logits")
    kept = [each.copy() for each in (*first, logits)]
    assert [each.shape for each in first] == [(1, len(A)), (1, len(A))]
    for _ in range(3):
        generator.generate_next_token()
    assert [generator.get_input(name).shape for name in ("input_ids", "attention_mask")] == [(1, 1), (1, len(A) + 2)]
    for each, before in zip((*first, logits), kept, strict=True):
        np.testing.assert_array_equal(each, before, err_msg="what was told is a copy, which later steps leave alone")


def test_numbers_of_enumerations_are_written_as_onnxruntime_genai_writes_them():
    assert str(og.FinishReason.MAX_GENERATED_TOKENS) == "FinishReason.MAX_GENERATED_TOKENS"
    assert f"{og.EngineErrorCode.NONE}" == "EngineErrorCode.NONE"
    assert f"{og.EngineEventFlags.TOKEN:>24}" == "  EngineEventFlags.TOKEN"
    assert og.EngineEventFlags.TOKEN | og.EngineEventFlags.FAILED == 9


def test_tokens_that_end_a_text_are_an_array(model):
    found = og.Tokenizer(model).eos_token_ids
    assert found.dtype == np.int32
    assert found.tolist() == [END]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_grammar_goes_back_by_what_it_took(model, rows):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60, batch_size=rows, do_sample=True, top_k=0, random_seed=5)
    params.set_guidance("regex", "a(bc)?(de){0,3}")  # rows of a batch end one by one, and the rest is padding
    generator, taken = og.Generator(model, params), 0
    prompts = np.array([[7, 8, 9]] * rows)
    generator.append_tokens(prompts)
    while not generator.is_done():
        generator.generate_next_token()
    length = generator.token_count()
    for back in range(length, 2, -1):
        generator.rewind_to(back)
        while not generator.is_done():
            generator.generate_next_token()
            taken += 1
        for row in range(rows):
            text = model.text.decode([each for each in generator.get_sequence(row)[3:].tolist() if each < END])
            assert re.fullmatch("a(bc)?(de){0,3}", text), text
    assert taken


def test_a_grammar_goes_back_behind_what_was_appended(model):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60)
    params.set_guidance("regex", "abcdef")
    generator = og.Generator(model, params)
    generator.append_tokens([7, 8, 9])
    for _ in range(3):
        generator.generate_next_token()
    generator.append_tokens([10, 11])
    generator.rewind_to(4)
    while not generator.is_done():
        generator.generate_next_token()
    assert model.text.decode(generator.get_sequence(0)[3:].tolist()) == "abcdef"


@pytest.mark.parametrize("shares_caches", [True, False])
@pytest.mark.parametrize("begun_with", [0, 5])
def test_tokens_whose_run_fails_are_not_appended(shares_caches, begun_with):
    config = og.Config(built())
    config.overlay(json.dumps({"search": {"past_present_share_buffer": shares_caches}}))
    model = og.Model(config)
    generator = og.Generator(model, og.GeneratorParams(model))
    if begun_with:
        generator.append_tokens(A)
        generator.generate_next_token()
    before = generator.get_sequence(0).tolist()
    generator.set_runtime_option("terminate_session", "1")
    with pytest.raises(OrtError, match="terminate"):
        generator.append_tokens([3, 4, 5])
    generator.set_runtime_option("terminate_session", "0")
    assert generator.get_sequence(0).tolist() == before
    generator.append_tokens([6, 7])
    logits = model.decoder.run_alone(np.array([*before, 6, 7]), "logits")[0, -1]
    np.testing.assert_allclose(generator.get_logits()[0, 0], logits, atol=1e-4)


def test_rows_that_are_all_padded_are_not_rewound(model):
    generator = begun(model, [[1, 2, 286], [3, 4, 286]], batch_size=2)
    with pytest.raises(InvalidGeneration, match="padded"):
        generator.rewind_to(3)
    generator.rewind_to(0)
    generator.append_tokens([[1, 2], [3, 4]])
    generator.rewind_to(2)


@pytest.mark.parametrize("has_grammar", [True, False])
def test_where_no_token_can_be_chosen_nothing_changes(model, has_grammar):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=30, batch_size=2)
    if has_grammar:
        params.set_guidance("regex", "abcdef")
    generator = og.Generator(model, params)
    generator.append_tokens([[7, 8, 9], [9, 8, 7]])
    generator.generate_next_token()
    good, before = generator.get_logits(), [generator.get_sequence(row).tolist() for row in range(2)]
    bad = good.copy()
    bad[1] = -np.inf
    generator.set_logits(bad)
    with pytest.raises(GenerationFailed, match="forbidden"):
        generator.generate_next_token()
    assert [generator.get_sequence(row).tolist() for row in range(2)] == before
    np.testing.assert_array_equal(generator.get_logits(), bad)
    generator.set_logits(good)
    while not generator.is_done():
        generator.generate_next_token()
    if has_grammar:
        assert [model.text.decode(generator.get_sequence(row)[3:9].tolist()) for row in range(2)] == ["abcdef"] * 2
        return
    for row in range(2):
        text = generator.get_sequence(row).tolist()
        assert finished(begun(model, text[:3], max_length=30))[:12] == text[:12]


@pytest.mark.parametrize(
    ("rows", "shares_caches", "of", "name"),
    [(3, False, AppendedState, "_read_part"), (20, True, SharedState, "_run")],
)
def test_a_step_of_several_runs_of_which_one_fails_is_none(monkeypatch, rows, shares_caches, of, name):
    config = og.Config(built(precision=Precision.INT4))
    config.overlay(json.dumps({"search": {"past_present_share_buffer": shares_caches}}))
    model, prompts = og.Model(config), [[7 + row, 8, 9] for row in range(rows)]

    def text(fails_at):
        generator, runs, run = begun(model, prompts, batch_size=rows, max_length=9), [], getattr(of, name)

        def counted(*given):
            runs.append(1)
            if len(runs) == fails_at:
                raise GenerationFailed("no room")
            return run(*given)

        generator.generate_next_token()
        with monkeypatch.context() as patch:
            patch.setattr(of, name, counted)
            for _ in range(4):
                try:
                    generator.generate_next_token()
                except GenerationFailed:
                    generator.generate_next_token()
        assert len(runs) > fails_at
        return [generator.get_sequence(row).tolist() for row in range(rows)], generator.get_logits()

    plain, broken = text(0), text(2)
    assert broken[0] == plain[0]
    np.testing.assert_allclose(broken[1], plain[1], atol=1e-5)
