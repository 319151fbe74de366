"""What an engine of turns tells its caller: events in a buffer, by onnxruntime-genai's names and numbers."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ort_genai.turns.request import Request


class _Named(enum.Enum):
    """Written with its class and its name, as onnxruntime-genai writes its numbers: ``FinishReason.EOS``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, form: str) -> str:
        return format(str(self), form)


class FinishReason(int, _Named):
    """Why a turn ended."""

    NONE = 0
    EOS = 1
    STOP_STRING = 2
    MAX_GENERATED_TOKENS = 3
    MAX_SESSION_TOKENS = 4
    CANCELLED = 5
    FAILED = 6


class EngineErrorCode(int, _Named):
    """What went wrong with a turn."""

    NONE = 0
    CAPACITY_DEFERRED = 1
    EXECUTION_CAPACITY_EXCEEDED = 2
    RETRYABLE_EXECUTION = 3
    REQUEST_UNSERVICEABLE = 4
    ENGINE_CONTRACT_FAILURE = 5
    ENGINE_EXECUTION_FAILURE = 6


class EngineEventFlags(_Named, enum.IntFlag):
    """What an event says; several at once."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens of a turn; zeros until it is finished.

    Attributes:
        prompt_tokens: that the turn was begun with.
        generated_tokens: that the model took.
        cached_prompt_tokens: of the prompt, that another request had read.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """What happened to a request.

    Attributes:
        request: whose event it is.
        turn_id: of its turn.
        flags: what it says.
        token: taken; ``None`` without ``TOKEN``.
        finish_reason: why the turn ended; ``NONE`` without ``TURN_FINISHED``.
        error_code: what went wrong; ``NONE`` without ``FAILED``.
        matched_stop_string_index: place of the stop string that ended the turn.
        usage: tokens of the turn.
        error: what failed, in a sentence; onnxruntime-genai has the code alone.
    """

    request: Request
    turn_id: int
    flags: EngineEventFlags
    token: int | None = None
    finish_reason: FinishReason = FinishReason.NONE
    error_code: EngineErrorCode = EngineErrorCode.NONE
    matched_stop_string_index: int | None = None
    usage: TurnUsage = TurnUsage()
    error: str = ""


class EngineEventBuffer:
    """Events of one call of ``Engine.run``; ``Engine.create_event_buffer`` makes it.

    Args:
        capacity: events that one call can give.
    """

    def __init__(self, capacity: int) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 0:
            raise TypeError(f"the capacity of a buffer of events is {capacity!r}, expected a whole number from 0 on")
        self.capacity = capacity
        self._events: list[EngineEvent] = []

    def fill(self, waiting: deque[EngineEvent]) -> None:
        """Forget what is here, and take as many events as there is room for."""
        self._events = [waiting.popleft() for _ in range(min(len(waiting), self.capacity))]

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, place: int) -> EngineEvent:
        return self._events[place]


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """Limits of an engine.

    Attributes:
        configured_max_batch_size: requests that are stepped together.
        max_request_length: tokens that a request may have in all its turns.
        max_scheduled_tokens: tokens of a prompt that one call reads.
    """

    configured_max_batch_size: int
    max_request_length: int
    max_scheduled_tokens: int


def checked_count(name: str, value: int) -> int:
    """Return a number of tokens.

    Raises:
        TypeError: it is none, or negative.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise TypeError(f"{name} = {value!r}, expected a whole number from 0 on")
    return int(value)
