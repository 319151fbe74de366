"""Screens: they stop no node at which a search would find the pattern, and most of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ort_core.ir.constants import Constant
from ort_core.onnx_io.text import parse_model
from ort_core.passes.normalize import normalize
from ort_core.rewrite.pattern import Pattern, constant, is_scalar, one_of, op, roots_of, var
from ort_core.rewrite.screens import screen_of


def passes(pattern: Pattern, body: str) -> list[bool]:
    screen = screen_of(roots_of(pattern)[0])
    assert screen is not None
    model = parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}')
    normalize(model)
    return [screen(node) for node in model.graph]


def test_screen_of_alternatives_asks_those_that_begin_at_the_operator() -> None:
    pattern = one_of(op("Add", var("x"), is_scalar(0.0)), op("Sub", var("x"), is_scalar(0.0)))
    body = "g (float[2] x) => (float[2] y) <float o = {0.0}> { a = Sub(o, x)  b = Sub(a, o)  y = Add(o, b) }"
    assert passes(pattern, body) == [False, True, True]


def test_screen_looks_at_the_number_of_elements_and_the_producers_of_operands() -> None:
    pattern = op("Mul", op("Erf", var("x")), is_scalar(0.5))
    body = (
        "g (float[2] x) => (float[2] y) <float h = {0.5}, float[2] v = {0.5, 0.5}>"
        " { e = Erf(x)  a = Mul(h, e)  b = Mul(e, v)  c = Mul(x, h)  y = Sum(a, b, c) }"
    )
    assert passes(pattern, body) == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        (lambda where: op("Add", var("x"), constant("c", where)), 1),
        (lambda where: op("Add", op("Erf", var("x")), constant("c", where)), 0),
        (lambda where: op("Neg", op("Add", var("x"), constant("c", where))), 0),
    ],
)
def test_predicates_are_asked_only_where_a_search_asks_them_first(pattern: Callable[..., Pattern], asked: int) -> None:
    seen: list[Constant] = []

    def where(found: Constant) -> bool:
        seen.append(found)
        return True

    passes(pattern(where), "g (float[2] x) => (float[2] y) <float o = {1.0}> { a = Add(x, o)  y = Neg(a) }")
    assert len(seen) == asked
