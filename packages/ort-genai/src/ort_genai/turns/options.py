"""Options of a request and of its turns: what is not set is as the model's folder states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.arguments import demand
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar
from ort_genai.search_options import SearchOptions
from ort_genai.turns.events import checked_count

if TYPE_CHECKING:
    from ort_genai.turns.request import Request


class RequestOptions:
    """Options of a request."""

    def __init__(self) -> None:
        self.max_session_tokens = 0

    def set_max_session_tokens(self, count: int) -> None:
        """Let the request have so many tokens in all its turns, prompts among them; 0: the folder's ``max_length``."""
        self.max_session_tokens = checked_count("max_session_tokens", count)


@dataclass(slots=True)
class TurnSettings:
    """What was set for a turn.

    Attributes:
        search: search options that were set, by name.
        stop_strings: that end the turn.
        grammar: that its text follows.
        max_generated_tokens: of the turn; 0: no bound of its own.
        min_generated_tokens: before the turn may end.
        seed: of draws from this turn on; ``None``: they go on.
    """

    search: dict[str, object]
    stop_strings: tuple[str, ...] = ()
    grammar: Grammar | None = None
    max_generated_tokens: int = 0
    min_generated_tokens: int = 0
    seed: int | None = None

    def over(self, stated: SearchOptions) -> SearchOptions:
        """Return search options with those that were set.

        Raises:
            InvalidGeneration: a value is out of range.
        """
        return stated.changed(self.search)


class TurnOptions:
    """How a turn of a request is generated; values are checked where the turn begins.

    Args:
        request: that the turn is of.
    """

    def __init__(self, request: Request) -> None:
        if request is None:
            raise TypeError("TurnOptions() takes a Request, not NoneType")
        self.request = request
        self.settings = TurnSettings({})

    def reset(self) -> None:
        """Forget all that was set."""
        self.settings = TurnSettings({})

    def set_do_sample(self, value: bool) -> None:
        """Draw tokens, or take the most likely ones."""
        demand("set_do_sample()", "value", value, bool, np.bool_)
        self.settings.search["do_sample"] = bool(value)

    def set_temperature(self, value: float) -> None:
        """Divide logits before a draw; 0 takes the most likely tokens."""
        self.settings.search["temperature"] = _number("set_temperature()", value)

    def set_top_k(self, value: int) -> None:
        """Draw among so many tokens; 0: all."""
        demand("set_top_k()", "value", value, int, np.integer)
        self.settings.search["top_k"] = int(value)

    def set_top_p(self, value: float) -> None:
        """Draw among tokens of this share of probability."""
        self.settings.search["top_p"] = _number("set_top_p()", value)

    def set_repetition_penalty(self, value: float) -> None:
        """Make tokens of the request less likely by this factor."""
        self.settings.search["repetition_penalty"] = _number("set_repetition_penalty()", value)

    def set_no_repeat_ngram_size(self, value: int) -> None:
        """Forbid runs of so many tokens to come twice; 0: none."""
        self.settings.search["no_repeat_ngram_size"] = checked_count("no_repeat_ngram_size", value)

    def set_max_generated_tokens(self, value: int) -> None:
        """End the turn behind so many tokens; 0: no bound."""
        self.settings.max_generated_tokens = checked_count("max_generated_tokens", value)

    def set_min_generated_tokens(self, value: int) -> None:
        """Forbid tokens that end a text before so many tokens; 0: none."""
        self.settings.min_generated_tokens = checked_count("min_generated_tokens", value)

    def set_seed(self, value: int) -> None:
        """Begin the request's draws anew with this turn."""
        self.settings.seed = checked_count("seed", value)

    def clear_seed(self) -> None:
        """Let the request's draws go on."""
        self.settings.seed = None

    def set_stop_strings(self, texts: Sequence[str]) -> None:
        """End the turn where its text has one of these; none: by nothing.

        Raises:
            InvalidGeneration: one is empty.
        """
        if isinstance(texts, str):
            raise TypeError("stop strings are a list of texts, not a text")
        empty = [place for place, text in enumerate(texts) if not text]
        if empty:
            raise InvalidGeneration(f"Stop string at index {empty[0]} is empty.")
        self.settings.stop_strings = tuple(texts)

    def set_guidance(self, type: str, data: str) -> None:
        """Let the turn's text follow a grammar: ``json_schema``, ``regex`` or ``lark_grammar``.

        Raises:
            InvalidGeneration: there is no such kind.
        """
        self.settings.grammar = Grammar.of(type, data)

    def clear_guidance(self) -> None:
        """Let the turn's text be free."""
        self.settings.grammar = None


def _number(call: str, value: float) -> float:
    """Return a number.

    Raises:
        TypeError: it is none.
    """
    demand(call, "value", value, int, float, np.number)
    return float(value)
