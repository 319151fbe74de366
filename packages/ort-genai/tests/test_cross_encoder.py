"""Pairs of texts are scored as transformers scores them, alone and in batches, and the server ranks by them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from genai_built import built
from genai_pair_models import PAIRS, QUERY, TEXTS, write_pair_checkpoint
from starlette.testclient import TestClient

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration, InvalidModelFolder
from ort_genai.server.app import ServerOptions, application

EXPECTED = json.loads(Path(__file__).with_name("expected_pairs.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=list(PAIRS))
def family(request):
    return request.param


@pytest.fixture(scope="module")
def source(family, tmp_path_factory):
    return write_pair_checkpoint(tmp_path_factory.mktemp(family) / "source", family)


@pytest.fixture(scope="module")
def folder(source):
    build(source, source.parent / "built", BuildOptions(Precision.FP32))
    return source.parent / "built"


def test_scores_are_transformers_together_and_alone(folder, family):
    encoder = og.CrossEncoder(folder)
    expected = np.array(EXPECTED[family])
    assert np.ptp(expected) > 0.03
    np.testing.assert_allclose(encoder.score(QUERY, TEXTS), expected, rtol=1e-4, atol=1e-5)
    alone = [encoder.score(QUERY, [text])[0] for text in TEXTS]
    np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-5)
    assert [place for place, _ in encoder.ranked(QUERY, TEXTS)] == np.argsort(-expected, kind="stable").tolist()
    assert encoder.score(QUERY, []).shape == (0,)


def test_a_folder_as_exporters_write_it_is_read(folder, family, tmp_path):
    for file in folder.iterdir():
        target = tmp_path / ("onnx" if file.name.startswith("model.onnx") else ".") / file.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
    np.testing.assert_allclose(og.CrossEncoder(tmp_path).score(QUERY, TEXTS[:2]), EXPECTED[family][:2], rtol=1e-4)


def test_eight_bits_score_nearly_the_same(source, family, tmp_path):
    build(source, tmp_path / "int8", BuildOptions(Precision.INT8))
    np.testing.assert_allclose(og.CrossEncoder(tmp_path / "int8").score(QUERY, TEXTS), EXPECTED[family], atol=0.02)


def test_what_cannot_be_read_is_refused(folder, tmp_path):
    with pytest.raises(InvalidGeneration, match="no room for a document"):
        og.CrossEncoder(folder).score("the river " * 99, TEXTS)
    with pytest.raises(InvalidModelFolder, match="has neither"):
        og.CrossEncoder(tmp_path)
    with pytest.raises(InvalidModelFolder, match="logits of a pair"):
        og.CrossEncoder(built())


def test_the_server_ranks_by_the_pair(folder, family):
    with og.AsyncEngine(og.Model(built())) as engine:
        client = TestClient(application(engine, ServerOptions("tiny"), og.CrossEncoder(folder)))
        found = client.post("/v1/rerank", json={"query": QUERY, "documents": list(TEXTS), "top_n": 2}).json()
        long = client.post("/v1/rerank", json={"query": "the river " * 99, "documents": ["on"]})
    best = np.argsort(-np.array(EXPECTED[family]), kind="stable")[:2].tolist()
    assert [each["index"] for each in found["results"]] == best
    assert found["results"][0]["relevance_score"] == pytest.approx(EXPECTED[family][best[0]], rel=1e-4)
    assert (long.status_code, "no room" in long.json()["error"]["message"]) == (400, True)
