"""From pieces of texts to the objects that OpenAI's clients read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ort_genai.engine.requests import AsyncRequest, Piece
from ort_genai.text import Text

Answer = dict[str, Any]  # Any: JSON


@dataclass(slots=True)
class ChoiceState:
    """What one choice has so far."""

    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What all objects of one answer begin with."""

    kind: str
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def object(self, choices: Sequence[Answer], *, is_chunk: bool = False, **more: Any) -> Answer:  # Any: JSON
        """Return an object with choices."""
        is_chat = self.kind == "chat.completion"
        kind = f"{self.kind}.chunk" if is_chunk and is_chat else self.kind
        start = "chatcmpl" if is_chat else "cmpl"
        return {
            "id": f"{start}-{self.id}", "object": kind, "created": self.created, "model": self.model,
            "choices": list(choices), **more,
        }  # fmt: skip


def usage_of(requests: Sequence[AsyncRequest], prompts: Sequence[int]) -> Answer:
    """Return tokens read and written; a prompt with several choices counts once.

    Args:
        requests: that have ended, those of one prompt behind each other.
        prompts: for each request the number of its prompt.
    """
    ended = [each.finished for each in requests if each.finished is not None]
    read = {place: each.prompt_tokens for place, each in zip(prompts, ended, strict=False)}
    cached = {place: each.cached_tokens for place, each in zip(prompts, ended, strict=False)}
    written = sum(each.tokens for each in ended)
    return {
        "prompt_tokens": sum(read.values()), "completion_tokens": written, "total_tokens": sum(read.values()) + written,
        "prompt_tokens_details": {"cached_tokens": sum(cached.values())},
    }  # fmt: skip


def chat_chances(text: Text, pieces: Sequence[Piece]) -> Answer:
    """Return log-probabilities as chat answers have them."""
    return {
        "content": [
            {**_token(text, piece.token, piece.chance), "top_logprobs": [
                _token(text, each.token, each.log_probability) for each in piece.likeliest
            ]}
            for piece in pieces if piece.token is not None and piece.chance is not None
        ],
        "refusal": None,
    }  # fmt: skip


def completion_chances(text: Text, pieces: Sequence[Piece], start: int = 0) -> Answer:
    """Return log-probabilities as completions have them; a prompt's first token has none."""
    tokens, chances, likeliest, offsets = [], [], [], []
    place = start
    for piece in pieces:
        if piece.token is not None:
            tokens.append(_written(text, piece.token))
            chances.append(piece.chance)
            named = {_written(text, each.token): each.log_probability for each in piece.likeliest}
            likeliest.append(None if piece.chance is None else named)
            offsets.append(place)
        place += len(piece.text)
    return {"tokens": tokens, "token_logprobs": chances, "top_logprobs": likeliest, "text_offset": offsets}


def _token(text: Text, token: int | None, chance: float | None) -> Answer:
    found = b"" if token is None else text.token_bytes.of(token)
    return {"token": _shown(found, ""), "logprob": chance, "bytes": list(found)}


def _written(text: Text, token: int) -> str:
    return _shown(text.token_bytes.of(token), "bytes:")


def _shown(found: bytes, mark: str) -> str:
    """Return the text of bytes; those of a part of a character as OpenAI writes them, in hexadecimal."""
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        return mark + "".join(f"\\x{byte:02x}" for byte in found)
