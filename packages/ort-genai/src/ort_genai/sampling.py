"""From logits to a token: penalties, then the most likely token or a draw.

Draws compute in float64 and take one number of PCG64 each, so that a seed gives the same tokens on every machine. Where
float32 tells which token that is, it is asked (``quick_draws``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_genai.errors import GenerationFailed
from ort_genai.quick_draws import find_token
from ort_genai.search_options import SearchOptions

Array = np.ndarray
_RUN = 64  # logits whose largest one is looked at first: finding those takes a tenth of ordering all
_LEAST, _MOST = (float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


def penalized(logits: Array, tokens: Sequence[int], options: SearchOptions, end_tokens: Sequence[int]) -> Array:
    """Return logits (vocabulary,) with what a row's tokens and its length forbid or make less likely."""
    found = logits
    if options.repetition_penalty != 1 and len(tokens):
        found = _copied(found, logits)
        seen = np.unique(np.asarray(tokens, np.int64))
        values, factor = found[seen], np.float32(min(max(options.repetition_penalty, _LEAST), _MOST))
        with np.errstate(over="ignore"):  # infinite is the most likely of all, or forbidden
            found[seen] = np.where(values < 0, values * factor, values / factor)
    if options.no_repeat_ngram_size:
        forbidden = _repeating(tokens, options.no_repeat_ngram_size)
        if forbidden:
            found = _copied(found, logits)
            found[forbidden] = -np.inf
    if len(tokens) < options.min_length and end_tokens:
        found = _copied(found, logits)
        found[list(end_tokens)] = -np.inf
    return found


def _copied(found: Array, logits: Array) -> Array:
    return logits.astype(np.float32) if found is logits else found


def _repeating(tokens: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would make a run of ``size`` tokens come again."""
    if len(tokens) < size:
        return []
    listed = list(tokens)
    end = listed[len(listed) - size + 1 :]
    starts = range(len(listed) - size + 1)
    return sorted({listed[place + size - 1] for place in starts if listed[place : place + size - 1] == end})


def taken(
    logits: Array, tokens: Sequence[int], options: SearchOptions, end_tokens: Sequence[int], random: np.random.Generator
) -> int:
    """Return the token that is chosen of logits (vocabulary,) behind a row's tokens.

    Raises:
        GenerationFailed: the model gave no numbers, or no token is allowed.
    """
    is_plain = options.is_greedy and options.repetition_penalty == 1 and not options.no_repeat_ngram_size
    if (
        is_plain
    ):  # what is forbidden are end tokens alone: where another one is the most likely, nothing is to be copied
        best = int(logits.argmax())
        may_end = len(tokens) >= options.min_length
        if logits[best] > -np.inf and (may_end or best not in end_tokens):
            return best
    return chosen(penalized(logits, tokens, options, end_tokens), options, random)


def chosen(logits: Array, options: SearchOptions, random: np.random.Generator) -> int:
    """Return the token of penalized logits (vocabulary,).

    Raises:
        GenerationFailed: the model gave no numbers, or no token is allowed.
    """
    best = int(logits.argmax())  # NaN counts as the largest
    if not logits[best] > -np.inf:
        why = "the model gave NaN" if np.isnan(logits[best]) else "every token is forbidden"
        raise GenerationFailed(f"no token can be chosen: {why}")
    if options.is_greedy:
        return best
    number = random.random()
    if not 0 < options.top_k < len(logits):
        found = find_token(logits, float(logits[best]), options, number)
        if found is not None:
            return found
    tokens, shares = candidates(logits, options)
    place = int(np.searchsorted(np.cumsum(shares), number * shares.sum(), side="right"))
    return int(tokens[min(place, len(tokens) - 1)])


def candidates(logits: Array, options: SearchOptions) -> tuple[Array, Array]:
    """Return the tokens that may be drawn, and their shares, float64.

    The most likely comes first, but where all may be drawn: then they come in their own order.
    """
    tokens = _most_likely(logits, options.top_k)
    with np.errstate(over="ignore"):  # of temperatures near 0: what is not among the most likely has no share
        shares = np.exp(_below_best(logits[tokens]) / options.temperature)
    shares = shares / shares.sum()
    limit = options.top_p if 0 < options.top_p < 1 else 1.0
    # tokens below this share have no more than 1 - limit together: sorting the others is enough
    least = max(options.min_p * shares.max(), (1 - limit) / len(shares))
    if least > 0:
        kept = np.flatnonzero(shares >= least)
        kept = kept[np.lexsort((tokens[kept], -shares[kept]))]
        tokens, shares = tokens[kept], shares[kept]
        kept = np.cumsum(shares) - shares < limit
        tokens, shares = tokens[kept], shares[kept]
    return tokens, shares / shares.sum()


def _most_likely(values: Array, count: int) -> Array:
    """Return the tokens of the largest logits, the largest first; all in their own order where none are left out."""
    if not 0 < count < len(values):
        return np.arange(len(values))
    tokens = np.flatnonzero(values >= _bound(values, count))
    found = values[tokens]
    tokens = tokens[found >= np.partition(found, len(found) - count)[len(found) - count]]
    return tokens[np.lexsort((tokens, -values[tokens]))][:count]  # of equal ones the first token


def _bound(values: Array, count: int) -> np.floating:
    """Return a number that ``count`` logits are no less than, and few others, as a rule.

    As many runs of tokens as are wanted have a largest logit that is no less: so have as many tokens.
    """
    runs = len(values) // _RUN
    if 4 * count > runs:
        return np.partition(values, len(values) - count)[len(values) - count]
    largest = values[: runs * _RUN].reshape(_RUN, runs).max(axis=0)  # tokens far apart: numpy compares whole rows
    return np.partition(largest, runs - count)[runs - count]


def log_probabilities(logits: Array) -> Array:
    """Return the logarithm of the softmax over the last axis, float64."""
    values = _below_best(logits)
    return values - np.log(np.exp(values).sum(axis=-1, keepdims=True))


def _below_best(logits: Array) -> Array:
    """Return how far logits are below the largest of their last axis, float64; infinite ones are equally likely."""
    values = logits.astype(np.float64)
    best = values.max(axis=-1, keepdims=True)
    is_infinite = best == np.inf
    if is_infinite.any():
        values = np.where(is_infinite, np.where(values == np.inf, 0.0, -np.inf), values)
        best = np.where(is_infinite, 0.0, best)
    return values - best
