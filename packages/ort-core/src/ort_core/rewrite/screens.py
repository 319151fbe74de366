"""Screens: a pattern as a plain predicate that rules out most nodes before anybody searches there.

    op("Mul", op("Erf", var("x")), is_scalar(0.5))  ->  node is a Mul, one operand is an Erf's, the other a constant of
                                                        one element

A screen looks at operators, at where constants are and at how many elements they have. A rule's predicate is asked of
a constant where a search would ask it first of all. Nothing is bound: what a screen lets through may still not match,
what it stops never does. Nearly every node is asked by every rule that can begin at its operator, in every sweep; a
screen is built once for each pattern.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value
from ort_core.rewrite.pattern import (
    ConstantPattern,
    OneOf,
    OpPattern,
    OutputPattern,
    ValuePattern,
    Variable,
    leading_op_types,
)

KEPT = 1024  # patterns with their screens; the pipelines have some two hundred rules

NodeScreen = Callable[[Node], bool]
ValueScreen = Callable[["Value | None"], bool]


@functools.lru_cache(KEPT)
def screen_of(root: ValuePattern) -> NodeScreen | None:
    """Return whether a search for a pattern may begin at a node; ``None`` where it may at any."""
    if isinstance(root, OneOf):
        return _any_node([screen_of(alternative) for alternative in root.alternatives], root)
    first = root.producer if isinstance(root, OutputPattern) else root
    return _of_operator(first, is_root=True) if isinstance(first, OpPattern) else None


def _any_node(screens: list[NodeScreen | None], root: OneOf) -> NodeScreen | None:
    """Return the screen of several patterns, each of which is asked only about nodes of its operators."""
    known = [each for each in screens if each is not None]
    if len(known) < len(screens):
        return None
    by_type: dict[str, list[NodeScreen]] = {}
    for op_type in leading_op_types(root):
        by_type[op_type] = [s for p, s in zip(root.alternatives, known, strict=True) if op_type in leading_op_types(p)]

    def passes(node: Node) -> bool:
        for screen in by_type.get(node.op_type, ()):  # noqa: SIM110 - a generator takes twice as long
            if screen(node):
                return True
        return False

    return passes


@functools.lru_cache(KEPT)
def _of_operator(pattern: OpPattern, *, is_root: bool = False) -> NodeScreen:
    op_types, count = frozenset(pattern.op_types), len(pattern.inputs)
    has_more, is_commutative = pattern.has_more_inputs, pattern.is_commutative
    wanted = [(place, screen) for place, screen in enumerate(map(_of_value, pattern.inputs)) if screen is not None]
    wanted.sort(key=lambda each: not isinstance(pattern.inputs[each[0]], ConstantPattern))  # the quickest ones first
    if is_root and (asked := _asked_first(pattern)) is not None:
        wanted.append(asked)

    def passes(node: Node) -> bool:
        if node.op_type not in op_types:
            return False
        inputs = node.inputs
        given = len(inputs)
        if given > count and not has_more:
            for value in inputs[count:]:
                if value is not None:
                    return False
        for place, screen in wanted:
            if place < given and not screen(inputs[place]):
                break
        else:
            return True
        if not is_commutative or given != 2:
            return False
        for place, screen in wanted:  # noqa: SIM110 - as above
            if place < 2 and not screen(inputs[1 - place]):
                return False
        return True

    return passes


@functools.lru_cache(KEPT)
def _of_value(pattern: ValuePattern) -> ValueScreen | None:
    """Return whether a value may be what a pattern of an operand describes; ``None`` where any may."""
    if isinstance(pattern, OneOf):
        screens = [_of_value(alternative) for alternative in pattern.alternatives]
        known = [each for each in screens if each is not None]
        return _any_value(known) if len(known) == len(screens) else None
    if isinstance(pattern, OpPattern):
        return _made_by(_of_operator(pattern))
    return _constant_of_size(pattern.size) if isinstance(pattern, ConstantPattern) else None


def _asked_first(pattern: OpPattern) -> tuple[int, ValueScreen] | None:
    """Return the predicate that a search asks first, and of which operand: all before it may be any value."""
    for place, operand in enumerate(pattern.inputs):
        if isinstance(operand, ConstantPattern) and operand.where is not None:
            return place, _constant_that(operand.where)
        if not isinstance(operand, Variable) or operand.where is not None:
            return None
    return None


def _any_value(screens: list[ValueScreen]) -> ValueScreen:
    def passes(value: Value | None) -> bool:
        for screen in screens:  # noqa: SIM110 - as above
            if screen(value):
                return True
        return False

    return passes


def _made_by(screen: NodeScreen) -> ValueScreen:
    def passes(value: Value | None) -> bool:
        producer = None if value is None else value.producer
        return producer is not None and screen(producer)

    return passes


def _constant_that(holds: Callable[[Constant], bool]) -> ValueScreen:
    return lambda value: value is not None and value.constant is not None and holds(value.constant)


def _constant_of_size(size: int | None) -> ValueScreen:
    def passes(value: Value | None) -> bool:
        if value is None or value.constant is None or value.is_graph_input:
            return False
        return size is None or value.constant.size == size

    return passes
