"""What constants and fixed sizes alone give goes along with what reads it, and with nothing else. No coremltools."""

from __future__ import annotations

import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import request_for
from ort_ep_coreml.capability import find_capability, program_of
from ort_ep_coreml.options import CoreMlOptions

OPTIONS = CoreMlOptions()


def claimed(found) -> list[list[str]]:
    return [[node.op_type for node in each.nodes] for each in found if isinstance(each, Claim)]


def test_a_constant_node_goes_along_with_the_one_claim_that_reads_it(view):
    context = view("g (float[4] x) => (float[4,1] y) { a = Constant<value = int64[1] {1}>()  y = Unsqueeze(x, a) }")
    (claim,) = find_capability(context, OPTIONS)
    assert [node.op_type for node in claim.nodes] == ["Constant", "Unsqueeze"]
    kinds = [each.kind for each in program_of(request_for(context, claim), OPTIONS).operations]
    assert kinds == ["expand_dims", "identity"], "the constant is an operand, and no operation"


def test_arithmetic_on_fixed_sizes_becomes_constants_of_the_program(view):
    context = view(
        "g (float[2,3] x) => (float[2,3] y) { t = Relu(x)  s = Shape<start=1, end=2>(t)  f = Cast<to=1>(s) "
        "y = Div(t, f) }"
    )
    (claim,) = find_capability(context, OPTIONS)
    assert [node.op_type for node in claim.nodes] == ["Relu", "Shape", "Cast", "Div"]
    operations = program_of(request_for(context, claim), OPTIONS).operations
    assert [each.kind for each in operations] == ["relu", "real_div", "identity"]
    assert operations[1].inputs["y"].tolist() == [3.0]


def test_what_nobody_reads_does_not_keep_a_graph_from_being_claimed_whole(view):
    text = "g (float[2,4] x) => (float[2,4] y) { s = Shape(x)  z = Constant<value_int = 0>()  e = Equal(s, z) "
    found = find_capability(view(text + "y = Relu(x) }"), OPTIONS)
    assert [sorted(each) for each in claimed(found)] == [["Constant", "Equal", "Relu", "Shape"]]
    assert not [each for each in found if isinstance(each, Rejection)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("g (float[4] x) => (float[4] y, float z) { z = Constant<value_float = 2.0>()  y = Mul(x, z) }", "Constant"),
        (
            "g (float[4,4] x) => (float[4,4] y) { z = Constant<value = float[1] {2.0}>()  a = Mul(x, z)  b = Det(a) "
            "y = Mul(b, z) }",
            "Constant",
        ),
        ("g (float[2,4] x) => (float[2,4] y, int64[2] s) { s = Shape(x)  y = Relu(x) }", "Shape"),
    ],
    ids=["an output of the graph", "read by two programs", "sizes that are asked for"],
)
def test_what_others_read_too_is_left_with_the_reason(view, text, left):
    found = find_capability(view(text), OPTIONS)
    reasons = {each.node.op_type: each.reason for each in found if isinstance(each, Rejection)}
    assert "nothing to compute at run time" in reasons[left]
    assert all(left not in names for names in claimed(found))


def test_sizes_of_what_another_provider_computes_stay_behind_it(view):
    context = view(
        'g (float[4,4] x) => (float[4,4] y) { a = Relu(x)  b = Einsum<equation="ii->ii">(a)  s = Shape(b) '
        "f = Cast<to=1>(s)  m = ReduceMax<keepdims=0>(f)  y = Add(a, m) }"
    )
    graph = [node.op_type for node in context.graph]
    for claim in (each for each in find_capability(context, OPTIONS) if isinstance(each, Claim)):
        names = [node.op_type for node in claim.nodes]
        assert not {"Relu", "Shape"} <= set(names), f"{names} of {graph}: a cycle through what lies between"


def test_a_graph_that_computes_of_constants_alone_is_not_claimed(view):
    found = find_capability(view("g (float[2,3] x) => (int64[2] y) { s = Shape(x)  y = Identity(s) }"), OPTIONS)
    assert not claimed(found)


def test_a_constant_that_is_cast_to_the_type_of_an_input_is_known_before_a_run(view):
    context = view("g (float16[4] x) => (float16[4] y) <float o = {1.0}> { t = CastLike(o, x)  y = Add(x, t) }")
    (claim,) = find_capability(context, OPTIONS)
    assert [each.kind for each in program_of(request_for(context, claim), OPTIONS).operations] == ["add", "identity"]
    given = view("g (float16[4] x) => (float16 t) <float o = {1.0}> { t = CastLike(o, x) }")
    assert not claimed(find_capability(given, OPTIONS)), "a program must not give constants"
