"""What this package refuses with: errors of ort-core that are Python's own kinds, too.

onnxruntime-genai raises ``RuntimeError`` for nearly all that fails, so that programs catch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.errors import Fail, InvalidArgument, OrtError

_LONGEST, _HEAD, _TAIL = 1200, 800, 300  # characters of a message: values that it quotes may have any length


class _Told(InvalidArgument):
    """An error whose message is cut in its middle where it is longer than anyone reads."""

    def __init__(self, message: str = "") -> None:
        super().__init__(f"{message[:_HEAD]} … {message[-_TAIL:]}" if len(message) > _LONGEST else message)


class InvalidModelFolder(_Told, ValueError, RuntimeError):
    """A folder, a configuration or weights from which no model can be read or built."""


class InvalidGeneration(_Told, ValueError, RuntimeError):
    """An option, a prompt or a step that a generation cannot take."""


class ContextExceeded(InvalidGeneration):
    """A prompt that leaves no room for a text in the model's context."""


class GenerationFailed(InvalidGeneration):
    """A generation that was begun and could not be ended: a run failed, or nothing could be chosen."""


class EngineBusy(Fail, RuntimeError):
    """An engine that takes no more requests now."""


@contextmanager
def raised_as(kind: type[InvalidModelFolder | InvalidGeneration]) -> Iterator[None]:
    """Raise errors of ort-core that are not a ``RuntimeError`` as one that is."""
    try:
        yield
    except OrtError as error:
        if isinstance(error, RuntimeError):
            raise
        raise kind(str(error)) from error
