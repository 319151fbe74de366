"""Limits of an engine, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from ort_genai.errors import InvalidGeneration


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine.

    Attributes:
        max_batch: requests that run at once.
        max_waiting: requests that wait; further ones are refused.
        cache_bytes: of caches of running requests.
        prefix_bytes: of caches that are kept for prompts with the same beginning; 0: none.
        draft_tokens: that are guessed at once where there is a drafter.
        uses_blocks: whether caches lie in blocks where the model allows it.
    """

    max_batch: int = 8
    max_waiting: int = 1024
    cache_bytes: int = 4 << 30
    prefix_bytes: int = 256 << 20
    draft_tokens: int = 6
    uses_blocks: bool = True

    def __post_init__(self) -> None:
        for name, least in (
            ("max_batch", 1), ("max_waiting", 1), ("cache_bytes", 1), ("prefix_bytes", 0), ("draft_tokens", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidGeneration(f"{name} = {value!r}; expected a whole number from {least} on")
        if not isinstance(self.uses_blocks, bool):
            raise InvalidGeneration(f"uses_blocks = {self.uses_blocks!r}; expected True or False")


@dataclass(slots=True)
class EngineCounts:
    """What an engine did so far, and what it does now; ``paused``: how often a request gave its caches back."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    paused: int = 0
    running: int = 0
    waiting: int = 0
