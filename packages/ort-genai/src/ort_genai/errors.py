"""What this package refuses with: errors of ort-core that are Python's own kinds, too."""

from __future__ import annotations

from ort_core.errors import Fail, InvalidArgument

_LONGEST, _HEAD, _TAIL = 1200, 800, 300  # characters of a message: values that it quotes may have any length


class _Told(InvalidArgument):
    """An error whose message is cut in its middle where it is longer than anyone reads."""

    def __init__(self, message: str = "") -> None:
        super().__init__(f"{message[:_HEAD]} … {message[-_TAIL:]}" if len(message) > _LONGEST else message)


class InvalidModelFolder(_Told, ValueError):
    """A folder, a configuration or weights from which no model can be read or built."""


class InvalidGeneration(_Told, ValueError, RuntimeError):
    """An option, a prompt or a step that a generation cannot take."""


class GenerationFailed(InvalidGeneration):
    """A generation that was begun and could not be ended: a run failed, or nothing could be chosen."""


class EngineBusy(Fail, RuntimeError):
    """An engine that takes no more requests now."""
