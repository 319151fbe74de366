"""What is asked of the engine, and what comes back, piece by piece."""

from __future__ import annotations

import asyncio
import enum
import hashlib
import math
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.errors import GenerationFailed, InvalidGeneration
from ort_genai.guidance import Grammar, Guide

if TYPE_CHECKING:
    from ort_genai.model import LoadedAdapter


class EndReason(enum.StrEnum):
    """Why a text ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How one text is generated.

    Attributes:
        max_tokens: longest text; ``None``: up to the context's end.
        min_tokens: before a text may end.
        temperature: 0: the most likely token each time.
        top_k: tokens among which one is drawn; 0: all.
        top_p: share of probability among whose tokens one is drawn; 0: the most likely token alone.
        min_p: least share of the most likely token's probability.
        seed: of draws; ``None``: another one each time.
        repetition_penalty: factor against tokens of the prompt and the text.
        presence_penalty: taken off logits of tokens that the text has.
        frequency_penalty: taken off as often as the text has them.
        logit_bias: added to logits, by token.
        stop: texts that end it; they do not come out.
        log_probabilities: how many of the likeliest tokens are told at each place; 0: only that of the token taken.
        tells_log_probabilities: whether any are told.
        grammar: that the text follows.
        adapter: name of the LoRA weights to run with, among those of the engine; empty: none.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    log_probabilities: int = 0
    tells_log_probabilities: bool = False
    grammar: Grammar | None = None
    adapter: str = ""

    def __post_init__(self) -> None:
        bounds = (
            ("temperature", 0, 100), ("top_p", 0, 1), ("min_p", 0, 1), ("top_k", 0, 1 << 31),
            ("min_tokens", 0, 1 << 31),
            ("presence_penalty", -100, 100), ("frequency_penalty", -100, 100), ("log_probabilities", 0, 1000),
        )  # fmt: skip
        for name, least, most in bounds:
            if not least <= getattr(self, name) <= most:
                raise InvalidGeneration(f"{name} = {getattr(self, name)}; expected a number from {least} to {most}")
        for name in ("top_k", "min_tokens", "log_probabilities", "max_tokens", "seed"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
                raise InvalidGeneration(f"{name} = {value!r}; expected a whole number")
        is_penalty = 0 < self.repetition_penalty < math.inf
        if not is_penalty or (self.max_tokens is not None and self.max_tokens < 1):
            raise InvalidGeneration(
                f"repetition_penalty = {self.repetition_penalty}, max_tokens = {self.max_tokens}; expected more than 0"
            )
        if self.seed is not None and self.seed < 0:
            raise InvalidGeneration(f"seed = {self.seed}; expected 0 or more, or None for another one each time")
        if not all(math.isfinite(bias) for bias in self.logit_bias.values()):
            raise InvalidGeneration("logit_bias has a value that is not a finite number")
        if isinstance(self.stop, str) or not all(isinstance(each, str) for each in self.stop):
            raise InvalidGeneration(f"stop = {self.stop!r}; expected several texts")
        if "" in self.stop:
            raise InvalidGeneration("a stop string is empty")


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token and the logarithm of its probability."""

    token: int
    log_probability: float


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step adds.

    Attributes:
        text: that can come out now; empty while half a character or half a stop string is held back.
        token: taken; ``None`` for text that was held back until the end.
        chance: of the token, where log-probabilities are told.
        likeliest: tokens at its place, the most likely first.
    """

    text: str
    token: int | None = None
    chance: float | None = None
    likeliest: tuple[TokenChance, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a text.

    Attributes:
        reason: why it ended.
        prompt_tokens: of the prompt.
        cached_tokens: of the prompt, that another request had read.
        tokens: of the text.
        error: what failed, in a sentence.
    """

    reason: EndReason
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    error: str = ""


Event = Piece | Finished


class AsyncRequest:
    """A text that is being generated; iterate over its pieces from any thread, or with ``async for``.

    Args:
        prompt: tokens.
        options: how.
        wake: is called when it is cancelled.
        guide: of the grammar.
        features: vectors of the prompt's images.
        adapter: the LoRA weights that the options name, as they were when it was asked for.
    """

    def __init__(
        self, prompt: list[int], options: GenerationOptions, wake: Callable[[], None], guide: Guide | None = None,
        features: np.ndarray | None = None, adapter: LoadedAdapter | None = None,
    ) -> None:  # fmt: skip
        self.prompt, self.options, self.guide, self.features = prompt, options, guide, features
        self.adapter = adapter
        self.finished: Finished | None = None
        self.is_cancelled = False
        self._wake = wake
        self._whole: str | None = None
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._listener: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    @property
    def weights(self) -> str:
        """What tells its adapter from others; empty for none."""
        return "" if self.adapter is None else self.adapter.key

    @cached_property
    def weights_and_images(self) -> str:
        """What its caches depend on beside tokens: the adapter, and all images."""
        if self.features is None:
            return self.weights
        return f"{self.weights} {hashlib.sha256(np.ascontiguousarray(self.features).tobytes()).hexdigest()}"

    def cancel(self) -> None:
        """End it; what was generated stays, and the room it takes is free after the step that runs."""
        self.is_cancelled = True
        self._wake()

    def put(self, event: Event) -> None:
        """Hand over an event; the engine calls this."""
        self._events.put(event)
        listener = self._listener
        if listener is None:
            return
        loop, heard = listener
        try:
            loop.call_soon_threadsafe(heard.set)
        except RuntimeError:  # the loop was closed with this text unread: nobody waits for it any more
            self._listener = None
            self.cancel()

    def __iter__(self) -> Iterator[Piece]:
        while self.finished is None:
            event = self._events.get()
            if isinstance(event, Finished):
                self._end(event)
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Piece]:
        heard = asyncio.Event()
        self._listener = asyncio.get_running_loop(), heard
        try:
            while self.finished is None:
                try:
                    event = self._events.get_nowait()
                except queue.Empty:
                    heard.clear()
                    if self._events.empty():
                        await heard.wait()
                    continue
                if isinstance(event, Finished):
                    self._end(event)
                    return
                yield event
        finally:
            if self.finished is None:
                self.cancel()

    def text(self) -> str:
        """Wait for the end and return the text, or what is left of it where pieces were taken before.

        Raises:
            GenerationFailed: the generation failed.
        """
        if self._whole is None:
            self._whole = "".join(piece.text for piece in self)
        return self._whole

    def _end(self, event: Finished) -> None:
        self.finished = event
        if event.reason is EndReason.ERROR:
            raise GenerationFailed(event.error)
