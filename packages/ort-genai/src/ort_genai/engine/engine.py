"""The engine: one thread that steps all running requests together and reads new prompts in between.

A step reads one token of each running request in one run of the model. A waiting prompt is read in parts, a part
between two steps, so that those who run wait for a part and not for a prompt. Requests are admitted in order of
arrival, as long as there is room in the batch and for their caches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_genai.decoder_states import DecoderState
from ort_genai.engine.prefix_cache import PrefixCache
from ort_genai.engine.requests import Finished, FinishReason, GenerationOptions, Request
from ort_genai.engine.texts import TextState
from ort_genai.errors import EngineBusy, InvalidGeneration
from ort_genai.model import Model

log = logging.getLogger(__name__)
_PART = 256  # tokens of a prompt between two steps


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine.

    Attributes:
        max_batch: requests that run at once.
        max_waiting: requests that wait; further ones are refused.
        cache_bytes: of caches of running requests.
        prefix_bytes: of caches that are kept for prompts with the same beginning; 0: none.
    """

    max_batch: int = 8
    max_waiting: int = 1024
    cache_bytes: int = 4 << 30
    prefix_bytes: int = 256 << 20


@dataclass(slots=True)
class _RunningState:
    request: Request
    text: TextState
    logits: np.ndarray
    nbytes: int
    cached: int


@dataclass(slots=True)
class _ReadingState:
    request: Request
    state: DecoderState
    nbytes: int
    cached: int
    most: int


@dataclass(slots=True)
class EngineCounts:
    """What an engine did so far, and what it does now."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    running: int = 0
    waiting: int = 0


class Engine:
    """Generates texts for many callers; all methods may be called from any thread.

    Args:
        model: to run.
        options: limits.
    """

    def __init__(self, model: Model, options: EngineOptions | None = None) -> None:
        self.model, self.options = model, options or EngineOptions()
        self.counts = EngineCounts()
        self._waiting: deque[Request] = deque()
        self._running: list[_RunningState] = []
        self._reading: _ReadingState | None = None
        self._state = model.decoder.new_state()
        self._prefixes = PrefixCache(self.options.prefix_bytes)
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="ort-genai engine", daemon=True)
        self._thread.start()

    def submit(self, prompt: Sequence[int] | str, options: GenerationOptions | None = None) -> Request:
        """Ask for a text behind a prompt, tokens or a text; iterate over what comes back.

        Raises:
            InvalidGeneration: the prompt or the options cannot be taken, alone in an empty engine.
            EngineBusy: too many requests wait.
        """
        decoder, options = self.model.decoder, options or GenerationOptions()
        tokens = self.model.text.encode(prompt) if isinstance(prompt, str) else [int(each) for each in prompt]
        if not tokens:
            raise InvalidGeneration("the prompt is empty")
        decoder.check(np.array(tokens, np.int64))
        if any(not 0 <= token < decoder.vocab_size for token in options.logit_bias):
            raise InvalidGeneration(f"logit_bias names a token outside 0 to {decoder.vocab_size - 1}")
        if len(tokens) >= decoder.context_length:
            raise InvalidGeneration(
                f"the prompt has {len(tokens)} tokens; the model's context has {decoder.context_length}, and the text "
                "needs one of them at least"
            )
        needed = decoder.cache_bytes(len(tokens) + self._most(tokens, options))
        if needed > self.options.cache_bytes:
            raise InvalidGeneration(
                f"{len(tokens)} tokens and up to {self._most(tokens, options)} more need {needed / 1e6:.3f} MB of "
                f"caches, the engine has {self.options.cache_bytes / 1e6:.3f}: ask for fewer (max_tokens)"
            )
        if options.grammar is not None:
            self.model.guidance.matcher(options.grammar)  # refused here, to the caller, if it cannot be read
        request = Request(tokens, options, self._wake)
        with self._changed:
            if self._is_closed:
                raise EngineBusy("the engine is closed")
            if len(self._waiting) >= self.options.max_waiting:
                raise EngineBusy(f"{len(self._waiting)} requests wait already; try again later")
            self._waiting.append(request)
            self._changed.notify()
        return request

    def generate(self, prompt: Sequence[int] | str, options: GenerationOptions | None = None) -> Request:
        """Ask for a text: ``async for piece in engine.generate(...)``; leaving the loop cancels it."""
        return self.submit(prompt, options)

    def close(self) -> None:
        """End what runs and waits; a second call does nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def current_counts(self) -> EngineCounts:
        """Return counts with how many run and wait now."""
        self.counts.running = len(self._running) + (self._reading is not None)
        self.counts.waiting = len(self._waiting)
        return self.counts

    # ------------------------------------------------------------ the engine's thread

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _most(self, tokens: list[int], options: GenerationOptions) -> int:
        room = self.model.decoder.context_length - len(tokens)
        return room if options.max_tokens is None else min(options.max_tokens, room)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._is_closed or self._waiting or self._running or self._reading):
                    self._changed.wait()
                if self._is_closed:
                    break
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the border to the callers: each is told, the engine goes on
                log.warning("a step failed: %s", error)
                self._fail(f"{type(error).__name__}: {error}")
        self._drop_all(FinishReason.CANCELLED, "")

    def _turn(self) -> None:
        """Leave out who was cancelled, read a part of a prompt, step those who run."""
        for place in reversed(range(len(self._running))):
            if self._running[place].request.is_cancelled:
                self._leave(place, FinishReason.CANCELLED)
        self._admit()
        if self._reading is not None:
            self._read_part(self._reading)
        if self._running:
            self._step()

    def _admit(self) -> None:
        if self._reading is not None or len(self._running) >= self.options.max_batch:
            return
        used = sum(each.nbytes for each in self._running)
        with self._changed:
            while self._waiting and self._waiting[0].is_cancelled:
                self._finish(self._waiting.popleft(), FinishReason.CANCELLED)
            if not self._waiting:
                return
            request = self._waiting[0]
            most = self._most(request.prompt, request.options)
            nbytes = self.model.decoder.cache_bytes(len(request.prompt) + most)
            if used + nbytes > self.options.cache_bytes:
                return  # until somebody leaves; those behind it wait, too, so that none is passed for ever
            self._waiting.popleft()
        state = self.model.decoder.new_state()
        known = self._prefixes.find(request.prompt)
        if known is None:
            state.add_row()
        else:
            state.import_row(known)
        self._reading = _ReadingState(request, state, nbytes, state.lengths[0], most)
        self.counts.requests += 1
        self.counts.prompt_tokens += len(request.prompt)
        self.counts.cached_tokens += state.lengths[0]

    def _read_part(self, reading: _ReadingState) -> None:
        request, state = reading.request, reading.state
        if request.is_cancelled:
            self._reading = None
            self._finish(request, FinishReason.CANCELLED, reading.cached)
            return
        done = state.lengths[0]
        logits = state.read(0, np.array(request.prompt[done : done + _PART], np.int64))
        if state.lengths[0] < len(request.prompt):
            return
        caches = state.export_row(0)
        if self.options.prefix_bytes:
            self._prefixes.keep(request.prompt, caches)
        decoder, grammar = self.model.decoder, request.options.grammar
        guide = None if grammar is None else self.model.guidance.matcher(grammar)
        text = TextState(request.options, request.prompt, self.model.text, decoder.end_tokens, guide, reading.most)
        self._state.import_row(caches)
        self._running.append(_RunningState(request, text, logits, reading.nbytes, reading.cached))
        self._reading = None

    def _step(self) -> None:
        """Choose a token for each running request; those that go on are read together."""
        for place in reversed(range(len(self._running))):
            running = self._running[place]
            try:
                piece, reason = running.text.take(running.logits)
            except InvalidGeneration as error:  # a grammar that ends nowhere: this text's own fault
                self._leave(place, FinishReason.ERROR, str(error))
                continue
            running.request.put(piece)
            self.counts.tokens += 1
            if reason is not None:
                self._leave(place, reason)
        if not self._running:
            return
        tokens = np.array([each.text.tokens[-1] for each in self._running], np.int64)
        logits = self._state.step(tokens)
        self.counts.steps += 1
        for running, row in zip(self._running, logits, strict=True):
            running.logits = row

    def _leave(self, place: int, reason: FinishReason, error: str = "") -> None:
        running = self._running[place]
        if self.options.prefix_bytes and reason is not FinishReason.ERROR:
            read = running.request.prompt + running.text.tokens
            self._prefixes.keep(read, self._state.export_row(place))
        self._state.drop_row(place)
        last = self._running.pop()
        if place < len(self._running):
            self._running[place] = last
        self._finish(running.request, reason, running.cached, len(running.text.tokens), error)

    def _finish(
        self, request: Request, reason: FinishReason, cached: int = 0, tokens: int = 0, error: str = ""
    ) -> None:
        request.put(Finished(reason, len(request.prompt), cached, tokens, error))

    def _fail(self, text: str) -> None:
        """End all that were part of a step that failed, and begin with empty caches."""
        reading, self._reading = self._reading, None
        for running in self._running:
            self._finish(running.request, FinishReason.ERROR, running.cached, len(running.text.tokens), text)
        if reading is not None:
            self._finish(reading.request, FinishReason.ERROR, reading.cached, 0, text)
        self._running, self._state = [], self.model.decoder.new_state()

    def _drop_all(self, reason: FinishReason, text: str) -> None:
        for running in self._running:
            self._finish(running.request, reason, running.cached, len(running.text.tokens), text)
        if self._reading is not None:
            self._finish(self._reading.request, reason, self._reading.cached)
        with self._changed:
            while self._waiting:
                self._finish(self._waiting.popleft(), reason)
        self._running, self._reading = [], None
