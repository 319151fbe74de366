"""Guesses of one row's next tokens: the model reads several at once, and its own choice stands.

What is guessed is what followed the same tokens before. Logits of the places behind a guess are kept; where the token
that is chosen is the guessed one, they are its next logits, and no run of the model is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from ort_core.errors import did_you_mean
from ort_genai.decoder_states import DecoderState
from ort_genai.errors import InvalidGeneration
from ort_genai.speculative_stats import SpeculativeStats

Array = np.ndarray
log = logging.getLogger(__name__)
_WITHOUT_EFFECT = ("min_adaptive_k", "cooldown")


@dataclass(frozen=True, slots=True)
class SpeculativeOptions:
    """How tokens are guessed, by onnxruntime-genai's names.

    Attributes:
        max_draft_tokens: guesses that are read at once.
        ngram_size: tokens that must have come before for what followed them to be a guess; 0: none are made.
        ngram_chained_lookup: whether a guess is gone on from where what followed ends.
        min_adaptive_k: taken, to no effect: the number of guesses stays.
        cooldown: taken, to no effect: guesses go on where they were wrong.
    """

    max_draft_tokens: int = 4
    ngram_size: int = 0
    ngram_chained_lookup: bool = False
    min_adaptive_k: int = 0
    cooldown: bool = False

    def changed(self, options: Mapping[str, object]) -> SpeculativeOptions:
        """Return options with some changed.

        Raises:
            InvalidGeneration: there is no such option, or a value is of another kind or out of range.
        """
        known = {each.name: each.type for each in fields(self)}
        values: dict[str, object] = {}
        for name, value in options.items():
            if name not in known:
                raise InvalidGeneration(f'Unknown value "{name}".{did_you_mean(name, list(known))}')
            if isinstance(value, bool) != (known[name] == "bool"):
                raise InvalidGeneration(f"{name} - Expected a {known[name]} but saw {type(value).__name__} {value!r}")
            if not isinstance(value, int | float) or value != int(value) or not 0 <= value <= 1 << 16:
                raise InvalidGeneration(f"{name} - Expected a whole number from 0 on but saw {value!r}")
            values[name] = value if isinstance(value, bool) else int(value)
        idle = [name for name in _WITHOUT_EFFECT if values.get(name)]
        if idle:
            log.warning("%s: taken, to no effect: the number of guesses does not adapt", ", ".join(idle))
        return replace(self, **values)  # type: ignore[arg-type]  # each value was brought to its field's type

    def as_dict(self) -> dict[str, object]:
        """Return the options by name."""
        return asdict(self)


class Ahead:
    """What one row has read ahead of what it has said.

    Args:
        options: how tokens are guessed.
    """

    def __init__(self, options: SpeculativeOptions) -> None:
        self._options, self.size = options, options.ngram_size if options.max_draft_tokens else 0
        self._known: list[tuple[int, Array]] = []  # a guess, and the logits behind it
        self.stats = SpeculativeStats()

    def logits(self, state: DecoderState, row: list[int], room: int) -> Array:
        """Return logits (vocabulary,) behind a row whose last token was not read, or was guessed."""
        if self._known:
            guess, found = self._known.pop(0)
            if guess == row[-1]:
                return found
            self.drop(state, len(row) - 1)
        drafts = self._guess(row)[: max(room, 0)]
        self.stats.count_lookup(len(drafts))
        found = state.read_all(0, np.array([row[-1], *drafts], np.int64))
        self._known = list(zip(drafts, found[1:], strict=True))
        self.stats.count_round(len(drafts), _accepted(drafts, found))
        return found[0]

    def drop(self, state: DecoderState, length: int) -> None:
        """Forget guesses that were read behind a length."""
        self._known = []
        state.rewind(0, length)

    def clear(self) -> None:
        """Forget guesses; the caller rewinds the state."""
        self._known = []

    def _guess(self, row: list[int]) -> list[int]:
        """Return what followed the last tokens where they came last before."""
        found: list[int] = []
        while len(found) < self._options.max_draft_tokens:
            further = _followed([*row, *found], self.size, self._options.max_draft_tokens - len(found))
            found += further
            if not further or not self._options.ngram_chained_lookup:
                break
        return found


def _followed(tokens: list[int], size: int, count: int) -> list[int]:
    if len(tokens) <= size:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(np.array(tokens[:-1], np.int64), size)
    places = np.flatnonzero((windows == tokens[len(tokens) - size :]).all(axis=1))
    if not len(places):
        return []
    start = int(places[-1]) + size
    return tokens[start : start + count]


def _accepted(drafts: list[int], logits: Array) -> int:
    """Return how many guesses the most likely tokens agree with."""
    best = logits.argmax(axis=-1)
    return next((place for place, draft in enumerate(drafts) if draft != best[place]), len(drafts))
