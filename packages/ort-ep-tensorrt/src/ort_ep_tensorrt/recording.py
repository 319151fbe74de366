"""Recording: what TensorRT says while it works, kept, because its functions answer a failure with None or False.

Free of the SDK. ``RecordState`` is what a logger writes to; ``expect`` turns an empty answer into an error with the
recorded words.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
MAX_MESSAGES = 64  # the last ones count; a build says thousands of verbose lines, which are not kept
MAX_MESSAGE = 600  # characters of an error's text
_NESTED = re.compile(r"\(In \S+ at /\S+ (\([^()]*\))\)")  # a place that holds the reason
_PLACE = re.compile(
    r"\bIn \S+ at /\S+?:\d+(?::\d+)?|\bat /\S+?:\d+\b|\[?\b\w+\.(?:cpp|h|cu)(?:::\w+)?::?\d+\]?:?\s*"
    r"|\bIn function \w+:\s*"
)


class SdkError(Exception):
    """TensorRT answered with nothing; the text is its own, without places in its source code.

    Attributes:
        doing: what was asked of it, such as ``"build an engine"``.
    """

    def __init__(self, doing: str, text: str) -> None:
        super().__init__(f"TensorRT failed to {doing}: {text}")
        self.doing, self.text = doing, text


def stripped(text: str) -> str:
    """Return a message without places in TensorRT's source code, on one line."""
    return " ".join(_PLACE.sub(" ", _NESTED.sub(r"\1", text)).split())


class RecordState:
    """The warnings and errors of one builder or runtime, oldest first. Safe from many threads."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bool, str]] = deque(maxlen=MAX_MESSAGES)
        self._lock = threading.Lock()

    def note(self, text: str, *, is_error: bool) -> None:
        """Keep a message."""
        with self._lock:
            self._messages.append((is_error, stripped(text)))

    def take(self) -> str:
        """Return the errors since the last call (the warnings where there is no error) as one text, and forget them."""
        with self._lock:
            kept, self._messages = list(self._messages), deque(maxlen=MAX_MESSAGES)
        errors = [text for is_error, text in kept if is_error and text and "---" not in text]
        chosen = dict.fromkeys(errors or [text for _, text in kept if text])
        return "; ".join(chosen)[:MAX_MESSAGE] or "it gave no reason"

    def expect(self, answer: Result | None, doing: str) -> Result:
        """Return an answer that is neither None nor False.

        Raises:
            SdkError: it is one of them; with what was recorded since the last question.
        """
        if answer is None or answer is False:
            raise SdkError(doing, self.take())
        return answer

    def attempt(self, doing: str, work: Callable[[], Result]) -> Result:
        """Return what some work returns, whose failures are exceptions of the bindings.

        Raises:
            SdkError: it raised; with its words and those that were recorded.
        """
        try:
            return work()
        except (RuntimeError, TypeError, ValueError) as error:  # pybind11's: an argument that the SDK did not take
            raise SdkError(doing, f"{error}; {self.take()}") from error


class ListenersState:
    """Which record hears what is said: that of the thread; what threads of the SDK's own say, all of them hear."""

    def __init__(self) -> None:
        self._records: weakref.WeakSet[RecordState] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread = threading.local()

    def add(self, record: RecordState) -> None:
        """Let a record hear the SDK's own threads for as long as it lives."""
        with self._lock:
            self._records.add(record)

    def listen(self, record: RecordState) -> None:
        """Let a record hear what is said to this thread."""
        self._thread.record = weakref.ref(record)

    def note(self, text: str, *, is_error: bool) -> None:
        """Hand a message on."""
        heard = getattr(self._thread, "record", lambda: None)()
        with self._lock:
            records = [heard] if heard is not None else list(self._records)
        for record in records:
            record.note(text, is_error=is_error)
