"""Symbolic dimensions: the algebra agrees with integers for every assignment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ort_core.ir.dims import (
    MAX_MEETING,
    KnownDim,
    SymbolicDim,
    broadcast,
    ceil_div,
    evaluate,
    floor_div,
    maximum,
    minimum,
    modulo,
    substitute,
)

N, M = SymbolicDim.named("n"), SymbolicDim.named("m")


def test_equal_polynomials_compare_equal_whatever_way_they_were_built() -> None:
    assert (N + 1) * 2 == 2 * N + 2
    assert hash((N + 1) * (M + 1)) == hash(N * M + M + N + 1)
    assert N - N == 0
    assert (N * M * 4) // (2 * N) == 2 * M
    assert (4 * N + 7) // 4 == N + 1
    assert ((N + 1) * 2) // (N + 1) == 2


def test_extremes_are_decided_when_sizes_prove_them() -> None:
    assert maximum(N, N + 3) == N + 3
    assert minimum(N + M, N) == N
    assert str(maximum(N, M)) == "max(m, n)"


def test_extremes_of_what_may_be_negative_stay() -> None:
    for may_be_negative in (minimum(N - M, 3), floor_div(N - M, 2), minimum(N - M, N)):
        assert evaluate(maximum(may_be_negative, 0), {"n": 1, "m": 6}) == 0
        assert evaluate(minimum(may_be_negative, 0), {"n": 1, "m": 6}) < 0
        assert evaluate(maximum(2 * may_be_negative, may_be_negative), {"n": 1, "m": 6}) < 0
    assert maximum(maximum(N - M, 0), 0) == maximum(N - M, 0)
    assert maximum(modulo(N - M, 4), 0) == modulo(N - M, 4)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[KnownDim, object]:
    """A dimension and the same computation over plain integers."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.sampled_from(["n", "m", 0, 1, 2, 5]))
        return (SymbolicDim.named(leaf), lambda s: s[leaf]) if isinstance(leaf, str) else (leaf, lambda s: leaf)
    left, f = draw(expressions(depth - 1))
    right, g = draw(expressions(depth - 1))
    operation = draw(st.sampled_from(["+", "-", "*", "//", "%", "max", "min", "ceil"]))
    divisor = draw(st.integers(1, 6))
    return {
        "+": (left + right, lambda s: f(s) + g(s)),
        "-": (left - right, lambda s: f(s) - g(s)),
        "*": (left * right, lambda s: f(s) * g(s)),
        "//": (floor_div(left, divisor), lambda s: f(s) // divisor),
        "%": (modulo(left, divisor), lambda s: f(s) % divisor),
        "max": (maximum(left, right), lambda s: max(f(s), g(s))),
        "min": (minimum(left, right), lambda s: min(f(s), g(s))),
        "ceil": (ceil_div(left, divisor), lambda s: -(-f(s) // divisor)),
    }[operation]


@given(expressions(), st.integers(0, 9), st.integers(0, 9))
def test_arithmetic_agrees_with_integers(drawn: tuple[KnownDim, object], n: int, m: int) -> None:
    dim, compute = drawn
    sizes = {"n": n, "m": m}
    assert evaluate(dim, sizes) == compute(sizes)  # type: ignore[operator]  # a function of the sizes
    assert substitute(dim, sizes) == compute(sizes)  # type: ignore[operator]  # as above


@given(expressions(), st.integers(0, 9), st.integers(0, 9))
def test_python_reads_the_text_as_the_dimension_that_it_is_of(drawn: tuple[KnownDim, object], n: int, m: int) -> None:
    dim, compute = drawn
    known = {"n": n, "m": m, "broadcast": lambda *sizes: next((size for size in sizes if size != 1), 1)}
    assert eval(str(dim), known) == compute({"n": n, "m": m})  # type: ignore[operator]  # a function of the sizes


@st.composite
def meetings(draw: st.DrawFn) -> tuple[KnownDim, object]:
    """What meets itself at half and twice its size again and again, and what numbers do there, if they meet."""
    dim, steps = N, draw(st.lists(st.sampled_from(["half", "twice", "first"]), min_size=2, max_size=8))

    def other(step: str, size: KnownDim, first: KnownDim) -> KnownDim:
        return {"half": ceil_div(size, 2), "twice": 2 * ceil_div(size, 2), "first": first}[step]

    def compute(first: int) -> int | None:
        size = first
        for step in steps:
            beside = other(step, size, first)
            if size not in (beside, 1) and beside != 1:
                return None
            size = beside if size == 1 else size
        return size

    for step in steps:
        dim = broadcast(dim, other(step, dim, N))
    return dim, compute


@given(meetings(), st.integers(0, 9))
def test_sizes_that_meet_have_the_size_that_numbers_have_where_they_do(drawn: tuple[KnownDim, object], n: int) -> None:
    dim, compute = drawn
    size = compute(n)  # type: ignore[operator]  # a function of the size
    assert size is None or evaluate(dim, {"n": n}) == size


def test_sizes_that_meet_often_stay_small() -> None:
    scales = [N, ceil_div(N, 2), ceil_div(ceil_div(N, 2), 2)]
    for _ in range(20):
        fine = broadcast(broadcast(scales[0], 2 * scales[1]), 4 * scales[2])
        middle = broadcast(broadcast(ceil_div(scales[0], 2), scales[1]), 2 * scales[2])
        coarse = broadcast(broadcast(ceil_div(ceil_div(scales[0], 2), 2), ceil_div(scales[1], 2)), scales[2])
        scales = [fine, middle, coarse]
    assert all(isinstance(scale, SymbolicDim) and scale.weight <= 2 * MAX_MEETING for scale in scales)


def test_quotients_that_differ_have_texts_that_differ() -> None:
    halves = floor_div(M, 2)
    assert str(floor_div(N, halves)) == "n//(m//2)"
    assert str(floor_div(floor_div(N, M), 2)) in ("n//m//2", "n//(2*m)")
    assert str(2 * floor_div(N, 3) * halves) == "2*(m//2)*(n//3)"
    assert str(halves * halves) == "(m//2)**2"
    assert str(modulo(N, halves)) == "n%(m//2)"


def test_names_that_read_like_expressions_are_quoted_within_them() -> None:
    odd = SymbolicDim.named("n//2")
    assert str(odd) == "n//2"
    assert str(odd + 1) == "'n//2' + 1"
    assert str(2 * odd) == "2*'n//2'"
    assert str(floor_div(odd, 2)) == "'n//2'//2"
    assert str(maximum(odd, M)) == "max(m, 'n//2')"
    assert str(floor_div(M, odd)) == "m//'n//2'"
    assert str(SymbolicDim.named("batch.size") * 2) == "2*batch.size"
