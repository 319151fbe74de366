"""onnxruntime-genai's engine over blocks: who holds which, and drafts of several requests in one run."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from genai_built import built
from test_turns import drained, greedy, tokens_of, turn_options

import ort_genai as og
from ort_genai.errors import InvalidGeneration
from ort_genai.paging.block_pool import BLOCK_ROWS, OutOfBlocks
from ort_genai.paging.paged_states import PagedRuns, PagedState

PROMPTS = [np.random.default_rng(7).integers(3, 250, length).tolist() for length in (70, 3, 20, 66)]


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


@pytest.fixture
def engine(model):
    return og.Engine(model)


def begun(engine, prompt, count):
    request = engine.create_request()
    request.begin_turn(prompt, turn_options(request, max_generated_tokens=count))
    return request


def test_turns_over_blocks_give_a_generators_tokens(model, engine):
    requests = [begun(engine, prompt, 8) for prompt in PROMPTS]
    assert isinstance(engine._state, PagedState)
    events = drained(engine)
    said = [tokens_of(events, request) for request in requests]
    assert said == [greedy(model, prompt, 8) for prompt in PROMPTS]
    for request in requests:
        request.begin_turn([9, 8], turn_options(request, max_generated_tokens=5))
    events = drained(engine)
    for request, prompt, before in zip(requests, PROMPTS, said, strict=True):
        assert tokens_of(events, request) == greedy(model, [*prompt, *before, 9, 8], 5)


def test_closed_canceled_rewound_and_forgotten_requests_give_blocks_back(model, monkeypatch):
    monkeypatch.setattr("ort_genai.turns.engine._PREFIX_BYTES", 0)
    engine = og.Engine(model)
    pool = engine._room.pool
    closed, canceled, rewound, forgotten = (begun(engine, prompt, 4) for prompt in PROMPTS)
    drained(engine)
    assert pool.held == 2 + 1 + 1 + 2
    turn = canceled.begin_turn([1] * 30)
    engine.run(engine.create_event_buffer(4))
    assert canceled.cancel_turn(turn)
    drained(engine)
    for request in (closed, canceled):
        request.close()
    rewound.rewind_to_start_of_turn(1)
    assert pool.held == 2, "of the one that nobody closed"
    del request, forgotten
    gc.collect()
    engine.run(engine.create_event_buffer(4))
    assert pool.held == 0
    rewound.begin_turn(PROMPTS[2])
    engine.run(engine.create_event_buffer(4))
    rewound.close()
    assert pool.held == 0


def test_requests_share_a_beginning(engine):
    common = PROMPTS[0][:BLOCK_ROWS]
    for place in range(3):
        begun(engine, [*common, *[20 + place] * 20], 2)
        drained(engine)
    assert engine._room.pool.held == 4, "the block that all share, and one of each"


def test_drafts_of_several_requests_are_read_in_one_run(model, engine, monkeypatch):
    runs = []
    run = PagedRuns.run
    monkeypatch.setattr(PagedRuns, "run", lambda self, fed, *rest: (runs.append(len(fed)), run(self, fed, *rest))[1])
    requests = [begun(engine, prompt, 12) for prompt in PROMPTS[1:]]
    expected = [greedy(model, prompt, 12) for prompt in PROMPTS[1:]]
    buffer, events = engine.create_event_buffer(64), []
    while sum(request.is_ready for request in requests) < 3:
        events += list(engine.run(buffer))
    for request, text, wrong in zip(requests, expected, (0, 1, 0), strict=True):
        said = len(tokens_of(events, request))
        request.set_draft_tokens([text[said], text[said + 1] + wrong])
    del runs[:]
    found = list(engine.run(buffer))
    assert runs == [3], "one run reads all"
    assert [len(tokens_of(found, request)) for request in requests] == [3, 2, 3]
    events += found + drained(engine)
    assert [tokens_of(events, request) for request in requests] == expected


def test_a_part_of_a_prompt_is_read_in_the_run_of_a_step(model, engine, monkeypatch):
    runs, run = [], PagedRuns.run
    monkeypatch.setattr(PagedRuns, "run", lambda self, fed, *rest: (runs.append(len(fed)), run(self, fed, *rest))[1])
    buffer = engine.create_event_buffer(16)
    requests = [begun(engine, PROMPTS[1], 12)]
    events = [*engine.run(buffer), *engine.run(buffer)]
    requests.append(begun(engine, PROMPTS[0], 12))
    del runs[:]
    events += list(engine.run(buffer))
    assert runs == [2], "the prompt and the step are one run"
    events += drained(engine)
    assert [tokens_of(events, each) for each in requests] == [greedy(model, prompt, 12) for prompt in PROMPTS[1::-1]]


@pytest.fixture
def small_blocks(monkeypatch):
    for module in ("paging.block_pool", "paging.paged_states", "turns.engine"):
        monkeypatch.setattr(f"ort_genai.{module}.BLOCK_ROWS", 8)


@pytest.mark.parametrize("count", [11, 14, 40])
def test_bytes_of_blocks_are_bounded_and_texts_stay_the_same(model, small_blocks, count):
    engine = og.Engine(model, cache_bytes=count * model.decoder.cache_bytes(8))
    pool, prompts = engine._room.pool, [prompt[:30] for prompt in PROMPTS]
    said = [[] for _ in prompts]
    requests = [begun(engine, prompt, 40) for prompt in prompts]
    for turn in range(3):
        events, buffer = [], engine.create_event_buffer(64)
        while engine.has_pending_requests():
            events += list(engine.run(buffer))
            assert pool.held <= len(pool.arrays[0]) <= count
        for place, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
            wanted = greedy(model, [*prompt, *said[place]], 40 if not turn else 5)
            assert tokens_of(events, request) == wanted
            said[place] += [*wanted, 9, turn]
        if turn < 2:
            for request in requests:
                request.begin_turn([9, turn], turn_options(request, max_generated_tokens=5))


def test_what_a_folder_states_bounds_blocks(model):
    config = og.Config(built())
    assert og.Engine(og.Model(config))._room.pool.left_for_rows > 1 << 40
    config.overlay('{"engine": {"dynamic_batching": {"num_blocks": 3, "block_size": 128}}}')
    assert og.Engine(og.Model(config))._room.pool.left_for_rows == 3 * 128 // BLOCK_ROWS
    config.overlay('{"engine": {"dynamic_batching": {"num_blocks": 2, "block_size": null}}}')
    assert og.Engine(og.Model(config))._room.pool.left_for_rows == 2 * 256 // BLOCK_ROWS
    with pytest.raises(InvalidGeneration, match="one block"):
        og.Engine(model, cache_bytes=100)


def test_a_request_that_never_fits_is_refused_and_others_go_on(model):
    engine = og.Engine(model, cache_bytes=model.decoder.cache_bytes(BLOCK_ROWS))
    large, grown, small = begun(engine, PROMPTS[0], 4), begun(engine, PROMPTS[2], 90), begun(engine, PROMPTS[1], 4)
    events = drained(engine)
    failed = {id(event.request): event for event in events if event.flags & og.EngineEventFlags.FAILED}
    assert set(failed) == {id(large), id(grown)}
    assert {event.error_code for event in failed.values()} == {og.EngineErrorCode.REQUEST_UNSERVICEABLE}
    assert tokens_of(events, grown) == greedy(model, PROMPTS[2], 45)[: len(tokens_of(events, grown))]
    assert len(tokens_of(events, grown)) > 40
    assert tokens_of(events, small) == greedy(model, PROMPTS[1], 4)


def test_what_a_turn_kept_is_given_back_where_the_next_one_finds_no_room(model, monkeypatch):
    monkeypatch.setattr("ort_genai.turns.engine._PREFIX_BYTES", 0)
    engine = og.Engine(model)
    request = begun(engine, PROMPTS[0], 4)
    drained(engine)
    assert engine._room.pool.held == 2

    def fails(*_):
        raise OutOfBlocks

    monkeypatch.setattr(PagedState, "import_row", fails)
    request.begin_turn([9, 8], turn_options(request, max_generated_tokens=4))
    (failed,) = drained(engine)
    assert failed.flags & og.EngineEventFlags.FAILED
    assert engine._room.pool.held == 0
