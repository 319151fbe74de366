"""The `openai` client talks to the server as it does to OpenAI's."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import httpx
import openai
import pytest
from genai_serving import MESSAGES, Serving, answer
from starlette.requests import ClientDisconnect

import ort_genai as og
from ort_genai.paging.paged_states import PagedState
from ort_genai.server.streams import Events
from ort_genai.server.tool_calls import calls_in, with_tools

TOOL = {
    "type": "function",
    "function": {
        "name": "weather", "description": "Tell the weather.",
        "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
            "additionalProperties": False,
        },
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


def test_models_are_listed(client):
    assert [each.id for each in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="there is tiny"):
        client.models.retrieve("other")


def test_an_answer_is_the_engines_text(client, serving):
    found = answer(client)
    text = serving.engine.model.text
    prompt = text.encode(text.chat(MESSAGES), has_special=False)
    expected = serving.engine.submit(prompt, og.GenerationOptions(max_tokens=12)).text()
    assert found.choices[0].message.content == expected
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(prompt), 12)
    assert found.choices[0].finish_reason == "length"
    assert found.object == "chat.completion"


def test_a_stream_gives_the_same_text_and_usage(client):
    whole = answer(client)
    parts = list(answer(client, stream=True, stream_options={"include_usage": True}))
    assert (
        "".join(each.choices[0].delta.content or "" for each in parts if each.choices)
        == whole.choices[0].message.content
    )
    assert parts[-1].usage.completion_tokens == 12
    assert [each.choices[0].finish_reason for each in parts if each.choices][-1] == "length"
    assert {each.object for each in parts} == {"chat.completion.chunk"}


def test_parts_of_a_message_are_joined(client):
    parts = [{"type": "text", "text": "the thin"}, {"type": "text", "text": " man"}]
    found = answer(client, messages=[{"role": "user", "content": parts}])
    assert found.choices[0].message.content == answer(client).choices[0].message.content


def test_several_choices_come_with_their_own_seeds(client):
    found = answer(client, n=3, temperature=1.5, seed=4)
    texts = [each.message.content for each in found.choices]
    assert len(set(texts)) == 3
    assert texts == [each.message.content for each in answer(client, n=3, temperature=1.5, seed=4).choices]
    assert [each.index for each in found.choices] == [0, 1, 2]
    parts = ["", "", ""]
    for each in answer(client, n=3, temperature=1.5, seed=4, stream=True):
        parts[each.choices[0].index] += each.choices[0].delta.content or ""
    assert parts == texts


def test_log_probabilities_come_with_their_tokens(client):
    for found in answer(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content:
        assert len(found.top_logprobs) == 3
        assert found.logprob == found.top_logprobs[0].logprob <= 0
        assert bytes(found.bytes).decode(errors="ignore") in (found.token, "")
    done = client.completions.create(model="tiny", prompt="the", max_tokens=3, temperature=0, logprobs=2)
    assert len(done.choices[0].logprobs.tokens) == len(done.choices[0].logprobs.top_logprobs) == 3


def test_completions_go_on_with_texts_and_tokens(client, serving):
    tokens = serving.engine.model.text.encode("the man")
    one, two = (
        client.completions.create(model="tiny", prompt=each, max_tokens=5, temperature=0)
        for each in ("the man", tokens)
    )
    assert one.choices[0].text == two.choices[0].text
    both = client.completions.create(model="tiny", prompt=["the man", "an"], max_tokens=5, temperature=0, echo=True)
    assert both.choices[0].text == "the man" + one.choices[0].text
    assert both.choices[1].text.startswith("an")
    streamed = client.completions.create(model="tiny", prompt="the man", max_tokens=5, temperature=0, stream=True)
    assert "".join(each.choices[0].text for each in streamed) == one.choices[0].text


def test_a_stop_string_ends_an_answer(client):
    whole = answer(client).choices[0].message.content
    found = answer(client, stop=[whole[3:5]]).choices[0]
    assert found.message.content == whole[: whole.find(whole[3:5])]
    assert found.finish_reason == "stop"


def test_answers_follow_schemas(client):
    schema = {
        "type": "object", "properties": {"sex": {"enum": ["f", "m"]}, "ages": {"type": "array", "items": {
        "enum": [1, 22]}, "minItems": 2, "maxItems": 2}}, "required": ["sex", "ages"], "additionalProperties": False,
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    for seed in range(3):
        found = json.loads(
            answer(client, response_format=form, max_tokens=100, temperature=1, seed=seed).choices[0].message.content
        )
        assert found["sex"] in ("f", "m")
        assert set(found["ages"]) <= {1, 22}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_is_asked_for_comes(client, choice):
    found = answer(client, tools=[TOOL], tool_choice=choice, max_tokens=90, temperature=1, seed=2).choices[0]
    call = found.message.tool_calls[0]
    assert found.finish_reason == "tool_calls"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    parts = list(answer(client, tools=[TOOL], tool_choice=choice, max_tokens=90, temperature=1, seed=2, stream=True))
    calls = [each.choices[0].delta.tool_calls for each in parts if each.choices[0].delta.tool_calls]
    assert calls[0][0].function.arguments == call.function.arguments
    assert calls[0][0].function.name == "weather"
    assert parts[-1].choices[0].finish_reason == "tool_calls"


def test_tools_that_are_not_called_leave_a_text(client):
    assert answer(client, tools=[TOOL]).choices[0].message.tool_calls is None
    assert answer(client, tools=[TOOL], tool_choice="none").choices[0].message.content


def test_calls_are_found_in_texts():
    text, calls = calls_in(
        'Yes. <tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call><tool_call>{"name": "b"}', ["a", "b"]
    )
    assert text == "Yes."
    assert [(each["function"]["name"], each["function"]["arguments"]) for each in calls] == [
        ("a", '{"x": 1}'),
        ("b", "{}"),
    ]
    for other in ('{"name": "c"}', "[1]", "{", '<tool_call>{"name": 3}</tool_call>'):
        assert calls_in(other, ["a"]) == (other, [])


def test_blanks_in_an_answer_take_no_time():
    """A text with n blanks behind the mark of a call was looked at n times n: a model can write a hundred thousand."""
    for blank in (" ", "\n", "\u00a0"):
        text = "<tool_call>x" + blank * 200_000 + "y"
        assert calls_in(text, ["a"]) == (text, [])
        found = calls_in(f'<tool_call>{blank * 9}{{"name": "a"}}{blank * 200_000}</tool_call>', ["a"])[1]
        assert [each["function"]["name"] for each in found] == ["a"]


@pytest.mark.parametrize("depth", [50, 90, 95, 300, 5000])
def test_tools_of_any_depth_are_taken_or_refused(serving, depth):
    """Each is a schema within a schema; what is too deep is refused with 400."""
    text = '{"type": "string"}'
    for _ in range(depth):
        text = '{"type": "object", "properties": {"a": ' + text + "}}"
    tool = '{"type": "function", "function": {"name": "f", "parameters": ' + text + "}}"
    for choice in ('"auto"', '"required"'):
        message = '{"role": "user", "content": "x"}'
        body = f'"model": "tiny", "max_tokens": 2, "messages": [{message}], "tools": [{tool}], "tool_choice": {choice}'
        found = httpx.post(f"{serving.url}/v1/chat/completions", content="{" + body + "}", timeout=60)
        assert found.status_code in (200, 400), found.text[:300]


@pytest.mark.parametrize(("arguments", "written"), [('{"x": "\\ud83d"}', '{"x": "\\ud83d"}'), ('"\\ud83d"', "?")])
def test_half_a_character_in_arguments_can_be_sent(arguments, written):
    _, calls = calls_in(f'<tool_call>{{"name": "a", "arguments": {arguments}}}</tool_call>', ["a"])
    assert calls[0]["function"]["arguments"] == written


def test_a_template_that_lists_no_tools_is_told_of_them():
    told = with_tools([{"role": "system", "content": "Be kind."}, *MESSAGES], [TOOL], "no list")
    assert told[0]["content"].startswith("Be kind.")
    assert "weather" in told[0]["content"]
    assert with_tools(MESSAGES, [TOOL], "{{ tools }}") == MESSAGES


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"messages": []}, "messages"), ({"messages": [{"content": "x"}]}, "no role"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"), ({"n": 99}, "n: "), ({"stop": [""]}, "stop string is empty"),
        ({"messages": [{"role": "user", "content": "x " * 5000}]}, "context has 4096"), ({"top_p": "much"}, "top_p"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
        ({"response_format": {"type": "json_schema"}}, "needs json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "odd"}}}},
         "json_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "'other'"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"), ({"tools": [{"type": "function"}]}, "function"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_a_sentence(client, changes, words):
    with pytest.raises(openai.BadRequestError, match=words):
        answer(client, **changes)


def test_bodies_that_are_no_requests_are_refused(serving):
    with httpx.Client(base_url=serving.url) as http:
        for content in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 10000, b'{"messages": 3}'):
            found = http.post("/v1/chat/completions", content=content)
            assert (found.status_code, found.json()["error"]["type"]) == (400, "invalid_request_error")
        assert http.post("/v1/chat/completions", content=b" " * (5 << 20)).status_code == 413
        assert http.get("/v1/nothing").status_code == 404
        assert http.post("/v1/embeddings", json={"input": "x"}).status_code == 501


@pytest.mark.parametrize("route", ["chat", "completion", "response"])
def test_a_prompt_beyond_the_context_has_openais_code(client, route):
    """Clients that shorten a conversation and ask again look for it."""
    text, ask = "the man " * 5000, {
        "chat": lambda text: answer(client, messages=[{"role": "user", "content": text}]),
        "completion": lambda text: client.completions.create(model="tiny", prompt=text),
        "response": lambda text: client.responses.create(model="tiny", input=text),
    }[route]  # fmt: skip
    with pytest.raises(openai.BadRequestError, match="context has 4096") as error:
        ask(text)
    assert error.value.code == "context_length_exceeded"


def test_a_client_that_goes_away_before_its_request_is_whole_is_no_fault(serving, caplog):
    host, port = serving.url.removeprefix("http://").split(":")
    refused = serving.engine.current_counts().requests
    with httpx.Client(base_url=serving.url) as http:

        def refusals():
            lines = http.get("/metrics").text.splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("ort_genai_refusals_total"))

        before = refusals()
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        until = time.monotonic() + 30
        while refusals() == before and time.monotonic() < until:
            time.sleep(0.01)
        assert refusals() == before + 1
    assert serving.engine.current_counts().requests == refused
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_counts_and_the_page_are_there(serving, client):
    answer(client)
    with httpx.Client(base_url=serving.url) as http:
        text = http.get("/metrics").text
        counts = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
        assert float(counts["ort_genai_tokens_total"]) >= 12
        assert http.get("/health").json() == {"status": "ok"}
        assert "<title>tiny</title>" in http.get("/").text


def test_a_client_that_goes_away_frees_its_place(serving, client):
    stream = answer(client, stream=True, max_tokens=100, logit_bias={"285": -100})
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 30
    while serving.engine.current_counts().running and time.monotonic() < until:
        time.sleep(0.01)
    assert serving.engine.current_counts().running == 0


def test_a_key_is_asked_for():
    serving = Serving(api_key="secret")
    try:
        with serving.client("wrong") as client, pytest.raises(openai.AuthenticationError):
            answer(client)
        with serving.client("secret") as client:
            assert answer(client).choices
    finally:
        serving.close()


def test_many_clients_get_equal_texts(serving):
    expected = {}
    with serving.client() as client:
        for number in range(4):
            expected[number] = (
                answer(client, messages=[{"role": "user", "content": f"{number} man"}]).choices[0].message.content
            )
    wrong = []

    def ask(number):
        with serving.client() as own:
            for place in range(3):
                chosen = (number + place) % 4
                found = answer(own, messages=[{"role": "user", "content": f"{chosen} man"}])
                if found.choices[0].message.content != expected[chosen]:
                    wrong.append(chosen)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_text_that_fails_is_the_servers_fault(serving, client, monkeypatch):
    def fails(*_):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(PagedState, "read", fails)
        with pytest.raises(openai.InternalServerError, match="no room"):
            client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4)
    assert client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4).choices


def test_tokens_beyond_64_bits_are_refused(client):
    with pytest.raises(openai.BadRequestError, match="token"):
        client.completions.create(model="tiny", prompt=[1 << 80], max_tokens=4)


def test_a_stream_that_nobody_began_to_read_ends_its_text(serving):
    async def left():
        asked = [serving.engine.submit([3], og.GenerationOptions(max_tokens=4000, min_tokens=4000))]

        async def never():
            yield "data: nothing"

        async def receive():
            return {"type": "http.disconnect"}

        async def send(_):
            raise OSError("gone")

        with pytest.raises(ClientDisconnect):
            await Events(asked, never())({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
        return asked[0]

    request = asyncio.run(asyncio.wait_for(left(), 30))
    assert request.is_cancelled
    list(request)
    assert request.finished.reason is og.EndReason.CANCELLED


def test_offsets_of_a_stream_are_those_of_the_whole_text(client):
    asked = {"model": "tiny", "prompt": "the thin", "max_tokens": 9, "temperature": 0, "logprobs": 1, "echo": True}
    whole = client.completions.create(**asked).choices[0]
    parts = [each.choices[0] for each in client.completions.create(**asked, stream=True) if each.choices]
    assert "".join(each.text for each in parts) == whole.text
    offsets = [offset for each in parts if each.logprobs for offset in each.logprobs.text_offset]
    assert offsets == whole.logprobs.text_offset
