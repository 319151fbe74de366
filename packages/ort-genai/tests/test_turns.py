"""onnxruntime-genai's engine: turns, events, drafts; what is expected was seen in its version 0.18."""

from __future__ import annotations

import numpy as np
import pytest
from genai_built import built, built_wide

import ort_genai as og
from ort_genai.errors import InvalidGeneration

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


@pytest.fixture
def engine(model):
    return og.Engine(model)


def drained(engine, capacity=8, calls=500):
    """Return all events until nothing is pending."""
    buffer, found = engine.create_event_buffer(capacity), []
    for _ in range(calls):
        if not engine.has_pending_requests():
            return found
        found += list(engine.run(buffer))
    raise AssertionError("the engine did not end")


def turn_options(request, **settings):
    made = og.TurnOptions(request)
    for name, value in settings.items():
        getattr(made, f"set_{name}")(value)
    return made


def tokens_of(events, request=None):
    return [each.token for each in events if each.token is not None and request in (None, each.request)]


def greedy(model, prompt, count):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + count)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompt))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()[len(prompt) :]


def test_a_turn_gives_the_tokens_of_a_generator_and_its_usage(model, engine):
    request = engine.create_request()
    assert request.begin_turn(PROMPT, turn_options(request, max_generated_tokens=6)) == 1
    events = drained(engine)
    assert tokens_of(events) == greedy(model, PROMPT, 6)
    flags = og.EngineEventFlags
    assert [each.flags for each in events] == [flags.TOKEN] * 5 + [flags.TOKEN | flags.TURN_FINISHED]
    assert events[-1].finish_reason is og.FinishReason.MAX_GENERATED_TOKENS
    assert events[-1].usage == og.TurnUsage(3, 6, 0)
    assert all(each.usage == og.TurnUsage() and each.request is request for each in events[:-1])


def test_the_next_turn_goes_on_behind_all_that_was_said(model, engine):
    request = engine.create_request()
    request.begin_turn(PROMPT, turn_options(request, max_generated_tokens=4))
    said = tokens_of(drained(engine))
    assert request.begin_turn([9, 8], turn_options(request, max_generated_tokens=5)) == 2
    events = drained(engine)
    assert tokens_of(events) == greedy(model, [*PROMPT, *said, 9, 8], 5)
    assert events[-1].usage.prompt_tokens == 2


def test_a_token_that_ends_a_text_is_neither_told_nor_kept():
    config = og.Config(built())
    first = greedy(og.Model(config), PROMPT, 3)
    config.overlay(f'{{"model": {{"eos_token_id": [{first[2]}]}}}}')
    engine = og.Engine(og.Model(config))
    request = engine.create_request()
    request.begin_turn(PROMPT)
    events = drained(engine)
    assert tokens_of(events) == first[:2]
    assert (events[-1].flags, events[-1].finish_reason) == (og.EngineEventFlags.TURN_FINISHED, og.FinishReason.EOS)
    assert events[-1].usage == og.TurnUsage(3, 2, 0)
    with pytest.raises(InvalidGeneration, match=r"current_sequence_length \(5\)"):
        request.begin_turn([1] * 200)


def test_requests_of_different_prompts_run_together_as_alone(model, engine):
    prompts = [[5], [7, 101, 33, 250, 12], [3, 1, 4, 1, 5, 9, 2, 6], [200, 100], [8, 8, 8], [77]]
    requests = []
    for prompt in prompts:
        requests.append(engine.create_request())
        requests[-1].begin_turn(prompt, turn_options(requests[-1], max_generated_tokens=7))
    events = drained(engine, capacity=3)  # a call that gives more leaves the rest for the next
    for request, prompt in zip(requests, prompts, strict=True):
        assert tokens_of(events, request) == greedy(model, prompt, 7)
    assert engine.get_capabilities().configured_max_batch_size == 4


def test_a_cancelled_turn_ends_and_leaves_what_was_said(model, engine):
    request, other = engine.create_request(), engine.create_request()
    request.begin_turn(PROMPT)
    other.begin_turn([9], turn_options(other, max_generated_tokens=5))
    buffer = engine.create_event_buffer(8)
    said = [each.token for _ in range(3) for each in engine.run(buffer) if each.request is request]
    assert (request.cancel_turn(7), request.cancel_turn(1), request.cancel_turn(1)) == (False, True, False)
    with pytest.raises(InvalidGeneration, match="event is pending"):
        request.begin_turn([4])
    events = drained(engine)
    cancelled = [each for each in events if each.request is request]
    assert [each.finish_reason for each in cancelled] == [og.FinishReason.CANCELLED]
    request.begin_turn([4], turn_options(request, max_generated_tokens=4))
    assert tokens_of(drained(engine)) == greedy(model, [*PROMPT, *said, 4], 4)


def test_a_request_is_rewound_to_the_start_of_a_turn(model, engine):
    request = engine.create_request()
    for prompt in (PROMPT, [9], [10]):
        request.begin_turn(prompt, turn_options(request, max_generated_tokens=3))
        drained(engine)
    request.rewind_to_start_of_turn(2)
    with pytest.raises(InvalidGeneration, match="unknown Turn ID 3"):
        request.rewind_to_start_of_turn(3)
    request.begin_turn([11, 12], turn_options(request, max_generated_tokens=4))
    assert tokens_of(drained(engine)) == greedy(model, [*PROMPT, *greedy(model, PROMPT, 3), 11, 12], 4)


@pytest.mark.parametrize("shares", [True, False])
def test_drafts_change_nothing_but_how_many_tokens_a_call_gives(shares):
    config = og.Config(built())
    config.overlay(f'{{"search": {{"past_present_share_buffer": {str(shares).lower()}}}}}')
    model = og.Model(config)
    expected = greedy(model, PROMPT, 24)
    engine = og.Engine(model)
    request, other = engine.create_request(), engine.create_request()
    request.begin_turn(PROMPT, turn_options(request, max_generated_tokens=24))
    other.begin_turn([9], turn_options(other, max_generated_tokens=24))
    with pytest.raises(InvalidGeneration, match="ready to decode"):
        request.set_draft_tokens([1])
    buffer, found, calls = engine.create_event_buffer(16), [], 0
    random = np.random.default_rng(3)
    while engine.has_pending_requests():
        events = list(engine.run(buffer))
        found += events
        calls += 1
        said = len(tokens_of(found, request))
        if 0 < said < 24 and request.turn is not None:  # right guesses, with a wrong one among them now and then
            drafts = expected[said : said + 4]
            if drafts and random.random() < 0.5:
                drafts[-1] = (drafts[-1] + 1) % 250
            request.set_draft_tokens(drafts)
    assert tokens_of(found, request) == expected
    assert tokens_of(found, other) == greedy(model, [9], 24)
    stats = engine.get_speculative_stats()
    assert 0 < stats["draft_tokens_accepted"] < stats["draft_tokens_proposed"]
    request.begin_turn([11], turn_options(request, max_generated_tokens=4))  # its caches have no wrong guess
    assert tokens_of(drained(engine)) == greedy(model, [*PROMPT, *expected, 11], 4)


def test_options_of_a_turn_bind_it_alone(model, engine):
    first = greedy(model, PROMPT, 6)
    text = og.Tokenizer(model)
    request = engine.create_request()
    request.begin_turn(PROMPT, _guided(request))
    assert all(piece in "abc" for piece in text.decode(tokens_of(drained(engine))))
    stop = text.decode([first[0]])
    request = engine.create_request()
    options = turn_options(request, max_generated_tokens=6, stop_strings=["never", stop])
    request.begin_turn(PROMPT, options)
    last = drained(engine)[-1]
    assert (last.finish_reason, last.matched_stop_string_index) == (og.FinishReason.STOP_STRING, 1)
    options.reset()
    options.set_no_repeat_ngram_size(1)
    options.set_max_generated_tokens(20)
    request.rewind_to_start_of_turn(1)
    request.begin_turn(PROMPT, options)
    said = tokens_of(drained(engine))
    assert len(set(said)) == len(said) == 20


def test_a_stop_string_is_found_however_many_tokens_it_has(model, engine):
    prompt, text = [7, 101, 33, 250, 12], og.Tokenizer(model)
    said = greedy(model, prompt, 9)
    for end in range(3, 10):
        request, stop = engine.create_request(), text.decode(said[2:end])
        assert stop.isascii()
        request.begin_turn(prompt, turn_options(request, max_generated_tokens=12, stop_strings=["never", stop]))
        events = drained(engine)
        assert (events[-1].finish_reason, tokens_of(events)) == (og.FinishReason.STOP_STRING, said[:end])


def _guided(request):
    made = turn_options(request, max_generated_tokens=3)
    made.set_guidance("regex", "[a-c]{3}")
    return made


def test_a_seed_gives_the_same_draws(model, engine):
    found = []
    for seed in (1, 1, 2):
        request = engine.create_request()
        options = turn_options(request, do_sample=True, temperature=1.5, top_k=0, seed=seed, max_generated_tokens=12)
        request.begin_turn(PROMPT, options)
        found.append(tokens_of(drained(engine)))
    assert found[0] == found[1] != found[2]


def test_the_session_ends_at_its_longest(engine):
    options = og.RequestOptions()
    options.set_max_session_tokens(6)
    request = engine.create_request(options=options)
    request.begin_turn([1, 2, 3])
    last = drained(engine)[-1]
    assert (last.finish_reason, last.usage.generated_tokens) == (og.FinishReason.MAX_SESSION_TOKENS, 3)
    with pytest.raises(InvalidGeneration, match=r"max_session_tokens \(6\)"):
        request.begin_turn([1])


def test_a_prompt_that_another_request_began_with_is_read_from_there():
    engine = og.Engine(og.Model(built_wide()))
    shared = [int(each) for each in np.random.default_rng(2).integers(3, 250, 600)]
    for end, cached in (([1] * 17, 0), ([2] * 17, 600)):
        request = engine.create_request()
        request.begin_turn([*shared, *end], turn_options(request, max_generated_tokens=2))
        assert drained(engine)[-1].usage.cached_prompt_tokens == cached


def test_calls_that_do_not_fit_are_refused(model, engine):
    request, other = engine.create_request(), engine.create_request()
    for call, kind, text in (
        (lambda: request.begin_turn([]), InvalidGeneration, "at least one input token"),
        (lambda: request.begin_turn([[1, 2]]), ValueError, "one-dimensional"),
        (lambda: request.begin_turn([1 << 20]), InvalidGeneration, "none of the model's"),
        (lambda: request.begin_turn([1], turn_options(other)), InvalidGeneration, "different or destroyed"),
        (lambda: request.begin_turn([1], turn_options(request, top_p=2.0)), InvalidGeneration, "top_p"),
        (lambda: turn_options(request, stop_strings=["a", ""]), InvalidGeneration, "index 1 is empty"),
        (lambda: turn_options(request, seed=-1), TypeError, "seed"),
        (lambda: engine.create_event_buffer(-1), TypeError, "capacity"),
        (lambda: engine.run(None), TypeError, "create_event_buffer"),
        (lambda: request.rewind_to_start_of_turn(1), InvalidGeneration, "unknown Turn ID 1"),
    ):
        with pytest.raises(kind, match=text):
            call()
    assert request.begin_turn([1]) == 1
    with pytest.raises(InvalidGeneration, match="only valid for a new request"):
        request.begin_turn([1])
    request.close()
    request.close()
    assert not engine.has_pending_requests()
    with pytest.raises(InvalidGeneration, match="closed"):
        request.begin_turn([1])


def test_a_run_that_fails_ends_its_request_alone(model, engine, monkeypatch):
    request, other = engine.create_request(), engine.create_request()
    other.begin_turn([9], turn_options(other, max_generated_tokens=3))
    buffer = engine.create_event_buffer(4)
    said = list(engine.run(buffer))
    request.begin_turn(PROMPT)
    monkeypatch.setattr(type(engine._state), "export_row", lambda *_: (_ for _ in ()).throw(MemoryError("full")))
    said += list(engine.run(buffer))
    monkeypatch.undo()
    said += drained(engine)
    failed = [each for each in said if each.request is request]
    assert [each.finish_reason for each in failed] == [og.FinishReason.FAILED]
    assert failed[0].flags & og.EngineEventFlags.FAILED
    assert "full" in failed[0].error
    assert tokens_of(said, other) == greedy(model, [9], 3)
