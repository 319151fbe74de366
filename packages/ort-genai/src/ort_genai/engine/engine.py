"""The engine: one thread that steps all running requests together and reads new prompts in between.

A step reads one token of each running request in one run of the model, or in one run for each adapter. A waiting prompt
is read in parts, a part between two steps, so that those who run wait for a part and not for a prompt. Requests are
admitted in order of arrival, as long as there is room in the batch and for their caches. Requests may read drafts,
tokens that are guessed, read together, and kept as far as they are chosen: with caches in one piece only one that runs
alone.

Where the model's graph allows it, caches lie in blocks (``paging``): texts of different lengths take what they need,
beginnings are shared and not copied, a request is admitted when there are blocks for its prompt, and a part of a prompt
is read in the run of a step. When all blocks are used, who was admitted last waits until there are some, and reads
again what it had read, in the same way. Else all caches of a batch are as long as the longest text may become.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.decoder_states import DecoderState, RowCaches
from ort_genai.engine.admission import check_images, check_prompt, check_room, longest_text, tokens_of
from ort_genai.engine.block_room import BlockRoom
from ort_genai.engine.drafts import Drafter, guesses
from ort_genai.engine.lanes import Lane, Place, ReadingState, RunningState, drop_rows, next_part, next_token
from ort_genai.engine.options import EngineCounts, EngineOptions
from ort_genai.engine.prefix_cache import PrefixCache
from ort_genai.engine.requests import AsyncRequest, EndReason, Finished, GenerationOptions, Piece
from ort_genai.engine.scores import scored_prompt
from ort_genai.engine.texts import TextState
from ort_genai.errors import EngineBusy, InvalidGeneration
from ort_genai.paging.paged_states import PagedCaches, PagedState
from ort_genai.prompt_parts import FEW_ROWS
from ort_genai.row_inputs import RowInputs

if TYPE_CHECKING:
    from ort_genai.model import Adapters, LoadedAdapter, Model

log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 10  # whether an engine is gone that could not tell


class AsyncEngine:
    """Generates texts for many callers; all methods may be called from any thread.

    Args:
        model: to run.
        options: limits.
        adapters: LoRA weights that requests may name.
        drafter: guesses the next tokens of requests. Guesses are read together, which changes the last
            digits of logits: where two tokens are as likely, a text may differ from that without one.
    """

    def __init__(
        self, model: Model, options: EngineOptions | None = None, *, adapters: Adapters | None = None,
        drafter: Drafter | None = None,
    ) -> None:  # fmt: skip
        self.model, self.options = model, options or EngineOptions()
        self._counts = EngineCounts()
        self._adapters, self._drafter = adapters, drafter
        self._waiting: deque[AsyncRequest] = deque()
        self._lanes: dict[str, Lane] = {}
        self._reading: ReadingState | None = None
        self._prefixes: PrefixCache[RowCaches | PagedCaches] = PrefixCache(self.options.prefix_bytes)
        self._paused: dict[AsyncRequest, RunningState] = {}
        self._again: set[AsyncRequest] = set()  # that wait for the second time
        self._numbers = itertools.count()
        paged = model.decoder.paged if self.options.uses_blocks else None
        limits = (self.options.cache_bytes, self.options.prefix_bytes)
        runs = None if paged is None else paged.new_runs(model.decoder, *limits)
        self._room = None if runs is None else BlockRoom(runs, self._prefixes.drop_oldest)
        self._changed = threading.Condition()
        self._is_closed = self._has_cancelled = False
        self._thread = threading.Thread(
            target=_work, args=(weakref.ref(self), self._changed), name="ort-genai engine", daemon=True
        )
        weakref.finalize(self, _notify, self._changed).atexit = False
        self._thread.start()

    def submit(
        self, prompt: Sequence[int] | str, options: GenerationOptions | None = None, *,
        features: np.ndarray | None = None,
    ) -> AsyncRequest:  # fmt: skip
        """Ask for a text behind a prompt, tokens or a text; iterate over what comes back.

        Args:
            prompt: what is read first.
            options: how the text is generated.
            features: (n, hidden) vectors of images, in the order of the prompt's tokens that stand for them
                (``ort_genai.media.seen_chat`` makes both).

        Raises:
            InvalidGeneration: the prompt or the options cannot be taken, alone in an empty engine.
            EngineBusy: too many requests wait.
        """
        options = options or GenerationOptions()
        tokens, adapter = tokens_of(self.model, prompt), self._adapter(options.adapter)
        self._check(tokens, options)
        check_images(self.model, tokens, features)
        guide = None if options.grammar is None else self.model.guidance.matcher(options.grammar)
        request = AsyncRequest(tokens, options, self._wake, guide, features, adapter)
        if not (self._is_closed or self._thread.is_alive()):
            raise EngineBusy("the engine's thread is not in this process, which was forked: open a model and an engine")
        with self._changed:
            if self._is_closed:
                raise EngineBusy("the engine is closed")
            if len(self._waiting) >= self.options.max_waiting:
                raise EngineBusy(f"{len(self._waiting)} requests wait already; try again later")
            self._waiting.append(request)
            self._changed.notify()
        return request

    def _check(self, tokens: list[int], options: GenerationOptions) -> None:
        check_prompt(self.model, tokens, options)
        longest = longest_text(self.model, tokens, options)
        check_room(tokens, longest, self._new_state(None).nbytes_for(1, longest), self.options.cache_bytes)

    def _adapter(self, name: str) -> LoadedAdapter | None:
        """Return the LoRA weights of a name as they are now: a request keeps them, whatever is unloaded meanwhile."""
        if not name:
            return None
        if self._adapters is None:
            raise InvalidGeneration(f"Adapter not found: {name}; the engine has none")
        return self._adapters.loaded(name)

    def score(self, prompt: Sequence[int] | str, count: int = 0, *, adapter: str = "") -> list[Piece]:
        """Return the tokens of a prompt with their texts and log-probabilities; the first one has none.

        The caller's thread reads it, beside what the engine's own does.

        Args:
            prompt: tokens or a text.
            count: of the likeliest tokens that are told at each place.
            adapter: name of the LoRA weights to read with; empty: none.

        Raises:
            InvalidGeneration: the prompt cannot be taken.
        """
        tokens, weights = tokens_of(self.model, prompt), self._adapter(adapter)
        self._check(tokens, GenerationOptions(max_tokens=1))
        return scored_prompt(self._new_state(weights, is_own=True), self.model.text, tokens, count)

    def generate(self, prompt: Sequence[int] | str, options: GenerationOptions | None = None) -> AsyncRequest:
        """Ask for a text: ``async for piece in engine.generate(...)``; leaving the loop cancels it."""
        return self.submit(prompt, options)

    @property
    def adapter_names(self) -> list[str]:
        """The adapters that requests may name."""
        return [] if self._adapters is None else self._adapters.names()

    def close(self) -> None:
        """End what runs and waits; a second call does nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> AsyncEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def current_counts(self) -> EngineCounts:
        """Return counts with how many run and wait now."""
        running = sum(len(lane.running) for lane in list(self._lanes.values())) + (self._reading is not None)
        return replace(self._counts, running=running, waiting=len(self._waiting))

    # ------------------------------------------------------------ the engine's thread

    def _wake(self) -> None:
        with self._changed:
            self._has_cancelled = True
            self._changed.notify()

    @property
    def is_closed(self) -> bool:
        """Whether the engine takes no more requests."""
        return self._is_closed

    @property
    def is_idle(self) -> bool:
        """Whether nobody runs, and nobody waits."""
        return not (self._waiting or self._lanes or self._reading)

    def _serve(self) -> bool:
        """Take turns until nobody runs or waits; return whether the engine goes on."""
        is_whole = False
        try:
            while not (self._is_closed or self.is_idle):
                try:
                    self._turn()
                except Exception as error:  # noqa: BLE001 - the border to the callers: each is told, the engine goes on
                    log.warning("a step failed: %s", error)
                    self._end_all(EndReason.ERROR, f"{type(error).__name__}: {error}")
            is_whole = not self._is_closed
        finally:  # a library's panic that is no Exception ends the thread: nobody may wait for it then
            if not is_whole:
                self._end()
        return is_whole

    def _end(self) -> None:
        """Tell all that run and wait that nothing comes any more."""
        with self._changed:
            self._is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._end_all(EndReason.CANCELLED, "")
        for request in waiting:
            self._give_up(request, EndReason.CANCELLED)

    def _turn(self) -> None:
        """Leave out who was cancelled, read a part of a prompt, step those who run."""
        if self._has_cancelled:
            self._leave_out()
        self._admit()
        reading = self._reading
        beside = None if reading is None else self._lane_beside(reading)
        if reading is not None and beside is None:
            self._read_part(reading)
        for name, lane in list(self._lanes.items()):
            if self._lanes.get(name) is not lane:  # its last request gave its blocks to a lane before it
                continue
            self._step(lane, reading if lane is beside else None)
            if not lane.running:
                del self._lanes[name]

    def _lane_beside(self, reading: ReadingState) -> Lane | None:
        """Return whose step may read a part of this prompt, too; none where more rows would give other numbers."""
        if self._room is None or reading.request.is_cancelled:
            return None
        lane = self._lanes.get(reading.request.weights)
        return lane if lane is not None and self.model.decoder.mixes(len(lane.running)) else None

    def _leave_out(self) -> None:
        with self._changed:
            self._has_cancelled = False
            gone = [each for each in self._waiting if each.is_cancelled]
            self._waiting = deque(each for each in self._waiting if not each.is_cancelled)
        for request in gone:
            self._give_up(request, EndReason.CANCELLED)
        for name, lane in list(self._lanes.items()):
            for place in reversed(range(len(lane.running))):
                if lane.running[place].request.is_cancelled:
                    self._leave(lane, place, EndReason.CANCELLED)
            if not lane.running:
                del self._lanes[name]

    def _admit(self) -> None:
        running = sum(len(lane.running) for lane in self._lanes.values())
        if self._reading is not None or running >= self.options.max_batch:
            return
        with self._changed:
            if not self._waiting:
                return
            request = self._waiting[0]
            longest = longest_text(self.model, request.prompt, request.options)
            known = self._prefixes.find(request.prompt, request.weights_and_images)
            if running and not self._has_room(request, longest, known, running):
                return  # until somebody leaves; those behind it wait, too, so that none is passed for ever
            self._waiting.popleft()
        try:
            state = self._state_behind(request, known)
        except Exception as error:  # noqa: BLE001 - the border to the caller, who is told; others' caches are untouched
            log.warning("a prompt found no room: %s", error)
            self._give_up(request, EndReason.ERROR, f"{type(error).__name__}: {error}")
            return
        self._reading = ReadingState(request, state, longest, state.lengths[0], next(self._numbers))
        if request in self._again:
            self._again.discard(request)
            return
        self._counts.requests += 1
        self._counts.prompt_tokens += len(request.prompt)
        self._counts.cached_tokens += state.lengths[0]

    def _state_behind(self, request: AsyncRequest, known: RowCaches | PagedCaches | None) -> DecoderState:
        """Return a state whose row has read a beginning of a prompt that is known, with room for the prompt."""
        state = self._new_state(request.adapter)
        try:
            if known is None:
                state.add_row()
            else:
                state.import_row(known)  # type: ignore[arg-type]  # what an engine keeps is of its states' kind
            if request.features is not None:
                state.inputs[0] = self._images_of(request, state.lengths[0])
            if isinstance(state, PagedState):
                state.reserve(0, len(request.prompt))
        except Exception:
            drop_rows(state)  # it holds blocks
            raise
        return state

    def _has_room(
        self, request: AsyncRequest, longest: int, known: RowCaches | PagedCaches | None, running: int
    ) -> bool:
        """Return whether a request may join: in blocks for what it reads now, else for all that it may."""
        if self._room is None:
            return self._bytes_with(request, longest) <= self.options.cache_bytes
        paused = self._paused.get(request)
        positions = len(request.prompt) + (0 if paused is None else len(paused.text.tokens)) + 1
        return self._room.has_room(positions, known, running)

    def _images_of(self, request: AsyncRequest, read: int) -> RowInputs:
        """Return a prompt's images, of which those among its first tokens have been read."""
        table = self.model.decoder.table
        places = [] if table is None else [p for p in range(read) if request.prompt[p] == table.image_token]
        return RowInputs(request.features, places)

    def _bytes_with(self, request: AsyncRequest, longest: int) -> int:
        """Return the bytes of all caches with a further request, its prompt's own among them while it is read."""
        lanes = {**self._lanes}
        own = lanes.pop(request.weights, None) or Lane(self.model.decoder.new_state(), [])
        reading = own.state.nbytes_for(1, len(request.prompt))
        return own.nbytes(longest) + reading + sum(lane.nbytes() for lane in lanes.values())

    def _new_state(self, adapter: LoadedAdapter | None, *, is_own: bool = False) -> DecoderState:
        """Return a state without rows; one of its own may be used in another thread."""
        state = self.model.decoder.new_state() if self._room is None else self._room.new_state(is_own=is_own)
        if adapter is not None:
            state.run_options = self.model.decoder.new_run_options()
            state.run_options.add_active_adapter(adapter.weights)
        return state

    def _read_part(self, reading: ReadingState) -> None:
        """Read a part of a prompt; what goes wrong with it is its request's alone."""
        request = reading.request
        if request.is_cancelled:
            self._reading = None
            drop_rows(reading.state)
            self._give_up(request, EndReason.CANCELLED, cached=reading.cached)
            return
        try:
            self._read_further(reading)
        except Exception as error:  # noqa: BLE001 - the border to the caller, who is told; others' caches are untouched
            log.warning("a prompt could not be read: %s", error)
            self._reading = None
            drop_rows(reading.state)
            self._give_up(request, EndReason.ERROR, f"{type(error).__name__}: {error}", reading.cached)

    def _read_further(self, reading: ReadingState) -> None:
        state = reading.state
        logits = state.read(0, next_part(reading))
        if state.lengths[0] == len(reading.request.prompt):
            self._begin(reading, logits)

    def _begin(self, reading: ReadingState, logits: np.ndarray) -> None:
        """Let a request run whose prompt was read; one that was paused reads its text again, token by token."""
        request = reading.request
        running = self._paused.pop(request, None)
        if running is None:
            most = reading.longest - len(request.prompt)
            ends = self.model.decoder.end_tokens
            text = TextState(request.options, request.prompt, self.model.text, ends, request.guide, most)
            running = RunningState(request, text, logits, reading.longest, reading.cached, reading.number)
        running.number, running.replayed, running.has_unread = reading.number, deque(running.text.tokens), False
        lane = self._lanes.get(request.weights) or Lane(self._new_state(request.adapter), [])
        self._hand_over(reading, lane.state)
        lane.running.append(running)
        self._lanes[request.weights], self._reading = lane, None

    def _hand_over(self, reading: ReadingState, state: DecoderState) -> None:
        """Keep what was read for other prompts, and let a lane's state have the row."""
        request, read = reading.request, reading.state
        if isinstance(state, PagedState):
            if self.options.prefix_bytes:
                assert isinstance(read, PagedState), "states of one engine are of one kind"
                self._prefixes.keep(request.prompt, read.export_row(0), request.weights_and_images)
            state.take_row(read, 0)
            return
        caches = read.export_row(0)
        if self.options.prefix_bytes:
            self._prefixes.keep(request.prompt, caches, request.weights_and_images)
        state.import_row(caches)

    # ------------------------------------------------------------ steps

    def _step(self, lane: Lane, reading: ReadingState | None = None) -> None:
        """Choose a token for each running request; those that go on are read together, beside a part of a prompt."""
        for place in reversed(range(len(lane.running))):
            running = lane.running[place]
            if not running.replayed and not running.has_unread:
                self._take(lane, place, running.logits)
        self._make_room(lane)
        if not lane.running:
            if reading is not None and reading is self._reading:
                self._read_part(reading)
            return
        self._counts.steps += 1
        drafts = [] if reading is not None else self._drafts(lane)
        if any(drafts):
            self._step_by_drafts(lane, drafts)
            return
        tokens = np.array([next_token(each) for each in lane.running], np.int64)
        if reading is not None and reading is self._reading:
            self._step_beside(lane, tokens, reading)
            return
        for running, row in zip(lane.running, lane.state.step(tokens), strict=True):
            running.logits, running.has_unread = row, False

    def _step_beside(self, lane: Lane, tokens: np.ndarray, reading: ReadingState) -> None:
        """Read a token of each running request and a part of a prompt in one run; apart, where that goes wrong."""
        state, other = lane.state, reading.state
        assert isinstance(state, PagedState), "asked before"
        assert isinstance(other, PagedState), "asked before"
        last: np.ndarray | None = None
        try:
            rows, last = state.step_beside(tokens, other, next_part(reading))
        except Exception as error:  # noqa: BLE001 - it may be the prompt's fault, which only its caller is told then
            log.warning("a step with a part of a prompt failed: %s", error)
            rows = state.step(tokens)
        for running, row in zip(lane.running, rows, strict=True):
            running.logits, running.has_unread = row, False
        if last is None:
            self._read_part(reading)
        elif other.lengths[0] == len(reading.request.prompt):
            self._begin(reading, last)

    def _make_room(self, lane: Lane) -> None:
        """Pause who was admitted last, as long as blocks are missing for the next token of each of a lane's rows."""
        while self._room is not None and lane.running and self._room.is_short(lane.state):
            places = [
                Place(each.number, name, place)
                for name, known in self._lanes.items()
                for place, each in enumerate(known.running)
            ]
            if self._reading is not None:
                reading, self._reading = self._reading, None
                drop_rows(reading.state)
                self._wait_again(reading.request)
                continue
            if len(places) < 2:
                return  # it fits alone: the step says otherwise if it does not
            last = max(places)
            of = self._lanes[last.lane]
            running = of.running[last.place]
            self._take_out(of, last.place)
            if not of.running and of is not lane:
                del self._lanes[last.lane]
            self._paused[running.request] = running
            self._wait_again(running.request)

    def _wait_again(self, request: AsyncRequest) -> None:
        self._counts.paused += 1
        self._again.add(request)
        with self._changed:
            self._waiting.appendleft(request)

    def _take(self, lane: Lane, place: int, logits: np.ndarray) -> None:
        reason, error = self._choose(lane.running[place], logits)
        if reason is not None:
            self._leave(lane, place, reason, error)

    def _choose(self, running: RunningState, logits: np.ndarray) -> tuple[EndReason | None, str]:
        """Choose a token for a request and hand it over; return why the text ends, if it does, and what failed."""
        table = self.model.decoder.table
        if table is not None:  # a text has no images: it would stand for one that is not there
            logits = logits.copy()
            logits[table.image_token] = -np.inf
        try:
            piece, reason = running.text.take(logits)
        except InvalidGeneration as error:  # a grammar that ends nowhere, NaN: this text's own fault
            return EndReason.ERROR, str(error)
        except Exception as error:  # noqa: BLE001 - the border to the caller, who is told; others' texts are untouched
            log.warning("a token could not be chosen: %s", error)
            return EndReason.ERROR, f"{type(error).__name__}: {error}"
        running.request.put(piece)
        self._counts.tokens += 1
        return reason, ""

    def _drafts(self, lane: Lane) -> list[list[int]]:
        """Return guesses for each request of a lane: of several as many as rows that are computed in one way.

        Several are guessed for where caches lie in blocks, which read them in one run, and no block is missing.
        """
        count, drafter = len(lane.running), self._drafter
        alone = count == 1 and len(self._lanes) == 1 and self._reading is None
        each = min(self.options.draft_tokens, FEW_ROWS // count - 1)
        if drafter is None or each < 1 or not (alone or isinstance(lane.state, PagedState)):
            return []
        if self._room is not None and self._room.is_short(lane.state, 1 + each):
            return []
        return self._guessed(drafter, lane.running, each)

    def _guessed(self, drafter: Drafter, running: Sequence[RunningState], most: int) -> list[list[int]]:
        """Return up to ``most`` guesses of each request; none of one that reads its text again, or is at its end."""
        found: list[list[int]] = [[] for _ in running]
        texts = [each.request.prompt + each.text.tokens for each in running]
        counts = [min(most, each.longest - len(text)) for each, text in zip(running, texts, strict=True)]
        asked = [place for place, each in enumerate(running) if counts[place] > 0 and not each.replayed]
        of, most_of = [texts[place] for place in asked], [counts[place] for place in asked]
        given = guesses(drafter, of, most_of, self.model.decoder.vocab_size)
        table = self.model.decoder.table
        image = -1 if table is None else table.image_token
        for place, guessed in zip(asked, given, strict=True):
            found[place] = guessed[: guessed.index(image)] if image in guessed else guessed
        return found

    def _step_by_drafts(self, lane: Lane, drafts: list[list[int]]) -> None:
        """Read the last token of each request and guesses behind it, in one run."""
        state = lane.state
        given = [
            np.array([next_token(running), *own], np.int64) for running, own in zip(lane.running, drafts, strict=True)
        ]
        found = state.read_each(range(len(given)), given)
        for place in reversed(range(len(given))):  # who leaves gives its place to one behind it
            self._take_drafts(lane, place, drafts[place], found[place])

    def _take_drafts(self, lane: Lane, place: int, drafts: list[int], rows: np.ndarray) -> None:
        """Take guesses as far as they are what is chosen; ``rows`` are logits behind the last token and each guess."""
        running, read = lane.running[place], lane.state.lengths[place] - len(drafts)
        running.logits, running.has_unread = rows[-1], False
        self._counts.drafted += len(drafts)
        for number, guess in enumerate(drafts):
            reason, error = self._choose(running, rows[number])
            if reason is None and running.text.tokens[-1] == guess:
                self._counts.accepted += 1
                continue
            lane.state.rewind(place, read + number)  # what was guessed from here on was not chosen
            running.has_unread = True
            if reason is not None:
                self._leave(lane, place, reason, error)
            return

    def _leave(self, lane: Lane, place: int, reason: EndReason, error: str = "") -> None:
        running = lane.running[place]
        self._take_out(lane, place)
        self._finish(running.request, reason, running.cached, len(running.text.tokens), error)

    def _give_up(self, request: AsyncRequest, reason: EndReason, error: str = "", cached: int = 0) -> None:
        """End a request that waits or is read, whose text may have been begun before."""
        self._again.discard(request)
        paused = self._paused.pop(request, None)
        self._finish(request, reason, cached, 0 if paused is None else len(paused.text.tokens), error)

    def _take_out(self, lane: Lane, place: int) -> None:
        """Take a request's row out of a lane; the last one stands in its place."""
        lane.state.drop_row(place)
        last = lane.running.pop()
        if place < len(lane.running):
            lane.running[place] = last

    def _finish(
        self, request: AsyncRequest, reason: EndReason, cached: int = 0, tokens: int = 0, error: str = ""
    ) -> None:
        request.put(Finished(reason, len(request.prompt), cached, tokens, error))

    def _end_all(self, reason: EndReason, error: str) -> None:
        """End all that run or are read, and begin with empty caches."""
        reading, self._reading = self._reading, None
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            drop_rows(lane.state)
            for running in lane.running:
                self._finish(running.request, reason, running.cached, len(running.text.tokens), error)
        if reading is not None:
            drop_rows(reading.state)
            self._give_up(reading.request, reason, error, reading.cached)


def _work(reference: weakref.ref[AsyncEngine], changed: threading.Condition) -> None:
    """Serve an engine as long as there is one; while nobody runs, the thread keeps neither it nor its model."""
    while True:
        with changed:
            engine = reference()
            is_idle = engine is not None and not engine.is_closed and engine.is_idle
            if is_idle:
                engine = None  # it may go while the thread waits
                if reference() is not None:  # where this is its last reference, it goes here, unheard
                    changed.wait(_LOOK_AGAIN_S)
                continue
        if engine is None or not engine._serve():
            return
        del engine


def _notify(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()
