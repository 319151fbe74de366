"""SliceOfOne: a slice that takes one place of an axis, which a Squeeze drops, is a Gather.

    Squeeze(Slice(x, [0, i], [end, ...], [0, 1], [1, 1000000000]), [1])     ->  Gather(x, i, axis=1)

TensorFlow's ``x[:, i]`` is exported so: a step beyond every size, and bounds put together and masked by Concat, Where,
Max and Cast. How long such a slice is, nobody can tell before a run; a Gather has no length.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

_NAME = "one place"
BEYOND = 10**9  # what the exporter writes for the end of an axis, and for a step that takes one place
MAX_DEPTH = 16  # of the nodes that bounds are put together by


@frozen
class _Chosen:
    """The data of a slice, and by axis the place that it takes."""

    data: Value
    places: Mapping[int, int | Value]


class SliceOfOne(Pass):
    """Write slices of single places, with a Squeeze behind, as Gather."""

    name = "SliceOfOne"
    after = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every Squeeze behind a Slice."""
        if not {"Squeeze", "Slice"} <= context.op_types():
            return
        for graph in context.graphs():
            for node in [each for each in graph if each.domain == "" and each.op_type == "Squeeze"]:
                found = _chosen(node)
                if found is None:
                    continue
                objection = _patch(context, node, found).apply()
                if isinstance(objection, Rejection):
                    record.refused(_NAME, objection, node)
                else:
                    record.changed(_NAME)


def _patch(context: PassContext, node: Node, chosen: _Chosen) -> GraphPatch:
    patch, data = GraphPatch(context.model, node), chosen.data
    for axis in sorted(chosen.places, reverse=True):
        place = chosen.places[axis]
        index = patch.constant(np.array(place, np.int64), "place") if isinstance(place, int) else place
        is_last = axis == min(chosen.places)
        outputs = [node.output.type] if is_last else [None]
        data = patch.node("Gather", [data, index], {"axis": axis}, outputs=outputs).output
    patch.replace(node.output, data)
    patch.remove(node)
    return patch


def _chosen(node: Node) -> _Chosen | None:
    """Return what a Squeeze keeps of a slice, ``None`` where that is not one place of each axis that it drops."""
    source = node.input(0)
    cut = None if source is None else source.producer
    if cut is None or cut.op_type != "Slice" or cut.domain or len(cut.inputs) != 5 or cut.graph is not node.graph:
        return None
    data, (axes, steps) = cut.input(0), (integers_of(cut.input(place)) for place in (3, 4))
    dropped = node.ints_attribute("axes") if node.input(1) is None else integers_of(node.input(1))
    if data is None or data.rank is None or not dropped or axes is None or steps is None or len(axes) != len(steps):
        return None
    places: dict[int, int | Value] = {}
    for number, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = element_of(cut.input(1), number), element_of(cut.input(2), number)
        if step >= BEYOND and start is not None:
            places[axis % data.rank] = start
        elif step != 1 or start != 0 or not (isinstance(end, int) and end >= BEYOND):
            return None
    return _Chosen(data, places) if set(places) == {axis % data.rank for axis in dropped} else None


def integers_of(value: Value | None) -> tuple[int, ...] | None:
    """Return the elements of a constant of integers, ``None`` for any other value."""
    constant = constant_of(value)
    if constant is None:
        return None
    array = constant.array()
    return tuple(int(each) for each in array.reshape(-1)) if array.dtype.kind in "iu" else None


def element_of(value: Value | None, place: int, depth: int = MAX_DEPTH) -> int | Value | None:
    """Return an element of a vector of bounds: a number, or the scalar that it is.

    Of a maximum with a number beyond every size this is that number, below what it may be.
    """
    if value is None or not depth:
        return None
    constant = constant_of(value)
    if constant is not None:
        array = constant.array().reshape(-1)
        return int(array[place if array.size > 1 else 0]) if array.size and np.isfinite(array).all() else None
    node = value.producer
    if node is None or node.domain or node.graph is not value.graph:
        return None
    parts = [element_of(each, place, depth - 1) for each in node.inputs[:2]] if node.op_type in ("And", "Max") else []
    match node.op_type:
        case "Concat":
            return _part(node, place, depth)
        case "Unsqueeze":
            scalar = node.input(0)
            return scalar if scalar is not None and scalar.rank == 0 and place == 0 else None
        case "Cast":
            return element_of(node.input(0), place, depth - 1)
        case "Where":
            condition = element_of(node.input(0), place, depth - 1)
            taken = node.input(1 if condition else 2)
            return element_of(taken, place, depth - 1) if isinstance(condition, int) else None
        case "And":
            return 0 if 0 in parts else None
        case "Max":
            known = [part for part in parts if isinstance(part, int) and part >= BEYOND]
            return max(known, default=None)
    return None


def _part(node: Node, place: int, depth: int) -> int | Value | None:
    """Return an element of a Concat of vectors of known lengths."""
    for value in node.present_inputs():
        shape = value.shape
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            return None
        if place < shape[0]:
            return element_of(value, place, depth - 1)
        place -= shape[0]
    return None
