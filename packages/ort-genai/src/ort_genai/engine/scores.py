"""Log-probabilities of the tokens of a prompt: how likely a model finds a text that is there already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_genai.decoder_states import DecoderState
from ort_genai.engine.requests import Piece, TokenChance
from ort_genai.prompt_parts import part_length
from ort_genai.sampling import log_probabilities
from ort_genai.text import Text, TextStream

_PART = 64  # tokens of a run: logits of all of them come back, as float64 once


def scored_prompt(state: DecoderState, text: Text, tokens: Sequence[int], count: int) -> list[Piece]:
    """Return the tokens of a prompt with their texts and chances; the first one has none.

    Args:
        state: without rows.
        text: the tokenizer.
        tokens: of the prompt, one at least.
        count: of the likeliest tokens that are told at each place.
    """
    state.add_row()
    chances: list[tuple[float | None, tuple[TokenChance, ...]]] = [(None, ())]
    while len(chances) < len(tokens):
        done = len(chances) - 1
        end = done + part_length(len(tokens) - 1 - done, _PART)
        found = log_probabilities(state.read_all(0, np.array(tokens[done:end], np.int64)))
        chances += [chance_of(row, tokens[done + place + 1], count) for place, row in enumerate(found)]
    stream = TextStream(text)
    texts = [stream.push(token) for token in tokens]
    texts[-1] += stream.finish()
    return [Piece(words, token, *chance) for words, token, chance in zip(texts, tokens, chances, strict=True)]


def chance_of(chances: np.ndarray, token: int, count: int) -> tuple[float, tuple[TokenChance, ...]]:
    """Return a token's log-probability among those of all, (vocabulary,), and the likeliest ones."""
    count = min(count, len(chances))
    best = np.argpartition(-chances, count - 1)[:count] if count else np.zeros(0, np.int64)
    best = best[np.lexsort((best, -chances[best]))]
    return float(chances[token]), tuple(TokenChance(int(place), float(chances[place])) for place in best)
