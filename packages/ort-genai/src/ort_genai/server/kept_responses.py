"""Responses that clients may ask for again, or go on from: the latest ones, in memory, up to a size."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ort_genai.server.bodies import Refused
from ort_genai.server.input_items import Item, items_of
from ort_genai.server.response_schemas import Message, ResponseBody, messages_of

_MOST_BYTES = 64 << 20  # of conversations; one of a long context has some 100 KB


@dataclass(frozen=True, slots=True)
class Talk:
    """What an answer goes on from, but for its instructions.

    Attributes:
        messages: as a chat has them.
        items: the same as it was given, and listed.
    """

    messages: list[Message]
    items: list[Item]


@dataclass(frozen=True, slots=True)
class _Kept:
    response: dict[str, Any]  # Any: JSON
    talk: Talk  # with the answer
    inputs: int  # items before the answer
    nbytes: int


class KeptResponses:
    """Keeps responses by their names; the oldest go when there are too many. Any thread may ask.

    Args:
        most_bytes: of all together, as JSON.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most, self._nbytes = most_bytes, 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def conversation(self, body: ResponseBody) -> Talk:
        """Return what an answer goes on from, but for its instructions.

        Raises:
            Refused: the earlier response is not kept.
        """
        earlier = Talk([], [])
        if body.previous_response_id is not None:
            with self._lock:
                found = self._kept.get(body.previous_response_id)
            if found is None:
                raise Refused(
                    400, f"Previous response with id {body.previous_response_id!r} not found.",
                    code="previous_response_not_found", param="previous_response_id",
                )  # fmt: skip
            earlier = found.talk
        return Talk([*earlier.messages, *messages_of(body.input)], [*earlier.items, *items_of(body.input)])

    def keep(self, body: ResponseBody, response: dict[str, Any], talk: Talk) -> None:  # Any: JSON
        """Keep a response with the conversation that it ends, unless its request says no."""
        if not body.store:
            return
        output = response["output"]
        whole = Talk([*talk.messages, *messages_of(output)], [*talk.items, *output])
        nbytes = len(json.dumps([response, whole.messages, whole.items]))
        with self._lock:
            self._kept[response["id"]] = _Kept(response, whole, len(talk.items), nbytes)
            self._nbytes += nbytes
            while self._nbytes > self._most:
                self._nbytes -= self._kept.popitem(last=False)[1].nbytes

    def find(self, name: str) -> dict[str, Any]:  # Any: JSON
        """Return a response.

        Raises:
            Refused: it is not kept.
        """
        return self._found(name).response

    def input_items(self, name: str) -> list[Item]:
        """Return the items that a response was made of, those of earlier responses among them, in their order.

        Raises:
            Refused: it is not kept.
        """
        found = self._found(name)
        return found.talk.items[: found.inputs]

    def _found(self, name: str) -> _Kept:
        with self._lock:
            found = self._kept.get(name)
        if found is None:
            raise Refused(404, f"Response with id {name!r} not found.", param="response_id")
        return found

    def forget(self, name: str) -> None:
        """Forget a response.

        Raises:
            Refused: it is not kept.
        """
        self.find(name)
        with self._lock:
            gone = self._kept.pop(name, None)
            self._nbytes -= 0 if gone is None else gone.nbytes
