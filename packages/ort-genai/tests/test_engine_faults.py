"""What goes wrong with one text is told to its caller alone, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from genai_built import built, built_wide
from test_engine import PROMPTS, Options, alone, tokens_of

import ort_genai as og
from ort_genai.engine.texts import TextState
from ort_genai.errors import EngineBusy, GenerationFailed, InvalidGeneration
from ort_genai.paging.paged_states import PagedState
from ort_genai.sampling import candidates, chosen, log_probabilities, penalized
from ort_genai.search_options import SearchOptions


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


@pytest.fixture
def engine(model):
    with og.AsyncEngine(model, og.EngineOptions(max_batch=4)) as made:
        yield made


def test_a_loop_that_was_closed_with_a_text_unread_disturbs_nobody(model, engine):
    left = engine.submit(PROMPTS[2], Options(max_tokens=90, min_tokens=90))
    other = engine.submit(PROMPTS[3], Options(max_tokens=90, min_tokens=90))
    loop = asyncio.new_event_loop()

    async def take_one():
        pieces = aiter(left)
        await anext(pieces)
        return pieces

    async def give_up(pieces):
        await pieces.aclose()

    pieces = loop.run_until_complete(take_one())
    loop.close()  # without its asynchronous generators being closed: the engine finds a loop that is gone
    assert len(tokens_of(other)) == 90
    assert other.finished.reason is og.EndReason.LENGTH
    asyncio.run(give_up(pieces))  # what the collector would otherwise find, and warn of where it does


def test_a_text_that_ended_can_be_asked_again(engine):
    request = engine.submit(PROMPTS[1], Options(max_tokens=4, min_tokens=4))
    first = request.text()
    assert request.text() == first
    assert list(request) == []


def test_one_text_without_numbers_fails_alone(model, engine, monkeypatch):
    take = TextState.take
    broken = engine.model.text.encode("x")

    def taken(state, logits):
        return take(state, np.full_like(logits, np.nan) if state._read[:1] == broken else logits)

    monkeypatch.setattr(TextState, "take", taken)
    asked = [engine.submit(prompt, Options(max_tokens=5)) for prompt in (PROMPTS[1], broken, PROMPTS[2])]
    with pytest.raises(GenerationFailed, match="NaN"):
        asked[1].text()
    for request, prompt in ((asked[0], PROMPTS[1]), (asked[2], PROMPTS[2])):
        assert tokens_of(request) == alone(model, prompt, 5)


def test_one_prompt_that_cannot_be_read_fails_alone(model, engine, monkeypatch):
    fed = PagedState._fed_to

    def fails(state, row, tokens):
        if len(tokens) == 77:
            raise MemoryError("no room")
        return fed(state, row, tokens)

    monkeypatch.setattr(PagedState, "_fed_to", fails)
    asked = [engine.submit(prompt, Options(max_tokens=9)) for prompt in (PROMPTS[1], [5] * 77, PROMPTS[2])]
    with pytest.raises(GenerationFailed, match="no room"):
        asked[1].text()
    assert tokens_of(asked[0]) == alone(model, PROMPTS[1], 9)
    assert tokens_of(asked[2]) == alone(model, PROMPTS[2], 9)


def test_who_waits_and_gives_up_is_let_go_at_once(model):
    with og.AsyncEngine(model, og.EngineOptions(max_batch=1)) as engine:
        first = engine.submit([3], Options(max_tokens=120, min_tokens=120))
        waiting = [engine.submit([4], Options(max_tokens=5)) for _ in range(3)]
        waiting[1].cancel()
        assert list(waiting[1]) == []
        assert waiting[1].finished.reason is og.EndReason.CANCELLED
        assert first.finished is None
        first.cancel()
        assert [len(tokens_of(each)) <= 5 for each in (waiting[0], waiting[2])] == [True, True]


class Panic(BaseException):
    """As a library's own panic is: no Exception."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_panic_ends_all_and_leaves_nobody_waiting(model, monkeypatch):
    def panics(*_):
        raise Panic

    engine = og.AsyncEngine(model)
    monkeypatch.setattr(TextState, "take", panics)
    asked = [engine.submit([3], Options(max_tokens=5)) for _ in range(2)]
    ended = threading.Thread(target=lambda: [list(each) for each in asked], daemon=True)
    ended.start()
    ended.join(30)
    assert all(each.finished.reason is og.EndReason.CANCELLED for each in asked)
    with pytest.raises(EngineBusy, match="closed"):
        engine.submit([3])
    engine.close()


@pytest.mark.parametrize("do_sample", [False, True])
def test_logits_of_which_none_can_be_chosen_are_told(do_sample):
    options, random = SearchOptions(do_sample=do_sample), np.random.default_rng(1)
    for logits, words in (
        (np.full(9, -np.inf, np.float32), "forbidden"), (np.array([1, np.nan, 2], np.float32), "NaN")
    ):  # fmt: skip
        with pytest.raises(GenerationFailed, match=words):
            chosen(logits, options, random)


def sorted_candidates(logits, options):
    """Return what may be drawn by the definition: all are sorted, then cut."""
    values = logits.astype(np.float64) / options.temperature
    order = np.lexsort((np.arange(len(values)), -values))[: options.top_k or None]
    shares = np.exp(values[order] - values.max())
    shares /= shares.sum()
    kept = np.cumsum(shares) - shares < options.top_p
    kept &= shares >= options.min_p * shares[0]
    return order[kept], shares[kept] / shares[kept].sum()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-200, 1e-40, 1e-3])
@pytest.mark.parametrize("top_k", [0, 3])
def test_temperatures_near_zero_draw_the_most_likely_token(temperature, top_k):
    options, random = SearchOptions(do_sample=True, temperature=temperature, top_k=top_k), np.random.default_rng(4)
    for top_p in (1.0, 0.5):
        logits = random.standard_normal(500).astype(np.float32) * 5
        logits[random.integers(500)] = 30
        assert chosen(logits, replace(options, top_p=top_p), random) == logits.argmax()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("penalty", [1e-300, 1e-45, 1e-38, 1e-6, 1e6, 1e38, 1e300])
def test_penalties_of_any_size_leave_numbers(penalty):
    options, random = SearchOptions(do_sample=True, repetition_penalty=penalty), np.random.default_rng(5)
    logits = np.array([-3, 0, 2, 1, 0.5], np.float32)
    found = penalized(logits, [0, 1, 2], options, ())
    assert not np.isnan(found).any()
    best = {2} if penalty < 1 else {3, 4, 1}
    assert {chosen(found, replace(options, temperature=0.2), random) for _ in range(50)} <= best
    assert not np.isnan(log_probabilities(found)).any()


@pytest.mark.filterwarnings("error")
def test_infinite_logits_are_equally_likely():
    logits, random = np.array([1, np.inf, 3, np.inf, -np.inf], np.float32), np.random.default_rng(6)
    drawn = {chosen(logits, SearchOptions(do_sample=True, top_k=top_k), random) for top_k in (0, 3) for _ in range(40)}
    assert drawn == {1, 3}
    np.testing.assert_allclose(log_probabilities(logits)[[1, 3]], np.log(0.5))


def test_a_bias_beyond_float32_forces_a_token(engine):
    options = Options(max_tokens=4, logit_bias={5: 1e39, 6: -1e39}, temperature=1.0, presence_penalty=1.0)
    assert tokens_of(engine.submit(PROMPTS[1], options)) == [5] * 4


def test_one_text_that_cannot_be_chosen_fails_alone(model, engine, monkeypatch):
    take, broken = TextState.take, engine.model.text.encode("x")

    def taken(state, logits):
        if state._read[:1] == broken:
            raise TypeError("of a plain fault")
        return take(state, logits)

    monkeypatch.setattr(TextState, "take", taken)
    asked = [engine.submit(prompt, Options(max_tokens=90, min_tokens=90)) for prompt in (PROMPTS[1], broken)]
    with pytest.raises(GenerationFailed, match="plain fault"):
        asked[1].text()
    assert len(tokens_of(asked[0])) == 90


def guess_not(_, __):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "guess",
    [
        lambda _, count: [288] * count, lambda _, count: [-1] * count, lambda _, count: [3] * 4 * count,
        lambda _, count: np.array([3] * count), lambda _, count: [285] * count, lambda _, __: None,
        lambda _, __: [1.5], guess_not,
    ],
    ids=["large", "negative", "many", "array", "end", "none", "fraction", "failing"],
)  # fmt: skip
def test_a_drafter_of_any_kind_changes_no_text(model, guess):
    class Own:
        def guess(self, tokens, count):
            return guess(tokens, count)

    with og.AsyncEngine(model, drafter=Own()) as engine:
        asked = [engine.submit(prompt, Options(max_tokens=9)) for prompt in PROMPTS[:3]]
        assert [tokens_of(each) for each in asked] == [alone(model, prompt, 9) for prompt in PROMPTS[:3]]


def test_a_text_whose_loop_was_closed_is_cancelled():
    with og.AsyncEngine(og.Model(built_wide())) as engine:
        left = engine.submit(PROMPTS[2], Options(max_tokens=4000, min_tokens=4000))
        loop = asyncio.new_event_loop()

        async def take_one():
            pieces = aiter(left)
            await anext(pieces)
            return pieces

        kept = loop.run_until_complete(take_one())  # the collector would cancel it
        loop.close()
        assert len(tokens_of(left)) < 4000
        assert left.finished.reason is og.EndReason.CANCELLED
        asyncio.run(kept.aclose())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_engine_of_the_process_before_a_fork_is_refused(engine):
    tokens_of(engine.submit(PROMPTS[1], Options(max_tokens=2)))
    child = os.fork()
    if not child:
        try:
            engine.submit(PROMPTS[1])
        except EngineBusy:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("options", [{"stop": (5,)}, {"stop": "ab"}, {"top_k": 1.5}, {"max_tokens": True}])
def test_options_of_other_types_are_refused(options):
    with pytest.raises(InvalidGeneration, match=next(iter(options))):
        Options(**options)


@pytest.mark.parametrize("top_k", [0, 1, 7, 5000])
@pytest.mark.parametrize("top_p", [1.0, 0.999999, 0.9, 1e-6])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
def test_what_may_be_drawn_is_what_sorting_everything_leaves(top_k, top_p, min_p):
    options = SearchOptions(do_sample=True, top_k=top_k, top_p=top_p, min_p=min_p, temperature=0.7)
    random = np.random.default_rng(2)
    for logits in (random.standard_normal(3000) * 3, np.zeros(50), np.round(random.standard_normal(400))):
        tokens, shares = candidates(logits.astype(np.float32), options)
        wanted, wanted_shares = sorted_candidates(logits.astype(np.float32), options)
        place, wanted_place = np.argsort(tokens), np.argsort(wanted)
        np.testing.assert_array_equal(tokens[place], wanted[wanted_place])
        np.testing.assert_allclose(shares[place], wanted_shares[wanted_place], rtol=1e-9)


def test_numbers_that_are_none_are_refused(engine):
    nan, infinite = float("nan"), float("inf")
    numbers = [("temperature", nan), ("top_p", nan), ("repetition_penalty", nan), ("repetition_penalty", infinite)]
    for options in ({"logit_bias": {1: nan}}, {"seed": -1}, *({name: value} for name, value in numbers)):
        with pytest.raises(InvalidGeneration):
            engine.submit([1], Options(**options))
    with pytest.raises(InvalidGeneration, match="Adapter not found"):
        engine.submit([1], Options(adapter="none"))
    with pytest.raises(InvalidGeneration, match="token"):
        engine.submit([1 << 80])


def test_no_share_for_others_is_the_most_likely_token(model, engine):
    options = Options(max_tokens=6, temperature=1.0, top_p=0.0, seed=3)
    assert tokens_of(engine.submit(PROMPTS[1], options)) == alone(model, PROMPTS[1], 6)
