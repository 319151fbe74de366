"""Each field that OpenAI's clients send is followed, or refused in a sentence that names it."""

from __future__ import annotations

import inspect
import json

import httpx
import numpy as np
import openai
import pytest
from genai_built import built_wide
from genai_serving import MESSAGES, Serving, answer
from genai_tiny_models import TEMPLATE
from tokenizers import Tokenizer, decoders, models, normalizers

import ort_genai as og
from ort_genai.errors import InvalidGeneration
from ort_genai.server.forms import ChatForms
from ort_genai.server.response_schemas import ResponseBody
from ort_genai.server.schemas import ChatBody, CompletionBody
from ort_genai.server.tool_calls import calls_in, known_roles, told_length
from ort_genai.server.vectors import EmbeddingBody
from ort_genai.token_bytes import TokenBytes

TOOLS = [{"type": "function", "function": {"name": name, "strict": True}} for name in ("weather", "time")]


@pytest.fixture(scope="module")
def serving():
    made = Serving()
    yield made
    made.close()


@pytest.fixture
def client(serving):
    with serving.client() as made:
        yield made


def complete(client, **more):
    return client.completions.create(
        **{"model": "tiny", "prompt": "the man", "max_tokens": 4, "temperature": 0, **more}
    )


@pytest.mark.parametrize(
    "taken",
    [
        {"user": "me"}, {"metadata": {"a": "b"}}, {"service_tier": "auto"}, {"store": False},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "x"}, {"modalities": ["text"]}, {"prediction": {"type": "content", "content": "x"}},
        {"parallel_tool_calls": False}, {"n": None, "stop": None, "logprobs": None, "stream": None},
        {"functions": [], "web_search_options": None},
    ],
)  # fmt: skip
def test_what_changes_no_text_is_taken(client, taken):
    assert answer(client, **taken).choices[0].message.content == answer(client).choices[0].message.content


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"extra_body": {"temprature": 1}}, "temprature", "Unrecognized request argument supplied.*temperature"),
        ({"audio": {"voice": "x", "format": "wav"}}, "audio", "no sound"), ({"modalities": ["audio"]}, None, "text"),
        ({"functions": [{"name": "f"}]}, "functions", "replaced by tools"), ({"store": True}, "store", "False"),
        ({"function_call": "auto"}, "function_call", "tool_choice"),
        ({"tool_choice": "required"}, None, "set tools"),
        ({"web_search_options": {}}, "web_search_options", "looked up"),
        ({"top_logprobs": 2}, None, "set logprobs"), ({"stream_options": {"include_usage": True}}, None, "set stream"),
        ({"reasoning_effort": "low"}, None, "template takes no reasoning_effort"),
        ({"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}, None, "takes no enable_thinking"),
        ({"messages": [{"role": "user", "content": 5}]}, None, "content of type int"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, None,
         "no JSON"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
         None, "tool_choice"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_refused_by_name(client, changes, param, words):
    with pytest.raises(openai.BadRequestError, match=words) as raised:
        answer(client, **changes)
    assert raised.value.body["param"] == param or param is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"best_of": 3}, "no more texts"), ({"suffix": "x"}, "not filled in"), ({"max_tokens": 0}, "or echo be set"),
        ({"extra_body": {"messages": []}}, "Unrecognized"),
    ],
)  # fmt: skip
def test_completions_refuse_what_they_do_not_follow(client, changes, words):
    with pytest.raises(openai.BadRequestError, match=words):
        complete(client, **changes)


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"stop": 5}, "stop", "valid string, or Input should be a valid array"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice", "'required', or Input should be an object"),
        ({"logit_bias": {"the": 1}}, "logit_bias.the", "valid integer"),
    ],
)
def test_a_field_of_several_types_is_named_as_the_client_named_it(client, changes, param, words):
    """pydantic's names of types stood behind it: stop.str, tool_choice.literal['none',…]."""
    with pytest.raises(openai.BadRequestError, match=words) as raised:
        answer(client, **changes)
    assert raised.value.body["param"] == param


@pytest.mark.parametrize("kind", ["input_audio", "file", "image_url", None])
def test_a_part_that_is_not_read_is_named(client, kind):
    with pytest.raises(openai.BadRequestError, match=f"part of type {kind!r}.*expected text"):
        answer(client, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind}]}])


def test_what_the_model_refused_before_is_text(client):
    said = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, *MESSAGES]
    plain = [{"role": "assistant", "content": "No."}, *MESSAGES]
    assert answer(client, messages=said).choices[0].message == answer(client, messages=plain).choices[0].message


@pytest.mark.parametrize("route", ["chat", "completions", "embeddings", "responses"])
def test_every_parameter_of_the_client_is_known_or_refused_by_name(serving, client, route):
    """The parameters are those of the openai package that is installed: a newer one may have more."""
    kind, call, path = {
        "chat": (ChatBody, client.chat.completions.create, "chat/completions"),
        "completions": (CompletionBody, client.completions.create, "completions"),
        "embeddings": (EmbeddingBody, client.embeddings.create, "embeddings"),
        "responses": (ResponseBody, client.responses.create, "responses"),
    }[route]
    own = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    unknown = [name for name in inspect.signature(call).parameters if name not in own | set(kind.model_fields)]
    least = {"chat": {"messages": MESSAGES}, "completions": {"prompt": "a"}}.get(route, {"input": "a"})
    for name in unknown:
        found = httpx.post(f"{serving.url}/v1/{path}", json={**least, name: "x"})
        assert (found.status_code, found.json()["error"]["param"]) == (400, name)


def test_routes_that_are_not_here_are_refused_as_openai_does(serving):
    with httpx.Client(base_url=serving.url) as http:
        for found in (http.get("/v1/nothing"), http.get("/v1/chat/completions"), http.delete("/")):
            assert found.status_code in (404, 405)
            assert found.json()["error"]["code"] == "unknown_url"


def test_a_prompt_that_is_echoed_has_the_log_probabilities_of_its_own_tokens(client, serving):
    model = serving.engine.model
    tokens = [7, 101, 33, 250, 12, *range(70)]
    generator = og.Generator(model, og.GeneratorParams(model))
    expected = []
    for token in tokens:
        if generator.token_count():
            logits = generator.get_logits()[0, 0].astype(np.float64)
            expected.append(logits[token] - np.log(np.exp(logits).sum()))
        generator.append_tokens([token])
    alone = complete(client, prompt=tokens, echo=True, max_tokens=0, logprobs=2)
    chances = alone.choices[0].logprobs
    assert chances.token_logprobs[0] is chances.top_logprobs[0] is None
    np.testing.assert_allclose(chances.token_logprobs[1:], expected, rtol=1e-4, atol=1e-4)
    assert all(len(each) == 2 for each in chances.top_logprobs[1:])
    assert (alone.usage.prompt_tokens, alone.usage.completion_tokens) == (75, 0)
    more = complete(client, prompt=tokens, echo=True, max_tokens=3, logprobs=2).choices[0]
    assert more.logprobs.token_logprobs[: len(tokens)] == chances.token_logprobs
    assert len(more.logprobs.tokens) == 78
    assert more.text.startswith(alone.choices[0].text)
    parts = list(complete(client, prompt=tokens, echo=True, max_tokens=3, logprobs=2, stream=True))
    told = [part.choices[0].logprobs for part in parts if part.choices[0].logprobs]
    streamed = [each for part in told for each in part.token_logprobs]
    assert streamed[0] is None
    np.testing.assert_allclose(streamed[1:], more.logprobs.token_logprobs[1:], rtol=1e-4, atol=1e-4)


def test_a_stream_with_tools_gives_its_text_as_it_comes(client):
    whole = answer(client, tools=TOOLS, max_tokens=30).choices[0].message.content
    parts = [each.choices[0].delta.content for each in answer(client, tools=TOOLS, max_tokens=30, stream=True)]
    assert "".join(part or "" for part in parts) == whole
    assert sum(bool(part) for part in parts) > 5


@pytest.mark.parametrize(
    "text",
    [
        'Ask. <tool_call>{"name": "weather", "arguments": {}}</tool_call> <tool_call>{"name": "time"}</tool_call> So',
        '{"name": "weather", "parameters": {"x": 1}}', '[{"name": "weather"}, {"name": "time"}]', "a < b <tool", "[1]",
        "  ", '\n<tool_call>{"name": "else"}</tool_call>', '  {"name": "weather", "arguments": "{}"}', "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("takes_several", [True, False])
def test_parts_of_a_stream_are_the_whole_answer_wherever_it_is_cut(text, takes_several):
    names = ["weather", "time"]
    for size in (1, 2, 7, 100):
        forms = ChatForms(None, names, 1, tells_chances=False, takes_several=takes_several)
        pieces = [og.Piece(text[start : start + size]) for start in range(0, len(text), size)]
        told = [forms.part(0, piece) for piece in pieces]
        last = forms.last(0, pieces, "stop")
        whole = forms.whole(0, pieces, "stop")
        content = "".join(each["delta"]["content"] for each in told if each) + last["delta"].get("content", "")
        assert content == (whole["message"]["content"] or "")
        calls = whole["message"].get("tool_calls", [])
        found = last["delta"].get("tool_calls", [])
        assert [each["function"] for each in found] == [each["function"] for each in calls]
        assert len(calls) == min(len(calls_in(text, names)[1]), 2 if takes_several else 1)
        assert last["finish_reason"] == whole["finish_reason"]


def test_text_before_a_call_is_told_at_once():
    assert told_length("Let me see. <tool_ca") == len("Let me see.")
    assert told_length('{"name"') == told_length("  ") == 0


def test_arguments_of_earlier_calls_come_to_the_template_as_objects():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Rome"}'}}
    body = ChatBody(messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])
    (message,) = body.plain_messages()
    assert message["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}
    assert message["content"] == ""


def test_a_developer_is_the_system_where_the_template_does_not_know_him():
    messages = [{"role": "developer", "content": "Be kind."}, *MESSAGES]
    assert [each["role"] for each in known_roles(messages, TEMPLATE)] == ["system", "user"]
    assert known_roles(messages, "{{ developer }}") == messages


def test_what_the_template_takes_is_told_to_it():
    body = ChatBody(messages=MESSAGES, reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})
    template = "{{ reasoning_effort }} {{ enable_thinking }}"
    assert body.template_values(template) == {"reasoning_effort": "low", "enable_thinking": False}
    with pytest.raises(InvalidGeneration, match="reasoning_effort"):
        ChatBody(messages=MESSAGES, reasoning_effort="low").template_values(None)


def test_tools_that_are_allowed_are_the_ones_that_may_be_called(client):
    chosen = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": chosen}
    found = answer(client, tools=TOOLS, tool_choice=choice, max_tokens=200, temperature=1, seed=3).choices[0]
    assert found.message.tool_calls[0].function.name == "time"
    assert isinstance(json.loads(found.message.tool_calls[0].function.arguments), dict)


def test_half_characters_have_their_bytes(client):
    found = answer(client, logprobs=True, top_logprobs=20, max_tokens=4).choices[0].logprobs.content[0].top_logprobs
    assert len({tuple(each.bytes) for each in found}) == 20
    assert len({each.token for each in found}) == 20
    halves = [each for each in found if each.token.startswith("\\x")]
    assert halves
    assert all(each.token == "".join(f"\\x{byte:02x}" for byte in each.bytes) for each in halves)


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_bytes_of_tokens_are_those_of_the_text_together(kind):
    if kind == "bytes":
        library = og.Model(built_wide()).text.library
    else:
        pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "\u2581the", "a", "n", "\u2581an"]
        vocabulary = {piece: place for place, piece in enumerate(pieces)}
        merges = [("\u2581", "a"), ("\u2581a", "n")]
        model = models.BPE({**vocabulary, "\u2581a": len(pieces)}, merges, unk_token="<unk>", byte_fallback=True)
        library = Tokenizer(model)
        library.normalizer = normalizers.Replace(" ", "\u2581")
        parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        library.decoder = decoders.Sequence(parts)
    text = "an a€ü an\U0001f600"
    tokens = library.encode(text, add_special_tokens=False).ids
    made = TokenBytes(library)
    assert b"".join(made.of(token) for token in tokens).decode() == text
    assert made.of(1 << 20) == b""


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
NESTED = {
    "type": "object", "properties": {"a": {"$ref": "#/$defs/Point"}, "$ref": {"enum": ["#/$defs/none"]}},
    "$defs": {"Point": POINT}, "required": ["a", "$ref"], "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize("count", [1, 2])
def test_arguments_of_models_within_models_are_followed(client, count):
    """As pydantic writes them: references were looked for in the schema of the call, and refused."""
    tools = [{"type": "function", "function": {"name": name, "parameters": NESTED}} for name in ("near", "far")[:count]]
    found = answer(client, tools=tools, tool_choice="required", max_tokens=300, temperature=1, seed=3).choices[0]
    (call,) = found.message.tool_calls
    read = json.loads(call.function.arguments)
    assert isinstance(read["a"]["x"], int)
    assert read["$ref"] == "#/$defs/none"
