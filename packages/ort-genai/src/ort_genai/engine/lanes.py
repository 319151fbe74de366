"""What runs in an engine: lanes of requests that are stepped together, and the prompt that is read beside them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ort_genai.decoder_states import DecoderState
from ort_genai.engine.requests import AsyncRequest
from ort_genai.engine.texts import TextState
from ort_genai.prompt_parts import part_length

_PART = 256  # tokens of a prompt between two steps


@dataclass(slots=True)
class RunningState:
    """A request whose text is generated; ``number`` is by order of admission."""

    request: AsyncRequest
    text: TextState
    logits: np.ndarray
    longest: int
    cached: int
    number: int
    replayed: deque[int] = field(default_factory=deque)  # tokens of its text that it reads again
    has_unread: bool = False  # its last token was chosen already, and not read: behind guesses that were wrong


@dataclass(slots=True)
class ReadingState:
    """A request whose prompt is read, into the only row of a state."""

    request: AsyncRequest
    state: DecoderState
    longest: int
    cached: int
    number: int


@dataclass(slots=True)
class Lane:
    """Requests that run with the same adapter: one run of the model steps them all; row n is request n's."""

    state: DecoderState
    running: list[RunningState]

    def nbytes(self, further: int = 0) -> int:
        """Return the bytes of its caches when all texts are as long as they may be, and another one comes."""
        lengths = [each.longest for each in self.running] + ([further] if further else [])
        return self.state.nbytes_for(len(lengths), max(lengths)) if lengths else 0


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Where a request runs, ordered by when it was admitted."""

    number: int
    lane: str
    place: int


def next_part(reading: ReadingState) -> np.ndarray:
    """Return the tokens of a prompt that are read next."""
    done, prompt = reading.state.lengths[0], reading.request.prompt
    return np.array(prompt[done : done + part_length(len(prompt) - done, _PART)], np.int64)


def next_token(running: RunningState) -> int:
    """Return the token of a text that is read next."""
    return running.replayed.popleft() if running.replayed else running.text.tokens[-1]


def drop_rows(state: DecoderState) -> None:
    """Let go of all that a state has read."""
    while state.lengths:
        state.drop_row(len(state.lengths) - 1)
