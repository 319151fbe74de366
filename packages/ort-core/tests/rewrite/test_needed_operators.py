"""What a graph must have for a pattern to match anywhere in it."""

from __future__ import annotations

from ort_core.rewrite.pattern import constant, needed_op_types, one_of, op, optional, var


def needed(*groups: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(group.split()) for group in groups)


def test_every_operator_of_a_pattern_is_needed():
    pattern = op("Add", op(("Mul", "Div"), var("x"), constant()), op("Exp", var("x")))
    assert needed_op_types(pattern) == needed("Add", "Mul Div", "Exp")


def test_all_outputs_of_a_pattern_are_needed():
    assert needed_op_types((op("Split", var("x")).output(1), op("Exp", var("x")))) == needed("Split", "Exp")


def test_what_may_be_absent_is_not_needed():
    assert needed_op_types(op("Conv", var("x"), optional(op("Neg", var("b"))))) == needed("Conv")


def test_one_of_several_is_needed_and_what_they_share():
    first, second = op("Add", op("Exp", var("x")), constant()), op("Sub", op("Exp", var("x")), constant())
    assert needed_op_types(op("Abs", one_of(first, second))) == needed("Abs", "Add Sub", "Exp")


def test_nothing_is_needed_where_any_value_will_do():
    assert needed_op_types(op("Abs", one_of(op("Exp", var("x")), var("x")))) == needed("Abs")
