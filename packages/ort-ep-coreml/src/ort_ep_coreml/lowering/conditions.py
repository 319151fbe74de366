"""Conditions that rules of several families share. Each returns the reason of a refusal, or ``None``."""

from __future__ import annotations

from ort_core.plugin.claims import attribute_refusal, dtype_of, is_static
from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import INTS, Condition
from ort_ep_coreml.mil import INT32_LIMITS


def only_outputs(*positions: int) -> Condition:
    """Refuse when another output is named."""

    def check(context: LoweringContext, node: Node) -> str | None:
        named = [place for place, value in enumerate(node.outputs) if value is not None and place not in positions]
        return f"output {named[0]} of {node.op_type} is not lowered" if named else None

    return check


def only_attributes(**allowed: object) -> Condition:
    """Refuse attributes whose value is not the one given; strings are compared as text."""

    def check(context: LoweringContext, node: Node) -> str | None:
        found = attribute_refusal(node, {name: (wanted,) for name, wanted in allowed.items()})
        return None if found is None else f"{node.op_type} with {found} is not lowered"

    return check


def known_attributes(*names: str) -> Condition:
    """Refuse attributes that are none of these: a later version may give an operator another meaning by one."""

    def check(context: LoweringContext, node: Node) -> str | None:
        others = sorted(set(node.attributes) - set(names))
        return f"{node.op_type} with the attribute {others[0]!r} is not lowered" if others else None

    return check


def ranks(low: int, high: int) -> Condition:
    """Refuse when the first input has less or more dimensions."""

    def check(context: LoweringContext, node: Node) -> str | None:
        rank = rank_of(node.input(0))
        return None if low <= rank <= high else f"input 0 has rank {rank}; Core ML takes {low} to {high} here"

    return check


def static_inputs(*positions: int) -> Condition:
    """Refuse when a size of these inputs is open."""

    def check(context: LoweringContext, node: Node) -> str | None:
        for position in positions:
            value = node.input(position)
            if value is not None and not is_static(value):
                return f"the sizes of {value.name!r} are not all known beforehand"
        return None

    return check


def lies_within(context: LoweringContext, value: Value, lowest: int, highest: int) -> bool:
    """Return whether integers are proven to lie within limits (inclusive), or are looked at before each run.

    Those of constants are neither of the claim's inputs nor looked at: they are proven or refused.
    """
    found = context.interval(value)
    if found is not None and lowest <= found[0] and found[1] <= highest:
        return True
    given = looked_at(value)
    return given in context.outside and context.constant(given) is None


def looked_at(value: Value) -> Value:
    """Return the value whose integers another one holds: the one that was converted to it."""
    while value.producer is not None and value.producer.op_type == "Cast" and dtype_of(value) in INTS:
        source = value.producer.input(0)
        if source is None or dtype_of(source) not in INTS:
            break
        value = source
    return value


def may_be_negative(context: LoweringContext, node: Node) -> bool:
    """Return whether nothing proves that all integers which a node reads are at least 0."""
    found = [context.interval(value) for value in node.present_inputs() if dtype_of(value) in INTS]
    return any(interval is None or interval[0] < 0 for interval in found)


def constants_fit(context: LoweringContext, node: Node) -> str | None:
    """Refuse constants of int64 beyond int32, where they are no bounds but values."""
    for value in node.present_inputs():
        array = context.constant(value) if dtype_of(value) in INTS else None
        if array is not None and array.size and not INT32_LIMITS[0] <= array.min() <= array.max() <= INT32_LIMITS[1]:
            return f"the constant {value.name!r} holds values beyond int32"
    return None
