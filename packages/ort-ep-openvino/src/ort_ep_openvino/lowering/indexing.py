"""Operators that read by index: OpenVINO checks some of them, and reads zeros or other memory in the rest.

Where it does not check, an index is proven to lie in its axis, or comes in from outside of the claim, perhaps through
operators that only move it, and is looked at before each run (``narrowing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import held_bounds
from ort_core.plugin.ir import Node, TensorType, Value
from ort_ep_openvino.lowering.rule import INDICES, MOVED, Rule

INDEX = 1  # the input that holds indices
_MOVING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that hand on all elements of their first input and no others."""


def _in_its_axis(view: GraphView, node: Node) -> str | None:
    indices, sizes = node.input(INDEX), tuple(axis_sizes(node))
    assert indices is not None, "the input is required"
    if not sizes:
        return "a size that its indices go by is not known before a run; OpenVINO does not check indices"
    found = held_bounds(view, indices)
    if found is not None and -min(sizes) <= found[0] and found[1] < min(sizes):
        return None
    if _comes_from_outside(view, source_of(indices)) and len(set(sizes)) == 1:
        return None
    return "nothing proves that its indices lie in their axis; OpenVINO does not check them, and reads other memory"


def _comes_from_outside(view: GraphView, value: Value) -> bool:
    is_computed_here = value.producer is not None and value.producer.graph is view.graph
    return not is_computed_here and view.constant(value) is None


def axis_sizes(node: Node) -> Iterator[int]:
    """Yield the sizes of the axes that the indices of a node go by; nothing when one is not a number."""
    data, indices = node.input(0), node.input(INDEX)
    shape = None if data is None else data.shape
    if shape is None or indices is None or indices.shape is None:
        return
    if node.op_type == "GatherND":
        first, count = node.int_attribute("batch_dims", 0), indices.shape[-1] if indices.shape else None
        axes = shape[first : first + count] if isinstance(count, int) else ()
    else:
        axis = node.int_attribute("axis", 0)
        axes = shape[axis : axis + 1 or None] if shape else ()
    if all(isinstance(size, int) for size in axes):
        yield from (size for size in axes if isinstance(size, int))


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
            found.update(axis_sizes(node))
    return found


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in INDICES


INDEXING: Mapping[str, Rule] = {
    name: Rule(MOVED, ports={INDEX: INDICES}, conditions=(_in_its_axis,))
    for name in ("Gather", "GatherND", "Scatter", "ScatterElements")
}
"""Rules by operator."""
