"""Tools in a prompt, and calls in an answer."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
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


def calls_in(text: str, names: Sequence[str]) -> tuple[str, list[Message]]:
    """Return the text of an answer without its calls, and the calls as OpenAI writes them."""
    found = [call for part in _TAGGED.findall(text) if (call := _call(part, names)) is not None]
    if found:
        return _TAGGED.sub("", text).strip(), found
    whole = _call(text.strip(), names)
    return ("", [whole]) if whole is not None else (text, [])


def _call(text: str, names: Sequence[str]) -> Message | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or read.get("name") not in names:
        return None
    arguments = read.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
        "function": {"name": read["name"], "arguments": written},
    }  # fmt: skip
