"""The text of one request as tokens come: stop strings, log-probabilities, the end."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ort_genai.engine.requests import EndReason, GenerationOptions, Piece, TokenChance
from ort_genai.engine.scores import chance_of
from ort_genai.guidance import Guide
from ort_genai.sampling import chosen, log_probabilities, penalized, taken
from ort_genai.search_options import SearchOptions
from ort_genai.text import Text, TextStream

_MOST = float(np.finfo(np.float32).max)


class TextState:
    """Chooses a request's tokens and turns them into text.

    Args:
        options: of the request.
        prompt: its tokens.
        text: the tokenizer.
        ends: tokens that end a text.
        guide: of its grammar.
        most: tokens that the text may have.
    """

    def __init__(
        self,
        options: GenerationOptions,
        prompt: list[int],
        text: Text,
        ends: tuple[int, ...],
        guide: Guide | None,
        most: int,
    ) -> None:
        self._options, self._ends, self._guide, self._most = options, ends, guide, most
        self._stream = TextStream(text)
        self._read = list(prompt)  # the prompt, then the text
        self._counts: Counter[int] = Counter()
        self._held = ""  # text that may be the beginning of a stop string
        self._random = np.random.Generator(np.random.PCG64(options.seed))
        self._search = SearchOptions(
            do_sample=options.temperature > 0 and options.top_p > 0, temperature=options.temperature or 1.0,
            top_k=options.top_k, top_p=options.top_p, min_p=options.min_p,
            repetition_penalty=options.repetition_penalty, min_length=len(prompt) + options.min_tokens,
        )  # fmt: skip
        self.tokens: list[int] = []

    def take(self, logits: np.ndarray) -> tuple[Piece, EndReason | None]:
        """Choose a token of logits (vocabulary,) and return what it adds, and why the text ends if it does."""
        options = self._options
        penalizes = self._counts and (options.presence_penalty or options.frequency_penalty)
        if penalizes or options.logit_bias or self._guide is not None:
            token = chosen(self._shaped(logits), self._search, self._random)
        else:
            token = taken(logits, self._read, self._search, self._ends, self._random)
        if self._guide is not None:
            self._guide.take(token)
        chance, likeliest = self._chances(logits, token)
        self.tokens.append(token)
        self._read.append(token)
        self._counts[token] += 1
        if token in self._ends:
            return Piece(self._rest()[0], token, chance, likeliest), EndReason.STOP
        text, is_stopped = self._without_stop(self._held + self._stream.push(token))
        if is_stopped:
            return Piece(text, token, chance, likeliest), EndReason.STOP
        if self._guide is not None and self._guide.has_ended:
            return Piece(text + self._rest()[0], token, chance, likeliest), EndReason.STOP
        if len(self.tokens) >= self._most:
            rest, is_stopped = self._rest()
            return Piece(text + rest, token, chance, likeliest), EndReason.STOP if is_stopped else EndReason.LENGTH
        return Piece(text, token, chance, likeliest), None

    def _rest(self) -> tuple[str, bool]:
        """Return the text that was held back, and whether a stop string ended it."""
        text, is_stopped = self._without_stop(self._held + self._stream.finish())
        found, self._held = text + self._held, ""
        return found, is_stopped

    def _without_stop(self, text: str) -> tuple[str, bool]:
        """Return what can come out, and whether a stop string ended it; what may begin one is held back."""
        places = [place for place in (text.find(stop) for stop in self._options.stop) if place >= 0]
        if places:
            self._held = ""
            return text[: min(places)], True
        held = max((_overlap(text, stop) for stop in self._options.stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def _shaped(self, logits: np.ndarray) -> np.ndarray:
        options = self._options
        found = penalized(logits, self._read, self._search, self._ends)
        if self._counts and (options.presence_penalty or options.frequency_penalty):
            found = found.astype(np.float32)
            places = list(self._counts)
            counts = np.array([self._counts[place] for place in places], np.float32)
            found[places] -= np.float32(options.presence_penalty) + np.float32(options.frequency_penalty) * counts
        if options.logit_bias:
            found = found.astype(np.float32)
            with np.errstate(over="ignore"):  # infinite is the most likely of all, or forbidden
                for token, bias in options.logit_bias.items():
                    found[token] += np.float32(min(max(bias, -_MOST), _MOST))
        return found if self._guide is None else self._guide.allowed(found)

    def _chances(self, logits: np.ndarray, token: int) -> tuple[float | None, tuple[TokenChance, ...]]:
        options = self._options
        if not options.tells_log_probabilities:
            return None, ()
        return chance_of(log_probabilities(logits), token, options.log_probabilities)


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text begin a stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
