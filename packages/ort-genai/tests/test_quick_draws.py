"""Draws by sums in float32 are those of float64, or none."""

from __future__ import annotations

import numpy as np
import pytest

from ort_genai.quick_draws import find_token
from ort_genai.sampling import chosen
from ort_genai.search_options import SearchOptions


def plain(logits, options, place):
    """Return the token of a draw by the definition: shares in float64, the cut ones sorted."""
    values = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        shares = np.exp((values - values.max()) / options.temperature)
    shares /= shares.sum()
    tokens = np.arange(len(shares))
    if options.top_k or options.min_p > 0 or options.top_p < 1:
        tokens = np.lexsort((tokens, -values))
        if options.top_k:
            tokens = tokens[: options.top_k]
            shares = shares / shares[tokens].sum()
        own = shares[tokens]
        kept = (np.cumsum(own) - own < options.top_p) & (own >= options.min_p * own[0])
        if options.min_p > 0 or options.top_p < 1:
            tokens = tokens[kept]
        elif options.top_k >= len(shares):
            tokens = np.arange(len(shares))
    ends = np.cumsum(shares[tokens])
    return int(tokens[min(int(np.searchsorted(ends, place * ends[-1], side="right")), len(tokens) - 1)])


def kinds(random):
    """Yield logits as models give them, and some that they do not."""
    spread = (random.standard_normal(49152) * 3).astype(np.float32)
    spread[random.integers(0, 49152, 40)] += np.float32(12)
    yield "spread", spread
    yield "flat", np.zeros(1000, np.float32)
    yield "few", random.standard_normal(7).astype(np.float32)
    yield "block", random.standard_normal(128).astype(np.float32)
    yield "ties", np.round(random.standard_normal(3001) * 2).astype(np.float32)
    forbidden = spread.copy()
    forbidden[random.permutation(49152)[:49000]] = -np.inf
    yield "forbidden", forbidden
    yield "one", np.array([3], np.float32)
    yield "large", (random.standard_normal(500) * 1e37).astype(np.float32)
    yield "far", np.linspace(-3e38, 3e38, 77, dtype=np.float32)


class Fixed:
    """A source of numbers that gives one."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7}, {"temperature": 30.0}, {"temperature": 1e-20}, {"top_p": 0.9}, {"top_p": 1e-6},
     {"min_p": 0.05}, {"min_p": 1.0}, {"top_p": 0.95, "min_p": 0.01}, {"top_k": 40}, {"top_k": 40, "top_p": 0.8},
     {"top_k": 1}, {"top_k": 3}, {"top_k": 190}, {"top_k": 1000}],
    ids=str,
)  # fmt: skip
def test_draws_are_those_of_float64(options):
    random = np.random.default_rng(11)
    search = SearchOptions(do_sample=True, **{"top_k": 0, **options})
    told = {}
    for name, logits in kinds(random):
        places = [1e-9, *random.random(40)]
        for place in places:
            assert chosen(logits, search, Fixed(place)) == plain(logits, search, place), (name, place)
            if not search.top_k:
                found = find_token(logits, float(logits.max()), search, place)
                told[name] = told.get(name, 0) + (found is not None)
    if not search.top_k and options.get("temperature") != 30.0:
        assert told["spread"] > 25, f"of 41 draws few are quick: {told}"


def test_a_place_at_the_end_of_a_token_is_left_to_float64():
    logits, search = np.log(np.array([1, 1, 2], np.float32)), SearchOptions(do_sample=True, top_k=0)
    best = float(logits.max())
    assert find_token(logits, best, search, 0.25 + 1e-6) is None
    assert find_token(logits, best, search, 0.25 - 1e-6) is None
    assert [find_token(logits, best, search, place) for place in (0.1, 0.3, 0.7)] == [0, 1, 2]


@pytest.mark.parametrize("logits", [np.zeros(70), np.full(70, np.inf, np.float32), np.zeros(70, np.float16)], ids=str)
def test_other_logits_are_left_to_float64(logits):
    assert find_token(logits, float(logits.max()), SearchOptions(do_sample=True, top_k=0), 0.3) is None
