"""How a text's pieces are written for clients: of a chat, of a completion; whole, or part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ort_genai.engine.requests import Piece
from ort_genai.server.answers import chat_chances, completion_chances
from ort_genai.server.tool_calls import calls_in
from ort_genai.text import Text

Choice = dict[str, Any]  # Any: JSON


class Forms(Protocol):
    """How the choices of one answer are written; ``place`` is a choice's number."""

    @property
    def first(self) -> list[Choice]:
        """What a stream begins with, if anything."""

    def whole(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return a choice that has ended."""

    def part(self, place: int, piece: Piece) -> Choice | None:
        """Return what a piece adds to a stream, ``None``: nothing yet."""

    def last(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return what ends a choice of a stream."""


class ChatForms:
    """Choices of a chat.

    Args:
        text: the tokenizer.
        names: of functions that may be called.
        count: of choices.
        tells_chances: whether log-probabilities are told.
    """

    def __init__(self, text: Text, names: Sequence[str], count: int, *, tells_chances: bool) -> None:
        self._text, self._names, self._count, self._tells = text, names, count, tells_chances

    @property
    def first(self) -> list[Choice]:
        """The role of each choice."""
        return [
            {"index": place, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            for place in range(self._count)
        ]

    def whole(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return a message with its text and its calls."""
        text = "".join(piece.text for piece in pieces)
        text, calls = calls_in(text, self._names) if self._names else (text, [])
        message: Choice = {"role": "assistant", "content": None if calls and not text else text}
        if calls:
            message["tool_calls"] = calls
        return {
            "index": place, "message": message, "logprobs": self._chances(pieces),
            "finish_reason": "tool_calls" if calls else reason,
        }  # fmt: skip

    def part(self, place: int, piece: Piece) -> Choice | None:
        """Return a piece of text; a call is told when it is whole."""
        if self._names:
            return None
        return {
            "index": place, "delta": {"content": piece.text}, "logprobs": self._chances([piece]), "finish_reason": None
        }  # fmt: skip

    def last(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return the end of a choice, with its text and its calls where there may be calls."""
        delta: Choice = {}
        if self._names:
            found = self.whole(place, pieces, reason)
            delta = {key: value for key, value in found["message"].items() if key != "role" and value is not None}
            for number, call in enumerate(delta.get("tool_calls", [])):
                call["index"] = number
            reason = found["finish_reason"]
        return {"index": place, "delta": delta, "logprobs": None, "finish_reason": reason}

    def _chances(self, pieces: Sequence[Piece]) -> Choice | None:
        return chat_chances(self._text, pieces) if self._tells else None


class CompletionForms:
    """Choices of a completion.

    Args:
        text: the tokenizer.
        starts: what each choice begins with: its prompt, where that is asked for.
        tells_chances: whether log-probabilities are told.
    """

    def __init__(self, text: Text, starts: Sequence[str], *, tells_chances: bool) -> None:
        self._text, self._starts, self._tells = text, starts, tells_chances
        self._written = [len(start) for start in starts]  # characters of each choice that a stream has sent

    @property
    def first(self) -> list[Choice]:
        """The prompts, where they are asked for."""
        return [
            {"index": place, "text": text, "logprobs": None, "finish_reason": None}
            for place, text in enumerate(self._starts) if text
        ]  # fmt: skip

    def whole(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return a text."""
        start = self._starts[place]
        text = start + "".join(piece.text for piece in pieces)
        return {
            "index": place, "text": text, "logprobs": self._chances(pieces, len(start)), "finish_reason": reason
        }  # fmt: skip

    def part(self, place: int, piece: Piece) -> Choice:
        """Return a piece of text, with its place in the whole one."""
        chances = self._chances([piece], self._written[place])
        self._written[place] += len(piece.text)
        return {"index": place, "text": piece.text, "logprobs": chances, "finish_reason": None}

    def last(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return the end of a choice."""
        return {"index": place, "text": "", "logprobs": None, "finish_reason": reason}

    def _chances(self, pieces: Sequence[Piece], start: int) -> Choice | None:
        return completion_chances(self._text, pieces, start) if self._tells else None
