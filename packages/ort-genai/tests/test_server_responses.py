"""OpenAI's newer route, by its client: the same texts as chats, in items and events, and conversations that go on."""

from __future__ import annotations

import json

import openai
import pydantic
import pytest
from genai_serving import MESSAGES, Serving, answer
from openai.types.responses import Response, ResponseItem, ResponseStreamEvent

from ort_genai.errors import InvalidGeneration
from ort_genai.server.bodies import Refused
from ort_genai.server.input_items import ItemQuery, items_of, page_of
from ort_genai.server.kept_responses import KeptResponses, Talk
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
    kept = KeptResponses(most_bytes=8000)
    body = ResponseBody(input="x" * 500)
    for number in range(20):
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]}
        talk = Talk(messages_of(body.input), items_of(body.input))
        kept.keep(body, {"id": f"resp_{number}", "output": [message]}, talk)
    assert kept.find("resp_19")["id"] == "resp_19"
    with pytest.raises(Refused):
        kept.find("resp_0")
    assert sum(_is_kept(kept, f"resp_{number}") for number in range(20)) in range(3, 8)


def checked_items(client, name, **more):
    """Return the items that a client lists, page by page, each of a form that OpenAI's client knows."""
    found = list(client.responses.input_items.list(name, **more))
    for each in found:
        pydantic.TypeAdapter(ResponseItem).validate_python(each.model_dump(exclude_none=True), strict=True)
    return found


def test_the_items_of_a_response_are_listed_page_by_page(client):
    given = [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "input_text", "text": TEXT}]},
        {"role": "assistant", "content": "yes"},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "Rain."},
        {"role": "user", "content": "and then"},
    ]  # fmt: skip
    first = respond(client, input=given, tools=[TOOL])
    found = checked_items(client, first.id, order="asc")
    assert [each.type for each in found] == ["message"] * 3 + ["function_call", "function_call_output", "message"]
    assert [each.content[0].text for each in found if each.type == "message"] == ["Be kind.", TEXT, "yes", "and then"]
    assert len({each.id for each in found}) == len(found)
    assert [each.id for each in checked_items(client, first.id, limit=2)] == [each.id for each in found[::-1]]
    page = client.responses.input_items.list(first.id, limit=4, order="asc")
    assert (page.has_more, page.data[0].id, page.data[-1].id) == (True, found[0].id, found[3].id)
    second = respond(client, input="why", previous_response_id=first.id)
    later = checked_items(client, second.id, order="asc", limit=100)
    assert [each.id for each in later[:-2]] == [each.id for each in found]
    assert later[-2].content[0].text == first.output_text
    assert later[-1].content[0].text == "why"
    streamed = list(respond(client, stream=True))[-1].response
    assert [each.content[0].text for each in checked_items(client, streamed.id)] == [TEXT]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"order": "up"}, "order"), ({"after": "x"}, "'x' not found"),
     ({"extra_query": {"befor": "x"}}, "befor")],
)  # fmt: skip
def test_pages_that_are_none_are_refused(client, more, words):
    name = respond(client).id
    with pytest.raises(openai.BadRequestError, match=words):
        client.responses.input_items.list(name, **more)
    assert checked_items(client, name, include=["message.input_image.image_url"])
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.input_items.list("resp_x")


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_are_the_list_in_pieces(limit):
    items, names, after = items_of([{"role": "user", "content": "x"}] * 7), list[str](), ""
    while True:
        page = page_of(items, ItemQuery(after=after, limit=limit, order="asc"))
        names += [each["id"] for each in page["data"]]
        after = page["last_id"]
        if not page["has_more"]:
            break
    assert names == [each["id"] for each in items]


def test_counted_tokens_are_those_that_a_response_reads(client):
    def counted(**more):
        found = client.responses.input_tokens.count(model="tiny", **more)
        assert found.object == "response.input_tokens"
        return found.input_tokens

    first = respond(client, instructions="Be kind.")
    assert counted(input=TEXT, instructions="Be kind.") == first.usage.input_tokens
    second = respond(client, input="and then", previous_response_id=first.id, tools=[TOOL])
    more = {"previous_response_id": first.id, "tools": [TOOL]}
    assert counted(input="and then", **more) == second.usage.input_tokens
    assert counted(instructions="Be kind.") < first.usage.input_tokens
    for wrong, kind in (({"input": []}, openai.BadRequestError), ({"model": "other"}, openai.NotFoundError)):
        with pytest.raises(kind):
            client.responses.input_tokens.count(**{"model": "tiny", **wrong})
    with pytest.raises(openai.BadRequestError, match="not found"):
        counted(input="x", previous_response_id="resp_x")


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
