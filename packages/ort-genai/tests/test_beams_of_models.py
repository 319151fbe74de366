"""Beams of models, whose caches follow them, are those of a search in plain Python that reads each text as a whole.

Logits of two engines differ a little. A search in which that may decide something is not judged: plain searches over
logits with noise, more than the engines differ by, tell which those are.
"""

from __future__ import annotations

import functools
import json
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from genai_built import built
from genai_plain_beams import plain_beams
from genai_random_requests import CLOSE, logits_of

import ort_genai as og
from ort_genai.builder.cache_types import write_with_caches
from ort_genai.builder.precision_names import CacheType

END, NOISES = 285, 2
SEEDS = range(int(os.environ.get("ORT_GENAI_SEEDS", "2")))
# a row of a cache may be rounded to the next number
NOISE = {None: CLOSE, CacheType.FP16: 6e-3, CacheType.BF16: 2e-2, CacheType.INT8: 3e-2}
MODELS = [
    ("llama", None, True), ("llama", None, False), ("gemma2", None, True), ("gpt_oss", None, True),
    ("llama", CacheType.FP16, True), ("llama", CacheType.BF16, False), ("llama", CacheType.INT8, True),
]  # fmt: skip
_COPIES = tempfile.TemporaryDirectory(prefix="ort-genai-tests-", ignore_cleanup_errors=True)


@functools.cache
def opened(family, kind, shares_caches):
    folder = built(family)
    if kind is not None:
        folder = Path(_COPIES.name) / f"{family}-{kind}"
        if not folder.is_dir():
            write_with_caches(built(family), folder, kind)
    config = og.Config(folder)
    config.overlay(json.dumps({"search": {"past_present_share_buffer": shares_caches}}))
    return og.Model(config), functools.cache(behind(logits_of(folder)))


def behind(logits):
    return lambda text: logits(list(text))[-1]


def drawn(draws):
    """Return prompts and options of a search."""
    pick, beams, length = draws.choice, draws.choice((2, 3, 5)), draws.choice((1, 4, 15, 16, 17, 40))
    prompts = [[draws.randrange(284) for _ in range(length)] for _ in range(pick((1, 2, 3)))]
    return prompts, {
        "num_beams": beams, "num_return_sequences": draws.randint(1, beams),
        "max_length": length + draws.randint(2, 10),
        "length_penalty": pick((1.0, 1.0, 0.0, 2.0)), "early_stopping": pick((True, False)),
        "no_repeat_ngram_size": pick((0, 0, 2)), "min_length": pick((0, 0, 30)),
        "repetition_penalty": pick((1.0, 1.0, 1.3)),
    }  # fmt: skip


def searched(model, prompts, options):
    """Return the best texts of each row."""
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=len(prompts), **options)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompts, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    count = options["num_return_sequences"]
    found = [generator.get_sequence(place).tolist() for place in range(count * len(prompts))]
    return [found[place * count : (place + 1) * count] for place in range(len(prompts))]


def plain(truth, prompt, options, noise=0.0, seed=0):
    """Return the texts of a plain search over logits with noise, the same for a text whenever it is asked."""

    def noisy(text):
        drawn_noise = np.random.default_rng([seed, *text]).uniform(-noise, noise, 288)
        given = truth(tuple(text))
        return given + drawn_noise[: len(given)].astype(np.float32)

    return plain_beams(noisy, prompt, (END,), **options)


@pytest.mark.parametrize(("family", "kind", "shares_caches"), MODELS)
def test_beams_of_a_model_are_those_of_a_plain_search(family, kind, shares_caches):
    model, truth = opened(family, kind, shares_caches)
    judged, rows = 0, 0
    for seed in SEEDS:
        prompts, options = drawn(random.Random(1000 * MODELS.index((family, kind, shares_caches)) + seed))
        found = searched(model, prompts, options)
        for prompt, texts in zip(prompts, found, strict=True):
            want = plain(truth, prompt, options)
            rows += 1
            if all(plain(truth, prompt, options, NOISE[kind], 1 + each) == want for each in range(NOISES)):
                judged += 1
                assert texts == want, (seed, prompt, options)
    assert judged >= 0.4 * rows, f"{judged} of {rows} searches were judged"
