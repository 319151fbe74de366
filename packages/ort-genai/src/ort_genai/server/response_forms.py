"""Answers of OpenAI's newer route: one object with items, or a stream of events that build it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from ort_genai.engine.requests import AsyncRequest, EndReason, Piece
from ort_genai.errors import GenerationFailed
from ort_genai.server.answers import chat_chances
from ort_genai.server.kept_responses import KeptResponses, Talk
from ort_genai.server.response_schemas import ResponseBody
from ort_genai.server.schemas import ChatBody
from ort_genai.server.tool_calls import calls_in, told_length
from ort_genai.text import Text

Item = dict[str, Any]  # Any: JSON


class ResponseForms:
    """One answer as it grows.

    Args:
        text: the tokenizer.
        body: of the request.
        chat: the same request as a chat.
        model: what answers.

    Attributes:
        pieces: of the answer so far.
    """

    def __init__(self, text: Text, body: ResponseBody, chat: ChatBody, model: str) -> None:
        self._text, self._body, self._model = text, body, model
        self._names = [each.function.name for each in chat.used_tools()]
        self._name, self._created = uuid.uuid4().hex, int(time.time())
        self.pieces: list[Piece] = []

    @property
    def message_id(self) -> str:
        """The name of the answer's text."""
        return f"msg_{self._name}"

    def told(self) -> int:
        """Return how many characters of the text can be told now."""
        text = self.text_so_far()
        return told_length(text) if self._names else len(text)

    def text_so_far(self) -> str:
        """Return the text so far, calls among it."""
        return "".join(piece.text for piece in self.pieces)

    def chances(self, pieces: list[Piece]) -> list[Item]:
        """Return log-probabilities, where they are asked for."""
        if not self._body.tells_chances:
            return []
        found: list[Item] = chat_chances(self._text, pieces)["content"]
        return found

    def content(self, text: str, chances: list[Item]) -> Item:
        """Return a text as a part of a message."""
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": chances}

    def message(self, content: list[Item], status: str) -> Item:
        """Return a message."""
        return {
            "type": "message", "id": self.message_id, "status": status, "role": "assistant", "content": content
        }  # fmt: skip

    def items(self, status: str) -> list[Item]:
        """Return the message, where there is text or no call, and the calls."""
        whole = self.text_so_far()
        text, calls = calls_in(whole, self._names) if self._names else (whole, [])
        calls = calls if self._body.parallel_tool_calls else calls[:1]
        found: list[Item] = []
        if text or not calls:
            found.append(self.message([self.content(text, self.chances(self.pieces))], status))
        for number, call in enumerate(calls):
            found.append({
                "type": "function_call", "id": f"fc_{self._name}_{number}", "call_id": call["id"],
                "name": call["function"]["name"], "arguments": call["function"]["arguments"], "status": status,
            })  # fmt: skip
        return found

    def whole(self, asked: AsyncRequest) -> Item:
        """Return the answer that has ended."""
        ended = asked.finished
        is_cut = ended is not None and ended.reason is EndReason.LENGTH
        found = self.object(
            "incomplete" if is_cut else "completed", self.items("incomplete" if is_cut else "completed")
        )
        if is_cut:
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        if ended is not None:
            found["usage"] = {
                "input_tokens": ended.prompt_tokens,
                "input_tokens_details": {"cached_tokens": ended.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": ended.tokens, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": ended.prompt_tokens + ended.tokens,
            }  # fmt: skip
        return found

    def object(self, status: str, output: list[Item]) -> Item:
        """Return the answer in a state."""
        body = self._body
        form = body.text.format.model_dump(by_alias=True, exclude_none=True)
        return {
            "id": f"resp_{self._name}", "object": "response", "created_at": self._created, "status": status,
            "error": None, "incomplete_details": None, "instructions": body.instructions, "metadata": body.metadata,
            "max_output_tokens": body.max_output_tokens, "model": self._model, "output": output,
            "parallel_tool_calls": body.parallel_tool_calls, "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort, "summary": None}, "store": body.store,
            "temperature": body.temperature, "top_p": body.top_p, "top_logprobs": body.top_logprobs,
            "text": {"format": form if form["type"] == "json_schema" else {"type": form["type"]}},
            "tool_choice": body.tool_choice, "tools": [each.model_dump() for each in body.tools],
            "truncation": "disabled", "usage": None, "user": body.user or None,
        }  # fmt: skip


class _EventsState:
    """Numbers events, and turns pieces into them."""

    def __init__(self, forms: ResponseForms) -> None:
        self._forms, self._number, self._told, self._has_begun = forms, 0, 0, False
        self._untold: list[Piece] = []

    def event(self, kind: str, **content: Any) -> str:  # Any: JSON
        """Return an event."""
        found = {"type": kind, "sequence_number": self._number, **content}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(found, ensure_ascii=False)}\n\n"

    def begun(self) -> list[str]:
        """Return the first events."""
        started = self._forms.object("in_progress", [])
        return [self.event(f"response.{each}", response=started) for each in ("created", "in_progress")]

    def piece(self, piece: Piece) -> list[str]:
        """Return what a piece adds."""
        self._forms.pieces.append(piece)
        self._untold.append(piece)
        return self._delta(max(self._forms.told(), self._told), self._forms.text_so_far())

    def _delta(self, end: int, text: str) -> list[str]:
        delta = text[self._told : end]
        if not delta:
            return []
        found = [] if self._has_begun else self._message_begun()
        self._told = end
        chances = self._forms.chances(self._untold)
        self._untold = []
        return [*found, self.event("response.output_text.delta", **self._place, delta=delta, logprobs=chances)]

    @property
    def _place(self) -> Item:
        return {"item_id": self._forms.message_id, "output_index": 0, "content_index": 0}

    def _message_begun(self) -> list[str]:
        self._has_begun = True
        forms = self._forms
        return [
            self.event("response.output_item.added", output_index=0, item=forms.message([], "in_progress")),
            self.event("response.content_part.added", **self._place, part=forms.content("", [])),
        ]

    def ended(self, whole: Item) -> list[str]:
        """Return the last events of an answer."""
        found: list[str] = []
        for place, item in enumerate(whole["output"]):
            found += self._text_ended(item) if item["type"] == "message" else self._call(item, place)
            found.append(self.event("response.output_item.done", output_index=place, item=item))
        return [*found, self.event(f"response.{whole['status']}", response=whole)]

    def _text_ended(self, item: Item) -> list[str]:
        part = item["content"][0]
        found = self._delta(len(part["text"]), part["text"])
        found += [] if self._has_begun else self._message_begun()
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            *found, self.event("response.output_text.done", **self._place, **done),
            self.event("response.content_part.done", **self._place, part=part),
        ]  # fmt: skip

    def _call(self, item: Item, place: int) -> list[str]:
        at = {"item_id": item["id"], "output_index": place}
        begun, kind = {**item, "arguments": "", "status": "in_progress"}, "response.function_call_arguments"
        return [
            self.event("response.output_item.added", output_index=place, item=begun),
            self.event(f"{kind}.delta", **at, delta=item["arguments"]),
            self.event(f"{kind}.done", **at, name=item["name"], arguments=item["arguments"]),
        ]


async def response_events(
    asked: AsyncRequest, forms: ResponseForms, kept: KeptResponses, talk: Talk, body: ResponseBody
) -> AsyncIterator[str]:
    """Yield the events of an answer, and keep it when it is whole."""
    state = _EventsState(forms)
    for event in state.begun():
        yield event
    try:
        async for piece in asked:
            for event in state.piece(piece):
                yield event
    except GenerationFailed as error:
        failed = forms.object("failed", forms.items("incomplete"))
        failed["error"] = {"code": "server_error", "message": str(error)}
        yield state.event("response.failed", response=failed)
        return
    whole = forms.whole(asked)
    kept.keep(body, whole, talk)
    for event in state.ended(whole):
        yield event
