"""How large the expressions of sizes may grow while a model is inferred, so that arithmetic on them costs in bounds."""

from __future__ import annotations

from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import TensorType, ValueType
from ort_core.ops.symbolic_values import SymbolicValue
from ort_core.ops.value_range import in_range

MAX_TOTAL_WEIGHT = 300_000  # of large expressions (``SymbolicDim.weight``): a second of arithmetic on them
_WEIGHT_PER_NODE = 64  # further expressions that each node may make; those of real models weigh under 20
_LIGHT = 8  # an expression that counts for nothing
_HEAVY, _MANY_TERMS = 512, 64  # what is larger is unknown, so that products of the sizes of a shape stay in bounds


class ExpressionBudgetState:
    """The weight of the large expressions of one inference so far, beside what its nodes may make."""

    def __init__(self) -> None:
        self._allowed = MAX_TOTAL_WEIGHT
        self._weight = 0

    def add_node(self) -> None:
        """Allow what one node more may make."""
        self._allowed += _WEIGHT_PER_NODE

    def affordable(self, found: ValueType | None) -> ValueType | None:
        """Forget sizes whose expressions are large, once there were too many of them."""
        if not isinstance(found, TensorType) or found.shape is None:
            return found
        for dim in found.shape:
            if type(dim) is not int:
                break
        else:
            return found  # the common case
        kept = [dim if type(dim) is int else self._kept(dim) for dim in found.shape]
        for dim, before in zip(kept, found.shape):
            if dim is not before:
                return TensorType(found.dtype, tuple(kept))
        return found

    def affordable_elements(self, elements: SymbolicValue | None, found: ValueType | None) -> SymbolicValue | None:
        """Keep of elements what their type can hold, and what arithmetic on them costs in bounds."""
        if elements is None:
            return None
        if isinstance(found, TensorType):
            elements = in_range(elements, found.dtype)
        large = [i for i, e in enumerate(elements.flat) if isinstance(e, SymbolicDim) and self._kept(e) is None]
        if large:
            elements = elements.copy()
            elements.flat[large] = None
        return elements

    def _kept(self, dim: Dim) -> Dim:
        """Return a size, ``None`` where the expression is too large, or the model had more than its share of such."""
        if not isinstance(dim, SymbolicDim) or dim.weight <= _LIGHT:
            return dim
        if dim.weight > _HEAVY or len(dim.terms) > _MANY_TERMS:
            return None
        self._weight += dim.weight
        return dim if self._weight <= self._allowed else None
