"""LastInference: what the last inference over a graph found, for whoever infers that graph again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ort_core.ops.inference_report import InferenceReport


def _nothing() -> InferenceReport | None:
    return None


class LastInference:
    """Holds a report, or what makes the first one when it is asked for, until somebody forgets it.

    A report refers to every node and value of a graph: nothing that lives as long as a session may keep one.
    """

    def __init__(self, first: Callable[[], InferenceReport | None] = _nothing) -> None:
        self._first = first
        self._report: InferenceReport | None = None

    @property
    def report(self) -> InferenceReport | None:
        """What was found; ``None`` where nothing is known of an inference."""
        if self._report is None:
            self.note(self._first())
        return self._report

    def note(self, report: InferenceReport | None) -> None:
        """Take over what an inference has found now."""
        self._report, self._first = report, _nothing

    def forget(self) -> None:
        """Hold nothing any more."""
        self.note(None)
