"""TimedCheck: a provider's ``check`` that may take its time, and no more.

A check loads a vendor's libraries and asks its driver, and a driver may hang. It is asked on a thread of its own; after
``ORT_PROVIDER_CHECK_TIMEOUT_S`` the provider counts as unavailable. The thread is left where it is: nothing can end it,
and it does not keep the process from ending. What holds Python's own lock meanwhile cannot be timed. The engine's own
providers ask nobody, and are asked at once.
"""

from __future__ import annotations

import threading

from ort_core.forks import no_fork
from ort_core.providers.provider import Available, ExecutionProvider, Unavailable, check_provider
from ort_core.settings import environment_value

_OWN = "ort_core."


class TimedCheck:
    """One question to one provider; begun when made. Several threads may wait for the answer."""

    def __init__(self, cls: type[ExecutionProvider]) -> None:
        self._name = cls.name
        self._answer: Available | Unavailable | None = None
        self._has_ended = threading.Event()
        if cls.__module__.startswith(_OWN):
            self._ask(cls)
        else:
            asking = threading.Thread(target=self._ask, args=(cls,), name=f"ort-check-{cls.name}", daemon=True)
            try:
                asking.start()
            except RuntimeError:  # the system gives this process no more threads: better untimed than not at all
                self._ask(cls)

    def answer(self) -> Available | Unavailable:
        """Return the answer; of a provider that gives none in time, that it is not available."""
        limit = environment_value("ORT_PROVIDER_CHECK_TIMEOUT_S")
        assert isinstance(limit, float)
        if not self._has_ended.wait(max(0.0, limit)) or self._answer is None:
            return Unavailable(
                f"{self._name}.check gave no answer within {limit:g} s: its libraries or its driver hang",
                "set ORT_PROVIDER_CHECK_TIMEOUT_S to wait longer",
            )
        return self._answer

    def _ask(self, cls: type[ExecutionProvider]) -> None:
        try:
            with no_fork():  # and a check that forks need not wait for whoever waits for it
                self._answer = check_provider(cls)
        finally:
            self._has_ended.set()
