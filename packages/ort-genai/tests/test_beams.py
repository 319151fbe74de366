"""Beams: prompts are read once, and continuations suffice whatever ends a text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from genai_built import built

import ort_genai as og
from ort_genai.beam_search import BeamsState, _by_length
from ort_genai.errors import GenerationFailed
from ort_genai.search_options import SearchOptions

OPTIONS = SearchOptions(max_length=100, num_beams=2, num_return_sequences=2)


def test_a_prompt_is_read_once_for_all_beams(monkeypatch):
    model = og.Model(built())
    params = og.GeneratorParams(model)
    params.set_search_options(num_beams=3, batch_size=2, max_length=12)
    generator = og.Generator(model, params)
    read, state = [], generator._state
    monkeypatch.setattr(state, "read", lambda row, tokens, plain=state.read: read.append(row) or plain(row, tokens))
    generator.append_tokens(np.array([[5, 6, 7], [8, 9, 10]], np.int32))
    assert read == [0, 3]
    assert state.lengths == [3] * 6
    assert (generator.get_logits()[0] == generator.get_logits()[2]).all()


@pytest.mark.parametrize("shares_caches", [True, False])
def test_beams_find_what_they_find_with_a_prompt_for_each(shares_caches, monkeypatch):
    config = og.Config(built())
    config.overlay(json.dumps({"search": {"past_present_share_buffer": shares_caches}}))
    model = og.Model(config)
    params = og.GeneratorParams(model)
    params.set_search_options(num_beams=3, num_return_sequences=3, max_length=14)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([7, 101, 33], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    texts = [generator.get_sequence(place).tolist() for place in range(3)]
    assert len({tuple(text) for text in texts}) == 3
    scores = [total(model, text, 3) for text in texts]
    assert scores == sorted(scores, reverse=True)


def total(model, text, prompt):
    """Return the sum of log-probabilities of a text behind its prompt, read at once."""
    logits = model.decoder.run_alone(np.array(text, np.int64), "logits")[0].astype(np.float64)
    shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return sum(shares[place - 1, text[place]] for place in range(prompt, len(text)))


def test_tokens_that_end_a_text_leave_enough_others():
    beams = BeamsState([[1], [1]], np.array([0.0, -1.0]))
    logits = np.array([[0, 9, 8, 7, 6, 1], [0, 9, 8, 7, 6, 1]], np.float32)
    tokens, origins = beams.step(logits, OPTIONS, (1, 2, 3), 0)
    assert (tokens, origins) == ([4, 4], [0, 1])
    assert len(beams.finished) == 2


def test_beams_without_numbers_or_tokens_are_refused():
    with pytest.raises(GenerationFailed, match="the model gave NaN"):
        BeamsState.begun([1], 2).step(np.full((2, 4), np.nan, np.float32), OPTIONS, (3,), 0)
    only = np.full((2, 4), -np.inf, np.float32)
    only[0, 3] = 1
    with pytest.raises(GenerationFailed, match="0 tokens are allowed, and 2 beams are followed"):
        BeamsState.begun([1], 2).step(only, OPTIONS, (3,), 0)


def test_a_beam_without_an_allowed_token_gives_way():
    beams = BeamsState([[1], [2]], np.array([0.0, -1.0]))
    logits = np.array([[-np.inf] * 4, [1, 2, 3, 0]], np.float32)
    assert beams.step(logits, OPTIONS, (3,), 0) == ([2, 1], [1, 1])


@pytest.mark.parametrize(("penalty", "is_done"), [(2.0, True), (0.5, False)])
def test_beams_end_when_no_text_of_their_length_can_be_better(penalty, is_done):
    beams = BeamsState([[1, 2, 0], [1, 0, 0]], np.array([-5.0, -6.0]))
    options = SearchOptions(max_length=9, num_beams=2, early_stopping=False, length_penalty=penalty)
    texts = ([1, 2], -0.1 * 2**penalty), ([1, 2, 3], -4 if is_done else -6)
    beams.finished = [(_by_length(text, score, options), text) for text, score in texts]
    logits = np.array([[90, 0, 0, -90], [90, 0, 0, -90]], np.float32)
    beams.step(logits, options, (3,), 0)
    assert beams.is_done is is_done


@pytest.mark.parametrize("penalty", [-3.0, 0.0, 0.7, 1.0, 2.0])
def test_texts_are_ranked_by_score_and_length(penalty):
    options, random = SearchOptions(length_penalty=penalty), np.random.default_rng(1)
    texts = [([0] * int(random.integers(1, 200)), -float(random.exponential(20))) for _ in range(300)]
    texts.append(([0], -np.inf))
    by_quotient = sorted(texts, key=lambda each: each[1] / len(each[0]) ** penalty)
    assert sorted(texts, key=lambda each: _by_length(*each, options)) == by_quotient


@pytest.mark.parametrize("penalty", [1e6, -1e6, 300.0])
def test_powers_of_lengths_may_be_beyond_all_numbers(penalty):
    params = og.GeneratorParams(og.Model(built()))
    params.set_search_options(max_length=30, num_beams=3, length_penalty=penalty, early_stopping=False)
    generator = og.Generator(params.model, params)
    generator.append_tokens([7, 101, 33])
    while not generator.is_done():
        generator.generate_next_token()
    options = SearchOptions(length_penalty=penalty)
    longer, shorter = _by_length([0] * 9, -5.0, options), _by_length([0] * 8, -5.0, options)
    assert (longer > shorter) == (penalty > 0), "a power divides what is below 0"
