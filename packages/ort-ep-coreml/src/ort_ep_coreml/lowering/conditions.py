"""Conditions that rules of several families share. Each returns the reason of a refusal, or ``None``."""

from __future__ import annotations

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, dtype_of, is_static, rank_of
from ort_ep_coreml.lowering.rule import INTS, Condition
from ort_ep_coreml.mil import INT32_LIMITS


def constant_inputs(*positions: int) -> Condition:
    """Refuse when one of these inputs is present and not a constant."""

    def check(asked: Asked, node: Node) -> str | None:
        for position in positions:
            value = node.input(position)
            if value is not None and asked.constant(value) is None:
                return f"input {position} ({value.name!r}) is no constant; Core ML needs its values beforehand"
        return None

    return check


def only_attributes(**allowed: object) -> Condition:
    """Refuse attributes whose value is not the one given; strings are compared as text."""

    def check(asked: Asked, node: Node) -> str | None:
        for name, wanted in allowed.items():
            found = node.attribute(name, wanted)
            text = found.decode() if isinstance(found, bytes) else found
            if text != wanted:
                return f"{node.op_type} with {name}={text!r} is not lowered"
        return None

    return check


def ranks(low: int, high: int) -> Condition:
    """Refuse when the first input has less or more dimensions."""

    def check(asked: Asked, node: Node) -> str | None:
        rank = rank_of(node.input(0))
        return None if low <= rank <= high else f"input 0 has rank {rank}; Core ML takes {low} to {high} here"

    return check


def static_inputs(*positions: int) -> Condition:
    """Refuse when a size of these inputs is open."""

    def check(asked: Asked, node: Node) -> str | None:
        for position in positions:
            value = node.input(position)
            if value is not None and not is_static(value):
                return f"the sizes of {value.name!r} are not all known beforehand"
        return None

    return check


def static_outputs(asked: Asked, node: Node) -> str | None:
    """Refuse when a size of the result is open."""
    if is_static(node.outputs[0]):
        return None
    return f"the sizes of the result of {node.op_type} are not all known beforehand"


def nonnegative_integers(asked: Asked, node: Node) -> str | None:
    """Refuse integers that are not proven to be at least 0: ONNX rounds quotients towards 0, MIL downwards."""
    for value in node.present_inputs():
        found = asked.interval(value) if dtype_of(value) in INTS else (0, 0)
        if found is None or found[0] < 0:
            return f"{value.name!r} may be negative: Core ML rounds integer quotients downwards, ONNX towards zero"
    return None


def constants_fit(asked: Asked, node: Node) -> str | None:
    """Refuse constants of int64 beyond int32, where they are no bounds but values."""
    for value in node.present_inputs():
        array = asked.constant(value) if dtype_of(value) in INTS else None
        if array is not None and array.size and not INT32_LIMITS[0] <= array.min() <= array.max() <= INT32_LIMITS[1]:
            return f"the constant {value.name!r} holds values beyond int32"
    return None
