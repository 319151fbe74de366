"""Many requests at once: each gets the text that it gets alone."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from genai_built import built

import ort_genai as og
from ort_genai.engine import engine as engine_module
from ort_genai.errors import EngineBusy, InvalidGeneration
from ort_genai.guidance import Grammar, GrammarKind

Options = og.GenerationOptions


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


@pytest.fixture(params=[True, False], ids=["blocks", "one piece"])
def engine(model, request):
    with og.AsyncEngine(model, og.EngineOptions(max_batch=4, uses_blocks=request.param)) as made:
        yield made


def alone(model, prompt, count):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + count, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompt, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0)[len(prompt) :].tolist()


def tokens_of(request):
    return [piece.token for piece in request]


PROMPTS = [[(7 * each + step) % 250 for step in range(1 + 5 * each)] for each in range(1, 12)]


def test_requests_that_join_and_leave_get_the_tokens_that_they_get_alone(model, engine):
    counts = [3 + 2 * (place % 5) for place in range(len(PROMPTS))]
    asked = [engine.submit(prompt, Options(max_tokens=count)) for prompt, count in zip(PROMPTS, counts, strict=True)]
    for request, prompt, count in zip(asked, PROMPTS, counts, strict=True):
        assert tokens_of(request) == alone(model, prompt, count)
    assert engine.current_counts().steps < sum(counts), "no step had two requests"


def test_a_prompt_longer_than_a_part_is_read_whole(model):
    prompt = [(3 * step) % 250 for step in range(100)]
    from ort_genai.engine import lanes as module

    part, module._PART = module._PART, 7
    try:
        with og.AsyncEngine(model) as engine:
            assert tokens_of(engine.submit(prompt, Options(max_tokens=6))) == alone(model, prompt, 6)
    finally:
        module._PART = part


def test_a_beginning_that_was_read_is_not_read_again(model, engine):
    first, second = PROMPTS[9], [*PROMPTS[9][:20], *[9] * 17]
    for prompt, cached in ((first, 0), (second, 20), (first, len(first) - 17), (first[:17], 0)):
        request = engine.submit(prompt, Options(max_tokens=6))
        assert tokens_of(request) == alone(model, prompt, 6)
        assert request.finished.cached_tokens == cached


def test_prefix_caches_stay_below_their_limit(model):
    limit = 100_000
    with og.AsyncEngine(model, og.EngineOptions(prefix_bytes=limit)) as engine:
        for prompt in PROMPTS * 2:
            tokens_of(engine.submit(prompt, Options(max_tokens=4)))
            assert engine._prefixes.nbytes <= limit
        assert engine._prefixes.nbytes == sum(each.caches.nbytes for each in engine._prefixes._entries.values())


def test_async_for_gives_pieces_and_leaving_it_cancels(model, engine):
    async def several():
        async def one(prompt):
            return [piece.token async for piece in engine.generate(prompt, Options(max_tokens=7))]

        async def left():
            request = engine.generate(PROMPTS[0], Options(max_tokens=100))
            iterator = request.__aiter__()
            await anext(iterator)
            await iterator.aclose()
            return request

        texts = await asyncio.gather(*(one(prompt) for prompt in PROMPTS[:6]))
        return texts, await left()

    texts, request = asyncio.run(several())
    assert texts == [alone(model, prompt, 7) for prompt in PROMPTS[:6]]
    assert request.is_cancelled
    assert tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=3))) == alone(model, PROMPTS[1], 3)


def test_a_cancelled_request_ends_and_frees_its_place(model, engine):
    asked = [engine.submit(PROMPTS[place], Options(max_tokens=100, min_tokens=100)) for place in range(6)]
    for request in asked:
        request.cancel()
    for request in asked:
        list(request)
        assert request.finished.reason is og.EndReason.CANCELLED
    assert tokens_of(engine.submit(PROMPTS[2], Options(max_tokens=4))) == alone(model, PROMPTS[2], 4)


def test_threads_that_ask_at_once_get_their_own_texts(model, engine):
    expected = {place: alone(model, PROMPTS[place], 5) for place in range(8)}
    wrong = []

    def ask(place):
        for _ in range(4):
            if tokens_of(engine.submit(PROMPTS[place], Options(max_tokens=5))) != expected[place]:
                wrong.append(place)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_seed_gives_the_same_text_whoever_else_is_asking(engine):
    options = Options(max_tokens=8, temperature=1.5, seed=5)
    first = tokens_of(engine.submit(PROMPTS[3], options))
    others = [engine.submit(prompt, Options(max_tokens=20, temperature=1.0)) for prompt in PROMPTS]
    assert tokens_of(engine.submit(PROMPTS[3], options)) == first
    for request in others:
        list(request)


def test_a_stop_string_ends_the_text_and_does_not_come_out(model, engine):
    whole = engine.submit(PROMPTS[4], Options(max_tokens=20)).text()
    for place in range(1, len(whole) - 2):
        stop = whole[place : place + 2]
        request = engine.submit(PROMPTS[4], Options(max_tokens=20, stop=("never", stop)))
        assert request.text() == whole[: whole.find(stop)]
        assert request.finished.reason is og.EndReason.STOP


def test_log_probabilities_are_those_of_the_logits(model, engine):
    request = engine.submit(PROMPTS[2], Options(max_tokens=1, tells_log_probabilities=True, log_probabilities=5))
    piece = next(iter(request))
    params = og.GeneratorParams(model)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(PROMPTS[2], np.int32))
    logits = generator.get_logits()[0, 0].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    best = np.argsort(-expected)[:5]
    assert [each.token for each in piece.likeliest] == best.tolist()
    np.testing.assert_allclose([each.log_probability for each in piece.likeliest], expected[best], atol=1e-4)
    assert piece.chance == piece.likeliest[0].log_probability


def test_a_bias_and_penalties_change_the_choice(engine):
    first = tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=4)))
    banned = tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=4, logit_bias={first[0]: -100.0})))
    assert banned[0] != first[0]
    forced = tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=4, logit_bias={77: 100.0})))
    assert forced == [77] * 4
    once = tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=4, logit_bias={77: 50.0}, presence_penalty=90.0)))
    assert once.count(77) == 1


SCHEMA = {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 4},
    "n": {"type": "integer", "maximum": 99}},
    "required": ["name", "n"], "additionalProperties": False,
}  # fmt: skip


def test_texts_that_follow_grammars_run_beside_free_ones(model, engine):
    json_grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))
    digits = Grammar(GrammarKind.REGEX, "[0-9]{3}-[0-9]{2}")
    asked = [
        engine.submit(PROMPTS[place], Options(max_tokens=90, temperature=1.2, seed=place, grammar=grammar))
        for place, grammar in enumerate([json_grammar, digits, None, json_grammar, digits, None])
    ]
    texts = [request.text() for request in asked]
    for text in (texts[1], texts[4]):
        assert re.fullmatch("[0-9]{3}-[0-9]{2}", text)
    for text in (texts[0], texts[3]):
        found = json.loads(text)
        assert set(found) == {"name", "n"}
        assert found["n"] <= 99


def test_what_cannot_be_done_is_refused_in_a_sentence(model, engine):
    for prompt, options, words in (
        ([], {}, "prompt is empty"), ([999], {}, "token 999"), (list(range(128)), {}, "context has 128"),
        ([1], {"temperature": -1}, "temperature"), ([1], {"top_p": 2}, "top_p"), ([1], {"max_tokens": 0}, "max_tokens"),
        ([1], {"stop": ("",)}, "stop string is empty"), ([1], {"logit_bias": {9999: 1.0}}, "logit_bias"),
        ([1], {"grammar": Grammar(GrammarKind.REGEX, "(")}, "regex"),
        ([1], {"grammar": Grammar(GrammarKind.JSON_SCHEMA, "{")}, "json_schema"),
    ):  # fmt: skip
        with pytest.raises(InvalidGeneration, match=words):
            engine.submit(prompt, Options(**options))


def test_limits_of_memory_and_of_waiting_hold(model):
    row = model.decoder.new_state().nbytes_for(1, 20)
    limits = og.EngineOptions(max_batch=8, max_waiting=2, cache_bytes=row)
    with og.AsyncEngine(model, limits) as engine:
        with pytest.raises(InvalidGeneration, match="MB of caches"):
            engine.submit([1] * 10, Options(max_tokens=60))
        asked = []

        def ask_until_refused():
            while len(asked) < 200:
                asked.append(engine.submit([1] * 5, Options(max_tokens=15, min_tokens=15)))

        with pytest.raises(EngineBusy, match="wait already"):
            ask_until_refused()
        assert all(len(tokens_of(request)) == 15 for request in asked)
    with pytest.raises(EngineBusy, match="closed"):
        engine.submit([1], Options(max_tokens=1))


def test_a_step_that_fails_is_told_to_its_callers_and_the_engine_goes_on(model, engine, monkeypatch):
    with monkeypatch.context() as patch:
        state = type(engine._new_state(None))
        patch.setattr(state, "step", lambda *_: (_ for _ in ()).throw(RuntimeError("no more memory")))
        with pytest.raises(InvalidGeneration, match="no more memory"):
            engine.submit(PROMPTS[1], Options(max_tokens=4, min_tokens=4)).text()
    assert tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=4))) == alone(model, PROMPTS[1], 4)


def test_closing_ends_what_runs(model):
    engine = og.AsyncEngine(model)
    requests = [engine.submit(PROMPTS[1], Options(max_tokens=100, min_tokens=100)) for _ in range(200)]
    next(iter(requests[0]))
    engine.close()
    engine.close()
    for request in requests:
        list(request)
    assert {request.finished.reason for request in requests} <= {og.EndReason.CANCELLED, og.EndReason.LENGTH}
    assert requests[-1].finished.reason is og.EndReason.CANCELLED, "so many are not done by then on any machine"


def test_a_model_that_nobody_uses_goes_with_its_engine():
    model = og.Model(built())
    assert len(tokens_of(model.generate([5, 6], Options(max_tokens=2)))) == 2
    thread, known = model._engine._thread, weakref.ref(model)
    del model
    gc.collect()
    assert known() is None
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_an_engine_that_goes_unheard_does_not_leave_its_thread_behind(monkeypatch):
    """The thread itself may hold the last reference when it looks, just before it waits to be told."""
    monkeypatch.setattr(engine_module, "_LOOK_AGAIN_S", 0.01)
    idle = SimpleNamespace(is_closed=False, is_idle=True)
    looks = iter([idle, idle, None])
    thread = threading.Thread(
        target=engine_module._work, args=(lambda: next(looks), threading.Condition()), daemon=True
    )
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_request_outlives_the_names_of_its_engine():
    request = og.AsyncEngine(og.Model(built())).submit([5, 6], Options(max_tokens=20))
    gc.collect()
    assert len(tokens_of(request)) == 20


@pytest.mark.parametrize(
    "limit", [{"max_batch": 0}, {"max_waiting": 0}, {"cache_bytes": 0}, {"prefix_bytes": -1}, {"max_batch": 1.5}]
)
def test_limits_that_nobody_can_run_with_are_refused(limit):
    name, value = next(iter(limit.items()))
    with pytest.raises(InvalidGeneration, match=f"{name} = {value}; expected a whole number"):
        og.EngineOptions(**limit)


def test_a_stop_string_that_half_a_character_completes_at_the_last_token_ends_the_text(engine, model):
    prompt = [7, 101, 33, 250, 12]
    options = Options(max_tokens=1, logit_bias={111: 1e9}, stop=("\ufffd",))  # the first byte of a longer character
    request = engine.submit(prompt, options)
    assert (request.text(), request.finished.reason) == ("", og.EndReason.STOP)
