"""Random requests get what their definition says, in whatever company; ``ORT_GENAI_SEEDS`` says how many companies."""

from __future__ import annotations

import functools
import os

import pytest
from genai_built import built, built_wide
from genai_random_requests import LONG_LENGTHS, Party, logits_of
from genai_random_turns import Talks

import ort_genai as og
from ort_genai.builder.cache_types import write_with_caches
from ort_genai.builder.precision_names import CacheType

FAMILIES = ("llama", "mistral", "gemma2", "gpt_oss", "smollm3_windows")
# an element that is near the middle between two numbers of a cache may be rounded to the other one
CLOSE_OF_CACHES = {CacheType.FP16: 6e-3, CacheType.BF16: 2e-2, CacheType.INT8: 3e-2}
SEEDS = range(int(os.environ.get("ORT_GENAI_SEEDS", "2")))


@functools.cache
def opened(family, shares_caches=True):
    config = og.Config(built(family))
    if not shares_caches:
        config.overlay('{"search": {"past_present_share_buffer": false}}')
    return og.Model(config), logits_of(built(family))


@pytest.fixture
def small_blocks(monkeypatch):
    for module in ("block_pool", "paged_states"):
        monkeypatch.setattr(f"ort_genai.paging.{module}.BLOCK_ROWS", 8)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_of_requests_are_those_of_their_definition(family, small_blocks):
    for seed in SEEDS:
        Party(*opened(family), 131 * seed + FAMILIES.index(family)).run()


def test_texts_of_requests_whose_caches_lie_in_one_piece_are_those_of_their_definition():
    for seed in SEEDS:
        Party(*opened("llama", shares_caches=False), 1000 + seed).run()


@pytest.mark.parametrize("kind", list(CLOSE_OF_CACHES))
def test_texts_of_requests_with_smaller_caches_are_those_of_their_definition(kind, small_blocks, tmp_path):
    write_with_caches(built("llama"), tmp_path / "out", kind)
    model, truth = og.Model(tmp_path / "out"), logits_of(tmp_path / "out")
    for seed in SEEDS:
        Party(model, truth, 4000 + 10 * seed + list(CLOSE_OF_CACHES).index(kind), close=CLOSE_OF_CACHES[kind]).run(6)


def test_texts_of_prompts_about_as_long_as_parts_are_those_of_their_definition():
    model, truth = og.Model(built_wide()), logits_of(built_wide())
    for seed in SEEDS:
        Party(model, truth, 2000 + seed, LONG_LENGTHS).run(6)


@pytest.mark.parametrize("family", FAMILIES[:3])
def test_turns_say_what_their_definition_says(family, small_blocks):
    for seed in SEEDS:
        Talks(*opened(family), 137 * seed + FAMILIES.index(family)).run(150)


def test_turns_whose_caches_lie_in_one_piece_say_what_their_definition_says():
    for seed in SEEDS:
        Talks(*opened("llama", shares_caches=False), 3000 + seed).run(150)
