"""Kernels on strings, against Python's own string methods and plain counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.texts import text, tfidf


def strings(*values: str) -> np.ndarray:
    return np.array(values, object)


def context() -> KernelContext:
    return KernelContext("", "", 21, "", (True,), (None,), {}, Unguarded())


def test_string_concat_broadcasts_and_keeps_scalars_arrays() -> None:
    found = text.string_concat(strings("a", "b").reshape(2, 1), strings("x", "y", ""))
    assert found.tolist() == [["ax", "ay", "a"], ["bx", "by", "b"]]
    scalar = text.string_concat(np.array("a", object), np.array("b", object))
    assert scalar.shape == ()
    assert scalar.dtype == object
    assert text.string_concat(np.empty((0, 2), object), strings("x", "y")).shape == (0, 2)


@pytest.mark.parametrize(
    ("delimiter", "maxsplit", "parts", "counts"),
    [
        (",", None, [["a", "b", ""], ["", "", ""], [" c ", "", ""]], [3, 0, 1]),
        (",", 1, [["a", "b,"], ["", ""], [" c ", ""]], [2, 0, 1]),
        (None, None, [["a,b,"], [""], ["c"]], [1, 0, 1]),
        ("", None, [["a,b,"], [""], ["c"]], [1, 0, 1]),
    ],
)
def test_string_split_fills_up_with_empty_strings(
    delimiter: str | None, maxsplit: int | None, parts: list[list[str]], counts: list[int]
) -> None:
    found, count = text.string_split(strings("a,b,", "", " c "), delimiter=delimiter, maxsplit=maxsplit)
    assert found.tolist() == parts
    assert count.tolist() == counts
    assert count.dtype == np.int64


def test_string_split_of_nothing_has_no_parts() -> None:
    found, count = text.string_split(np.empty((2, 0), object))
    assert found.shape == (2, 0, 0)
    assert count.shape == (2, 0)


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        (r"\w+", "abc_1", True),
        (r"\w+", "abç", False),
        (r"(?i)ABC", "abc", True),
        (r"[[:alpha:]]+\d", "ab1", True),
        (r"[^[:digit:]]+", "ab1", False),
        (r"a.c", "a\nc", False),
        (r"(?s)a.c", "a\nc", True),
        (r"abc$", "abc\n", False),
        (r"\Aabc\z", "abc", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"(?P<word>x+)(?<more>y)", "xxy", True),
        (r"[]a]+", "]a", True),
        (r"\x{1F600}", "\U0001f600", True),
        (r"(?i)É", "é", True),
        (r"(?m)^a$\n^b$", "a\nb", True),
        (r"(?U)a+", "aa", True),
        (r"\s", "\v", False),
        (r"[[:space:]]", "\v", True),
        (r"[[:^alpha:]]", "1", True),
        (r"[\W_]+", "a", False),
        (r"[^\W]", "a", True),
        (r"\pL\P{Lu}", "éa", True),
        (r"\D", "5", False),
        (r"x\b y", "x y", True),
        (r"\101\x42", "AB", True),
        (r"[a&&b]+", "a&b", True),
        (r"[a-c-]+", "b-", True),
        ("", "", True),
    ],
)
def test_regex_full_match_follows_re2(pattern: str, value: str, expected: bool) -> None:
    found = text.regex_full_match(strings(value), pattern=pattern)
    assert found.dtype == np.bool_
    assert found.tolist() == [expected]


@pytest.mark.parametrize(
    "pattern",
    ["[a-z", "(", r"(a)\1", "a(?=b)", "(?<!a)b", "a++", "[[:nothing:]]", "a\\", "a**", r"\u0041", r"\h", r"\p{Nope}"],
)
def test_regex_full_match_refuses_what_re2_refuses(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="Invalid regex pattern"):
        text.regex_full_match(strings("a"), pattern=pattern)


def test_string_normalizer_drops_stop_words_then_changes_case() -> None:
    words = strings("Monday", "tuesday", "Straße")
    call = text.string_normalizer
    assert call(words, case_change_action="UPPER", stopwords=("MONDAY",)).tolist() == ["TUESDAY", "STRAßE"]
    kept = call(words, case_change_action="LOWER", is_case_sensitive=1, stopwords=("monday",))
    assert kept.tolist() == ["monday", "tuesday", "straße"]
    assert call(words[None, :1], stopwords=("Monday",)).tolist() == [[""]]
    for shape in ((0,), (2, 1), (1, 1, 1)):
        with pytest.raises(InvalidArgument):
            call(np.full(shape, "a", object))


def count_plainly(row: list[int], gram: tuple[int, ...], max_skip: int) -> int:
    total = 0
    for distance in range(1, 2 if len(gram) == 1 else max_skip + 2):
        for start in range(len(row) - (len(gram) - 1) * distance):
            total += tuple(row[start + distance * k] for k in range(len(gram))) == gram
    return total


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 5).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 4), min_size=width, max_size=width), min_size=1, max_size=3)
    ),
    grams=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), min_size=1, max_size=8, unique=True),
    max_skip=st.integers(0, 2),
    shortest=st.integers(1, 2),
)
def test_tfidf_counts_every_ngram_at_every_skip(
    rows: list[list[int]], grams: list[tuple[int, ...]], max_skip: int, shortest: int
) -> None:
    grams = sorted(grams, key=len)
    starts = [sum(len(gram) for gram in grams if len(gram) < size) for size in (1, 2, 3)]
    found = tfidf.tfidf_vectorizer(
        np.array(rows, np.int64).reshape(len(rows), -1),
        mode="TF",
        min_gram_length=shortest,
        max_gram_length=3,
        max_skip_count=max_skip,
        ngram_counts=tuple(starts),
        ngram_indexes=tuple(range(len(grams))),
        pool_int64s=tuple(token for gram in grams for token in gram),
        ctx=context(),
    )
    expected = [[count_plainly(row, g, max_skip) if len(g) >= shortest else 0 for g in grams] for row in rows]
    assert found.tolist() == expected


def test_tfidf_weighs_counts_and_keeps_the_rank() -> None:
    arguments = {
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": (0,),
        "ngram_indexes": (1, 0),
        "pool_strings": ("a", "b"),
        "weights": (2.0, 3.0),
    }
    words = strings("a", "c", "a")
    assert tfidf.tfidf_vectorizer(words, mode="TFIDF", ctx=context(), **arguments).tolist() == [0, 4]
    assert tfidf.tfidf_vectorizer(words[None], mode="IDF", ctx=context(), **arguments).tolist() == [[0, 2]]
    assert tfidf.tfidf_vectorizer(np.empty((2, 0), object), mode="TF", ctx=context(), **arguments).shape == (2, 2)
