"""Guesses of the next tokens: what followed the same tokens before, or what a smaller model takes.

A guess costs nothing but time: the model reads guesses together, chooses as always, and goes on from where it chose
otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_genai.decoder_states import DecoderState
from ort_genai.errors import InvalidGeneration
from ort_genai.prompt_parts import FEW_ROWS

if TYPE_CHECKING:
    from ort_genai.model import Model


class Drafter(Protocol):
    """Guesses tokens; an engine asks from its own thread."""

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return up to ``count`` tokens that may follow."""


class NgramDrafter:
    """Guesses that what followed the last tokens before follows them again.

    Args:
        longest: tokens that are looked for; fewer where they are not found.
        shortest: tokens that must be the same.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise InvalidGeneration(f"runs of {shortest} to {longest} tokens; expected 1 or more, and no fewer behind")
        self._sizes = range(longest, shortest - 1, -1)

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return what followed the last place of the same tokens."""
        read = np.array(tokens, np.int64)
        for size in self._sizes:
            if len(read) <= size:
                continue
            is_same = np.ones(len(read) - size, bool)
            for place in range(size):
                is_same &= read[place : len(read) - size + place] == read[len(read) - size + place]
            found = np.flatnonzero(is_same)
            if len(found):
                start = int(found[-1]) + size
                return tokens[start : start + count]
        return []


@dataclass(slots=True, eq=False)
class _TextState:
    """What a smaller model has read of one text."""

    state: DecoderState
    read: list[int] = field(default_factory=list)


class ModelDrafter:
    """Guesses what a smaller model takes; of several texts at once, it keeps what it has read of each.

    Args:
        model: with the tokens of the one that it guesses for.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._texts: list[_TextState] = []  # the one that was asked for last at the end

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return the smaller model's most likely tokens; none beyond its context or its vocabulary."""
        decoder = self._model.decoder
        count = min(count, decoder.context_length - len(tokens))
        if count < 1 or max(tokens) >= decoder.vocab_size:
            return []
        text = self._text_of(tokens)
        same = min(_common(text.read, tokens), len(tokens) - 1)
        text.state.rewind(0, same)
        logits = text.state.read(0, np.array(tokens[same:], np.int64))
        found = [int(logits.argmax())]
        while len(found) < count:
            found.append(int(text.state.step(np.array(found[-1:], np.int64))[0].argmax()))
        text.read = [*tokens, *found[:-1]]
        return found

    def _text_of(self, tokens: list[int]) -> _TextState:
        """Return what was read of a text, but for guesses that nobody took; or else of none, or of the oldest."""
        known = [(_common(each.read, tokens), each) for each in self._texts]
        own = [(same, each) for same, each in known if same >= len(each.read) - FEW_ROWS]
        if own:
            found = max(own, key=lambda each: each[0])[1]
            self._texts.remove(found)
        elif len(self._texts) < FEW_ROWS:
            found = _TextState(self._model.decoder.new_state())
            found.state.add_row()
        else:
            found = self._texts.pop(0)
        self._texts.append(found)
        return found


def _common(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
