"""The items that a response was made of, as clients list them: each with a name, a page at a time."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from pydantic import Field

from ort_genai.server.bodies import Refused
from ort_genai.server.schemas import Body

Item = dict[str, Any]  # Any: JSON
_STARTS = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class ItemQuery(Body):
    """Which items are listed; ``include`` adds nothing, for images are listed with what they were given as."""

    after: str = ""
    limit: int = Field(default=20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"
    include: list[str] = Field(default_factory=list)


def items_of(given: str | list[Item]) -> list[Item]:
    """Return the items of a request's input, each with a name of its own where it brought none."""
    listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [_item(each) for each in listed]


def _item(given: Item) -> Item:
    kind = given.get("type", "message")
    found = {"id": f"{_STARTS.get(kind, 'item')}_{uuid.uuid4().hex}", "status": "completed", **given, "type": kind}
    if kind == "message":
        found["content"] = _parts(given.get("content"), is_answer=given.get("role") == "assistant")
    return found


def _parts(content: object, *, is_answer: bool) -> object:
    """Return the parts of a message, where its content was a text."""
    parts: object = content
    if isinstance(content, str):
        parts = [{"type": "output_text" if is_answer else "input_text", "text": content}]
    if not isinstance(parts, list):
        return parts
    return [_part(each) if isinstance(each, dict) else each for each in parts]


def _part(given: Item) -> Item:
    """Return a part of a message with the fields that clients look for in each of its kind."""
    more: dict[str, Item] = {"output_text": {"annotations": []}, "input_image": {"detail": "auto"}}
    return {**more.get(str(given.get("type")), {}), **given}


def page_of(items: list[Item], query: ItemQuery) -> Item:
    """Return a page of a list, as OpenAI's clients read it.

    Raises:
        Refused: the page is to begin behind an item that is not there.
    """
    listed = items if query.order == "asc" else items[::-1]
    if query.after:
        places = [place for place, each in enumerate(listed) if each["id"] == query.after]
        if not places:
            raise Refused(400, f"Item with id {query.after!r} not found in this response.", param="after")
        listed = listed[places[0] + 1 :]
    page = listed[: query.limit]
    return {
        "object": "list", "data": page, "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "", "has_more": len(listed) > len(page),
    }  # fmt: skip
