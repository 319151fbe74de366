"""Panics of libraries that are written in Rust, as errors of this package.

A library that meets a state its authors held to be impossible panics. Python sees a ``PanicException``, which is no
``Exception``: it would pass by whoever waits for errors, and end the thread of an engine.
"""

from __future__ import annotations

from types import TracebackType

from ort_genai.errors import InvalidGeneration, InvalidModelFolder


class LibraryPanics:
    """A context in which a panic is an error.

    Args:
        kind: of the error.
        doing: what was being done, for its sentence.
    """

    def __init__(self, kind: type[InvalidGeneration | InvalidModelFolder], doing: str) -> None:
        self._kind, self._doing = kind, doing

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the error in the place of a panic; all else goes on as it is."""
        if kind is not None and kind.__name__ == "PanicException":
            raise self._kind(f"{self._doing} ended in a fault of the library: {error}") from error
