"""Rule: how a node of one operator is lowered, and what must hold for the program to mean what ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from ort_core.plugin import claims
from ort_core.plugin.claims import arity_refusal, first_refusal, types_refusal
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext
from ort_ep_coreml.mil import INT32_LIMITS, MAX_RANK, Operand

Lower = Callable[[EmissionState, Node], "Operand | list[Operand]"]
"""Appends the operations of a node, and returns what its outputs are."""
Condition = claims.Condition[LoweringContext]
"""Returns why a node cannot be lowered, or ``None``."""

FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16})
INTS = frozenset({DataType.INT32, DataType.INT64})
NARROW = frozenset({DataType.INT8, DataType.UINT8})
BOOL = frozenset({DataType.BOOL})
NUMBERS = FLOATS | INTS
MOVED = NUMBERS | BOOL

_EMPTY: Mapping[int, frozenset[DataType]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rule:
    """One operator.

    Attributes:
        lower: appends its operations.
        types: element types of inputs and outputs, unless said otherwise for one.
        ports: element types of single inputs, by position.
        results: element types of single outputs, by position.
        beforehand: inputs whose values are read while lowering: constants, of whatever element type.
        conditions: what must hold besides; the first that refuses gives the reason.
        of_constants: whether it computes of constants alone, which then stay as narrow as they are; and element types
            that its first input may have as a constant only.
        required: inputs that must be present.
        outputs: how many outputs are lowered; a node that gives more is refused.
        oldest: the oldest opset in which the operator means this.
    """

    lower: Lower
    types: frozenset[DataType] = FLOATS
    ports: Mapping[int, frozenset[DataType]] = field(default_factory=lambda: _EMPTY)
    results: Mapping[int, frozenset[DataType]] = field(default_factory=lambda: _EMPTY)
    beforehand: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    of_constants: frozenset[DataType] | None = None
    required: int = 1
    outputs: int = 1
    oldest: int = 1

    def refusal(self, context: LoweringContext, node: Node) -> str | None:
        """Return why a node is not lowered, or ``None``."""
        reason = arity_refusal(context, node, oldest=self.oldest, required=self.required, outputs=self.outputs)
        reason = reason or self._value_refusal(context, node)
        if reason is not None:
            return reason
        if self.of_constants is None and all(context.constant(value) is not None for value in node.present_inputs()):
            return "there is nothing to compute at run time: every input is constant"
        return first_refusal(self.conditions, context, node)

    def _value_refusal(self, context: LoweringContext, node: Node) -> str | None:
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if index in self.beforehand:
                if context.constant(value) is None:
                    return f"input {index} ({value.name!r}) is not a constant; Core ML needs its values beforehand"
                continue
            allowed = self.ports.get(index, self.types)
            if self.of_constants and index == 0 and context.constant(value) is not None:
                allowed |= self.of_constants
            reason = value_refusal(context, value, allowed)
            if reason is not None:
                return reason
        return types_refusal(node.outputs, self.types, self.results, partial(value_refusal, context))


def value_refusal(context: LoweringContext, value: Value, allowed: Set[DataType]) -> str | None:
    """Return why a value cannot be one of a Core ML program at that place, or ``None``."""
    kind = value.type
    if not isinstance(kind, TensorType):
        return f"{value.name!r} is {kind or 'of unknown type'}; Core ML computes dense tensors"
    if kind.dtype not in allowed:
        return f"{value.name!r} is {kind}: not an element type that Core ML computes this operator in"
    if kind.shape is None:
        return f"the rank of {value.name!r} is unknown; Core ML needs it"
    if len(kind.shape) > MAX_RANK:
        return f"{value.name!r} has rank {len(kind.shape)}; Core ML has tensors of at most {MAX_RANK} dimensions"
    if 0 in kind.shape:
        return f"{value.name!r} holds no element; Core ML has no empty tensors"
    return _width_refusal(context, value) if kind.dtype is DataType.INT64 else None


def _width_refusal(context: LoweringContext, value: Value) -> str | None:
    if value in context.outside or context.constant(value) is not None:
        return None  # looked at before each run; bounds in constants are saturated, other uses ask for more
    found = context.interval(value)
    if found is not None and INT32_LIMITS[0] <= found[0] and found[1] <= INT32_LIMITS[1]:
        return None
    return f"{value.name!r} is int64, which Core ML computes as int32, and nothing proves that its values fit"
