"""Text classifiers run from strings to labels without the ordinary run's Python, with its results."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import AllocationLimitExceeded

MODEL = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1, "com.microsoft" : 1]>
g (string[%s] X) => (%s label, float[N,2] scores) {
    lower = StringNormalizer <case_change_action = "LOWER"> (X)
    tokens = com.microsoft.Tokenizer <mark = 0, mincharnum = 1, pad_value = "#", tokenexp = "[a-z]+"> (lower)
    counts = TfIdfVectorizer <max_gram_length = 1, min_gram_length = 1, max_skip_count = 0, mode = "TF",
        ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_strings = ["cat", "dog", "owl"]> (tokens)
    e = Exp(counts)
    label, scores = ai.onnx.ml.LinearClassifier <coefficients = [1.0, -0.5, 0.25, -1.0, 0.5, -0.25],
        intercepts = [0.1, -0.1], post_transform = "SOFTMAX", %s> (e)
}"""
INTEGERS = ("N", "int64[N]", "classlabels_ints = [4, 2]")
STRINGS = ("N", "string[N]", 'classlabels_strings = ["yes", "no"]')


def _session(form: tuple[str, str, str] = INTEGERS) -> ort.InferenceSession:
    return ort.InferenceSession(parser.parse_model(MODEL % form).SerializeToString())


def _texts(*texts: str) -> np.ndarray:
    return np.array(texts, object)


def _is_direct(session: ort.InferenceSession, feeds: object) -> bool:
    return session._loaded.direct.call(feeds, None) is not None


def _expected(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array([[text.lower().split().count(word) for word in ("cat", "dog", "owl")] for text in texts])
    scores = np.exp(counts) @ np.array([[1.0, -0.5, 0.25], [-1.0, 0.5, -0.25]]).T + [0.1, -0.1]
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    return shares.argmax(1), shares


@pytest.mark.parametrize(("form", "names"), [(INTEGERS, [4, 2]), (STRINGS, ["yes", "no"])])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_texts_run_directly_whatever_their_lengths(form: tuple[str, str, str], names: list[object], rows: int) -> None:
    session = _session(form)
    random = np.random.default_rng(rows)
    for _ in range(6):
        texts = _texts(
            *(" ".join(random.choice(["cat", "Dog", "owl", "bee"], random.integers(0, 9))) for _ in range(rows))
        )
        label, scores = session.run(None, {"X": texts})
        best, shares = _expected(texts)
        assert label.tolist() == [names[n] for n in best]
        np.testing.assert_allclose(scores, shares, rtol=1e-5, atol=1e-6)
    assert _is_direct(session, {"X": texts})


def test_texts_beyond_ascii_are_direct_and_beyond_the_plane_are_the_references() -> None:
    session = _session()
    for text, is_direct in (("cat häuschen дог dog", True), ("cat \N{OWL} dog dog dog", False)):
        texts = _texts(text)
        for _ in range(4):
            label, _scores = session.run(None, {"X": texts})
            assert label.tolist() == [[4, 2][n] for n in _expected(texts)[0]]
        assert _is_direct(session, {"X": texts}) == is_direct


def test_what_is_no_plain_array_of_strings_is_the_ordinary_runs() -> None:
    session = _session()
    for _ in range(4):
        session.run(None, {"X": _texts("cat dog")})
    assert _is_direct(session, {"X": _texts("cat dog")})
    expected = session.run(None, {"X": _texts("cat dog")})
    for other in (["cat dog"], np.array(["cat dog"]), np.array([b"cat dog"], object)):
        assert not _is_direct(session, {"X": other})
        np.testing.assert_array_equal(session.run(None, {"X": other})[1], expected[1])
    assert not _is_direct(session, {"X": np.array([3], object)})
    assert not _is_direct(session, {"X": np.array(["cat", None], object)})
    for wrong in (np.array([["cat"]], object), np.ones(1)):
        assert not _is_direct(session, {"X": wrong})
        with pytest.raises(ort.OrtError):
            session.run(None, {"X": wrong})
    assert not _is_direct(session, {"X": _texts("cat"), "more": _texts("dog")})
    assert not _is_direct(session, {"Y": _texts("cat")})
    assert not _is_direct(session, {"X": _texts()})


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_a_run_with_a_larger_limit_does_not_lift_the_sessions(threads: int) -> None:
    """What counts is what the rows take: not the scratch that a machine's tiles and threads happen to need."""
    options, larger = ort.SessionOptions(), ort.RunOptions()
    options.intra_op_num_threads = threads
    options.max_allocation_bytes, larger.max_allocation_bytes = 1 << 20, 1 << 30  # the words of 20,000 rows take 1.5 MB
    session = ort.InferenceSession(parser.parse_model(MODEL % INTEGERS).SerializeToString(), options)
    many, few = _texts(*["cat dog"] * 20_000), _texts("cat")
    for _ in range(4):
        session.run(None, {"X": many}, larger)
        session.run(None, {"X": few})
    with pytest.raises(AllocationLimitExceeded):
        session.run(None, {"X": many})
    assert _is_direct(session, {"X": few})


def test_results_are_new_memory_each_time() -> None:
    session = _session()
    for _ in range(4):
        first = session.run(None, {"X": _texts("cat dog")})
    second = session.run(None, {"X": _texts("cat dog")})
    assert not any(np.shares_memory(one, other) for one in first for other in second)
