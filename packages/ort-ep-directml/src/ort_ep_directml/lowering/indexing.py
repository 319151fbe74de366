"""Operators that read or write at places that other tensors tell. DirectML counts negative places from the end, too."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.attributes import axis_of
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.movement import sliced
from ort_ep_directml.lowering.operand import Operand, reinterpreted
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import AxisDirection


def _ranked(to: EmissionState, operand: Operand, rank: int) -> Operand:
    """Return an operand with dimensions of size 1 in front."""
    return to.reshape(operand, (1,) * (rank - operand.rank) + operand.sizes)


def gathered(to: EmissionState, x: Operand, places: Operand, axis: int) -> Operand:
    """Append a choice of slices along an axis."""
    sizes = x.sizes[:axis] + places.sizes + x.sizes[axis + 1 :]
    places = places if places.sizes else to.reshape(places, (1,))
    made = x.sizes[:axis] + places.sizes + x.sizes[axis + 1 :]
    rank = max(x.rank, places.rank, len(made))
    fields: dict[str, object] = {"Axis": axis + rank - x.rank, "IndexDimensions": places.rank}
    padded = (1,) * (rank - len(made)) + made
    wide = {"Input": _ranked(to, x, rank), "Indices": _ranked(to, places, rank)}
    return to.reshape(to.emit("GATHER", (x.dtype, padded), **wide, **fields), sizes)


def _gather(to: EmissionState, node: Node) -> Operand:
    x, places = to.operand(node.input(0)), to.operand(node.input(1))
    return gathered(to, x, places, axis_of(node, x.rank, 0))


def _gather_elements(to: EmissionState, node: Node) -> Operand:
    x, places = to.operand(node.input(0)), to.operand(node.input(1))
    axis = axis_of(node, x.rank, 0)
    windows = [x.sizes[d] if d == axis else places.sizes[d] for d in range(x.rank)]
    x = sliced(to, x, (0,) * x.rank, windows, (1,) * x.rank)
    return to.emit("GATHER_ELEMENTS", (x.dtype, places.sizes), Input=x, Indices=places, Axis=axis)


def _gather_nd(to: EmissionState, node: Node) -> Operand:
    x, places, sizes = to.operand(node.input(0)), to.operand(node.input(1)), to.sizes(node.output)
    rank = max(x.rank, places.rank, len(sizes))
    counts: dict[str, object] = {
        "InputDimensionCount": x.rank,
        "IndicesDimensionCount": places.rank,
        "BatchDimensionCount": node.int_attribute("batch_dims", 0),
    }
    wide = {"Input": _ranked(to, x, rank), "Indices": _ranked(to, places, rank)}
    made = (1,) * (rank - len(sizes)) + sizes
    return to.reshape(to.emit("GATHER_ND1", (x.dtype, made), **wide, **counts), sizes)


def _no_reduction(node: Node) -> None:
    if node.string_attribute("reduction", "none") != "none":
        raise Refused(f"{node.op_type} that combines what meets at one place is left to others")


def _scatter_elements(to: EmissionState, node: Node) -> Operand:
    _no_reduction(node)
    x, places, updates = (to.operand(node.input(place)) for place in range(3))
    axis = axis_of(node, x.rank, 0)
    if any(n != m for d, (n, m) in enumerate(zip(x.sizes, places.sizes, strict=True)) if d != axis):
        raise Refused("DirectML scatters only along whole dimensions, and the indices cover a part of one")
    return to.emit("SCATTER_ELEMENTS", (x.dtype, x.sizes), Input=x, Indices=places, Updates=updates, Axis=axis)


def _scatter_nd(to: EmissionState, node: Node) -> Operand:
    _no_reduction(node)
    x, places, updates = (to.operand(node.input(place)) for place in range(3))
    rank = max(x.rank, places.rank, updates.rank)
    counts: dict[str, object] = {"InputDimensionCount": x.rank, "IndicesDimensionCount": places.rank}
    names = ("Input", "Indices", "Updates")
    wide = {name: _ranked(to, each, rank) for name, each in zip(names, (x, places, updates), strict=True)}
    made = (x.dtype, wide["Input"].sizes)
    return to.reshape(to.emit("SCATTER_ND", made, **wide, **counts), x.sizes)


def _one_hot(to: EmissionState, node: Node) -> Operand:
    places, values, sizes = to.operand(node.input(0)), to.operand(node.input(2)), to.sizes(node.output)
    axis = axis_of(node, len(sizes), -1)
    if places.dtype.numpy.kind == "f" or places.dtype.bits < 32:
        places = to.cast(places, ElementType.INT64)
    places = to.reshape(places, sizes[:axis] + (1,) + sizes[axis + 1 :])
    values = to.reshape(values, (1,) * (len(sizes) - 1) + (2,))
    return to.emit("ONE_HOT", (values.dtype, sizes), Indices=places, Values=values, Axis=axis)


def _top_k(to: EmissionState, node: Node) -> list[Operand]:
    x, sizes = to.operand(node.input(0)), to.sizes(node.outputs[0] or node.outputs[1])
    axis = axis_of(node, x.rank, -1)
    largest = node.int_attribute("largest", 1)
    way = AxisDirection.DECREASING if largest else AxisDirection.INCREASING
    made = {"OutputValue": (x.dtype, sizes), "OutputIndex": (ElementType.UINT64, sizes)}
    values, places = to.emit_many("TOP_K1", made, Input=x, Axis=axis, K=sizes[axis], AxisDirection=int(way))
    return [values, reinterpreted(places, ElementType.INT64)]


INDEXING: Mapping[str, Rule] = {
    "Gather": Rule(_gather, required=2),
    "GatherElements": Rule(_gather_elements, required=2),
    "GatherND": Rule(_gather_nd, required=2),
    "OneHot": Rule(_one_hot, required=3),
    "Scatter": Rule(_scatter_elements, required=3),
    "ScatterElements": Rule(_scatter_elements, required=3),
    "ScatterND": Rule(_scatter_nd, required=3),
    "TopK": Rule(_top_k, outputs=2),
}
"""Rules by operator."""
