"""Beams over random logits are those of a beam search in plain Python, also behind steps that fail in the middle."""

from __future__ import annotations

import random

import numpy as np
import pytest
from genai_built import built
from genai_plain_beams import plain_beams

import ort_core
import ort_genai as og
from ort_genai.errors import GenerationFailed

VOCABULARY, ENDS, PAD = 288, (285,), 286


def logits_behind(text, seed, spread):
    """Return float32 logits (vocabulary,) that depend on the whole text; most tokens are out of reach."""
    random_of_text = np.random.default_rng([seed, *text])
    found = np.full(VOCABULARY, -40, np.float32)
    found[:12] = random_of_text.normal(0, spread, 12)
    found[ENDS[0]] = random_of_text.normal(0, spread)
    return found


def program(seed):
    """Return prompts and options of a search."""
    draws = random.Random(seed)
    pick, beams = draws.choice, draws.choice((2, 2, 3, 4, 7))
    length = draws.randint(1, 6)
    prompts = [[draws.randrange(12) for _ in range(length)] for _ in range(pick((1, 1, 2, 3)))]
    return prompts, {
        "num_beams": beams, "num_return_sequences": draws.randint(1, beams),
        "max_length": length + draws.randint(1, 12),
        "length_penalty": pick((1.0, 1.0, 0.0, 2.0, 0.5, -1.0)), "early_stopping": pick((True, False)),
        "no_repeat_ngram_size": pick((0, 0, 1, 2, 3)), "min_length": pick((0, 0, 5, 30)),
        "repetition_penalty": pick((1.0, 1.0, 1.3, 0.7)),
    }  # fmt: skip


def searched(prompts, options, seed, spread, fail=lambda generator, given: None):
    """Return the best texts of each row, and how often a step was refused."""
    model = og.Model(built())
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=len(prompts), **options)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompts, np.int32))
    refused = 0
    while not generator.is_done():
        logits = generator.get_logits()
        texts = [text for beams in generator._beams for text in beams.tokens]
        given = np.stack([logits_behind(text, seed, spread) for text in texts])[:, None]
        assert given.shape == logits.shape
        refused += bool(fail(generator, given))
        generator.set_logits(given)
        generator.generate_next_token()
    count = options["num_return_sequences"]
    found = [generator.get_sequence(place).tolist() for place in range(count * len(prompts))]
    return [found[place * count : (place + 1) * count] for place in range(len(prompts))], refused


@pytest.mark.parametrize("seed", range(60))
def test_beams_are_those_of_a_plain_search(seed):
    prompts, options = program(seed)
    spread = (0.5, 2.0, 6.0)[seed % 3]
    found, _ = searched(prompts, options, seed, spread)
    for prompt, texts in zip(prompts, found, strict=True):
        assert texts == plain_beams(lambda text: logits_behind(text, seed, spread), prompt, ENDS, **options), prompt


@pytest.mark.parametrize("what", ["no number in the last row", "few tokens in the last row", "no memory"])
@pytest.mark.parametrize("seed", range(8))
def test_a_step_that_fails_in_the_middle_changes_nothing(seed, what, monkeypatch):
    """Rows before the one that fails had taken their step, and took it once more."""
    prompts, options = program(seed)
    prompts = (prompts * 3)[:3]
    options["no_repeat_ngram_size"] = 0

    def fail(generator, given):
        broken, count = given.copy(), options["num_beams"]
        if generator._beams[-1].is_done:
            return False
        before = [generator.get_sequence(place).tolist() for place in range(3)]
        if what == "no memory":
            with monkeypatch.context() as patched:
                patched.setattr(type(generator._state), "reorder", lambda *_: (_ for _ in ()).throw(MemoryError()))
                generator.set_logits(broken)
                with pytest.raises(MemoryError):
                    generator.generate_next_token()
        else:
            broken[-count:] = np.nan if what.startswith("no") else -np.inf
            if what.startswith("few"):
                broken[-count:, 0, ENDS[0]] = 1
            generator.set_logits(broken)
            with pytest.raises(GenerationFailed):
                generator.generate_next_token()
        assert [generator.get_sequence(place).tolist() for place in range(3)] == before
        generator.set_runtime_option("terminate_session", "1")
        with pytest.raises(ort_core.OrtError):
            generator.generate_next_token()
        generator.set_runtime_option("terminate_session", "0")
        return True

    found, refused = searched(prompts, options, seed, 2.0, fail)
    assert refused > 0
    assert found == searched(prompts, options, seed, 2.0)[0]
