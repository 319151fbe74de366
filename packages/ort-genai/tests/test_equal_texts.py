"""What a request gets does not depend on who else asks, nor on what was asked before, bit for bit.

The models have weights of 4 bits. With accuracy level 2 their products take any number of rows alike, as two bytes a
number; without they sum few rows in another order than many.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from genai_built import built

import ort_genai as og
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.quantized.nbits_byte_tile import multiplies_bytes
from ort_genai.builder.precision_names import Precision
from ort_genai.engine.scores import scored_prompt
from ort_genai.paging.paged_states import PagedState
from ort_genai.prompt_parts import FEW_ROWS, part_length, reusable_length, steps_of

RANDOM = np.random.default_rng(12)
LENGTHS = (1, 3, 15, 16, 17, 18, 25, 33, 34, 47, 64, 70, 90, 5, 20, 40, 60, 16, 17, 100)
PROMPTS = [RANDOM.integers(3, 250, length).tolist() for length in LENGTHS]
COUNT, EVERY = 8, range(len(PROMPTS))


@pytest.fixture(scope="module", params=[2, 0], ids=["level 2", "level 0"])
def model(request):
    return og.Model(built(precision=Precision.INT4, accuracy_level=request.param))


def options(seed):
    return og.GenerationOptions(
        max_tokens=COUNT,
        min_tokens=COUNT,
        temperature=1.5,
        seed=seed,
        tells_log_probabilities=True,
        log_probabilities=3,
    )


def asked(engine, numbers=EVERY):
    """Return tokens with their log-probabilities, and those of the likeliest ones, of prompts that run together."""
    requests = [engine.submit(PROMPTS[number], options(number)) for number in numbers]
    return [pieces_of(request) for request in requests]


def pieces_of(request):
    return [(piece.token, piece.chance, piece.likeliest) for piece in request]


def engine_of(model, batch=1, prefix_bytes=0):
    return og.AsyncEngine(model, og.EngineOptions(max_batch=batch, prefix_bytes=prefix_bytes))


@pytest.fixture(scope="module")
def alone(model):
    """What each prompt gets in an engine of its own."""
    found = []
    for number in range(len(PROMPTS)):
        with engine_of(model) as engine:
            found += asked(engine, [number])
    return found


@pytest.mark.parametrize("batch", [2, 8, 20])
def test_texts_of_a_batch_are_those_alone(model, alone, batch):
    with engine_of(model, batch) as engine:
        assert asked(engine) == alone
        assert engine.current_counts().steps < len(PROMPTS) * (COUNT - 1)


@pytest.mark.parametrize("batch", [1, 8])
def test_texts_of_the_second_time_are_those_of_the_first(model, alone, batch):
    with engine_of(model, batch, 64 << 20) as engine:
        assert asked(engine) == alone
        assert not engine.current_counts().cached_tokens
        assert asked(engine) == alone
        assert engine.current_counts().cached_tokens == sum(reusable_length(length) for length in LENGTHS)


def test_texts_behind_other_beginnings_and_answers_are_those_alone(model, alone):
    with engine_of(model, 4, 64 << 20) as engine:
        for number, prompt in enumerate(PROMPTS):
            for length in (5, 14, 16, 17, 30, 60):  # beginnings, short ones among them, that were read and gone on from
                list(engine.submit([*prompt[:length], 7], options(number)))
        assert asked(engine) == alone


def test_a_chat_that_goes_on_gets_what_it_gets_in_a_new_engine(model):
    first = PROMPTS[9]
    with engine_of(model, 1, 64 << 20) as engine:
        answer = [piece.token for piece in engine.submit(first, options(1))]
        prompt = [*first, *answer, *PROMPTS[6]]
        found = engine.submit(prompt, options(2))
        pieces = pieces_of(found)
    assert found.finished.cached_tokens == len(first), "what was generated was read token by token"
    with engine_of(model) as engine:
        assert pieces == pieces_of(engine.submit(prompt, options(2)))


@pytest.mark.parametrize("part", [33, 40, 64])
def test_texts_do_not_depend_on_the_parts_of_prompts(model, alone, part, monkeypatch):
    monkeypatch.setattr("ort_genai.engine.lanes._PART", part)
    monkeypatch.setattr("ort_genai.decoder_states._CHUNK", part)
    with engine_of(model, 4, 64 << 20) as engine:
        assert asked(engine) == alone
        assert asked(engine) == alone


@pytest.mark.parametrize("part", [33, 64])
def test_chances_of_a_prompt_do_not_depend_on_its_parts(model, part, monkeypatch):
    def scored():
        return [scored_prompt(model.decoder.new_state(), model.text, prompt, 2) for prompt in PROMPTS]

    monkeypatch.setattr("ort_genai.engine.scores._PART", 512)
    whole = scored()
    monkeypatch.setattr("ort_genai.engine.scores._PART", part)
    assert scored() == whole


def test_texts_beside_those_that_are_cancelled_are_those_alone(model, alone):
    with engine_of(model, 6, 64 << 20) as engine:
        for turn in range(3):
            others = [
                engine.submit(PROMPTS[(number + turn) % len(PROMPTS)], og.GenerationOptions(max_tokens=20))
                for number in range(6)
            ]
            mine = [engine.submit(PROMPTS[number], options(number)) for number in range(len(PROMPTS))]
            for place, other in enumerate(others):
                if place % 2:
                    next(iter(other))
                other.cancel()
            assert [pieces_of(request) for request in mine] == alone


def test_requests_of_the_engine_that_the_caller_runs_get_the_same_the_second_time(model):
    engine, found = og.Engine(model), []
    buffer = engine.create_event_buffer(64)
    for _ in range(2):
        requests = [engine.create_request() for _ in PROMPTS]
        texts = {id(request): [] for request in requests}
        for request, prompt in zip(requests, PROMPTS, strict=True):
            chosen = og.TurnOptions(request)
            chosen.set_max_generated_tokens(COUNT)
            request.begin_turn(prompt, chosen)
        while engine.has_pending_requests():
            for event in engine.run(buffer):
                if event.token is not None:
                    texts[id(event.request)].append(event.token)
        found.append(list(texts.values()))
    assert found[0] == found[1]


def test_a_step_of_many_rows_tells_all_of_them(model):
    state, single = model.decoder.new_state(), model.decoder.new_state()
    single.add_row()
    for prompt in PROMPTS:
        state.read(state.add_row(), np.array(prompt))
    tokens = np.arange(10, 10 + len(PROMPTS))
    found = state.step(tokens)
    assert state.lengths == [length + 1 for length in LENGTHS]
    assert state.last_logits.shape == (len(PROMPTS), 1, model.decoder.vocab_size)
    assert state.last_feeds[model.decoder.tokens].ravel().tolist() == tokens.tolist()
    assert {len(each) for each in state.last_feeds.values()} == {len(PROMPTS)}
    single.read(0, np.array(PROMPTS[-1]))
    assert (found[-1] == single.step(tokens[-1:])[0]).all()


def test_only_models_of_few_bits_divide_a_step(model):
    assert model.decoder.rows_of_step == FEW_ROWS
    assert og.Model(built()).decoder.rows_of_step is None


def test_parts_of_prompts_are_read_in_runs_of_steps_where_rows_stay_the_same(model, alone, monkeypatch):
    mixed, beside = [], PagedState.step_beside
    monkeypatch.setattr(PagedState, "step_beside", lambda *given: mixed.append(1) or beside(*given))
    may_mix = model.decoder.mixes(3)
    mixed.clear()
    with engine_of(model, 4) as engine:
        assert asked(engine) == alone
    assert bool(mixed) == may_mix


def test_models_whose_rows_stay_the_same_mix(model, request):
    is_in_bytes = "level 2" in request.node.name and multiplies_bytes(4, host_target())
    assert model.decoder.mixes(3) == is_in_bytes, "floats of many rows are summed otherwise"
    assert og.Model(built()).decoder.mixes(3)
    wide = is_in_bytes and multiplies_bytes(8, host_target())  # the head's weights have 8 bits
    assert model.decoder.mixes(20) == wide


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "phi3", "gpt2", "smollm3_windows"])
def test_texts_of_other_families_are_those_alone(family):
    model, numbers = og.Model(built(family, precision=Precision.INT4)), range(6, 14)
    alone = []
    for number in numbers:
        with engine_of(model) as engine:
            alone += asked(engine, [number])
    with engine_of(model, 5) as engine:
        assert asked(engine, numbers) == alone


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2", "x86-64-v4,+avx512vnni"])
def test_code_of_each_level_gives_equal_texts(level):
    chosen = "batch or parts or second_time or mix"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-k", chosen, __file__]
    environment = {**os.environ, "ORT_CPU_TARGET": level}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if "which this machine or LLVM does not know" in done.stdout:
        pytest.skip(f"this machine runs no code of {level}")
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_part_of_a_long_prompt_is_of_few_rows():
    for most in (33, 64, 256):
        for count in range(1, 3 * most):
            left, parts = count, []
            while left:
                parts.append(part_length(left, most))
                left -= parts[-1]
            assert all(each == most for each in parts[:-1])
            assert parts[-1] <= most + FEW_ROWS
            assert parts == [count] if count <= FEW_ROWS else min(parts) > FEW_ROWS
    assert steps_of(20, 16) == [(0, 10), (10, 20)]
    assert steps_of(0, 16) == [(0, 0)]
