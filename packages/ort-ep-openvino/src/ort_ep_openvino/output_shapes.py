"""Output shapes: what can be said before a run, from the symbolic sizes of a partition: of its outputs, and within."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin import OutputPlan, PartitionPlan
from ort_core.plugin.ir import DataType, Graph, KnownDim, SymbolicDim, TensorType, Value

Shape = tuple[int, ...]
MAX_ANSWERS = 256  # signatures of shapes whose inner sizes are remembered


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
        sizes = _named_sizes(shapes, self._places)
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


class InnerSizes:
    """Whether a value within a partition has no elements, as far as sizes follow from those of the inputs.

    Some of OpenVINO's operators write beyond their memory then. Safe from threads: an answer is one dict entry.
    """

    def __init__(self, graph: Graph) -> None:
        self._places = places_of_names(graph)
        values = (value for node in graph.nodes for value in node.present_outputs())
        dims = dict.fromkeys(dim for value in values for dim in _dims(value) or () if isinstance(dim, SymbolicDim))
        computed = (dim for dim in dims if dim.name is None)
        self._dims = tuple(dim for dim in computed if dim.symbols() <= self._places.keys())
        self._answers: dict[tuple[Shape, ...], bool] = {}

    def are_all_positive(self, shapes: tuple[Shape, ...]) -> bool:
        """Return whether no size within is known to be 0 in a run on inputs of these shapes."""
        if not self._dims:
            return True
        found = self._answers.get(shapes)
        if found is None:
            sizes = _named_sizes(shapes, self._places)
            found = all(dim.evaluate(sizes) > 0 for dim in self._dims)
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[shapes] = found
        return found


def places_of_names(graph: Graph) -> dict[str, list[tuple[int, int]]]:
    """Return every input and axis of each named size."""
    found: dict[str, list[tuple[int, int]]] = {}
    for index, value in enumerate(graph.inputs):
        for axis, dim in enumerate(_dims(value) or ()):
            if isinstance(dim, SymbolicDim) and dim.name is not None:
                found.setdefault(dim.name, []).append((index, axis))
    return found


def _named_sizes(shapes: Sequence[Shape | None], places: Mapping[str, list[tuple[int, int]]]) -> dict[str, int]:
    return {name: _size(shapes, *found[0]) for name, found in places.items()}


def _dims(value: Value) -> tuple[KnownDim | None, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None


def dtype_of(value: Value) -> DataType:
    """Return the element type of a tensor."""
    assert isinstance(value.type, TensorType), "claims hold nothing else"
    return value.type.dtype


def _size(shapes: Sequence[Shape | None], index: int, axis: int) -> int:
    shape = shapes[index]
    assert shape is not None, "inputs are tensors: claims hold nothing else"
    return shape[axis]


def _evaluated(dims: tuple[KnownDim, ...], sizes: Mapping[str, int]) -> Shape:
    return tuple(dim if isinstance(dim, int) else dim.evaluate(sizes) for dim in dims)
