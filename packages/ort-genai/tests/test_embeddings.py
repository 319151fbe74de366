"""Vectors of texts are what the graph's parts give, and the `openai` client reads them."""

from __future__ import annotations

import base64

import numpy as np
import onnx
import onnxruntime
import pytest
from genai_built import built
from genai_tiny_models import PROMPTS
from starlette.testclient import TestClient

import ort_genai as og
from ort_genai.errors import InvalidGeneration
from ort_genai.server.app import ServerOptions, application

TEXTS = ["the thin man", "an hour", "there"]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request):
    return built(request.param, has_hidden_states=True)


def vectors(folder, tokens):
    """Return what onnxruntime computes before the last product, (n, hidden)."""
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    if "position_ids" in [each.name for each in session.get_inputs()]:
        feeds["position_ids"] = np.arange(len(tokens))[None]
    for each in session.get_inputs():
        if len(each.shape) == 4:
            feeds[each.name] = np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32)
    logits, hidden = session.run(["logits", "hidden_states"], feeds)
    head = next(node for node in onnx.load(folder / "model.onnx").graph.node if node.output[0] == "logits")
    weight = onnx.numpy_helper.to_array(
        next(each for each in onnx.load(folder / "model.onnx").graph.initializer if each.name == head.input[1])
    )
    np.testing.assert_allclose(hidden @ weight, logits, rtol=1e-4, atol=1e-4)  # they are what the logits are made of
    return hidden[0]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_vectors_are_those_before_the_last_product(folder, pooling):
    found = og.Embedder(og.Model(folder), pooling).embed(PROMPTS)
    for tokens, vector in zip(PROMPTS, found, strict=True):
        hidden = vectors(folder, tokens)
        expected = hidden[-1] if pooling == "last" else hidden.mean(0)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), rtol=1e-4, atol=1e-5)


def test_texts_are_ranked_by_their_angles(folder):
    embedder = og.Embedder(og.Model(folder))
    assert embedder.ranked(TEXTS[1], TEXTS)[0] == (1, pytest.approx(1, abs=1e-5))
    scores = [score for _, score in embedder.ranked("a", TEXTS)]
    assert scores == sorted(scores, reverse=True)
    assert embedder.embed([]).size == 0
    for wrong in ([[]], [[999]], [[1] * 129]):
        with pytest.raises(InvalidGeneration):
            embedder.embed(wrong)


def test_a_model_still_generates(folder):
    engines = [og.AsyncEngine(og.Model(each)) for each in (folder, built(folder.name.split("-")[0]))]
    texts = [[piece.token for piece in each.submit([7, 8], og.GenerationOptions(max_tokens=9))] for each in engines]
    assert texts[0] == texts[1]
    for each in engines:
        each.close()


def test_clients_get_vectors_and_ranks():
    model = og.Model(built(has_hidden_states=True))
    expected = og.Embedder(model).embed(TEXTS)
    with TestClient(application(og.AsyncEngine(model), ServerOptions("tiny"))) as client:
        found = client.post("/v1/embeddings", json={"model": "tiny", "input": TEXTS}).json()
        np.testing.assert_allclose([each["embedding"] for each in found["data"]], expected, rtol=1e-6)
        assert found["usage"]["prompt_tokens"] == sum(len(model.text.encode(text)) for text in TEXTS)
        packed = client.post("/v1/embeddings", json={"input": TEXTS[0], "encoding_format": "base64"}).json()
        read = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), np.float32)
        np.testing.assert_allclose(read, expected[0], rtol=1e-6)
        short = client.post("/v1/embeddings", json={"input": TEXTS[0], "dimensions": 8}).json()["data"][0]["embedding"]
        np.testing.assert_allclose(short, expected[0, :8] / np.linalg.norm(expected[0, :8]), rtol=1e-5)
        ranks = client.post("/v1/rerank", json={"query": TEXTS[2], "documents": TEXTS, "top_n": 2}).json()["results"]
        assert ranks[0]["index"] == 2
        assert len(ranks) == 2
        assert client.post("/v1/embeddings", json={"input": [[999]]}).status_code == 400


def test_a_model_without_vectors_says_how_to_get_them():
    model = og.Model(built())
    with pytest.raises(InvalidGeneration, match="--hidden-states"):
        og.Embedder(model)
    with TestClient(application(og.AsyncEngine(model), ServerOptions("tiny"))) as client:
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert (answer.status_code, "--hidden-states" in answer.text) == (501, True)
