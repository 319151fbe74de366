"""The matcher: what patterns find, what they refuse, and what a match tells."""

from __future__ import annotations

from ort_core.ir.model import Model
from ort_core.onnx_io.text import parse_model
from ort_core.passes.normalize import normalize
from ort_core.rewrite.matcher import Match, find_match
from ort_core.rewrite.pattern import Pattern, constant, is_scalar, one_of, op, optional, var


def model_of(body: str, opset: int = 17) -> Model:
    model = parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')
    normalize(model)
    return model


def find(pattern: Pattern, model: Model) -> Match | None:
    found = (find_match(model, pattern, node) for node in model.graph)
    return next((match for match in found if match is not None), None)


def test_pattern_binds_variables_nodes_and_constants() -> None:
    model = model_of("g (float[2] x) => (float[2] y) <float c = {0.5}> { a = Relu(x)  y = Mul(a, c) }")
    match = find(op("Mul", op("Relu", var("x"), name="relu"), constant("c")), model)
    assert match is not None
    assert match["x"].name == "x"
    assert match.node("relu").op_type == "Relu"
    assert match["relu"].name == "a"
    assert match.array("c") == 0.5
    assert match.output.name == "y"
    assert {node.op_type for node in match.nodes} == {"Relu", "Mul"}


def test_commutative_operands_match_in_either_order_even_when_nested() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) <float h = {0.5}, float o = {1.0}>"
        " { e = Erf(x)  a = Add(o, e)  m = Mul(a, x)  y = Mul(h, m) }"
    )
    x = var("x")
    pattern = op("Mul", op("Mul", x, op("Add", op("Erf", x), is_scalar(1.0))), is_scalar(0.5))
    assert find(pattern, model) is not None


def test_subtraction_does_not_match_with_operands_swapped() -> None:
    model = model_of("g (float[2] x) => (float[2] y) <float o = {1.0}> { y = Sub(o, x) }")
    assert find(op("Sub", var("x"), is_scalar(1.0)), model) is None


def test_repeated_variable_must_be_the_same_value() -> None:
    same = model_of("g (float[2] x) => (float[2] y) { y = Mul(x, x) }")
    other = model_of("g (float[2] x, float[2] z) => (float[2] y) { y = Mul(x, z) }")
    pattern = op("Mul", var("x"), var("x"))
    assert find(pattern, same) is not None
    assert find(pattern, other) is None


def test_interior_value_read_outside_blocks_the_match_unless_shared() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] a) { a = Relu(x)  y = Neg(a) }")
    assert find(op("Neg", op("Relu", var("x"))), model) is None
    assert find(op("Neg", op("Relu", var("x"), shared=True)), model) is not None


def test_optional_input_may_be_absent_or_present() -> None:
    pattern = op("Clip", var("x"), optional(constant("low")), optional(constant("high")))
    model = model_of('g (float[2] x) => (float[2] y) <float h = {6.0}> { y = Clip(x, "", h) }')
    match = find(pattern, model)
    assert match is not None
    assert "low" not in match
    assert match.array("high") == 6.0
    assert find(pattern, model_of("g (float[2] x) => (float[2] y) { y = Clip(x) }")) is not None


def test_one_of_binds_whichever_alternative_matched() -> None:
    pattern = op("Neg", one_of(op("Tanh", var("x")), op("Sigmoid", var("x")), name="activation"))
    match = find(pattern, model_of("g (float[2] x) => (float[2] y) { a = Sigmoid(x)  y = Neg(a) }"))
    assert match is not None
    assert match["activation"].name == "a"


def test_attributes_are_compared_or_given_to_a_predicate() -> None:
    model = model_of("g (float[2,3] x) => (float[3,2] y) { y = Transpose<perm=[1,0]>(x) }")
    assert find(op("Transpose", var("x"), attributes={"perm": (1, 0)}), model) is not None
    assert find(op("Transpose", var("x"), attributes={"perm": (0, 1)}), model) is None
    assert find(op("Transpose", var("x"), attributes={"missing": lambda found: found is None}), model) is not None


def test_opset_range_limits_the_pattern() -> None:
    pattern = op("Clip", var("x"), since=11)
    assert find(pattern, model_of("g (float[2] x) => (float[2] y) { y = Clip(x) }", 11)) is not None
    assert find(pattern, model_of("g (float[2] x) => (float[2] y) { y = Clip(x) }", 10)) is None


def test_overridable_initializer_is_no_constant() -> None:
    model = model_of("g (float[2] x, float c = {0.5}) => (float[2] y) { y = Mul(x, c) }")
    assert find(op("Mul", var("x"), constant("c")), model) is None


def test_several_outputs_of_one_pattern_are_found_through_shared_inputs() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x)  y = Neg(a)  z = Tanh(a) }")
    relu = op("Relu", var("x"))
    match = find((op("Neg", relu), op("Tanh", relu)), model)
    assert match is not None
    assert [value.name for value in match.outputs] == ["y", "z"]


def test_second_output_of_a_node_is_its_own_pattern() -> None:
    model = model_of("g (float[4] x) => (float[2] y) { a, b = Split<axis=0>(x)  y = Neg(b) }")
    split = op("Split", var("x"), more_inputs=True)
    assert find(op("Neg", split.output(1)), model) is not None
    assert find(op("Neg", split.output(0)), model) is None
