"""What this package refuses with: errors of ort-core that are Python's own kinds, too."""

from __future__ import annotations

from ort_core.errors import Fail, InvalidArgument


class InvalidModelFolder(InvalidArgument, ValueError):
    """A folder, a configuration or weights from which no model can be read or built."""


class InvalidGeneration(InvalidArgument, ValueError, RuntimeError):
    """An option, a prompt or a step that a generation cannot take."""


class GenerationFailed(InvalidGeneration):
    """A generation that was begun and could not be ended: a run failed, or nothing could be chosen."""


class EngineBusy(Fail, RuntimeError):
    """An engine that takes no more requests now."""
