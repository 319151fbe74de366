"""Guesses of the next tokens: what followed the same tokens before, or what a smaller model takes.

A guess costs nothing but time: the model reads guesses together, chooses as always, and goes on from where it chose
otherwise.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ort_genai.decoder_states import DecoderState
from ort_genai.errors import InvalidGeneration
from ort_genai.paging.paged_states import PagedState, read_together
from ort_genai.prompt_parts import FEW_ROWS, runs_of

if TYPE_CHECKING:
    from ort_genai.model import Model
    from ort_genai.paging.paged_states import PagedRuns

log = logging.getLogger(__name__)


class Drafter(Protocol):
    """Guesses tokens; an engine asks from its own thread."""

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return up to ``count`` tokens that may follow."""


@runtime_checkable
class BatchDrafter(Protocol):
    """Guesses tokens of several texts at once."""

    def guess_each(self, texts: Sequence[list[int]], counts: Sequence[int]) -> list[list[int]]:
        """Return up to so many tokens that may follow each text."""


def guesses(drafter: Drafter, texts: Sequence[list[int]], counts: Sequence[int], vocab_size: int) -> list[list[int]]:
    """Return up to so many tokens that may follow each text, asked for at once where the drafter takes that.

    A guess ends at a token that is none of the model's: a smaller model may have further ones. A drafter that fails
    has no guesses.
    """
    try:
        if isinstance(drafter, BatchDrafter):
            given = drafter.guess_each(texts, counts)
        else:
            given = [drafter.guess(text, count) for text, count in zip(texts, counts, strict=True)]
        return [_known(own, count, vocab_size) for own, count in zip(given, counts, strict=True)]
    except Exception as error:  # noqa: BLE001 - the border to a drafter: texts go on without it
        log.warning("a drafter failed: %s: %s", type(error).__name__, error)
        return [[] for _ in texts]


def _known(guessed: Sequence[int], count: int, vocab_size: int) -> list[int]:
    """Return guesses up to the first one that is no token, as far as they were asked for."""
    found = [operator.index(each) for each in guessed[:count]]
    return found[: next((place for place, each in enumerate(found) if not 0 <= each < vocab_size), len(found))]


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
    """Guesses what a smaller model takes; it keeps what it has read of each text.

    Texts of one call are read in one run for each token, where the smaller model's graph allows caches in blocks.

    Args:
        model: with the tokens of the one that it guesses for.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._texts: list[_TextState] = []  # the one that was asked for last at the end
        self._runs: PagedRuns | None = None

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return the smaller model's most likely tokens; none beyond its context or its vocabulary."""
        return self.guess_each([tokens], [count])[0]

    def guess_each(self, texts: Sequence[list[int]], counts: Sequence[int]) -> list[list[int]]:
        """Return the same for each of several texts, up to ``counts`` tokens of it."""
        decoder = self._model.decoder
        found: list[list[int]] = [[] for _ in texts]
        asked: list[tuple[int, int, _TextState]] = []
        for place, (tokens, wanted) in enumerate(zip(texts, counts, strict=True)):
            count = min(wanted, decoder.context_length - len(tokens))
            if count >= 1 and max(tokens) < decoder.vocab_size:
                asked.append((place, count, self._text_of(tokens, {id(text) for _, _, text in asked})))
        self._guess_first([(found[place], texts[place], text) for place, _, text in asked])
        while True:
            going = [(found[place], text) for place, count, text in asked if len(found[place]) < count]
            if not going:
                break
            logits = self._read([text.state for _, text in going], [np.array(own[-1:], np.int64) for own, _ in going])
            for (own, _), row in zip(going, logits, strict=True):
                own.append(int(row.argmax()))
        for place, _, text in asked:
            text.read = [*texts[place], *found[place][:-1]]
        return found

    def _guess_first(self, asked: Sequence[tuple[list[int], list[int], _TextState]]) -> None:
        """Read what texts have that was not read of them, and append the first guess of each."""
        states, given = [], []
        for _, tokens, text in asked:
            same = min(_common(text.read, tokens), len(tokens) - 1)
            text.state.rewind(0, same)
            text.read = text.read[:same]  # whatever fails from here on
            unread = np.array(tokens[same:], np.int64)
            if len(unread) > FEW_ROWS:  # alone: a run of all texts tells the logits of the last tokens alone
                text.state.read(0, unread[:-1])
                unread = unread[-1:]
            states.append(text.state)
            given.append(unread)
        for (own, _, _), row in zip(asked, self._read(states, given), strict=True):
            own.append(int(row.argmax()))

    def _read(self, states: Sequence[DecoderState], tokens: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Read tokens into the only row of each state, and return logits of the last one of each."""
        paged = [state for state in states if isinstance(state, PagedState)]
        if len(paged) < max(2, len(states)):
            return [state.read(0, own) for state, own in zip(states, tokens, strict=True)]
        counts, found = [len(own) for own in tokens], list[np.ndarray]()
        for first, end in runs_of(counts, self._model.decoder.rows_of_run(sum(counts), len(counts))):
            found += list(read_together(paged[first:end], tokens[first:end]))
        return found

    def _text_of(self, tokens: list[int], taken: Collection[int]) -> _TextState:
        """Return what was read of a text, but for guesses that nobody took; or else of none, or of the oldest.

        Args:
            tokens: of the text.
            taken: those that other texts of this call have.
        """
        free = [each for each in self._texts if id(each) not in taken]
        known = [(_common(each.read, tokens), each) for each in free]
        own = [(same, each) for same, each in known if same >= len(each.read) - FEW_ROWS]
        if own:
            found = max(own, key=lambda each: each[0])[1]
            self._texts.remove(found)
        elif len(self._texts) < FEW_ROWS or not free:
            found = _TextState(self._new_state())
            found.state.add_row()
        else:
            found = free[0]
            self._texts.remove(found)
        self._texts.append(found)
        return found

    def _new_state(self) -> DecoderState:
        decoder = self._model.decoder
        if decoder.paged is None:
            return decoder.new_state()
        if self._runs is None:
            self._runs = decoder.paged.new_runs(decoder)
        return PagedState(self._runs)


def _common(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
