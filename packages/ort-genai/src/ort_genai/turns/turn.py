"""One turn of a request: chooses its tokens, and says where it ends."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ort_genai.decoder_states import RowCaches
from ort_genai.guidance import Guide
from ort_genai.paging.paged_states import PagedCaches
from ort_genai.sampling import chosen, penalized, taken
from ort_genai.search_options import SearchOptions
from ort_genai.text import Text, TextStream
from ort_genai.turns.events import FinishReason, TurnUsage
from ort_genai.turns.options import TurnSettings

KeptRow: TypeAlias = RowCaches | PagedCaches


class SequenceState:
    """What a request has said in all its turns.

    Attributes:
        tokens: of all turns, prompts among them.
        caches: of the first of them; they are the sequence's own, and released when others come.
        starts: tokens before each turn, by its number.
        random: of its draws.
    """

    def __init__(self, seed: int, forgotten: deque[KeptRow]) -> None:
        """Begin without tokens.

        Args:
            seed: of the draws; below 0: another one each time.
            forgotten: gets the caches of a sequence that nobody closed: whoever collects garbage may be any thread.
        """
        self.tokens: list[int] = []
        self._held: list[KeptRow] = []
        weakref.finalize(self, forgotten.extend, self._held).atexit = False
        self.starts: dict[int, int] = {}
        self.random = np.random.Generator(np.random.PCG64(None if seed < 0 else seed))

    @property
    def caches(self) -> KeptRow | None:
        """What was read of the first tokens, if that is known."""
        return self._held[0] if self._held else None

    def keep(self, caches: KeptRow | None) -> None:
        """Keep other caches, or none."""
        old = self.take_out()
        if old is not None:
            old.release()
        if caches is not None:
            self._held.append(caches)

    def take_out(self) -> KeptRow | None:
        """Return the caches, which are the caller's then."""
        return self._held.pop() if self._held else None

    def shorten(self, length: int) -> None:
        """Let go of caches behind a length."""
        if self.caches is None or self.caches.length <= length:
            return
        if length:
            self._held[0] = self._held[0].cut(length)
        else:
            self.keep(None)

    def rewind(self, turn_id: int) -> None:
        """Forget a turn, and all behind it."""
        length = self.starts[turn_id]
        self.starts = {number: start for number, start in self.starts.items() if number < turn_id}
        del self.tokens[length:]
        self.shorten(length)


class TurnState:
    """Chooses the tokens of a turn.

    Args:
        number: of the turn.
        sequence: of the request, the turn's prompt at its end.
        prompt_tokens: of the turn.
        settings: of the turn.
        search: its search options.
        guide: of its grammar.
        text: the tokenizer.
        ends: tokens that end a text.
        longest: tokens that the sequence may have.
    """

    def __init__(
        self, number: int, sequence: SequenceState, prompt_tokens: int, settings: TurnSettings, search: SearchOptions,
        guide: Guide | None, text: Text, ends: tuple[int, ...], longest: int,
    ) -> None:  # fmt: skip
        self.number, self._sequence, self._settings, self._ends = number, sequence, settings, ends
        least = len(sequence.tokens) + settings.min_generated_tokens
        self._search = replace(search, min_length=least if settings.min_generated_tokens else 0)
        self._guide, self._longest = guide, longest
        self._stream = TextStream(text) if settings.stop_strings else None
        self._tail = ""
        self._keeps = max((len(stop) for stop in settings.stop_strings), default=1) - 1
        self.prompt_tokens, self.cached, self.generated = prompt_tokens, 0, 0
        self.stop_index: int | None = None

    @property
    def usage(self) -> TurnUsage:
        """Tokens so far."""
        return TurnUsage(self.prompt_tokens, self.generated, self.cached)

    def take(self, logits: np.ndarray) -> tuple[int, FinishReason]:
        """Choose a token of logits (vocabulary,), and return it with why the turn ends, ``NONE`` where it goes on.

        A token that ends a text is chosen, but neither kept nor counted.
        """
        sequence = self._sequence
        if self._guide is None:
            token = taken(logits, sequence.tokens, self._search, self._ends, sequence.random)
        else:
            shaped = penalized(logits, sequence.tokens, self._search, self._ends)
            token = chosen(self._guide.allowed(shaped), self._search, sequence.random)
        if token in self._ends:
            return token, FinishReason.EOS
        if self._guide is not None:
            self._guide.take(token)
        sequence.tokens.append(token)
        self.generated += 1
        return token, self._reason(token)

    def _reason(self, token: int) -> FinishReason:
        if self._guide is not None and self._guide.has_ended:
            return FinishReason.EOS
        if self._stream is not None and self._is_stopped(self._stream.push(token)):
            return FinishReason.STOP_STRING
        if self._settings.max_generated_tokens and self.generated >= self._settings.max_generated_tokens:
            return FinishReason.MAX_GENERATED_TOKENS
        if len(self._sequence.tokens) >= self._longest:
            return FinishReason.MAX_SESSION_TOKENS
        return FinishReason.NONE

    def _is_stopped(self, text: str) -> bool:
        whole = self._tail + text
        places = [(whole.find(stop), place) for place, stop in enumerate(self._settings.stop_strings)]
        found = sorted(each for each in places if each[0] >= 0)
        if found:
            self.stop_index = found[0][1]
        self._tail = whole[-self._keeps :] if self._keeps else ""
        return bool(found)
