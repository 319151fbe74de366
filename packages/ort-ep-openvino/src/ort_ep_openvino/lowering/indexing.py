"""Operators that read by index: OpenVINO checks some of them, and reads zeros or other memory in the rest.

Where it does not check, an index is proven to lie in its axis, or comes in from outside of the claim, perhaps through
operators that only move it, and is looked at before each run (``narrowing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin import GraphView
from ort_core.plugin.claims import held_bounds
from ort_core.plugin.ir import KnownDim, Node, TensorType, Value
from ort_ep_openvino.lowering.rule import INDICES, MOVED, Rule
from ort_ep_openvino.lowering.sized_view import SizedView

INDEX = 1  # the input that holds indices
_MOVING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that hand on all elements of their first input and no others."""


def _in_its_axis(view: SizedView, node: Node) -> str | None:
    indices, axes = node.input(INDEX), indexed_axes(node)
    assert indices is not None, "the input is required"
    if not axes:
        return "a size that its indices go by is not known before a run; OpenVINO does not check indices"
    if _is_proven(view, node, indices, [view.least_size(size) for size in axes]):
        return None
    is_one_number = isinstance(axes[0], int) and len(set(axes)) == 1
    if is_one_number and _comes_from_outside(view, source_of(indices)):
        return None
    if not all(isinstance(size, int) for size in axes):
        return "nothing proves that its indices lie in an axis whose size is open; OpenVINO does not check them"
    return "nothing proves that its indices lie in their axis; OpenVINO does not check them, and reads other memory"


def _is_proven(view: SizedView, node: Node, indices: Value, least: Sequence[int]) -> bool:
    """Return whether indices lie in axes of these sizes and larger ones, joined columns each in its own."""
    if _lies_within(held_bounds(view, indices), min(least)):
        return True
    columns = indices.producer
    if node.op_type != "GatherND" or columns is None or columns.op_type != "Concat" or columns.graph is not view.graph:
        return False
    parts = tuple(columns.present_inputs())
    is_last = columns.int_attribute("axis", 0) in (-1, len(indices.shape or ()) - 1)
    are_columns = all(part.shape is not None and part.shape[-1:] == (1,) for part in parts)
    if not is_last or not are_columns or len(parts) != len(least):
        return False
    return all(_lies_within(held_bounds(view, part), size) for part, size in zip(parts, least, strict=True))


def _lies_within(bounds: tuple[int, int] | None, size: int) -> bool:
    return bounds is not None and -size <= bounds[0] and bounds[1] < size


def _comes_from_outside(view: GraphView, value: Value) -> bool:
    is_computed_here = value.producer is not None and value.producer.graph is view.graph
    return not is_computed_here and view.constant(value) is None


def indexed_axes(node: Node) -> tuple[KnownDim, ...]:
    """Return the sizes of the axes that the indices of a node go by; none when nothing is known of one."""
    data, indices = node.input(0), node.input(INDEX)
    shape = None if data is None else data.shape
    if shape is None or indices is None or indices.shape is None:
        return ()
    if node.op_type == "GatherND":
        first, count = node.int_attribute("batch_dims", 0), indices.shape[-1] if indices.shape else None
        axes = shape[first : first + count] if isinstance(count, int) else ()
    else:
        axis = node.int_attribute("axis", 0)
        axes = shape[axis : axis + 1 or None] if shape else ()
    known = tuple(size for size in axes if size is not None)
    return known if len(known) == len(axes) else ()


def source_of(value: Value) -> Value:
    """Return the value whose elements these are, before operators that only moved them."""
    while value.producer is not None and value.producer.op_type in _MOVING and not value.producer.domain:
        source = value.producer.input(0)
        assert source is not None, "its first input is required"
        value = source
    return value


def indexed_sizes(value: Value) -> set[int]:
    """Return the sizes of all axes that the elements of a claim's input are indices of, without a check by OpenVINO."""
    found: set[int] = set()
    for node, place in value.uses:
        if node.op_type in _MOVING and place == 0 and _is_integer(node.output):
            found |= indexed_sizes(node.output)
        elif node.op_type in INDEXING and place == INDEX:
            axes = indexed_axes(node)
            found.update(size for size in axes if isinstance(size, int))
    return found


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in INDICES


INDEXING: Mapping[str, Rule] = {
    name: Rule(MOVED, ports={INDEX: INDICES}, conditions=(_in_its_axis,))
    for name in ("Gather", "GatherND", "Scatter", "ScatterElements")
}
"""Rules by operator."""
