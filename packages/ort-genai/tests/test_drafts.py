"""Texts are the same with and without guesses of their next tokens."""

from __future__ import annotations

import json

import pytest
from genai_built import built
from test_engine import Options, tokens_of

import ort_genai as og
from ort_genai.engine.drafts import ModelDrafter, NgramDrafter
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar, GrammarKind
from ort_genai.paging.paged_states import PagedRuns

SCHEMA = {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}, "minItems": 5, "maxItems": 9}
CASES = {
    "greedy": Options(max_tokens=60),
    "drawn": Options(max_tokens=40, temperature=0.8, top_k=20, seed=4),
    "penalized": Options(max_tokens=40, frequency_penalty=0.5),
    "to the context's end": Options(),
    "stopped": Options(max_tokens=60, stop=("a", "th")),
    "by a grammar": Options(max_tokens=40, grammar=Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))),
}
PROMPTS = ([7, 101, 33, 250, 12] * 3, [5], [1, 2, 1, 2, 1, 2, 1])


class WrongDrafter:
    """Guesses what nobody takes."""

    def guess(self, tokens, count):
        return [(tokens[-1] + 1) % 250] * count


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


def drafters(model):
    smaller = og.Model(built("qwen2"))
    return {
        "n-grams": NgramDrafter(),
        "itself": ModelDrafter(model),
        "other": ModelDrafter(smaller),
        "wrong": WrongDrafter(),
    }


@pytest.mark.parametrize("case", CASES)
def test_guesses_change_no_text(model, case):
    with og.AsyncEngine(model) as engine:
        plain = [tokens_of(engine.submit(prompt, CASES[case])) for prompt in PROMPTS]
    for name, drafter in drafters(model).items():
        with og.AsyncEngine(model, drafter=drafter) as engine:
            found = [tokens_of(engine.submit(prompt, CASES[case])) for prompt in PROMPTS]
            again = tokens_of(engine.submit(PROMPTS[0], CASES[case]))  # from caches that were kept
        assert found == plain, name
        assert again == plain[0], name


def test_guesses_that_are_right_save_steps(model):
    with og.AsyncEngine(model, drafter=ModelDrafter(model)) as engine:
        count = len(tokens_of(engine.submit(PROMPTS[0], Options(max_tokens=60, min_tokens=60))))
        counts = engine.current_counts()
    assert count == 60
    assert counts.accepted >= counts.drafted - 1 > 40  # the last token ends the text, guessed or not
    assert counts.steps < 15


@pytest.mark.parametrize("uses_blocks", [True, False])
def test_several_at_once_are_stepped_together(model, uses_blocks):
    options = [Options(max_tokens=30, min_tokens=30), Options(max_tokens=12), CASES["drawn"]]
    with og.AsyncEngine(model) as engine:
        plain = [tokens_of(engine.submit(*each)) for each in zip(PROMPTS, options, strict=True)]
    for name, drafter in drafters(model).items():
        with og.AsyncEngine(model, og.EngineOptions(uses_blocks=uses_blocks), drafter=drafter) as engine:
            asked = [engine.submit(*each) for each in zip(PROMPTS, options, strict=True)]
            assert [tokens_of(each) for each in asked] == plain, name


def test_right_guesses_of_several_save_steps(model):
    options = Options(max_tokens=40, min_tokens=40)
    with og.AsyncEngine(model, drafter=ModelDrafter(model)) as engine:
        asked = [engine.submit(prompt, options) for prompt in PROMPTS]
        assert [len(tokens_of(each)) for each in asked] == [40] * 3
        counts = engine.current_counts()
    assert counts.steps < 30, "a step takes up to five tokens of each of three"
    assert counts.accepted > 60


def test_guesses_for_several_wait_where_blocks_are_missing(model, monkeypatch):
    for module in ("block_pool", "paged_states"):
        monkeypatch.setattr(f"ort_genai.paging.{module}.BLOCK_ROWS", 8)
    options, block = Options(max_tokens=40, min_tokens=40), model.decoder.cache_bytes(8)
    with og.AsyncEngine(model) as engine:
        plain = [tokens_of(engine.submit(prompt, options)) for prompt in PROMPTS]
    limits = og.EngineOptions(cache_bytes=9 * block, prefix_bytes=0)
    with og.AsyncEngine(model, limits, drafter=ModelDrafter(model)) as engine:
        asked = [engine.submit(prompt, options) for prompt in PROMPTS]
        assert [tokens_of(each) for each in asked] == plain
        assert engine.current_counts().paused > 0


def test_a_smaller_model_guesses_for_several_texts_what_it_guesses_for_each(model, monkeypatch):
    smaller = og.Model(built("qwen2"))
    texts, counts = [[*prompt, 9, place] for place, prompt in enumerate(PROMPTS * 2)], [4, 1, 5, 0, 3, 2]
    texts[2] = texts[2] * 5  # of more than few tokens
    alone = [ModelDrafter(smaller).guess(text, count) for text, count in zip(texts, counts, strict=True)]
    assert [len(guessed) for guessed in alone] == counts
    runs, run = [], PagedRuns.run
    monkeypatch.setattr(PagedRuns, "run", lambda *given: runs.append(len(given[1])) or run(*given))
    drafter = ModelDrafter(smaller)
    assert drafter.guess_each(texts, counts) == alone
    assert runs == [1, 1, 5, 4, 3, 2, 1], "a run for each token, but for the beginnings of long texts"
    longer = [[*text, *guessed[:1], 7] for text, guessed in zip(texts, alone, strict=True)]
    again = [ModelDrafter(smaller).guess(text, 2) for text in longer]
    assert drafter.guess_each(longer, [2] * len(longer)) == again, "behind a guess that was wrong"
    assert drafter.guess_each([], []) == []
    assert drafter.guess_each([[1] * 500], [3]) == [[]], "beyond its context"


def test_texts_of_one_call_that_begin_alike_are_read_apart(model):
    texts = [[*PROMPTS[0], 3], [*PROMPTS[0], 4], list(PROMPTS[0])]
    alone = [ModelDrafter(model).guess(text, 3) for text in texts]
    drafter = ModelDrafter(model)
    for _ in range(2):
        assert drafter.guess_each(texts, [3] * 3) == alone
    many = [[*PROMPTS[0], place] for place in range(20)]  # more than it keeps
    assert [len(each) for each in drafter.guess_each(many, [2] * 20)] == [2] * 20
    assert drafter.guess_each(texts, [3] * 3) == alone


def test_n_grams_guess_what_followed_last():
    drafter = NgramDrafter(longest=3, shortest=2)
    assert drafter.guess([1, 2, 3, 9, 1, 2, 3], 2) == [9, 1]
    assert drafter.guess([1, 2, 5, 8, 2, 5], 9) == [8, 2, 5]
    assert drafter.guess([1, 2, 7, 1, 2, 8, 1, 2], 1) == [8]
    assert drafter.guess([1, 2, 3], 4) == []
    assert drafter.guess([1], 4) == []
    with pytest.raises(InvalidGeneration):
        NgramDrafter(longest=1, shortest=2)
