"""Texts as they come, and whole: waiting for several at once, for clients that may go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ort_genai.engine.requests import AsyncRequest, Piece
from ort_genai.errors import InvalidGeneration
from ort_genai.server.answers import AnswerHead, ChoiceState, usage_of
from ort_genai.server.forms import Forms


class Events(StreamingResponse):
    """A stream of events; when it ends, even before its first event was asked for, so do the texts."""

    def __init__(self, asked: Sequence[AsyncRequest], events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and end what is left of the texts."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            for each in self._asked:
                if each.finished is None:
                    each.cancel()


async def all_of(request: HttpRequest, asked: Sequence[AsyncRequest]) -> list[ChoiceState]:
    """Wait for all texts; a client that goes away ends them."""

    async def one(each: AsyncRequest) -> ChoiceState:
        return ChoiceState([piece async for piece in each])

    async def gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.1)
        for each in asked:
            each.cancel()

    watching = asyncio.create_task(gone())
    try:
        return list(await asyncio.gather(*(one(each) for each in asked)))
    finally:
        watching.cancel()
        for each in asked:
            if each.finished is None:
                each.cancel()


async def events_of(
    asked: Sequence[AsyncRequest], head: AnswerHead, forms: Forms, prompts: list[int] | None
) -> AsyncIterator[str]:
    """Yield the events of a stream: pieces of all choices as they come, and usage where prompts are numbered."""
    merged: asyncio.Queue[tuple[int, Piece | None, str]] = asyncio.Queue()

    async def one(place: int, each: AsyncRequest) -> None:
        error = ""
        try:
            async for piece in each:
                merged.put_nowait((place, piece, ""))
        except InvalidGeneration as failed:
            error = str(failed)
        merged.put_nowait((place, None, error))

    tasks = [asyncio.create_task(one(place, each)) for place, each in enumerate(asked)]
    pieces: list[list[Piece]] = [[] for _ in asked]
    try:
        if forms.first:
            yield _event(head.object(forms.first, is_chunk=True))
        left = len(asked)
        while left:
            place, piece, error = await merged.get()
            if piece is not None:
                pieces[place].append(piece)
                choice = forms.part(place, piece) if piece.text or piece.chance is not None else None
                if choice is not None:
                    yield _event(head.object([choice], is_chunk=True))
                continue
            left -= 1
            if error:
                yield _event({"error": {"message": error, "type": "server_error", "param": None, "code": None}})
            else:
                yield _event(head.object([forms.last(place, pieces[place], reason_of(asked[place]))], is_chunk=True))
        if prompts is not None:
            yield _event(head.object([], is_chunk=True, usage=usage_of(asked, prompts)))
        yield "data: [DONE]\n\n"
    finally:
        for task in tasks:
            task.cancel()
        for each in asked:
            if each.finished is None:
                each.cancel()


def _event(content: dict[str, Any]) -> str:  # Any: JSON
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def reason_of(request: AsyncRequest) -> str:
    """Return why a text ended, in OpenAI's words."""
    return "stop" if request.finished is None else str(request.finished.reason)
