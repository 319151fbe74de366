"""Integers: quotients and remainders by data, powers, shifts of signed integers; and the bits of one type as another.

A divisor of zero is an error, as on the CPU: a kernel over the divisors notes it, and the expression divides by one in
its place. The least integer divided by -1 wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, lift, select
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elements.elementwise import lower_elementwise, refuse_elementwise
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, pointers

_INTEGERS = frozenset({DataType.INT8, DataType.UINT8, DataType.INT32, DataType.INT64})
_UNSIGNED = frozenset({DataType.UINT8})
_BY_ZERO = "a divisor is zero"
_DIVISORS = "if (divisors[i] == 0) *status = node;\n"


def refuse_division(node: Node) -> str | None:
    """Return why Div or Mod is not generated; of integers they always are, and remainders of floats."""
    return None if _is_of_integers(node) or node.op_type == "Mod" else refuse_elementwise(node)


def lower_division(facts: LoweredNode) -> None:
    """Store a quotient or a remainder; a zero among the divisors is noted."""
    if refuse_elementwise(facts.node) is None:
        lower_elementwise(facts)
        return
    if _is_of_integers(facts.node):
        _note_zeros(facts)
    is_quotient, is_c = facts.node.op_type == "Div", facts.node.int_attribute("fmod", 0) == 1
    _define(facts, lambda a, b: quotient(a, b) if is_quotient else remainder(a, b, is_c=is_c))


def _is_of_integers(node: Node) -> bool:
    return all(element_type(value) in _INTEGERS for value in node.present_inputs())


def _note_zeros(facts: LoweredNode) -> None:
    divisors = facts.builder.dense(facts.value(1))
    if not divisors.size:
        return
    parameters = "const @T@* divisors, int* status, int node, long long count"
    kernel = filled("check_divisors", parameters, _DIVISORS, {"T": STORAGE[divisors.dtype]})
    arguments = (*pointers(divisors), *facts.builder.check(facts.node, _BY_ZERO))
    launch = launch_elements(kernel, divisors.size, arguments, [divisors], [])
    facts.builder.add(replace(launch, writes=(facts.builder.status,)))


def quotient(a: Scalar, b: Scalar) -> Scalar:
    """Return ``a / b`` towards zero; 0 divides as 1 does, and -1 by wrapping around."""
    if a.dtype in _UNSIGNED:
        return a / select(binary("eq", b, 0), lift(1, b.dtype), b)
    is_negation = binary("eq", b, -1)
    return select(is_negation, lift(0, a.dtype) - a, a / _safe(b))


def remainder(a: Scalar, b: Scalar, *, is_c: bool) -> Scalar:
    """Return what is left, with the sign of ``a`` as in C, else with that of ``b``."""
    if a.dtype in _UNSIGNED:
        return binary("rem", a, select(binary("eq", b, 0), lift(1, b.dtype), b))
    is_real = a.dtype.is_float
    rest = binary("rem", a, b if is_real else _safe(b))  # by -1 nothing is left, as by 1
    if is_c:
        return rest
    differs = binary("ne", binary("lt", rest, 0), binary("lt", b, 0))
    return select(binary("and", binary("ne", rest, 0), differs), rest + b, rest)


def _safe(b: Scalar) -> Scalar:
    return select(binary("or", binary("eq", b, 0), binary("eq", b, -1)), lift(1, b.dtype), b)


def _define(facts: LoweredNode, meaning: Callable[[Scalar, Scalar], Scalar]) -> None:
    tensors = [facts.tensor(0), facts.tensor(1)]
    shape = broadcast(*(tensor.shape for tensor in tensors))
    wide = [tensor.broadcast_to(shape) for tensor in tensors]
    facts.builder.define(facts.output, combine(wide, lambda roots: meaning(*roots), element_type(facts.output)))


def refuse_shift(node: Node) -> str | None:
    """Return why a shift is not generated: its direction."""
    direction = node.string_attribute("direction", "")
    return None if direction in ("LEFT", "RIGHT") else f"BitShift in the direction {direction!r} is not generated"


def lower_shift(facts: LoweredNode) -> None:
    """Shift bits; a right shift of signed integers keeps the sign, one by all bits leaves what the sign gives."""
    is_left = facts.node.string_attribute("direction", "") == "LEFT"

    def shifted(x: Scalar, amount: Scalar) -> Scalar:
        bits = x.dtype.bits
        is_outside = binary("or", binary("lt", amount, 0), binary("ge", amount, bits))
        by = select(is_outside, lift(0, amount.dtype), amount)
        if is_left:
            return select(is_outside, lift(0, x.dtype), binary("shl", x, by))
        if x.dtype in _UNSIGNED:  # as int, which it is promoted to, it has no sign
            return select(is_outside, lift(0, x.dtype), binary("ashr", x, by))
        return binary("ashr", x, select(is_outside, lift(bits - 1, x.dtype), by))

    _define(facts, shifted)


def refuse_bit_cast(node: Node) -> str | None:
    """Return why bits are not read as another type: one that is not as wide, which is not a valid node."""
    value = node.input(0)
    assert value is not None
    source, target = element_type(value), element_type(node.output)
    return None if source.bits == target.bits else f"{source.text} is not as wide as {target.text}"


def lower_bit_cast(facts: LoweredNode) -> None:
    """View the same memory as another type."""
    x = facts.builder.view(facts.value(0))
    target = element_type(facts.output)
    view = replace(x, dtype=target)
    facts.builder.define(facts.output, LazyTensor.of(view))
