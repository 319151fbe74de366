"""The token that is taken without a copy of logits is the one that is chosen of penalized ones."""

from __future__ import annotations

import numpy as np
import pytest

from ort_genai.errors import GenerationFailed
from ort_genai.sampling import chosen, penalized, taken
from ort_genai.search_options import SearchOptions

ENDS = (2, 5)
OPTIONS = {
    "greedy": {},
    "a least length": {"min_length": 4},
    "penalized": {"repetition_penalty": 1.3},
    "no runs again": {"no_repeat_ngram_size": 2, "min_length": 9},
    "drawn": {"do_sample": True, "top_k": 3, "min_length": 4},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_the_token_is_that_of_penalized_logits(case):
    options, random = (
        SearchOptions().changed({"max_length": 99, "do_sample": False, **OPTIONS[case]}),
        np.random.default_rng(4),
    )
    for turn in range(300):
        logits = random.integers(-3, 4, 9).astype(np.float32)  # ties, and ends among the most likely
        tokens = random.integers(0, 9, random.integers(0, 7)).tolist()
        before = logits.copy()
        draws = [np.random.Generator(np.random.PCG64(turn)) for _ in range(2)]
        expected = chosen(penalized(logits, tokens, options, ENDS), options, draws[0])
        assert taken(logits, tokens, options, ENDS, draws[1]) == expected
        np.testing.assert_array_equal(logits, before)


def test_what_is_no_number_is_refused_where_it_counts():
    options, random = (
        SearchOptions().changed({"max_length": 99, "do_sample": False, "min_length": 3}),
        np.random.default_rng(1),
    )
    logits = np.zeros(9, np.float32)
    logits[7], logits[2] = 1, np.nan
    assert taken(logits, [1], options, ENDS, random) == 7, "an end that may not come yet"
    for tokens in ([1, 1, 1], [1] * 8):
        with pytest.raises(GenerationFailed, match="NaN"):
            taken(logits, tokens, options, ENDS, random)
    with pytest.raises(GenerationFailed, match="forbidden"):
        taken(np.full(9, -np.inf, np.float32), [1], options, ENDS, random)
