"""Rule: how a node of one operator is lowered. It refuses by raising ``Refused``; the tables check what it appends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ort_core.plugin.claims import arity_refusal
from ort_core.plugin.ir import Node, SparseTensorType, TensorType, Value
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import element_type
from ort_ep_directml.lowering.operand import Operand
from ort_ep_directml.lowering.refused import Refused

Lower = Callable[[EmissionState, Node], "Operand | list[Operand]"]
"""Appends the operators of a node, and returns what its outputs are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One operator.

    Attributes:
        lower: appends its operators.
        required: inputs that must be present.
        outputs: how many outputs are lowered; a node that gives more is refused.
        oldest: the oldest opset in which the operator means this.
    """

    lower: Lower
    required: int = 1
    outputs: int = 1
    oldest: int = 1

    def apply(self, to: EmissionState, node: Node) -> list[Operand]:
        """Append a node's operators, and return one operand for each output that is lowered.

        Raises:
            Refused: it cannot be lowered.
        """
        self._check(to, node)
        to.begin(node)
        found = self.lower(to, node)
        return found if isinstance(found, list) else [found]

    def _check(self, to: EmissionState, node: Node) -> None:
        reason = arity_refusal(to.context, node, oldest=self.oldest, required=self.required, outputs=self.outputs)
        if reason is not None:
            raise Refused(reason)
        for value in (*node.present_inputs(), *node.present_outputs()):
            _check_value(to, value)


def _check_value(to: EmissionState, value: Value) -> None:
    kind = value.type
    if not isinstance(kind, TensorType) or isinstance(kind, SparseTensorType):
        raise Refused(f"{value.name!r} is {kind or 'of unknown type'}; DirectML computes dense tensors")
    if element_type(value) is None:
        raise Refused(f"{value.name!r} is {kind}: DirectML has no such element type")
    if kind.shape is None:
        raise Refused(f"the rank of {value.name!r} is not known; DirectML compiles for fixed sizes")
