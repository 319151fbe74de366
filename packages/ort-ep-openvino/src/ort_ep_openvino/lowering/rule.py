"""Rule: when OpenVINO computes a node of one operator as the specification says.

OpenVINO's own ONNX frontend lowers a node; a rule only says whether the result can be trusted. Rules were measured:
with ONNX's backend cases, and with values near the ends of each element type.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from ort_core.plugin import GraphView, claims
from ort_core.plugin.claims import arity_refusal, first_refusal, held_constant, types_refusal
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_openvino.lowering.sized_view import SizedView

Condition = claims.Condition[SizedView]
"""Returns why a node cannot be trusted to OpenVINO, or ``None``."""

FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16})
BOOL = frozenset({DataType.BOOL})
BYTES = frozenset({DataType.INT8, DataType.UINT8})
SHORTS = frozenset({DataType.INT16, DataType.UINT16})
INDICES = frozenset({DataType.INT32, DataType.INT64})
MOVED = FLOATS | BOOL | BYTES | INDICES
"""What crosses the border to OpenVINO unchanged: int64 too, while its values fit int32 (``Narrowing``)."""

MAX_RANK = 32  # it marks axes by the bits of a word; a model of more does not compile

_EMPTY: Mapping[int, frozenset[DataType]] = MappingProxyType({})

_WHY_NOT = {
    DataType.DOUBLE: "OpenVINO computes float64 as float32",
    DataType.BFLOAT16: "OpenVINO shows bfloat16 tensors as the bits of float16",
    DataType.STRING: "OpenVINO's CPU device has no strings",
    DataType.INT64: "OpenVINO computes int64 as int32, and nothing bounds these values",
    DataType.INT32: "OpenVINO computes this operator over int32 as float32",
    DataType.UINT8: "OpenVINO saturates or rounds where uint8 must wrap around",
    DataType.INT8: "OpenVINO saturates or rounds where int8 must wrap around",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold for one operator.

    Attributes:
        types: element types of inputs and outputs, unless said otherwise for one.
        ports: element types of single inputs, by position.
        results: element types of single outputs, by position.
        conditions: what must hold besides; the first that refuses gives the reason.
        oldest: the oldest opset in which the operator means this.
    """

    types: frozenset[DataType]
    ports: Mapping[int, frozenset[DataType]] = field(default_factory=lambda: _EMPTY)
    results: Mapping[int, frozenset[DataType]] = field(default_factory=lambda: _EMPTY)
    conditions: tuple[Condition, ...] = ()
    oldest: int = 1

    def refusal(self, view: SizedView, node: Node) -> str | None:
        """Return why OpenVINO is not trusted with a node, or ``None``."""
        return (
            arity_refusal(view, node, oldest=self.oldest)
            or types_refusal(node.inputs, self.types, self.ports, value_refusal)
            or types_refusal(node.outputs, self.types, self.results, value_refusal)
            or _empty_refusal(view, node)
            or first_refusal(self.conditions, view, node)
        )


def _empty_refusal(view: GraphView, node: Node) -> str | None:
    """Return which tensor is known to hold no element, or ``None``; constants behind the first input may be empty."""
    first = node.input(0) if node.inputs else None
    read = (v for v in node.present_inputs() if v is first or held_constant(view, v) is None)
    empty = next(
        (v for v in (*read, *node.outputs[:1]) if v is not None and v.shape is not None and 0 in v.shape), None
    )
    if empty is None:
        return None
    return f"{empty.name!r} holds no element; some of OpenVINO's operators then end the process, or give other shapes"


def value_refusal(value: Value, allowed: Set[DataType]) -> str | None:
    """Return why a value cannot be OpenVINO's at that place, or ``None``."""
    kind = value.type
    if not isinstance(kind, TensorType):
        return f"{value.name!r} is {kind or 'of unknown type'}; OpenVINO computes dense tensors"
    if kind.dtype not in allowed:
        why = _WHY_NOT.get(kind.dtype, "OpenVINO does not exchange tensors of this type as they are")
        return f"{value.name!r} is {kind}: {why}"
    if kind.shape is None:
        return f"the rank of {value.name!r} is unknown; OpenVINO's CPU device needs it"
    if len(kind.shape) > MAX_RANK:
        return f"{value.name!r} has {len(kind.shape)} axes; OpenVINO counts {MAX_RANK} at most"
    return None
