"""Emission: operations of a program, appended one by one while nodes are lowered."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Node, SymbolicDim, Value
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.mil import INT32_LIMITS, MIL_TYPES, MilOperation, Operand, Ref

_UNSAFE = re.compile(r"\W", re.ASCII)
_RESERVED = frozenset(
    {
        "any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "string", "bf16", "fp16",
        "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "state",
    }
)  # fmt: skip
"""Words of MIL: coremltools gives what is called so another name."""


class EmissionState:
    """What has been lowered so far.

    Args:
        context: the graph that is lowered.
        taken: names that belong to inputs and outputs of the model.
    """

    def __init__(self, context: LoweringContext, taken: Sequence[str]) -> None:
        self.context = context
        self.operations: list[MilOperation] = []
        self.limits: dict[Value, tuple[int, int]] = {}
        self._taken = {*_RESERVED, *taken}
        self._operands: dict[Value, Operand] = {}
        self._hint = ""

    def begin(self, node: Node) -> None:
        """Name what follows after a node."""
        self._hint = node.name or node.op_type

    def bind(self, value: Value, operand: Operand) -> None:
        """Say what a value is in the program."""
        self._operands[value] = operand

    def operand(self, value: Value | None) -> Operand:
        """Return what a value is in the program; wide integers of constants become int32."""
        assert value is not None, "rules refuse nodes without the inputs that they read"
        if value not in self._operands:
            constant = self.context.constant(value)
            assert constant is not None, f"{value.name!r} is neither computed nor constant"
            self._operands[value] = narrow(constant)
        return self._operands[value]

    def count_on(self, value: Value, lowest: int, highest: int) -> None:
        """Let runs look whether the integers of an input lie within these limits, and those that were said before."""
        low, high = self.limits.get(value, (lowest, highest))
        self.limits[value] = (max(low, lowest), min(high, highest))

    def operands(self, node: Node) -> list[Operand]:
        """Return the operands of all inputs that are present."""
        return [self.operand(value) for value in node.present_inputs()]

    def emit(self, kind: str, **inputs: Operand) -> Ref:
        """Append an operation with one result, and return it."""
        return self.emit_many(kind, 1, **inputs)[0]

    def emit_many(self, kind: str, count: int, **inputs: Operand) -> tuple[Ref, ...]:
        """Append an operation with several results."""
        names = tuple(self.fresh(self._hint or kind) for _ in range(count))
        self.operations.append(MilOperation(kind, inputs, names))
        return tuple(Ref(name) for name in names)

    def fresh(self, hint: str) -> str:
        """Return a name that nothing has: letters, digits and underscores."""
        stem = _UNSAFE.sub("_", hint) or "value"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        name, count = stem, 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def scalar(self, like: Value | None, value: float) -> np.ndarray:
        """Return a number in the element type of a value."""
        dtype = dtype_of(like)
        assert dtype is not None, "rules refuse values without an element type"
        return narrow(np.array(value, dtype.numpy))

    def sizes(self, shape: Sequence[object], source: Value) -> Operand:
        """Return a shape as int32 numbers, its open sizes read from a value that has them; at most one is left open.

        Args:
            shape: sizes that the result has.
            source: a value that is in the program.
        """
        if all(isinstance(size, int) for size in shape):
            return np.array(shape, np.int32)
        if sum(isinstance(size, SymbolicDim) or size is None for size in shape) == 1:
            return np.array([size if isinstance(size, int) else -1 for size in shape], np.int32)
        found = self.emit("shape", x=self.operand(source))
        parts: list[Ref | np.ndarray] = []
        for size in shape:
            if isinstance(size, int):
                parts.append(np.array([size], np.int32))
                continue
            place = list(source.shape or ()).index(size)  # type: ignore[arg-type]  # has_open_sizes was asked
            parts.append(self.emit("slice_by_index", x=found, begin=_ints(place), end=_ints(place + 1)))
        return self.emit("concat", values=tuple(parts), axis=0)

    def reshape(self, source: Operand, shape: Sequence[int]) -> Ref:
        """Append a reshape to numbers."""
        return self.emit("reshape", x=source, shape=np.array(shape, np.int32))


def can_write_sizes(shape: Sequence[object] | None, source: Value | None) -> bool:
    """Return whether ``EmissionState.sizes`` can say a shape."""
    if shape is None or source is None or source.shape is None:
        return False
    left = [size for size in shape if not isinstance(size, int)]
    return len(left) <= 1 or all(size is not None and size in source.shape for size in left)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def narrow(array: np.ndarray) -> np.ndarray:
    """Return an array in an element type of MIL; int64 saturates where a bound means the end."""
    if array.dtype == np.int64:
        return np.asarray(np.clip(array, *INT32_LIMITS), np.int32)
    return array


def mil_type(value: Value | None) -> str:
    """Return the element type of a value in MIL."""
    dtype = dtype_of(value)
    assert dtype is not None, "rules refuse values without an element type"
    return MIL_TYPES[dtype]


def axis_of(node: Node, value: Value | None, default: int, name: str = "axis") -> int:
    """Return an axis of a value, counted from the front."""
    axis = node.int_attribute(name, default)
    return axis + rank_of(value) if axis < 0 else axis


def product(sizes: Sequence[int]) -> int:
    """Return the number of elements."""
    return math.prod(sizes)
