"""FreeDimensionOverrideTransformer: named dimensions get the sizes that the user fixed.

g (float[N, 3] x)  with N = 8     ->  g (float[8, 3] x), and N is 8 in the type of every other value
"""

from __future__ import annotations

from dataclasses import replace

from ort_core.ir.dims import Dim, SymbolicDim, substitute
from ort_core.ir.graph import Graph
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState


class FreeDimensionOverride(Pass):
    """Put sizes for names, everywhere at once."""

    name = "FreeDimensionOverrideTransformer"
    runs_once = True
    needs_inference = True

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Substitute in the types of all values; a name that no input has is refused."""
        if not context.free_dimensions:
            return
        sizes = dict(context.free_dimensions)
        count = sum(_fix(value, sizes) for graph in context.graphs() for value in _values_of(graph))
        record.changed("fixed dimension", count)
        if count:
            context.infer_types()  # contents of shape values depend on the sizes, too


def _values_of(graph: Graph) -> list[Value]:
    made = [value for node in graph for value in node.present_outputs()]
    return [*graph.inputs, *made]


def _fix(value: Value, sizes: dict[str, int]) -> int:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return 0
    shape = tuple(_substitute(dim, sizes) for dim in value.type.shape)
    if shape == value.type.shape:
        return 0
    value.type = replace(value.type, shape=shape)
    return 1


def _substitute(dim: Dim, sizes: dict[str, int]) -> Dim:
    return substitute(dim, dict(sizes)) if isinstance(dim, SymbolicDim) else dim
