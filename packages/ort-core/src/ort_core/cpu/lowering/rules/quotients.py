"""Div and Mod of integers by integers that only the run knows: a look for zeros, then quotients that cannot trap.

Up to 32 bits the quotient of the next wider float, cut towards zero, is exact: two whole numbers of n bits that do not
divide are at least one part in 2**2n away from the next whole quotient, and vectors of floats divide, of integers not.
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.nests.zero_check import zero_check_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.rules.elementwise import elementwise
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import count_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, cast, lift, select

_WIDER = {**dict.fromkeys((8, 16), DataType.FLOAT), 32: DataType.DOUBLE}  # floats that hold quotients of so many bits
_SIGNED = frozenset({DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64})


def divide(lowering: Lowering, node: Node) -> None:
    """Div of any type; what is divided by a constant other than 0 and -1 needs no look."""
    _whole(lowering, node, _quotient)


def remainder(lowering: Lowering, node: Node) -> None:
    """Mod of any type, as Div."""
    _whole(lowering, node, _of_dividend if node.int_attribute("fmod", 0) else _of_divisor)


def _whole(lowering: Lowering, node: Node, form: Callable[[Scalar, Scalar], Scalar]) -> None:
    """Lower Div or Mod of integers by a form that never traps, behind a look for zeros; others are elementwise."""
    dtype, shape = tensor_type(node.output)
    divisor = node.input(1)
    known = lowering.constant_of(divisor)
    if divisor is None or not dtype.is_integer or (known is not None and known.size == 1):
        elementwise(lowering, node)
        return
    if lowering.opset_of(node) < 7:
        raise NotLowered("before opset 7 operands were aligned otherwise")
    below = lowering.contiguous(divisor)
    name, function = zero_check_kernel(below.dtype.bits)
    lowering.emit(
        KernelText(name, function), (pointer(below), Pointer(lowering.error_buffer()), count_of(below.shape)),
        (below.buffer,), (), count_of(below.shape), ("ZeroCheck",),
    )  # fmt: skip
    given = [value for value in node.inputs if value is not None]
    for value in given:
        if isinstance(lowering.pending(value), PendingAnchor):
            lowering.view(value)  # no product computes quotients as it stores
    state, (a, b) = lowering.operands.fuse(node, given, shape)
    lowering.set(node.output, PendingElementwise(form(a, b), tuple(state.inputs), shape, (node,)))


def _quotient(a: Scalar, b: Scalar) -> Scalar:
    """Return a quotient towards zero: of what would be divided by 0 anything, by -1 the negative, which may wrap."""
    dtype = a.dtype
    is_unsafe = binary("eq", b, 0)
    if dtype in _SIGNED:
        is_unsafe = binary("or", is_unsafe, binary("eq", b, -1))
    safe = select(is_unsafe, 1, b, dtype)
    wider = _WIDER.get(dtype.bits)
    if wider is None:
        quotient = a / safe
    elif dtype.bits < 32:
        quotient = cast(cast(cast(a, wider) / cast(safe, wider), DataType.INT32), dtype)
    else:
        quotient = cast(cast(cast(a, wider) / cast(safe, wider), DataType.INT64), dtype)
    return select(binary("eq", b, -1), binary("sub", lift(0, dtype), a), quotient) if dtype in _SIGNED else quotient


def _of_dividend(a: Scalar, b: Scalar) -> Scalar:
    """Return a remainder with the sign of what is divided."""
    return a - _quotient(a, b) * b


def _of_divisor(a: Scalar, b: Scalar) -> Scalar:
    """Return a remainder with the sign of what it is divided by, as Python's ``%``."""
    rest = _of_dividend(a, b)
    if a.dtype not in _SIGNED:
        return rest
    differs = binary("lt", binary("xor", rest, b), 0)
    return select(binary("and", binary("ne", rest, 0), differs), rest + b, rest)
