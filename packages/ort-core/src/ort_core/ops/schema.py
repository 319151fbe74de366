"""OpSchema: the signature of one operator version, as plain facts without any dependence on ``onnx``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType


class ParameterOption(enum.Enum):
    """Whether a formal parameter must be there once, may be absent, or repeats."""

    SINGLE = "single"
    OPTIONAL = "optional"
    VARIADIC = "variadic"


@frozen
class Parameter:
    """A formal input or output. ``type_text`` is a type variable (``T``) or a type such as ``tensor(int64)``."""

    name: str
    type_text: str
    option: ParameterOption = ParameterOption.SINGLE
    is_homogeneous: bool = True
    min_arity: int = 1


@frozen
class AttributeSchema:
    """A declared attribute with its kind, and its default if it has one."""

    name: str
    kind: AttributeKind
    is_required: bool = False
    default: Attribute | None = None


BodyBuilder = Callable[[Node, Sequence[ValueType | None], int, Mapping[str, int]], "Function | Rejection"]
"""``build(node, input_types, opset, imports)``: the opset is that of the node's domain, the imports are the model's."""


@frozen
class OpSchema:
    """One version of an operator.

    ``type_constraints`` maps a type variable to the allowed type texts. ``build_body`` gives the operator's function
    body for a node, where the specification has one, or the operator is a composition of others.
    """

    op_type: str
    domain: str
    since_version: int
    inputs: tuple[Parameter, ...] = ()
    outputs: tuple[Parameter, ...] = ()
    attributes: dict[str, AttributeSchema] = field(default_factory=dict)
    type_constraints: dict[str, frozenset[str]] = field(default_factory=dict)
    is_deprecated: bool = False
    is_deterministic: bool = True
    build_body: BodyBuilder | None = None
    doc: str = ""

    @property
    def min_inputs(self) -> int:
        """The least number of inputs (trailing optional ones left out)."""
        return _least(self.inputs)

    @property
    def max_inputs(self) -> int | None:
        """The greatest number of inputs, ``None`` when the last one repeats."""
        return None if _repeats(self.inputs) else len(self.inputs)

    @property
    def min_outputs(self) -> int:
        """The least number of outputs."""
        return _least(self.outputs)

    @property
    def max_outputs(self) -> int | None:
        """The greatest number of outputs, ``None`` when the last one repeats."""
        return None if _repeats(self.outputs) else len(self.outputs)

    def input_parameter(self, index: int) -> Parameter | None:
        """Return the formal parameter of actual input ``index``, or ``None`` when there are not that many."""
        return _parameter(self.inputs, index)

    def output_parameter(self, index: int) -> Parameter | None:
        """Return the formal parameter of actual output ``index``, or ``None`` when there are not that many."""
        return _parameter(self.outputs, index)


def _least(parameters: tuple[Parameter, ...]) -> int:
    least = 0
    for index, parameter in enumerate(parameters):
        if parameter.option is ParameterOption.SINGLE:
            least = index + 1
        elif parameter.option is ParameterOption.VARIADIC and parameter.min_arity > 0:
            least = index + parameter.min_arity
    return least


def _repeats(parameters: tuple[Parameter, ...]) -> bool:
    return bool(parameters) and parameters[-1].option is ParameterOption.VARIADIC


def _parameter(parameters: tuple[Parameter, ...], index: int) -> Parameter | None:
    if index < len(parameters):
        return parameters[index]
    return parameters[-1] if _repeats(parameters) else None
