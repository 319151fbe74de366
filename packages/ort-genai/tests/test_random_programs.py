"""Random programs over a ``Generator`` give what onnxruntime gives of each whole text."""

from __future__ import annotations

import functools

import pytest
from genai_built import built
from genai_random_programs import Program, truth_of

import ort_genai as og

FAMILIES = ("llama", "mistral", "gpt2", "gemma2", "gpt_oss", "smollm3_windows")


@functools.cache
def opened(family, shares_caches):
    config = og.Config(built(family))
    if not shares_caches:
        config.overlay('{"search": {"past_present_share_buffer": false}}')
    return og.Model(config), truth_of(built(family))


@pytest.mark.parametrize("shares_caches", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_random_programs_are_those_of_the_whole_text(family, shares_caches):
    for seed in range(8):
        Program(*opened(family, shares_caches), seed * 97 + FAMILIES.index(family)).run()
