"""OpenAI's newer route, by its client: the same texts as chats, in items and events, and conversations that go on."""

from __future__ import annotations

import json

import openai
import pydantic
import pytest
from genai_serving import MESSAGES, Serving, answer
from openai.types.responses import Response, ResponseStreamEvent

from ort_genai.errors import InvalidGeneration
from ort_genai.server.bodies import Refused
from ort_genai.server.kept_responses import KeptResponses
from ort_genai.server.response_schemas import ResponseBody, chat_of, messages_of

TEXT = MESSAGES[0]["content"]
TOOL = {
    "type": "function", "name": "weather", "description": "Tell the weather.",
    "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def serving():
    made = Serving()
    yield made
    made.close()


@pytest.fixture
def client(serving):
    with serving.client() as made:
        yield made


def respond(client, **more):
    options = {"model": "tiny", "input": TEXT, "max_output_tokens": 12, "temperature": 0, **more}
    return client.responses.create(**options)


def test_a_response_is_the_text_of_the_chat(client):
    found, chat = respond(client), answer(client)
    assert found.output_text == chat.choices[0].message.content
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (found.usage.input_tokens, found.usage.output_tokens) == (chat.usage.prompt_tokens, 12)
    Response.model_validate(found.model_dump(), strict=True)
    system = answer(client, messages=[{"role": "system", "content": "Be kind."}, *MESSAGES])
    assert respond(client, instructions="Be kind.").output_text == system.choices[0].message.content


@pytest.mark.parametrize(
    "given",
    [
        MESSAGES, [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}],
        [{"type": "message", "role": "user", "content": TEXT}, {"type": "reasoning", "id": "r", "summary": []}],
    ],
)  # fmt: skip
def test_input_may_be_items(client, given):
    assert respond(client, input=given).output_text == respond(client).output_text


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}, {"include": ["message.output_text.logprobs"]}])
def test_events_build_the_response(client, more):
    events = list(respond(client, stream=True, **more))
    checked = pydantic.TypeAdapter(ResponseStreamEvent)
    for event in events:
        checked.validate_python(event.model_dump(), strict=True)
    assert [each.sequence_number for each in events] == list(range(len(events)))
    kinds = [each.type for each in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.incomplete"
    text = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == respond(client, **more).output_text
    assert sum(kind == "response.output_text.delta" for kind in kinds) > 3
    told = [one for each in events if each.type == "response.output_text.delta" for one in each.logprobs]
    assert len(told) == (12 if "include" in more else 0)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_comes_and_its_result_goes_back(client, choice):
    more = {"tools": [TOOL], "tool_choice": choice, "max_output_tokens": 90, "temperature": 1, "seed": 2}
    more["extra_body"] = {"seed": more.pop("seed")}
    first = respond(client, **more)
    (call,) = first.output
    assert (call.type, call.name, first.status) == ("function_call", "weather", "completed")
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    events = list(respond(client, stream=True, **more))
    arguments = "".join(each.delta for each in events if each.type == "response.function_call_arguments.delta")
    assert arguments == call.arguments == events[-1].response.output[0].arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    later = respond(client, input=[result], previous_response_id=first.id, tools=[TOOL])
    whole = [{"role": "user", "content": TEXT}, call.model_dump(exclude_none=True), result]
    assert later.output_text == respond(client, input=whole, tools=[TOOL]).output_text


def test_an_answer_follows_a_schema(client):
    schema = {"type": "object", "properties": {"sex": {"enum": ["f", "m"]}}, "required": ["sex"],
              "additionalProperties": False}  # fmt: skip
    form = {"format": {"type": "json_schema", "name": "person", "schema": schema, "strict": True}}
    found = respond(client, text=form, max_output_tokens=90, temperature=1)
    assert json.loads(found.output_text)["sex"] in ("f", "m")
    assert found.status == "completed"


def test_a_conversation_goes_on_from_what_was_kept(client):
    first = respond(client, instructions="Be kind.")
    second = respond(client, input="and then", previous_response_id=first.id)
    whole = [*MESSAGES, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "and then"}]
    assert second.output_text == respond(client, input=whole).output_text
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="not found") as raised:
        respond(client, previous_response_id=first.id)
    assert raised.value.code == "previous_response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(respond(client, store=False).id)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"background": True}, "background: .*waits"), ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "no conversations are kept"), ({"max_tool_calls": 3}, "called by the client"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"), ({"input": []}, "messages"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input_file"),
        ({"tools": [{"type": "web_search"}]}, "tools"), ({"reasoning": {"effort": "low"}}, "takes no reasoning_effort"),
        ({"input": [{"type": "function_call", "call_id": "1", "arguments": "{"}]}, "function.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "file_search"}}, "tool_choice"), ({"extra_body": {"a": 1}}, "a"),
        ({"input": [{"role": "user"}, {"content": "x"}]}, "no role"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "needs json_schema"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_refused(client, changes, words):
    with pytest.raises(openai.BadRequestError, match=words):
        respond(client, **changes)


def test_the_oldest_responses_go_first_and_memory_stays_flat():
    kept = KeptResponses(most_bytes=4000)
    body = ResponseBody(input="x" * 500)
    for number in range(20):
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]}
        kept.keep(body, {"id": f"resp_{number}", "output": [message]}, messages_of(body.input))
    assert kept.find("resp_19")["id"] == "resp_19"
    with pytest.raises(Refused):
        kept.find("resp_0")
    assert sum(_is_kept(kept, f"resp_{number}") for number in range(20)) in range(3, 8)


def _is_kept(kept, name):
    try:
        return kept.find(name)["id"] == name
    except Refused:
        return False


def test_calls_behind_a_text_are_one_message():
    items = [
        {"role": "assistant", "content": "I look."}, {"type": "function_call", "name": "a", "call_id": "1"},
        {"type": "function_call", "name": "b", "call_id": "2"},
    ]  # fmt: skip
    (message,) = messages_of(items)
    assert message["content"] == "I look."
    assert [each["function"]["name"] for each in message["tool_calls"]] == ["a", "b"]
    with pytest.raises(InvalidGeneration, match="part of type None"):
        messages_of([{"role": "user", "content": [3]}])


def test_allowed_tools_are_those_of_the_chat():
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    other = {"type": "function", "name": "time"}
    chat = chat_of(ResponseBody(input="x", tools=[TOOL, other], tool_choice=choice), messages_of("x"))
    assert [each.function.name for each in chat.used_tools()] == ["weather"]
    assert chat.must_call()
