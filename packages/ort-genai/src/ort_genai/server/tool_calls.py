"""Tools in a prompt, and calls in an answer."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)  # JSON may have blanks around it
_TAG = "<tool_call>"
_ASKING = (
    'You may call these functions. To call one, answer with a JSON object {"name": …, "arguments": {…}} between '
    "<tool_call> and </tool_call>, and nothing else:"
)
Message = dict[str, Any]  # Any: what a template reads of a message


def with_tools(messages: Sequence[Message], tools: Sequence[Message], template: str | None) -> list[Message]:
    """Return messages that tell of tools; a template that lists tools itself needs none."""
    if not tools or (template is not None and "tools" in template):
        return list(messages)
    text = "\n".join([_ASKING, *(json.dumps(each["function"], ensure_ascii=False) for each in tools)])
    first = messages[0]
    if first["role"] == "system":
        content = first["content"]
        told = (
            [*content, {"type": "text", "text": f"\n\n{text}"}] if isinstance(content, list) else f"{content}\n\n{text}"
        )
        return [{**first, "content": told}, *messages[1:]]
    has_parts = isinstance(first.get("content"), list)
    return [{"role": "system", "content": [{"type": "text", "text": text}] if has_parts else text}, *messages]


def known_roles(messages: Sequence[Message], template: str | None) -> list[Message]:
    """Return messages whose ``developer`` is ``system`` where a template does not know the newer name."""
    if template is not None and "developer" in template:
        return list(messages)
    return [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]


def calls_in(text: str, names: Sequence[str]) -> tuple[str, list[Message]]:
    """Return the text of an answer without its calls, and the calls as OpenAI writes them."""
    found = [call for part in _TAGGED.findall(text) for call in _calls(part.strip(), names)]
    if found:
        return _TAGGED.sub("", text).rstrip(), found
    calls = _calls(text.strip(), names)
    return ("", calls) if calls else (text, [])


def told_length(text: str) -> int:
    """Return how many characters at the beginning of an answer are text, whatever follows them."""
    if text.lstrip()[:1] in ("", "{", "["):
        return 0
    place = text.find(_TAG)
    if place < 0:
        held = next((size for size in range(len(_TAG) - 1, 0, -1) if text.endswith(_TAG[:size])), 0)
        place = len(text) - held
    return len(text[:place].rstrip())


def _calls(text: str, names: Sequence[str]) -> list[Message]:
    """Return the calls that a text is: one, or a list of nothing else."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return []
    found = [_call(each, names) for each in (read if isinstance(read, list) else [read])]
    return [] if None in found else [call for call in found if call is not None]


def _call(read: object, names: Sequence[str]) -> Message | None:
    if not isinstance(read, dict) or read.get("name") not in names:
        return None
    arguments = read.get("arguments", read.get("parameters", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if not written.isascii() and any("\ud800" <= each <= "\udfff" for each in written):  # half a pair, of an escape
        written = arguments.encode("utf-8", "replace").decode() if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
        "function": {"name": read["name"], "arguments": written},
    }  # fmt: skip
