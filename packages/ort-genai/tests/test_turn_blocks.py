"""onnxruntime-genai's engine over blocks: who holds which, and drafts of several requests in one run."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from genai_built import built
from test_turns import drained, greedy, tokens_of, turn_options

import ort_genai as og
from ort_genai.paging.block_pool import BLOCK_ROWS
from ort_genai.paging.paged_states import PagedState

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
    pool = engine._runs.pool
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
    assert engine._runs.pool.held == 4, "the block that all share, and one of each"


def test_drafts_of_several_requests_are_read_in_one_run(model, engine, monkeypatch):
    runs = []
    run = PagedState._run
    monkeypatch.setattr(PagedState, "_run", lambda self, members, *rest, **more: (
        runs.append(len(members)), run(self, members, *rest, **more))[1])  # fmt: skip
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
