"""The bodies that OpenAI's routes take, typed and bounded: each field is followed, or refused in a sentence.

``null`` stands for a field that is not there. What only tells OpenAI who asks, or what to bill, is taken and left
alone.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ort_genai.engine.requests import GenerationOptions
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar, GrammarKind
from ort_genai.server.call_schemas import call_schema

_SEEDS = 1 << 63


NOT_HERE = {
    "audio": "no sound is made here",
    "background": "answers are given while the client waits",
    "best_of": "no more texts are written than come back; ask for n and choose",
    "context_management": "the context is not shortened here",
    "conversation": "no conversations are kept; name previous_response_id, or send all messages",
    "function_call": "it was replaced by tool_choice, which is taken",
    "functions": "they were replaced by tools, which are taken",
    "max_tool_calls": "tools are called by the client alone",
    "moderation": "nothing is moderated here",
    "prompt": "no prompts are kept here; send instructions and input",
    "suffix": "texts are continued, not filled in",
    "web_search_options": "nothing is looked up here",
}
"""Fields of OpenAI's that no server of one model follows, and why."""


class Body(BaseModel):
    """A part of a request."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


def not_here(value: object, info: ValidationInfo) -> object:
    """Refuse a field that is not followed here, unless it asks for nothing."""
    if value is False or value in ([], ""):
        return None
    raise ValueError(NOT_HERE[str(info.field_name)])


class Asking(Body):
    """What tells of who asks, and changes no text."""

    user: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)  # Any: the client's own
    safety_identifier: str = ""
    service_tier: str = "auto"
    prompt_cache_key: str = ""
    prompt_cache_retention: str = ""
    prompt_cache_options: dict[str, Any] = Field(default_factory=dict)  # Any: of OpenAI's caches; ours needs none


class Function(Body):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    strict: bool = False
    parameters: dict[str, Any] | None = None  # Any: a JSON schema


class Tool(Body):
    """A tool; functions are the only kind."""

    type: Literal["function"] = "function"
    function: Function


class JsonSchema(Body):
    """A schema with a name."""

    name: str = "answer"
    description: str = ""
    strict: bool = True  # a grammar is always followed to the letter
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")  # Any: a JSON schema


class ResponseFormat(Body):
    """What an answer must be."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(Body):
    """What a stream tells."""

    include_usage: bool = False
    include_obfuscation: bool = False  # what hides lengths from those who listen; connections are encrypted elsewhere


class Sampling(Asking):
    """What both routes take."""

    model: str = ""
    max_tokens: int | None = Field(default=None, ge=0)
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

    @model_validator(mode="after")
    def _fits(self) -> Sampling:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is for streams: set stream")
        return self

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
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None  # Any: names functions
    parallel_tool_calls: bool = True
    reasoning_effort: str | None = None
    verbosity: str | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)  # Any: what the template takes
    modalities: list[Literal["text"]] = Field(default_factory=list)
    prediction: object = None  # a hint that makes OpenAI's answers faster, and no other
    store: Literal[False] = False
    audio: object = None
    function_call: object = None
    functions: object = None
    moderation: object = None
    web_search_options: object = None

    @field_validator("audio", "function_call", "functions", "moderation", "web_search_options", mode="before")
    @classmethod
    def _absent(cls, value: object, info: ValidationInfo) -> object:
        return not_here(value, info)

    @model_validator(mode="after")
    def _goes_together(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs are told with logprobs: set logprobs")
        if self.max_tokens == 0:
            raise ValueError("max_tokens should be 1 or more")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise ValueError("tool_choice asks for a call, and there are no tools: set tools")
        return self

    def template_values(self, template: str | None) -> dict[str, Any]:  # Any: what the template takes
        """Return what the template is told beside messages and tools.

        Raises:
            InvalidGeneration: the template does not read it.
        """
        asked = {"reasoning_effort": self.reasoning_effort, "verbosity": self.verbosity}
        found = {**self.chat_template_kwargs, **{name: value for name, value in asked.items() if value is not None}}
        for name in found:
            if name not in (template or ""):
                raise InvalidGeneration(f"this model's chat template takes no {name}")
        return found

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
        names = self._named()
        known = [each.function.name for each in self.tools]
        wrong = [name for name in names or () if name not in known]
        if wrong:
            raise InvalidGeneration(f"tool_choice names {wrong[0]!r}, which is none of the tools")
        return [each for each in self.tools if names is None or each.function.name in names]

    def must_call(self) -> bool:
        """Return whether the answer has to be a call."""
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            choice = _allowed(choice).get("mode", "auto")
        return bool(self.tools) and (choice == "required" or isinstance(choice, dict))

    def grammar(self) -> Grammar | None:
        """Return what the answer must follow, if anything."""
        if self.must_call():
            functions = [(each.function.name, each.function.parameters) for each in self.used_tools()]
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(call_schema(functions)))
        form = self.response_format
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
        if form.json_schema is None or form.json_schema.schema_ is None:
            raise InvalidGeneration("response_format of type json_schema needs json_schema.schema")
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(form.json_schema.schema_))

    def _named(self) -> list[str] | None:
        """Return the functions that ``tool_choice`` names, ``None``: it names none."""
        choice = self.tool_choice
        if not isinstance(choice, dict):
            return None
        is_list = choice.get("type") == "allowed_tools"
        listed = _allowed(choice).get("tools") if is_list else [choice]
        functions = [each.get("function") if isinstance(each, dict) else None for each in listed or ()]
        names = [each.get("name") if isinstance(each, dict) else None for each in functions]
        if not names or not all(isinstance(name, str) for name in names):
            raise InvalidGeneration("tool_choice must be none, auto, required, name a function, or allowed_tools")
        return [str(name) for name in names]


class CompletionBody(Sampling):
    """``/v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None

    @field_validator("suffix", mode="before")
    @classmethod
    def _absent(cls, value: object, info: ValidationInfo) -> object:
        return not_here(value, info)

    @field_validator("best_of", mode="after")
    @classmethod
    def _is_all(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value == info.data.get("n", 1):
            return value
        raise ValueError(NOT_HERE["best_of"])

    @model_validator(mode="after")
    def _has_text(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens should be 1 or more, or echo be set")
        return self

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, texts or tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and all(isinstance(each, int) for each in self.prompt):
            return [[each for each in self.prompt if isinstance(each, int)]]
        return [each for each in self.prompt if not isinstance(each, int)]


def _allowed(choice: dict[str, Any]) -> dict[str, Any]:
    found = choice.get("allowed_tools")
    return found if isinstance(found, dict) else {}


def _with_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have their arguments as objects, which templates write as JSON themselves."""
    calls = message.get("tool_calls")
    if calls is None:
        return message
    if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
        raise InvalidGeneration("a message has tool_calls that are not a list of calls")
    return {**message, "tool_calls": [_with_object(each) for each in calls]}


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidGeneration("a message has a call without function.name")
    arguments = function.get("arguments", {})
    try:
        read = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise InvalidGeneration(f"the arguments of the call of {function['name']!r} are no JSON: {error}") from error
    return {**call, "function": {**function, "arguments": read}}


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise InvalidGeneration("a message has no role")
    message = _with_arguments(message)
    content = message.get("content")
    if content is None or isinstance(content, str):
        return {**message, "content": content or ""}
    if not isinstance(content, list):
        raise InvalidGeneration(f"a message has content of type {type(content).__name__}; expected a text or parts")
    return {**message, "content": "".join(_text_of(part, "text") for part in content)}


def _text_of(part: object, expected: str) -> str:
    """Return the text of a part; what a model refused once is text, too."""
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    text = part.get("text" if kind == "text" else "refusal") if isinstance(part, dict) else None
    if kind not in ("text", "refusal") or not isinstance(text, str):
        raise InvalidGeneration(
            f"a message has a part of type {kind!r} that this model cannot read; expected {expected}"
        )
    return text


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
        else:
            parts.append({"type": "text", "text": _text_of(part, "text or image_url")})
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
        raise InvalidGeneration(f"image_url.url is not base64: {error}") from error
