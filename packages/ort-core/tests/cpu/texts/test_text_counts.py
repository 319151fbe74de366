"""Text pipelines as one native call: against the reference kernels over scripts, cases, cuts and n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import ort_core as ort
from ort_core.cpu.texts.text_counts import TextCounts
from ort_core.cpu.texts.token_runs import TokenRuns, token_runs
from ort_core.plugin import Rejection
from ort_core.plugin.ir import Attribute, AttributeKind, Node
from ort_core.tolerances import compare

STRING = TensorProto.STRING
WORDS = ("red", "Green", "blue", "a", "longer_word", "x1", "ÄRGER", "straße", "ж", "Ж", "日本", "ﬀ", "İ")
GLUE = (" ", ", ", "-", "  ", ".", "\t", "\0", "é")
POOL = ["red", "green", "blue", "a", "x1", "ärger", "ж", "unseen"]
GRAMS = ["red", "green", "green", "blue", "a", "a", "ж", "x1"]
COLUMNS = [3, 0, 1, 2, 9, 4, 5, 8, 6, 7, 10, 11]
TOKENIZER = {"mark": 0, "mincharnum": 1, "pad_value": "#"}
TFIDF = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, len(POOL)],
    "ngram_indexes": COLUMNS, "pool_strings": POOL + GRAMS, "weights": [0.5 * k - 1 for k in range(12)],
}  # fmt: skip


def model_of(
    tokenizer: dict[str, Any], tfidf: dict[str, Any], case: str | None = "LOWER", shape: Sequence[str | int] = ("N",)
) -> ModelProto:
    nodes = []
    last = "x"
    if case is not None:
        nodes.append(helper.make_node("StringNormalizer", [last], ["cased"], case_change_action=case))
        last = "cased"
    nodes += [
        helper.make_node("Tokenizer", [last], ["tokens"], domain="com.microsoft", **{**TOKENIZER, **tokenizer}),
        helper.make_node("Flatten", ["tokens"], ["flat"]),
        helper.make_node("TfIdfVectorizer", ["flat"], ["y"], **{**TFIDF, **tfidf}),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "text", [info("x", STRING, shape)], [info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def texts(seed: int, count: int) -> np.ndarray:
    random = np.random.default_rng(seed)

    def text() -> str:
        parts = random.choice(WORDS, int(random.integers(0, 12))), random.choice(GLUE, 12)
        return "".join(word + glue for word, glue in zip(*parts))

    return np.array([text() for _ in range(count)], object)


def session(model: ModelProto, provider: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(model.SerializeToString(), options, providers=[f"{provider}ExecutionProvider"])


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what each native call did: whether it gave a result."""
    found: list[bool] = []
    original = TextCounts.run

    def spy(self: TextCounts, *arguments: Any) -> list[np.ndarray] | None:
        result = original(self, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(TextCounts, "run", spy)
    return found


def check(model: ModelProto, given: list[bool], every: Sequence[np.ndarray], *, is_native: bool = True) -> None:
    reference, compiled = session(model, "Reference"), session(model, "CPU")
    for strings in every:
        (truth,), (found,) = (each.run(None, {"x": strings}) for each in (reference, compiled))
        assert (found.dtype, found.shape) == (truth.dtype, truth.shape), strings[:2]
        comparison = compare(found, truth, "exact")
        assert comparison.passes, f"{strings[:2]}: {comparison}"
    assert given == [is_native] * len(every), "native calls that gave a result"


CUTS = {
    "words": {"tokenexp": "[a-zA-Z0-9_]+"},
    "words of any script": {"tokenexp": r"\w+"},
    "words of two characters": {"tokenexp": r"\b\w\w+\b"},
    "what is no space": {"tokenexp": r"[^\s]+", "mincharnum": 2},
    "separators": {"separators": [" ", r"\.", "[,-]"]},
    "runs of separators": {"separators": [r"\s+", "-"], "mincharnum": 3},
}


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("case", ["LOWER", "UPPER", "NONE", None])
def test_tokens_are_cut_and_counted_as_by_the_reference(cut: str, case: str | None, given: list[bool]) -> None:
    strings = [texts(seed, count) for seed, count in enumerate((1, 2, 7, 150))]
    plain = np.array(["Red green; red-BLUE a a a", "", "...", "x1 ж"], object)
    check(model_of(CUTS[cut], {}, case), given, [*strings, plain, plain[:1], plain[1:2]])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("shortest", "longest", "skips"), [(1, 1, 0), (1, 2, 0), (2, 2, 1), (1, 3, 2), (3, 3, 5)])
def test_ngrams_are_counted_and_weighed_as_by_the_reference(
    mode: str, shortest: int, longest: int, skips: int, given: list[bool]
) -> None:
    pool = [*POOL, *GRAMS, "red", "green", "blue", "a", "a", "a"]
    attributes = {
        "mode": mode, "min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": skips,
        "pool_strings": pool, "ngram_counts": [0, 8, 16], "ngram_indexes": [*COLUMNS, 13, 5],
        "weights": [float(k) for k in range(14)],
    }  # fmt: skip
    random = np.random.default_rng(7)
    strings = np.array([" ".join(random.choice(pool, int(random.integers(0, 30)))) for _ in range(40)], object)
    check(model_of({"tokenexp": r"\w+"}, attributes), given, [strings])


def test_vocabulary_of_thousands_finds_each_of_its_words(given: list[bool]) -> None:
    random = np.random.default_rng(3)
    words = sorted({"".join(random.choice(list("abcdefgh"), int(random.integers(1, 9)))) for _ in range(5000)})
    attributes = {
        "pool_strings": words, "ngram_counts": [0], "ngram_indexes": list(range(len(words))), "max_gram_length": 1,
        "weights": None,
    }  # fmt: skip
    strings = np.array([" ".join(words), " ".join(word + "z" for word in words), " ".join(words[::-2])], object)
    model = model_of({"tokenexp": "[a-z]+"}, {k: v for k, v in {**TFIDF, **attributes}.items() if v is not None})
    for attribute in list(model.graph.node[-1].attribute):
        if attribute.name == "weights":
            model.graph.node[-1].attribute.remove(attribute)
    check(model, given, [strings])


def test_characters_beyond_the_basic_plane_are_left_to_the_reference(given: list[bool]) -> None:
    strings = np.array(["red 😀 green", "a"], object)
    check(model_of({"tokenexp": r"\w+"}, {}), given, [strings], is_native=False)


def test_lone_surrogates_are_characters_like_others(given: list[bool]) -> None:
    check(model_of({"tokenexp": r"\w+"}, {}), given, [np.array(["red\udc80green", "\ud800"], object)])


def test_rows_of_one_string_are_counted_without_a_normalizer(given: list[bool]) -> None:
    check(model_of({"tokenexp": r"\w+"}, {}, None, ("N", 1)), given, [texts(5, 9).reshape(9, 1)])


def test_several_strings_a_row_are_left_to_the_reference(given: list[bool]) -> None:
    model = model_of({"tokenexp": r"\w+"}, {}, None, ("N", 2))
    check(model, given, [texts(5, 8).reshape(4, 2)], is_native=False)


@pytest.mark.parametrize(
    ("tokenizer", "tfidf"),
    [
        ({"tokenexp": "[a-z]+x"}, {}),
        ({"tokenexp": "red|blue"}, {}),
        ({"tokenexp": r"\w+", "pad_value": "a"}, {}),
        ({"tokenexp": r"\w+", "mark": 1}, {}),
        ({"separators": [", "]}, {}),
        ({"tokenexp": "."}, {}),
    ],
    ids=["sequence", "alternatives", "counted padding", "markers", "long separator", "characters"],
)
def test_pipelines_of_another_kind_run_by_the_reference(
    tokenizer: dict[str, Any], tfidf: dict[str, Any], given: list[bool]
) -> None:
    model = model_of(tokenizer, tfidf)
    reference, compiled = session(model, "Reference"), session(model, "CPU")
    strings = texts(2, 6)
    (truth,), (found,) = (each.run(None, {"x": strings}) for each in (reference, compiled))
    np.testing.assert_array_equal(found, truth)
    assert not given, "no native call is made for it"


def test_a_run_stays_within_the_allocation_limit() -> None:
    options = ort.SessionOptions()
    options.max_allocation_bytes = 1000
    compiled = ort.InferenceSession(
        model_of({"tokenexp": r"\w+"}, {}).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    with pytest.raises(ort.OrtError, match="a text pipeline"):
        compiled.run(None, {"x": np.array(["red"] * 1000, object)})


def tokenizer_of(expression: str, least: int) -> Node:
    attributes = (
        Attribute("tokenexp", AttributeKind.STRING, expression),
        Attribute("mincharnum", AttributeKind.INT, least),
    )
    return Node("Tokenizer", (), 0, attributes={each.name: each for each in attributes})


def test_token_runs_say_which_characters_they_keep() -> None:
    runs = token_runs(tokenizer_of("[^a-c ]+", 2))
    assert runs == TokenRuns(("[^a-c ]",), False, 2)
    assert isinstance(runs, TokenRuns)
    assert runs.members("abcd -") == [False, False, False, True, False, True]


@pytest.mark.parametrize("expression", ["[[:alpha:]]+", "(a)+", "[a", "a+b+", "", "^a+", r"[a-z]{2,}", r"\1+"])
def test_token_runs_refuse_what_is_no_set_of_characters(expression: str) -> None:
    assert isinstance(token_runs(tokenizer_of(expression, 1)), Rejection)
