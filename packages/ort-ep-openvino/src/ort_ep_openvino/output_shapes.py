"""Output shapes: what can be said before a run, from the symbolic sizes of a partition, of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin import OutputPlan, PartitionPlan
from ort_core.plugin.claims import named_sizes, places_of_names
from ort_core.plugin.ir import DataType, Graph, KnownDim, TensorType, Value

Shape = tuple[int, ...]


class OutputShapes:
    """The shapes of a partition's outputs as functions of the shapes of its inputs. Immutable.

    ``is_known`` tells for each output whether its shape follows from those of the inputs; the answer is the same for
    every run. ``dtypes`` are the outputs' element types.
    """

    def __init__(self, graph: Graph) -> None:
        self._places = places_of_names(graph)
        self._dims = tuple(self._knowable(_dims(value)) for value in graph.outputs)
        self.is_known = tuple(dims is not None for dims in self._dims)
        self.dtypes = tuple(dtype_of(value) for value in graph.outputs)

    def evaluate(self, shapes: Sequence[Shape | None]) -> tuple[Shape | None, ...]:
        """Return the shape of each output, ``None`` where it is not known."""
        sizes = named_sizes(shapes, self._places)
        return tuple(None if dims is None else _evaluated(dims, sizes) for dims in self._dims)

    def plan(self, shapes: Sequence[Shape | None]) -> PartitionPlan:
        """Return what a run on inputs of these shapes is planned to give."""
        evaluated = self.evaluate(shapes)
        return PartitionPlan(tuple(OutputPlan(d, s) for d, s in zip(self.dtypes, evaluated, strict=True)))

    def _knowable(self, dims: tuple[KnownDim | None, ...] | None) -> tuple[KnownDim, ...] | None:
        if dims is None:
            return None
        known = tuple(d for d in dims if isinstance(d, int) or (d is not None and d.symbols() <= self._places.keys()))
        return known if len(known) == len(dims) else None


def _dims(value: Value) -> tuple[KnownDim | None, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None


def dtype_of(value: Value) -> DataType:
    """Return the element type of a tensor."""
    assert isinstance(value.type, TensorType), "claims hold nothing else"
    return value.type.dtype


def _evaluated(dims: tuple[KnownDim, ...], sizes: Mapping[str, int]) -> Shape:
    return tuple(dim if isinstance(dim, int) else dim.evaluate(sizes) for dim in dims)
