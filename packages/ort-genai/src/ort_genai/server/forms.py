"""How a text's pieces are written for clients: of a chat, of a completion; whole, or part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ort_genai.engine.requests import Piece
from ort_genai.server.answers import chat_chances, completion_chances
from ort_genai.server.tool_calls import calls_in, told_length
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
        takes_several: whether an answer may have more than one call; else the first one counts.
    """

    def __init__(
        self, text: Text, names: Sequence[str], count: int, *, tells_chances: bool, takes_several: bool = True
    ) -> None:
        self._text, self._names, self._count, self._tells = text, names, count, tells_chances
        self._takes_several = takes_several
        self._texts, self._told = [""] * count, [0] * count  # of each choice, and the characters that a stream has sent

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
        calls = calls if self._takes_several else calls[:1]
        message: Choice = {"role": "assistant", "content": None if calls and not text else text}
        if calls:
            message["tool_calls"] = calls
        return {
            "index": place, "message": message, "logprobs": self._chances(pieces),
            "finish_reason": "tool_calls" if calls else reason,
        }  # fmt: skip

    def part(self, place: int, piece: Piece) -> Choice | None:
        """Return a piece of text; what may be a call is told when it is whole."""
        content = piece.text
        if self._names:
            self._texts[place] += piece.text
            end = max(told_length(self._texts[place]), self._told[place])
            content = self._texts[place][self._told[place] : end]
            self._told[place] = end
            if not content and not self._tells:
                return None
        return {
            "index": place, "delta": {"content": content}, "logprobs": self._chances([piece]), "finish_reason": None
        }  # fmt: skip

    def last(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return the end of a choice, with the rest of its text and its calls where there may be calls."""
        delta: Choice = {}
        if self._names:
            found = self.whole(place, pieces, reason)
            rest = (found["message"]["content"] or "")[self._told[place] :]
            delta = {"content": rest} if rest else {}
            calls = found["message"].get("tool_calls")
            if calls:
                delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(calls)]
            reason = found["finish_reason"]
        return {"index": place, "delta": delta, "logprobs": None, "finish_reason": reason}

    def _chances(self, pieces: Sequence[Piece]) -> Choice | None:
        return chat_chances(self._text, pieces) if self._tells else None


class CompletionForms:
    """Choices of a completion.

    Args:
        text: the tokenizer.
        starts: what each choice begins with: the tokens of its prompt, where they are asked for.
        tells_chances: whether log-probabilities are told.
    """

    def __init__(self, text: Text, starts: Sequence[Sequence[Piece]], *, tells_chances: bool) -> None:
        self._text, self._starts, self._tells = text, starts, tells_chances
        self._written = [len(_joined(start)) for start in starts]  # characters of each choice that a stream has sent

    @property
    def first(self) -> list[Choice]:
        """The prompts, where they are asked for."""
        return [
            {"index": place, "text": _joined(start), "logprobs": self._chances(start, 0), "finish_reason": None}
            for place, start in enumerate(self._starts) if start
        ]  # fmt: skip

    def whole(self, place: int, pieces: Sequence[Piece], reason: str) -> Choice:
        """Return a text."""
        shown = [*self._starts[place], *pieces]
        return {
            "index": place, "text": _joined(shown), "logprobs": self._chances(shown, 0), "finish_reason": reason
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


def _joined(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)
