"""What callers see of a model, as onnxruntime shows it: inputs as declared, outputs as declared and inferred.

Declared names stay, for programs look for them: ``present_sequence_length`` tells what ``past + seq`` computes.
Inferred sizes take the places of names. Where a declared size contradicts an inferred one, only sizes and names that
both shapes have are shown. Sizes without a name, and sizes that are computed from others, are ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import OptionalType, SequenceType, Shape, SparseTensorType, TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.passes.take_defaults import ShownValues

if TYPE_CHECKING:
    from ort_core.ir.model import Model

_FIRST_WITH_DEFAULTS = 4  # before this version of the IR every initializer had to be an input, and is a constant


@frozen
class DeclaredValues:
    """The types that a model declares, before anything is inferred. ``has_fixed_sizes``: by the session's options."""

    required: tuple[Value, ...]
    overridable: tuple[Value, ...]
    outputs: tuple[Value, ...]
    has_fixed_sizes: bool

    @classmethod
    def of(cls, model: Model, has_fixed_sizes: bool) -> DeclaredValues:
        """Copy what a model declares."""
        inputs = model.graph.inputs
        may_override = model.ir_version >= _FIRST_WITH_DEFAULTS
        return cls(
            _copies(value for value in inputs if value.constant is None),
            _copies(value for value in inputs if value.constant is not None and may_override),
            _copies(model.graph.outputs),
            has_fixed_sizes,
        )

    def shown(self, inferred: ShownValues) -> ShownValues:
        """Return what callers see, given what was inferred for the same values."""
        found = {value.name: value.type for value in inferred.outputs}
        merging = _Merging(_names_in((*self.required, *self.overridable)), self.has_fixed_sizes)
        outputs = (Value(value.name, merging.type(value.type, found.get(value.name))) for value in self.outputs)
        return ShownValues(self.required, self.overridable, tuple(outputs))


def _copies(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(Value(value.name, value.type) for value in values)


def _names_in(values: Iterable[Value]) -> frozenset[str]:
    shapes = (value.type.shape or () for value in values if isinstance(value.type, (TensorType, SparseTensorType)))
    return frozenset(dim.name for shape in shapes for dim in shape if isinstance(dim, SymbolicDim) and dim.name)


@frozen
class _Merging:
    """How the types of one model's outputs are merged.

    Args:
        names: the names of sizes that inputs declare: no others are shown where an output declares none.
        trusts_inferred: whether inferred sizes hold against declared ones.
    """

    names: frozenset[str]
    trusts_inferred: bool

    def type(self, declared: ValueType | None, inferred: ValueType | None) -> ValueType | None:
        """Return a type with the dimensions of both; the kind is the inferred one, which the run gives."""
        if isinstance(inferred, (TensorType, SparseTensorType)):
            known = declared.shape if isinstance(declared, (TensorType, SparseTensorType)) else None
            return type(inferred)(inferred.dtype, self._shape(known, inferred.shape))
        if isinstance(inferred, (SequenceType, OptionalType)):
            inner = declared.element if isinstance(declared, type(inferred)) else None
            element = self.type(inner, inferred.element)
            return inferred if element is None else type(inferred)(element)
        return declared if inferred is None else inferred

    def _shape(self, declared: Shape | None, inferred: Shape | None) -> Shape | None:
        if inferred is None:
            return declared
        if declared is not None and len(declared) == len(inferred):
            if any(
                isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(declared, inferred, strict=True)
            ):
                declared = tuple(a if a == b else None for a, b in zip(declared, inferred, strict=True))
                if not self.trusts_inferred:
                    return declared
            return tuple(self._dim(*dims) for dims in zip(declared, inferred, strict=True))
        return tuple(map(self._inferred, inferred)) if declared is None or self.trusts_inferred else None

    def _dim(self, declared: Dim, inferred: Dim) -> Dim:
        if isinstance(inferred, int):
            return inferred
        return self._inferred(inferred) if declared is None else declared

    def _inferred(self, dim: Dim) -> Dim:
        return dim if not isinstance(dim, SymbolicDim) or dim.name in self.names else None
