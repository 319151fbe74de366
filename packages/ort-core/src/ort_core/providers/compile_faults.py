"""CompileFaultsState: faults of a provider, asked for claims or at compiling, which cost a user speed and no results.

A provider that compiles some of its nodes and runs others in a plainer way need not give up a partition where its
compiler fails on what it should have refused: it notes the fault and runs those nodes plainly. A provider that raises
when it is asked what it claims loses those nodes to the next one. The session warns of each fault, and ``explain()``
shows it. With ``ORT_STRICT_COMPILATION`` it raises instead: so tests see every fault.
"""

from __future__ import annotations

import logging

from ort_core.errors import EPFail
from ort_core.settings import environment_value

log = logging.getLogger(__name__)


class CompileFaultsState:
    """The faults noted while one session's partitions are compiled."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._is_reported = False

    def note(self, text: str, error: Exception) -> None:
        """Note that something failed to compile and runs in another way, which ``text`` says.

        Raises:
            EPFail: compilation is strict; caused by the error.
        """
        text = f"{text} ({type(error).__name__}: {error})"
        if environment_value("ORT_STRICT_COMPILATION"):
            raise EPFail(f"{text}; ORT_STRICT_COMPILATION is set") from error
        if text in self._texts:  # a provider is asked again about what is left
            return
        log.debug("a fault of a provider", exc_info=error)
        if self._is_reported:  # the session is loaded; this is compiled by a run
            log.warning("%s", text)
        self._texts.append(text)

    def report(self) -> tuple[str, ...]:
        """Return what was noted so far; what comes from now on is logged as a warning."""
        self._is_reported = True
        return tuple(self._texts)
