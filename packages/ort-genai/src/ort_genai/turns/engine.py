"""onnxruntime-genai's engine: the caller runs it, and reads from a buffer what happened to its requests.

A call of ``run`` reads a part of one waiting prompt, and takes a token of each running request in one run of the model.
What a finished turn has read is kept by its request, so that the next turn reads its own prompt alone. Requests whose
first prompts begin alike read that beginning once. Where the model's graph allows it, caches lie in blocks: what
requests keep, and beginnings that they share, are not copied, drafts of several requests are read in one run, and so is
a part of a prompt beside them. Blocks may be bounded: when all are used, what is kept goes first, what was used least
lately before the rest; then who was admitted last waits, and reads again what it had read.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.errors import OrtError
from ort_genai.arguments import demand
from ort_genai.decoder_states import DecoderState
from ort_genai.engine.block_room import BlockRoom
from ort_genai.engine.lanes import drop_rows
from ort_genai.engine.prefix_cache import PrefixCache
from ort_genai.errors import InvalidGeneration
from ort_genai.model import Model
from ort_genai.paging.block_pool import BLOCK_ROWS, OutOfBlocks
from ort_genai.paging.paged_states import PagedState
from ort_genai.prompt_parts import part_length
from ort_genai.speculative_stats import SpeculativeStats
from ort_genai.turns.events import (
    EngineCapabilities,
    EngineErrorCode,
    EngineEvent,
    EngineEventBuffer,
    EngineEventFlags,
    FinishReason,
)
from ort_genai.turns.kept_texts import KeptTexts
from ort_genai.turns.options import RequestOptions, TurnSettings
from ort_genai.turns.request import Request
from ort_genai.turns.turn import KeptRow, TurnState

log = logging.getLogger(__name__)
_PART = 256  # tokens of a prompt in one call
_BATCH = 4  # requests that are stepped together where the folder says nothing; onnxruntime-genai's number
_DRAFTS = 8  # tokens that a proposal may have
_PREFIX_BYTES = 256 << 20
_STATED_ROWS = (
    256  # tokens of a block where the folder says how many blocks, and nothing else; onnxruntime-genai's number
)


@dataclass(slots=True)
class _ReadingState:
    request: Request
    turn: TurnState
    state: DecoderState


@dataclass(slots=True, eq=False)
class _RunningState:
    request: Request
    turn: TurnState
    logits: np.ndarray
    number: int  # by order of admission
    is_fresh: bool = True  # no token was chosen of the logits yet


class Engine:
    """Steps requests together; one thread runs it, and any may begin, cancel or close.

    Args:
        model: to run.
        cache_bytes: of blocks of caches, those that requests keep between turns among them; ``None``: as many as
            the folder states (``engine.dynamic_batching``: ``num_blocks`` of ``block_size`` tokens), or any number.
    """

    def __init__(self, model: Model, *, cache_bytes: int | None = None) -> None:
        demand("Engine()", "model", model, Model)
        self.model = model
        self._batch = _stated_batch(model)
        self._lock = threading.RLock()
        self._waiting: deque[Request] = deque()
        self._reading: _ReadingState | None = None
        self._running: list[_RunningState] = []
        self.forgotten: deque[KeptRow] = deque()
        paged = model.decoder.paged
        limit = block_bytes(model, cache_bytes)
        self._prefixes: PrefixCache[KeptRow] = PrefixCache(_PREFIX_BYTES)
        self._kept = KeptTexts(self.forgotten, self._prefixes)
        runs = None if paged is None else paged.new_runs(model.decoder, limit)
        self._room = None if runs is None else BlockRoom(runs, self._kept.drop_one)
        self._numbers = itertools.count()
        self._state = self._new_state()
        self._events: deque[EngineEvent] = deque()
        self._stats = SpeculativeStats()

    def create_request(self, *, options: RequestOptions | None = None) -> Request:
        """Return a request without turns.

        Raises:
            InvalidGeneration: it may have more tokens than the model's context.
        """
        options = RequestOptions() if options is None else options
        demand("create_request()", "options", options, RequestOptions)
        if options.max_session_tokens > self.model.decoder.context_length:
            raise InvalidGeneration(
                f"max_session_tokens ({options.max_session_tokens}) is more than the model's context "
                f"({self.model.decoder.context_length})"
            )
        return Request(self, options)

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        """Return a buffer of so many events for ``run``."""
        return EngineEventBuffer(capacity)

    def get_capabilities(self) -> EngineCapabilities:
        """Return the limits."""
        return EngineCapabilities(self._batch, self.model.decoder.context_length, _PART)

    def get_speculative_stats(self) -> dict[str, object]:
        """Return what drafts did so far."""
        return self._stats.as_dict()

    def max_draft_tokens_per_proposal(self) -> int:
        """Return how many tokens ``Request.set_draft_tokens`` takes."""
        return _DRAFTS

    def has_pending_requests(self) -> bool:
        """Return whether a call of ``run`` has something to do, or to tell."""
        return bool(self._waiting or self._reading or self._running or self._events)

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer:
        """Step, unless events wait that found no room before, and return the buffer with what happened."""
        if not isinstance(buffer, EngineEventBuffer):
            raise TypeError(f"run() takes a buffer of create_event_buffer(), not {type(buffer).__name__}")
        with self._lock:
            if not self._events:
                self._advance()
            buffer.fill(self._events)
        return buffer

    # ------------------------------------------------------------ what requests ask for

    def begin(self, request: Request, tokens: list[int], settings: TurnSettings) -> None:
        """Let a turn wait for its place.

        Raises:
            InvalidGeneration: its options are out of range, or its last turn's end was not read yet.
        """
        with self._lock:
            if any(event.request is request for event in self._events):
                raise InvalidGeneration(
                    "Cannot continue a request while an Engine event is pending; call Engine::Run() to drain the "
                    "event before continuing."
                )
            model, sequence = self.model, request.sequence
            search = settings.over(model.search)
            guide = None if settings.grammar is None else model.guidance.matcher(settings.grammar)
            if settings.seed is not None:
                sequence.random = np.random.Generator(np.random.PCG64(settings.seed))
            request.turns += 1
            sequence.starts[request.turns] = len(sequence.tokens)
            sequence.tokens += tokens
            request.turn = TurnState(
                request.turns, sequence, len(tokens), settings, search, guide, model.text, model.decoder.end_tokens,
                request.max_session_tokens,
            )  # fmt: skip
            self._waiting.append(request)

    def cancel(self, request: Request, turn_id: int) -> bool:
        """End a turn that waits or runs, and return whether there was one."""
        with self._lock:
            turn = request.turn
            if turn is None or turn.number != turn_id:
                return False
            self._leave(request)
            self._finish(request, turn, FinishReason.CANCELLED)
            return True

    def close_request(self, request: Request) -> None:
        """Take a request out; nothing is told of it any more."""
        with self._lock:
            self._leave(request)
            request.turn = None
            request.sequence.keep(None)
            self._events = deque(event for event in self._events if event.request is not request)

    def rewind(self, request: Request, turn_id: int) -> None:
        """Forget a turn of a request, and all behind it."""
        with self._lock:
            request.sequence.rewind(turn_id)

    def _leave(self, request: Request) -> None:
        """Take a request from where it waits, reads or runs; its caches stay with it."""
        self._waiting = deque(each for each in self._waiting if each is not request)
        if self._reading is not None and self._reading.request is request:
            state, self._reading = self._reading.state, None
            if state.lengths[0]:
                self._keep(request, state.export_row(0))
            drop_rows(state)
        for place, running in enumerate(self._running):
            if running.request is request:
                self._drop(place)
                return

    def _keep(self, request: Request, caches: KeptRow) -> None:
        request.sequence.keep(caches)
        self._kept.add(request.sequence)

    def _drop(self, place: int) -> None:
        self._keep(self._running[place].request, self._state.export_row(place))
        self._take_out(place)

    def _take_out(self, place: int) -> None:
        request = self._running[place].request
        request.is_ready, request.drafts = False, []
        self._state.drop_row(place)
        last = self._running.pop()
        if place < len(self._running):
            self._running[place] = last  # as the state has it

    # ------------------------------------------------------------ steps

    def _new_state(self) -> DecoderState:
        return self.model.decoder.new_state() if self._room is None else self._room.new_state()

    def _advance(self) -> None:
        self._kept.release_forgotten()
        self._make_room()
        self._admit()
        if self._reading is None or not self._read_beside(self._reading):
            if self._reading is not None:
                self._guarded_read(self._reading)
            self._read_last_tokens()
        for running in [each for each in self._running if each.is_fresh]:
            self._take(running, running.logits)

    def _make_room(self) -> None:
        """Let who was admitted last wait again, as long as blocks are missing for the next token of each."""
        while self._room is not None and self._room.is_short(self._state):
            if self._reading is not None:
                reading, self._reading = self._reading, None
                drop_rows(reading.state)
                self._waiting.appendleft(reading.request)
            elif len(self._running) > 1:
                last = max(range(len(self._running)), key=lambda place: self._running[place].number)
                request = self._running[last].request
                self._take_out(last)
                self._waiting.appendleft(request)
            else:
                request, turn = self._running[0].request, self._running[0].turn
                self._leave(request)
                self._fail(request, turn, OutOfBlocks())

    def _admit(self) -> None:
        if self._reading is not None or not self._waiting or len(self._running) >= self._batch:
            return
        request = self._waiting[0]
        turn, sequence = request.turn, request.sequence
        if turn is None:
            self._waiting.popleft()
            return
        own = sequence.caches
        known = self._prefixes.find(sequence.tokens) if own is None else own
        if not self._has_room(len(sequence.tokens), known):
            return  # until somebody leaves; those behind it wait, too, so that none is passed for ever
        self._waiting.popleft()
        if own is None and not turn.generated:
            turn.cached = 0 if known is None else known.length
        sequence.take_out()
        state = self._new_state()
        try:
            if known is None or not known.length:
                state.add_row()
            else:
                state.import_row(known)  # type: ignore[arg-type]  # what an engine keeps is of its states' kind
            if own is not None:
                own.release()
                own = None
            if isinstance(state, PagedState):
                state.reserve(0, len(sequence.tokens))
        except (OutOfBlocks, MemoryError) as error:
            if own is not None:
                own.release()
            drop_rows(state)
            self._fail(request, turn, error)
            return
        self._reading = _ReadingState(request, turn, state)

    def _has_room(self, tokens: int, known: KeptRow | None) -> bool:
        """Return whether a request may join those that run."""
        running = len(self._running)
        return self._room is None or not running or self._room.has_room(tokens + 1, known, running)

    def _guarded_read(self, reading: _ReadingState) -> None:
        """Read a part of a prompt; what goes wrong with it is its request's alone."""
        self._guarded(reading, lambda: self._read(reading))

    def _guarded(self, reading: _ReadingState, action: Callable[[], None]) -> None:
        try:
            action()
        except (OrtError, ValueError, MemoryError) as error:
            self._reading = None
            drop_rows(reading.state)
            self._fail(reading.request, reading.turn, error)

    def _read(self, reading: _ReadingState) -> None:
        logits = reading.state.read(0, self._next_part(reading))
        if reading.state.lengths[0] == len(reading.request.sequence.tokens):
            self._begin_steps(reading, logits)

    def _next_part(self, reading: _ReadingState) -> np.ndarray:
        tokens, done = reading.request.sequence.tokens, reading.state.lengths[0]
        return np.array(tokens[done : done + part_length(len(tokens) - done, _PART)], np.int64)

    def _begin_steps(self, reading: _ReadingState, logits: np.ndarray) -> None:
        """Let a request run whose prompt was read."""
        request, state = reading.request, reading.state
        if reading.turn.number == 1 and not reading.turn.generated:
            self._prefixes.keep(request.sequence.tokens, state.export_row(0))
        self._take_over(state)
        self._running.append(_RunningState(request, reading.turn, logits, next(self._numbers)))
        self._reading = None

    def _read_beside(self, reading: _ReadingState) -> bool:
        """Read a part of a prompt in the run of the others' step; return whether that could be done."""
        state, other, running = self._state, reading.state, self._running
        if not running or any(each.is_fresh or each.request.drafts for each in running):
            return False
        if not isinstance(state, PagedState) or not self.model.decoder.mixes(len(running)):
            return False
        assert isinstance(other, PagedState), "states of one engine are of one kind"
        tokens = np.array([each.request.sequence.tokens[-1] for each in running], np.int64)
        try:
            rows, last = state.step_beside(tokens, other, self._next_part(reading))
        except (OrtError, ValueError, MemoryError) as error:  # it may be the prompt's fault: apart, its caller is told
            log.warning("a step with a part of a prompt failed: %s", error)
            return False
        for each, logits in zip(running, rows, strict=True):
            each.logits, each.is_fresh = logits, True
        if other.lengths[0] == len(reading.request.sequence.tokens):
            self._guarded(reading, lambda: self._begin_steps(reading, last))
        return True

    def _take_over(self, state: DecoderState) -> None:
        """Let the row that was read be one of those that are stepped."""
        if isinstance(self._state, PagedState):
            self._state.take_row(state, 0)
        else:
            self._state.import_row(state.export_row(0))

    def _read_last_tokens(self) -> None:
        """Read what was chosen last, and drafts behind it: of all requests together, where caches lie in blocks.

        In one piece all are read together if no row is left out, and none has drafts.
        """
        behind = [running for running in self._running if not running.is_fresh]
        if not behind:
            return
        if len(behind) == len(self._running) and not any(running.request.drafts for running in behind):
            tokens = np.array([running.request.sequence.tokens[-1] for running in behind], np.int64)
            for running, logits in zip(behind, self._state.step(tokens), strict=True):
                running.logits, running.is_fresh = logits, True
            return
        most = max(len(running.request.drafts) for running in behind)
        if self._room is not None and self._room.is_short(self._state, 1 + most):
            for running in behind:
                running.request.drafts = []
        read = []
        for running in behind:
            request, tokens_read = running.request, running.request.sequence.tokens
            drafts = request.drafts[: max(request.max_session_tokens - len(tokens_read) - 1, 0)]
            request.drafts = []
            read.append([tokens_read[-1], *drafts])
        places = [self._running.index(running) for running in behind]
        found = self._state.read_each(places, [np.array(each, np.int64) for each in read])
        for running, (_, *drafts), rows in zip(behind, read, found, strict=True):
            if drafts:
                self._take_drafts(running, drafts, rows)
            else:
                running.logits, running.is_fresh = rows[-1], True

    def _take_drafts(self, running: _RunningState, drafts: list[int], found: np.ndarray) -> None:
        """Take those guesses that the model takes, too; ``found`` are logits behind the last token and each of them."""
        request, turn = running.request, running.turn
        start, accepted = len(request.sequence.tokens), 0
        for draft, logits in zip(drafts, found, strict=False):
            token = self._take(running, logits)
            if request.turn is not turn or token != draft:
                break
            accepted += 1
        self._stats.count_round(len(drafts), accepted)
        if request.turn is turn:
            self._state.rewind(self._running.index(running), start + accepted)
            running.logits, running.is_fresh = found[accepted], accepted == len(drafts)
        else:  # it ended: its caches have guesses that were not taken
            request.sequence.shorten(start + accepted)

    def _take(self, running: _RunningState, logits: np.ndarray) -> int | None:
        """Choose a token, and return it; ``None`` where that failed."""
        request, turn = running.request, running.turn
        running.is_fresh = False
        try:
            token, reason = turn.take(logits)
        except (OrtError, ValueError) as error:
            self._leave(request)
            self._fail(request, turn, error)
            return None
        request.is_ready = True
        if reason is FinishReason.NONE:
            self._events.append(EngineEvent(request, turn.number, EngineEventFlags.TOKEN, token))
            return token
        self._leave(request)
        self._finish(request, turn, reason, None if token in self._ends else token)
        return token

    @property
    def _ends(self) -> tuple[int, ...]:
        return self.model.decoder.end_tokens

    def _finish(self, request: Request, turn: TurnState, reason: FinishReason, token: int | None = None) -> None:
        flags = EngineEventFlags.TURN_FINISHED
        if token is not None:
            flags |= EngineEventFlags.TOKEN
        request.turn = None
        request.sequence.shorten(len(request.sequence.tokens))
        self._events.append(
            EngineEvent(
                request, turn.number, flags, token, reason, matched_stop_string_index=turn.stop_index, usage=turn.usage
            )
        )

    def _fail(self, request: Request, turn: TurnState, error: Exception) -> None:
        flags, code = EngineEventFlags.FAILED | EngineEventFlags.TURN_FINISHED, EngineErrorCode.ENGINE_EXECUTION_FAILURE
        told = f"{type(error).__name__}: {error}"
        if isinstance(error, OutOfBlocks):
            code = EngineErrorCode.REQUEST_UNSERVICEABLE
            told = f"{len(request.sequence.tokens)} tokens need more blocks of caches than the engine may have"
        request.turn = None
        request.sequence.keep(None)
        self._events.append(
            EngineEvent(request, turn.number, flags, None, FinishReason.FAILED, code, usage=turn.usage, error=told)
        )


def block_bytes(model: Model, given: int | None) -> int | None:
    """Return how many bytes of blocks there may be: what is given, what the folder states, or ``None`` for any number.

    Raises:
        InvalidGeneration: not one block fits what is given.
    """
    decoder = model.decoder
    if given is not None:
        least = decoder.cache_bytes(BLOCK_ROWS)
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            raise InvalidGeneration(f"cache_bytes = {given!r}; expected a whole number from {least} on, one block")
        return given
    stated = model.config.engine.get("dynamic_batching")
    count, size = (stated.get(name) if isinstance(stated, Mapping) else None for name in ("num_blocks", "block_size"))
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return None
    rows = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else _STATED_ROWS
    return decoder.cache_bytes(max(count * rows, BLOCK_ROWS))


def _stated_batch(model: Model) -> int:
    """Return how many requests the folder lets run together."""
    stated = model.config.engine
    for kind in ("dynamic_batching", "static_batching"):
        found = stated.get(kind)
        size = found.get("max_batch_size") if isinstance(found, Mapping) else None
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return _BATCH
