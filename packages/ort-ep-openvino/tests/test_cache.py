"""The artefact cache: compiled models are found again, by another key they are not."""

from __future__ import annotations

import numpy as np
import pytest

from ort_ep_openvino import _sdk, compilation
from ort_ep_openvino.provider import OpenVinoExecutionProvider

pytestmark = pytest.mark.usefixtures("sdk")
CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = Exp(x)  y = Tanh(a) }"


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """Let everything be cached, in a folder of the test's own, and count what is compiled."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilation, "MIN_CACHED_NODES", 0)
    monkeypatch.setattr(compilation, "MIN_CACHED_S", 0)
    calls, compile_model = [], _sdk.compile_model

    def counted(*arguments):
        calls.append(arguments)
        return compile_model(*arguments)

    monkeypatch.setattr(_sdk, "compile_model", counted)
    return calls


def test_a_model_that_was_compiled_before_is_not_compiled_again(session, compilations):
    x = np.array([[1, 2, 3, 4]], np.float32)
    results = []
    for _ in range(2):
        with session(CHAIN) as opened:
            results.append(opened.run(None, {"x": x})[0])
    assert len(compilations) == 1
    assert results[0].tolist() == results[1].tolist()


def test_other_options_and_other_graphs_are_compiled_anew(session, compilations):
    session(CHAIN).close()
    session(CHAIN, num_streams="2").close()
    session(CHAIN.replace("Exp", "Sin")).close()
    assert len(compilations) == 3


def test_a_cached_model_that_openvino_does_not_take_is_compiled_anew(session, compilations, monkeypatch):
    session(CHAIN).close()

    def refuse(*arguments):
        raise _sdk.SdkError("import", "written by another version")

    monkeypatch.setattr(_sdk, "import_model", refuse)
    session(CHAIN).close()
    assert len(compilations) == 2


def test_openvinos_own_cache_is_used_where_a_folder_is_given(session, compilations, tmp_path):
    folder = tmp_path / "own"
    session(CHAIN, cache_dir=str(folder)).close()
    assert list(folder.iterdir()), "OpenVINO wrote nothing to its cache_dir"


def test_weights_are_digested_only_where_a_model_of_their_structure_was_stored(session, compilations, monkeypatch):
    digested = []
    monkeypatch.setattr(compilation, "_cache_key", lambda program, mark: digested.append(mark) or mark)
    monkeypatch.setattr(compilation, "MIN_CACHED_S", float("inf"))
    session(CHAIN).close()
    session(CHAIN).close()
    assert not digested
    assert len(compilations) == 2


def test_large_weights_are_stored_only_where_compiling_takes_longer_than_reading_them(
    session, compilations, monkeypatch
):
    weights = ", ".join(["0.5"] * 4096)
    text = f"g (float[n,64] x) => (float[n,64] y) <float[64,64] w = {{{weights}}}> {{ y = MatMul(x, w) }}"
    monkeypatch.setattr(compilation, "CACHED_NBYTES_PER_S", 1e-9)
    for _ in range(2):
        session(text).close()
    assert len(compilations) == 2
    monkeypatch.setattr(compilation, "CACHED_NBYTES_PER_S", float("inf"))
    for _ in range(2):
        session(text).close()
    assert len(compilations) == 3


def test_what_was_asked_before_is_not_asked_again_neither_in_a_session_nor_in_a_later_one(view, monkeypatch, tmp_path):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    asked, unsupported = [], _sdk.unsupported
    monkeypatch.setattr(_sdk, "unsupported", lambda *given: asked.append(given) or unsupported(*given))
    short = view("g (float[n,4] x) => (float[n,4] y) { y = Exp(x) }")
    long = view("g (float[n,4] x) => (float[n,4] y) { a = Exp(x)  b = Tanh(a)  c = Sin(b)  d = Cos(c)  y = Abs(d) }")
    answers = []
    for provider in (OpenVinoExecutionProvider({}), OpenVinoExecutionProvider({})):
        for _ in range(2):
            answers.append([provider.get_capability(short), provider.get_capability(long)])
    assert len(asked) == 3, "the short one once by each provider, the long one once"
    assert all(each == answers[0] for each in answers)


def test_rotary_embeddings_by_tables_of_half_their_width_are_right_when_they_are_loaded_again(session, compilations):
    angles = np.arange(8)[:, None] * np.linspace(0.1, 1, 4)
    x = np.linspace(-2, 2, 48, dtype=np.float32).reshape(1, 2, 3, 8)
    feeds = {"x": x, "p": np.array([[5, 0, 2]])}
    feeds |= {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}
    body = (
        "g (float[b,2,t,8] x, int64[b,t] p, float[8,4] c, float[8,4] s) => (float[b,2,t,8] y) "
        "{ y = com.microsoft.RotaryEmbedding (x, p, c, s) }"
    )
    low, high = x[..., :4], x[..., 4:]
    cos, sin = (feeds[name][feeds["p"]][:, None] for name in "cs")
    expected = np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)
    for _ in range(2):
        with session(body) as opened:
            np.testing.assert_allclose(opened.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)
