"""Eliminations: operators that do nothing go away, and nothing else does."""

from __future__ import annotations

import pytest
from pass_check import model_of, op_types, run_pass


def fires(name: str, body: str, expected: list[str], opset: int = 17, **options: object) -> None:
    model = model_of(body, opset)
    report = run_pass(name, model, **options)
    assert name in report.counts(), f"{name} did nothing: {[r.rejections for r in report.reports]}"
    assert op_types(model) == expected


def stays(name: str, body: str, opset: int = 17, **options: object) -> None:
    model = model_of(body, opset)
    before = op_types(model)
    report = run_pass(name, model, with_dead_code=False, **options)
    assert name not in report.counts()
    assert op_types(model) == before


def test_identity_is_removed_and_the_output_keeps_its_name() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { a = Identity(x)  b = Relu(a)  y = Identity(b) }")
    run_pass("EliminateIdentity", model)
    assert op_types(model) == ["Relu"]
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_identity_stays_when_the_graph_returns_an_input() -> None:
    stays("EliminateIdentity", "g (float[2] x) => (float[2] y) { y = Identity(x) }")


def test_identity_stays_when_two_outputs_share_a_value() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Identity(y) }")
    run_pass("EliminateIdentity", model)
    assert op_types(model) == ["Relu", "Identity"]


@pytest.mark.parametrize("expression", ["Add(x, c)", "Add(c, x)", "Sub(x, c)", "Mul(x, d)", "Mul(d, x)", "Div(x, d)"])
def test_neutral_arithmetic_is_removed(expression: str) -> None:
    fires(
        "NoopElimination",
        f"g (float[2,3] x) => (float[2,3] y) <float c = {{0.0}}, float[1,3] d = {{1.0, 1.0, 1.0}}>"
        f" {{ r = Relu(x)  t = {expression.replace('x', 'r')}  y = Neg(t) }}",
        ["Relu", "Neg"],
    )


@pytest.mark.parametrize(
    "expression", ["Sub(c, r)", "Div(d, r)", "Add(r, d)", "Mul(r, c)", "Add(r, wide)", "Mul(r, d2)"]
)
def test_arithmetic_that_does_something_stays(expression: str) -> None:
    stays(
        "NoopElimination",
        "g (float[1,3] x) => (float[] y) <float c = {0.0}, float d = {1.0}, float[2,1] wide = {0.0, 0.0},"
        f" float[1,1,1] d2 = {{1.0}}> {{ r = Relu(x)  t = {expression}  y = Neg(t) }}",
    )


def test_neutral_arithmetic_stays_when_the_caller_may_override_the_constant() -> None:
    stays(
        "NoopElimination", "g (float[2] x, float c = {0.0}) => (float[2] y) { r = Relu(x)  t = Add(r, c)  y = Neg(t) }"
    )


def test_relu_is_folded_into_clip() -> None:
    fires(
        "FuseReluClip",
        "g (float[4] x) => (float[4] y) <float low = {-1.0}, float high = {6.0}>"
        " { r = Relu(x)  y = Clip(r, low, high) }",
        ["Clip"],
    )
    fires(
        "FuseReluClip", "g (float[4] x) => (float[4] y) { r = Relu(x)  y = Clip<min=-1.0, max=0.5>(r) }", ["Clip"], 10
    )


def test_relu_stays_when_it_is_read_elsewhere_or_the_bound_is_not_constant() -> None:
    stays("FuseReluClip", "g (float[4] x) => (float[4] y, float[4] r) { r = Relu(x)  y = Clip(r) }")
    stays("FuseReluClip", "g (float[4] x, float low) => (float[4] y) { r = Relu(x)  y = Clip(r, low) }")


def test_dead_nodes_and_initializers_are_removed() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { d = Add(x, w)  e = Neg(d)  y = Relu(x) }"
    )
    run_pass("DeadCodeElimination", model)
    assert op_types(model) == ["Relu"]
    assert not model.graph.initializers
