"""Random programs over the engine that the caller runs: turns, drafts, cancels, rewinds, few blocks, small buffers.

What each request should say is known by the logits of its whole text at once, and a choice by the definition.
"""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass, field

import numpy as np
from genai_random_programs import END, VOCABULARY, may_come, shaped
from genai_random_requests import Logits

import ort_genai as og
from ort_genai.errors import InvalidGeneration

_CHOICES = {
    "do_sample": (False, False, True), "temperature": (1.0, 0.5, 3.0, 1e-3), "top_k": (0, 1, 3, 50),
    "top_p": (1.0, 0.9, 0.1), "repetition_penalty": (1.0, 1.0, 1.3, 0.6), "no_repeat_ngram_size": (0, 0, 0, 1, 2, 3),
    "max_generated_tokens": (0, 1, 3, 9, 20), "min_generated_tokens": (0, 0, 5, 200), "seed": (None, 5, 77),
}  # fmt: skip
_LENGTHS = (1, 1, 2, 7, 8, 15, 16, 17, 18, 40, 63, 64, 65)
_MOST_REQUESTS, CONTEXT = 7, 128


@dataclass(eq=False)
class _Talk:
    """A request beside what it should have said."""

    request: og.Request
    most: int
    text: list[int] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    turn: int | None = None
    turns: int = 0
    said: int = 0
    options: dict[str, object] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    is_cancelled: bool = False


class Talks:
    """Requests of one engine, at random.

    Args:
        model: to run.
        truth: of its logits.
        seed: of all.
    """

    def __init__(self, model: og.Model, truth: Logits, seed: int) -> None:
        self.random, self.model, self.truth = random.Random(seed), model, truth
        row = model.decoder.cache_bytes(CONTEXT)
        self.engine = og.Engine(model, cache_bytes=self.random.choice((None, None, row, int(1.7 * row), 3 * row)))
        self.engine._batch = self.random.choice((1, 2, 4, 4, 9))
        self.talks: list[_Talk] = []
        self._beginning = self._tokens(70)

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(284) for _ in range(count)]

    def run(self, count: int) -> None:
        """Take so many steps, then all that is left."""
        steps = (self.create, self.begin, self.begin, self.draft, self.cancel, self.rewind, self.close)
        for _ in range(count):
            self.random.choice((*steps, *[self.advance] * 9))()
        for _ in range(3000):
            if not self.engine.has_pending_requests():
                break
            self.advance()
        assert not self.engine.has_pending_requests()
        assert not any(each.turn for each in self.talks), "a turn ended, and nobody was told"
        while self.talks:
            self.talks.pop().request.close()
        while self.engine._prefixes.drop_oldest():
            pass
        self.engine._kept.release_forgotten()
        room = self.engine._room
        assert room is None or room.pool.held == 0, "nobody keeps anything, and blocks are held"

    # ------------------------------------------------------------ what a caller does

    def create(self) -> None:
        """Make a request."""
        if len(self.talks) < _MOST_REQUESTS:
            options, most = og.RequestOptions(), self.random.choice((0, CONTEXT, 20, 66))
            options.set_max_session_tokens(most)
            self.talks.append(_Talk(self.engine.create_request(options=options), most or CONTEXT))

    def begin(self) -> None:
        """Begin a turn, or one that does not fit."""
        talk = self._some(lambda each: each.turn is None)
        if talk is None:
            return
        prompt = self._tokens(self.random.choice(_LENGTHS))
        if not talk.text and self.random.random() < 0.5:
            prompt = [*self._beginning[: self.random.randint(1, 70)], *prompt]
        chosen = {name: self.random.choice(values) for name, values in _CHOICES.items()}
        options = og.TurnOptions(talk.request)
        for name, value in chosen.items():
            if value is not None:
                getattr(options, f"set_{name}")(value)
        text = [*talk.text, *prompt]
        if len(text) >= talk.most:
            try:
                talk.request.begin_turn(prompt, options)
            except InvalidGeneration:
                return
            raise AssertionError("a turn began that leaves no room")
        talk.stops = self._stops(text) if self.random.random() < 0.4 else ()
        options.set_stop_strings(list(talk.stops))
        number = talk.request.begin_turn(prompt, options)
        talk.turns += 1
        assert number == talk.turns
        talk.starts[number] = len(talk.text)
        least = int(chosen["min_generated_tokens"])
        talk.options = {**chosen, "min_length": len(text) + least if least else 0, "min_p": 0.0}
        talk.text, talk.turn, talk.said, talk.is_cancelled = text, number, 0, False

    def _stops(self, text: list[int]) -> tuple[str, ...]:
        """Return strings, some of which a text that takes the most likely tokens comes to."""
        said: list[int] = []
        while len(said) < 5 and len(text) + len(said) < CONTEXT:
            said.append(int(self.truth([*text, *said])[-1].argmax()))
        written, found = self.model.text.decode(said).strip("\ufffd"), ["\0never\0", "the the the the"]
        for _ in range(self.random.randint(0, 2) if written else 0):
            start = self.random.randrange(len(written))
            found.append(written[start : start + self.random.choice((1, 2, 4, 9))])
        return tuple(self.random.sample(found, len(found)))

    def draft(self) -> None:
        """Guess tokens of a request, right ones or others."""
        talk = self._some(lambda each: each.turn is not None and each.request.is_ready)
        if talk is None or talk.request.turn is None:
            return
        text, found = list(talk.text), []
        for _ in range(self.random.randint(0, 8)):
            if self.random.random() < 0.8 and len(text) < CONTEXT:
                found.append(int(self.truth(text)[-1].argmax()))
            else:
                found.append(self.random.randrange(VOCABULARY))
            text.append(found[-1])
        talk.request.set_draft_tokens(np.array(found, np.int64))

    def cancel(self) -> None:
        """Cancel a turn that runs, seldom, or one that does not."""
        talk = self._some(lambda each: each.turn is not None and not each.is_cancelled)
        if talk is not None and self.random.random() < 0.3:
            talk.is_cancelled = talk.request.cancel_turn(talk.turn)
            assert not talk.request.cancel_turn(talk.turn)

    def rewind(self) -> None:
        """Go back to where a turn began."""
        talk = self._some(lambda each: each.turn is None and bool(each.starts))
        if talk is not None:
            number = self.random.choice(list(talk.starts))
            talk.request.rewind_to_start_of_turn(number)
            del talk.text[talk.starts[number] :]
            talk.starts = {each: start for each, start in talk.starts.items() if each < number}

    def close(self) -> None:
        """Close a request, or forget it."""
        if self.talks and self.random.random() < 0.15:
            talk = self.talks.pop(self.random.randrange(len(self.talks)))
            if talk.turn is not None or self.random.random() < 0.5:
                talk.request.close()
            else:
                del talk
                gc.collect(0)

    def advance(self) -> None:
        """Let the engine run, and judge what it tells."""
        capacity = self.random.choice((0, 1, 2, 5, 50))
        events = list(self.engine.run(self.engine.create_event_buffer(capacity)))
        assert len(events) <= capacity
        for event in events:
            talk = next(each for each in self.talks if each.request is event.request)
            self._judge(talk, event)

    def _some(self, fits: object) -> _Talk | None:
        found = [each for each in self.talks if fits(each)]
        return self.random.choice(found) if found else None

    # ------------------------------------------------------------ what comes back

    def _judge(self, talk: _Talk, event: og.EngineEvent) -> None:
        assert event.turn_id == talk.turn
        reason = event.finish_reason
        assert reason is not og.FinishReason.FAILED, event.error
        if event.token is not None:
            self._judge_token(talk, event.token)
            talk.text.append(event.token)
            talk.said += 1
        elif reason is og.FinishReason.EOS:
            self._judge_token(talk, END)
        written = self._written(talk)
        if reason is og.FinishReason.STOP_STRING:
            assert talk.stops[event.matched_stop_string_index] in written
        else:
            assert not any(stop in written.rstrip("\ufffd") for stop in talk.stops), (written, talk.stops)
        if reason is og.FinishReason.NONE:
            return
        assert (reason is og.FinishReason.CANCELLED) == talk.is_cancelled
        if reason is og.FinishReason.MAX_GENERATED_TOKENS:
            assert talk.said == talk.options["max_generated_tokens"]
        if reason is og.FinishReason.MAX_SESSION_TOKENS:
            assert len(talk.text) == talk.most
        assert event.usage.generated_tokens == talk.said
        assert event.usage.prompt_tokens == len(talk.text) - talk.said - talk.starts[talk.turn]
        talk.turn = None

    def _judge_token(self, talk: _Talk, token: int) -> None:
        logits = shaped(self.truth(talk.text)[-1], talk.text, talk.options)
        assert may_come(logits, token, talk.options), (talk, token)

    def _written(self, talk: _Talk) -> str:
        return self.model.text.decode(talk.text[len(talk.text) - talk.said :])
