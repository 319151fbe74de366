"""A request of several turns: what was said stays read, and the next turn goes on behind it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ort_genai.arguments import demand, numbers
from ort_genai.errors import InvalidGeneration
from ort_genai.turns.options import RequestOptions, TurnOptions, TurnSettings
from ort_genai.turns.turn import SequenceState, TurnState

if TYPE_CHECKING:
    from ort_genai.turns.engine import Engine


class Request:
    """A conversation with a model; ``Engine.create_request`` makes it.

    Args:
        engine: that steps it; must be kept by the caller.
        options: of all its turns.
    """

    def __init__(self, engine: Engine, options: RequestOptions) -> None:
        self._engine = weakref.ref(engine)
        stated = engine.model.search
        self.max_session_tokens = options.max_session_tokens or stated.max_length
        self.sequence = SequenceState(stated.random_seed, engine.forgotten)
        self.turn: TurnState | None = None
        self.drafts: list[int] = []
        self.turns = 0
        self.is_closed = self.is_cancelled = self.is_ready = False

    def begin_turn(self, tokens: object, turn_options: TurnOptions | None = None) -> int:
        """Go on with tokens (n,), and return the number of the turn.

        Raises:
            InvalidGeneration: the last turn has not ended, the options are another request's or out of range, or the
                tokens do not fit.
            ValueError: the tokens are of another shape.
        """
        engine = self._open_engine("begin a turn for")
        if self.turn is not None:
            raise InvalidGeneration("BeginTurn is only valid for a new request or after the current turn is complete.")
        if turn_options is not None:
            demand("begin_turn()", "turn_options", turn_options, TurnOptions)
        if turn_options is not None and turn_options.request is not self:
            raise InvalidGeneration("Turn options belong to a different or destroyed Request.")
        given = self._checked(engine, tokens)
        settings = TurnSettings({}) if turn_options is None else turn_options.settings
        engine.begin(self, given, settings)
        return self.turns

    def _checked(self, engine: Engine, tokens: object) -> list[int]:
        given = numbers("begin_turn()", "tokens", tokens)
        if given.ndim != 1:
            raise ValueError("tokens must be a one-dimensional array.")
        if not given.size:
            raise InvalidGeneration("Expected at least one input token for generation. Received 0.")
        if given.dtype.kind not in "iu":
            raise TypeError(f"tokens are {given.dtype.name}, expected whole numbers")
        engine.model.decoder.check(given)
        length = len(self.sequence.tokens)
        if length + given.size >= self.max_session_tokens:
            raise InvalidGeneration(
                f"Appending input_tokens_count ({given.size}) to current_sequence_length ({length}) must leave room "
                f"for at least one generated token before max_session_tokens ({self.max_session_tokens})."
            )
        return [int(each) for each in given]

    def cancel_turn(self, turn_id: int) -> bool:
        """End the turn that runs, and return whether it was this one."""
        engine = self._open_engine()
        return engine.cancel(self, int(turn_id))

    def rewind_to_start_of_turn(self, turn_id: int) -> None:
        """Forget a turn and all behind it.

        Raises:
            InvalidGeneration: there is none, or one runs.
        """
        engine = self._open_engine()
        if self.turn is not None:
            raise InvalidGeneration("A request can be rewound after its current turn is complete.")
        if turn_id not in self.sequence.starts:
            raise InvalidGeneration(f"Cannot rewind to unknown Turn ID {turn_id}.")
        engine.rewind(self, turn_id)

    def set_draft_tokens(self, tokens: object) -> None:
        """Guess the next tokens: those that the model takes, too, come in one call; the text stays the same.

        Raises:
            InvalidGeneration: the turn is not being decoded, or there are more than the engine takes.
        """
        engine = self._open_engine()
        if self.turn is None or not self.is_ready:
            raise InvalidGeneration(
                "Speculative draft tokens may only be proposed when the request is ready to decode."
            )
        given = numbers("set_draft_tokens()", "tokens", tokens).reshape(-1)
        most = engine.max_draft_tokens_per_proposal()
        if given.size > most:
            raise InvalidGeneration(f"{given.size} draft tokens; the engine takes {most} at once")
        engine.model.decoder.check(given)
        self.drafts = [int(each) for each in given]

    def close(self) -> None:
        """End the request, and give its caches back; a second call does nothing."""
        engine = self._engine()
        if engine is not None and not self.is_closed:
            engine.close_request(self)
        self.is_closed = True

    def _open_engine(self, doing: str = "use") -> Engine:
        engine = self._engine()
        if engine is None or self.is_closed:
            raise InvalidGeneration(f"Cannot {doing} a closed request.")
        return engine
