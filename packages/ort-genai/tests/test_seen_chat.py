"""Clients of the server show images: the answer is what transformers gives, whoever else asks."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from genai_media_models import IMAGE_TOKEN, picture, write_llava_checkpoint
from starlette.testclient import TestClient

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration
from ort_genai.media.seen_chat import seen_prompt
from ort_genai.server.app import ServerOptions, application

CASES = json.loads(Path(__file__).with_name("expected_media.json").read_text(encoding="utf-8"))["llava"]
OF_TEXTS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
OF_PARTS = (
    "{% for m in messages %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("PIL.Image")
    source = write_llava_checkpoint(tmp_path_factory.mktemp("seen") / "source")
    build(source, source.parent / "built", BuildOptions(Precision.FP32))
    return source.parent / "built"


@pytest.fixture(scope="module", params=[OF_TEXTS, OF_PARTS], ids=["texts", "parts"])
def model(folder, request):
    (folder / "chat_template.jinja").write_text(request.param, encoding="utf-8")
    found = og.Model(folder)
    assert found.text.template == request.param
    return found


@pytest.fixture(scope="module")
def engine(model):
    with og.AsyncEngine(model) as made:
        yield made


@pytest.fixture(scope="module")
def client(engine):
    return TestClient(application(engine, ServerOptions("seer")))


def file_of(seen):
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.fromarray(picture(*seen)).save(buffer, format="PNG")
    return buffer.getvalue()


def parts_of(case):
    """Return a question's parts, as clients of OpenAI's send them."""
    files, parts = iter(case["pictures"]), []
    for place, text in enumerate(case["question"].split("<image>")):
        if place:
            data = base64.b64encode(file_of(next(files))).decode()
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
        parts.append({"type": "text", "text": text})
    return [part for part in parts if part.get("text") != ""]


def asked(client, content, **more):
    messages = [{"role": "user", "content": content}]
    return client.post("/v1/chat/completions", json={"messages": messages, "temperature": 0, "max_tokens": 8, **more})


def test_an_answer_is_what_transformers_gives(client, model):
    for case in CASES:
        found = asked(client, parts_of(case)).json()
        expected = model.text.decode(case["tokens"][:8])
        assert found["choices"][0]["message"]["content"] == expected, found


def test_two_answers_to_the_same_images_read_them_once(client, engine):
    before = engine.current_counts()
    usage = [asked(client, parts_of(CASES[0])).json()["usage"]["prompt_tokens"] for _ in range(2)]
    after = engine.current_counts()
    assert after.cached_tokens - before.cached_tokens >= usage[0] - 17


def test_images_of_the_same_tokens_are_not_taken_for_each_other(client, model, engine):
    case = CASES[0]
    other = [(each[0] + 40, *each[1:]) for each in case["pictures"]]
    prompts = [
        seen_prompt(model, [message_of(case)], og.Images.open_bytes(*map(file_of, shown)))
        for shown in (case["pictures"], other)
    ]
    assert prompts[0].tokens == prompts[1].tokens
    options = og.GenerationOptions(max_tokens=1, tells_log_probabilities=True)
    found = []
    for each in (prompts[0], prompts[1], prompts[0]):
        pieces = list(engine.submit(each.tokens, options, features=each.features))
        found.append(pieces[0].chance)
    assert found[0] == pytest.approx(found[2], abs=1e-5)
    assert abs(found[0] - found[1]) > 1e-4


def message_of(case):
    parts = [{"type": "image"} if "image_url" in each else each for each in parts_of(case)]
    return {"role": "user", "content": parts}


def test_a_text_alone_is_answered_and_never_names_an_image(client, engine, model):
    assert asked(client, "What is it?").status_code == 200
    assert asked(client, [{"type": "text", "text": "What is it?"}]).status_code == 200
    wishes = og.GenerationOptions(max_tokens=3, logit_bias={IMAGE_TOKEN: 100.0})
    tokens = [piece.token for piece in engine.submit(model.text.encode("What"), wishes)]
    assert IMAGE_TOKEN not in tokens


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}], "nothing is fetched"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}], "not base64"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "cannot be read as an image"),
        ([{"type": "image_url"}], "must be a data URI"),
        ([{"type": "video_url"}], "expected text or image_url"),
    ],
    ids=["elsewhere", "base64", "image", "none", "kind"],
)
def test_what_is_no_image_is_refused(client, content, words):
    found = asked(client, content)
    assert found.status_code == 400
    assert words in found.json()["error"]["message"]


def test_tokens_of_images_that_nobody_gave_are_refused(client, engine):
    found = client.post("/v1/completions", json={"prompt": [5, IMAGE_TOKEN, 6]})
    assert found.status_code == 400
    assert "1 tokens that stand for images, and 0 vectors" in found.json()["error"]["message"]
    with pytest.raises(InvalidGeneration, match="0 tokens that stand for images, and 2 vectors"):
        engine.submit([5, 6], features=np.zeros((2, 64), np.float32))
