"""The body of OpenAI's newer route, and what it means as a conversation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from ort_genai.errors import InvalidGeneration
from ort_genai.server.bodies import fault_of
from ort_genai.server.schemas import Asking, Body, ChatBody, not_here

Message = dict[str, Any]  # Any: what a template reads of a message
LOG_PROBABILITIES = "message.output_text.logprobs"


class ResponseTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None  # Any: a JSON schema
    strict: bool = False


class TextFormat(Body):
    """What an answer must be."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    description: str = ""
    strict: bool = True
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")  # Any: a JSON schema


class TextOptions(Body):
    """How an answer is written."""

    format: TextFormat = TextFormat()
    verbosity: str | None = None


class Reasoning(Body):
    """How much the model thinks."""

    effort: str | None = None


class ResponseStream(Body):
    """What a stream tells."""

    include_obfuscation: bool = False


class ResponseBody(Asking):
    """``/v1/responses``."""

    input: str | list[dict[str, Any]]  # Any: of many kinds, read by messages_of
    model: str = ""
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int = Field(default=0, ge=0, le=20)
    stream: bool = False
    stream_options: ResponseStream | None = None
    store: bool = True
    previous_response_id: str | None = None
    tools: list[ResponseTool] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"  # Any: names functions
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: Reasoning = Reasoning()
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] = Field(default_factory=list)
    truncation: Literal["disabled"] = "disabled"
    seed: int | None = None
    stop: str | list[str] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)  # Any: what the template takes
    background: object = None
    context_management: object = None
    conversation: object = None
    max_tool_calls: object = None
    moderation: object = None
    prompt: object = None

    @field_validator(
        "background", "context_management", "conversation", "max_tool_calls", "moderation", "prompt", mode="before"
    )
    @classmethod
    def _absent(cls, value: object, info: ValidationInfo) -> object:
        return not_here(value, info)

    @model_validator(mode="after")
    def _goes_together(self) -> ResponseBody:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is for streams: set stream")
        return self

    @property
    def tells_chances(self) -> bool:
        """Whether log-probabilities are told."""
        return LOG_PROBABILITIES in self.include


class CountedBody(ResponseBody):
    """``/v1/responses/input_tokens``: what a response would read, which may be instructions alone."""

    input: str | list[dict[str, Any]] = Field(default_factory=list)  # Any: of many kinds, read by messages_of


def chat_of(body: ResponseBody, talk: list[Message]) -> ChatBody:
    """Return the request of a chat with the same answer.

    Args:
        body: of the request.
        talk: the conversation, but for the instructions of this answer.

    Raises:
        Refused: it does not fit.
    """
    form = body.text.format
    schema = {"name": form.name, "schema": form.schema_} if form.type == "json_schema" else None
    asked = {
        "messages": [*([{"role": "system", "content": body.instructions}] if body.instructions else ()), *talk],
        "max_completion_tokens": body.max_output_tokens, "temperature": body.temperature, "top_p": body.top_p,
        "seed": body.seed, "stop": body.stop, "stream": body.stream, "logprobs": body.tells_chances,
        "top_logprobs": body.top_logprobs if body.tells_chances else 0,
        "tools": [{"type": "function", "function": tool.model_dump(exclude={"type"})} for tool in body.tools] or None,
        "tool_choice": _choice(body.tool_choice) if body.tools else None,
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": {"type": form.type, "json_schema": schema}, "verbosity": body.text.verbosity,
        "reasoning_effort": body.reasoning.effort, "chat_template_kwargs": body.chat_template_kwargs,
    }  # fmt: skip
    try:
        return ChatBody.model_validate(asked)
    except ValidationError as error:
        raise fault_of(error, ChatBody) from error


def _choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    """Return a choice of tools as chats have it."""
    if isinstance(choice, str):
        return choice
    if choice.get("type") == "allowed_tools":
        listed = choice.get("tools")
        tools = [_named(each) for each in listed] if isinstance(listed, list) else []
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}
    return _named(choice)


def _named(choice: object) -> dict[str, Any]:
    if not isinstance(choice, dict) or choice.get("type") != "function":
        raise InvalidGeneration("tool_choice must be none, auto, required, name a function, or allowed_tools")
    return {"type": "function", "function": {"name": choice.get("name")}}


def messages_of(given: str | list[dict[str, Any]]) -> list[Message]:
    """Return the messages of a conversation's items.

    Raises:
        InvalidGeneration: one is of a kind that is not taken.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[Message] = []
    for item in given:
        kind = item.get("type", "message")
        if kind == "message":
            found.append({"role": item.get("role"), "content": _content(item.get("content"))})
        elif kind == "function_call":
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": ""})
            call = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            listed = [
                *found[-1].get("tool_calls", ()),
                {"id": item.get("call_id"), "type": "function", "function": call},
            ]
            found[-1] = {**found[-1], "tool_calls": listed}
        elif kind == "function_call_output":
            content = _content(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind != "reasoning":  # thoughts of earlier answers: templates leave them out
            raise InvalidGeneration(
                f"input has an item of type {kind!r}; expected message, function_call or function_call_output"
            )
    return found


def _content(content: object) -> object:
    """Return what chats have as content: texts, or parts."""
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict) and kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text")}
    if isinstance(part, dict) and kind == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    raise InvalidGeneration(f"a message has a part of type {kind!r}; expected input_text, output_text or input_image")
