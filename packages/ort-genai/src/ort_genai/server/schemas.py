"""The bodies that OpenAI's routes take: what is used of them, typed and bounded; other fields are left alone."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ort_genai.engine.requests import GenerationOptions
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar, GrammarKind

_SEEDS = 1 << 63


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Function(_Body):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None  # Any: a JSON schema


class Tool(_Body):
    """A tool; functions are the only kind."""

    type: Literal["function"] = "function"
    function: Function


class JsonSchema(_Body):
    """A schema with a name."""

    name: str = "answer"
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")  # Any: a JSON schema


class ResponseFormat(_Body):
    """What an answer must be."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(_Body):
    """What a stream tells."""

    include_usage: bool = False


class Sampling(_Body):
    """What both routes take."""

    model: str = ""
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int = Field(default=0, ge=0)
    min_p: float = Field(default=0, ge=0, le=1)
    n: int = Field(default=1, ge=1, le=16)
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float = Field(default=0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1, gt=0, le=10)
    logit_bias: dict[int, float] | None = None

    def stops(self) -> tuple[str, ...]:
        """Return the stop strings."""
        listed = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(listed) > 16:
            raise InvalidGeneration(f"{len(listed)} stop strings; 16 at most")
        return tuple(listed)

    def options(self, place: int, default_temperature: float, **more: Any) -> GenerationOptions:  # Any: of any option
        """Return the options of choice number ``place``."""
        return GenerationOptions(
            temperature=default_temperature if self.temperature is None else self.temperature, top_k=self.top_k,
            top_p=1.0 if self.top_p is None else self.top_p, min_p=self.min_p,
            seed=None if self.seed is None else (self.seed + place) % _SEEDS, stop=self.stops(),
            presence_penalty=self.presence_penalty, frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty, logit_bias=self.logit_bias or {}, **more,
        )  # fmt: skip


class ChatBody(Sampling):
    """``/v1/chat/completions``."""

    messages: list[dict[str, Any]] = Field(min_length=1)  # Any: what a template reads of a message
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None  # Any: names one function

    def plain_messages(self) -> list[dict[str, Any]]:
        """Return the messages, with parts of text joined.

        Raises:
            InvalidGeneration: one has no role, or parts that are no text.
        """
        return [_plain(message) for message in self.messages]

    def seen_messages(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return the messages, with parts ``{"type": "image"}`` where images stand, and the images' files.

        Raises:
            InvalidGeneration: one has no role, or parts that are neither texts nor images.
        """
        contents: list[bytes] = []
        return [_seen(message, contents) for message in self.messages], contents

    def used_tools(self) -> list[Tool]:
        """Return the tools that the model may call."""
        if not self.tools or self.tool_choice == "none":
            return []
        name = self._named()
        chosen = [each for each in self.tools if name is None or each.function.name == name]
        if not chosen:
            raise InvalidGeneration(f"tool_choice names {name!r}, which is none of the tools")
        return chosen

    def must_call(self) -> bool:
        """Return whether the answer has to be a call."""
        return bool(self.tools) and (self.tool_choice == "required" or isinstance(self.tool_choice, dict))

    def grammar(self) -> Grammar | None:
        """Return what the answer must follow, if anything."""
        if self.must_call():
            calls = [_call_schema(each) for each in self.used_tools()]
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(calls[0] if len(calls) == 1 else {"anyOf": calls}))
        form = self.response_format
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
        if form.json_schema is None or form.json_schema.schema_ is None:
            raise InvalidGeneration("response_format of type json_schema needs json_schema.schema")
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(form.json_schema.schema_))

    def _named(self) -> str | None:
        if not isinstance(self.tool_choice, dict):
            return None
        function = self.tool_choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise InvalidGeneration("tool_choice must be none, auto, required, or name a function")
        return name


class CompletionBody(Sampling):
    """``/v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, texts or tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and all(isinstance(each, int) for each in self.prompt):
            return [[each for each in self.prompt if isinstance(each, int)]]
        return [each for each in self.prompt if not isinstance(each, int)]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise InvalidGeneration("a message has no role")
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": "" if content is None else content}
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    if len(texts) != len(content) or not all(isinstance(each, str) for each in texts):
        raise InvalidGeneration("a message has parts that are no text, which this model cannot read")
    return {**message, "content": "".join(str(each) for each in texts)}


def _seen(message: dict[str, Any], contents: list[bytes]) -> dict[str, Any]:
    """Return a message whose images are named alone; their files are put behind ``contents``."""
    content = message.get("content")
    if not isinstance(message.get("role"), str) or not isinstance(content, list):
        plain = _plain(message)
        return {**plain, "content": [{"type": "text", "text": plain["content"]}]}
    parts: list[dict[str, str]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "image_url":
            contents.append(_image(part.get("image_url")))
            parts.append({"type": "image"})
        elif kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        else:
            raise InvalidGeneration(f"a message has a part of type {kind!r}; expected text or image_url")
    return {**message, "content": parts}


def _image(stated: object) -> bytes:
    """Return the file that a data URI holds; what would have to be fetched from elsewhere is refused."""
    url = stated.get("url") if isinstance(stated, dict) else stated
    head, _, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise InvalidGeneration("image_url.url must be a data URI (data:image/png;base64,…): nothing is fetched here")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidGeneration(f"image_url.url is no base64: {error}") from error


def _call_schema(tool: Tool) -> dict[str, Any]:
    arguments = tool.function.parameters or {"type": "object"}
    return {
        "type": "object", "properties": {"name": {"const": tool.function.name}, "arguments": arguments},
        "required": ["name", "arguments"], "additionalProperties": False,
    }  # fmt: skip
