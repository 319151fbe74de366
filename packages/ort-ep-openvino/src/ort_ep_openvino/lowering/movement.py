"""Operators that move or choose elements, and those that make shapes: nothing is computed, so int64 may pass."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of, held_constant, is_static
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.conditions import (
    constant_inputs,
    fits_float32,
    nonempty_data,
    only_attributes,
    proven_between,
    without_attributes,
)
from ort_ep_openvino.lowering.input_bounds import HIGHEST_SMALL
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, MOVED, Rule
from ort_ep_openvino.lowering.sized_view import SizedView

INT64 = frozenset({DataType.INT64})
TILES_OF_LOW_RANK = 3  # of rank 4 and more, with repeats from outside, OpenVINO leaves parts unwritten


def _known_tiles(view: GraphView, node: Node) -> str | None:
    data = node.input(0)
    if held_constant(view, node.input(1)) is not None or (data is not None and (data.rank or 9) <= TILES_OF_LOW_RANK):
        return None
    return "OpenVINO leaves parts of a tile of rank 4 unwritten when its repeats are not a constant"


def _known_axes(view: SizedView, node: Node) -> str | None:
    if is_static(node.output):  # the axes then say nothing new: it is lowered to Reshape
        return None
    return constant_inputs(1)(view, node)


def _of_equal_sizes(view: GraphView, node: Node) -> str | None:
    data, indices = (value.shape if value is not None else None for value in (node.input(0), node.input(1)))
    if data is None or indices is None or len(data) != len(indices):
        return "the sizes of GatherElements are not known before a run"
    axis = node.int_attribute("axis", 0) % max(1, len(data))
    if all(a is not None and a == b for place, (a, b) in enumerate(zip(data, indices, strict=True)) if place != axis):
        return None
    return "OpenVINO gathers elements of sizes that are equal beside the axis only, and nothing says that these are"


def _splits_evenly(view: GraphView, node: Node) -> str | None:
    data, parts = node.input(0), node.int_attribute("num_outputs", 0)
    sizes = () if data is None or data.shape is None else data.shape
    if not parts or (sizes and isinstance(sizes[node.int_attribute("axis", 0)], int)):
        return None
    return "OpenVINO splits an axis of open size in parts of equal size only"


def _has_axes(view: GraphView, node: Node) -> str | None:
    return None if node.output.rank else "OpenVINO expands a scalar to a scalar with one axis"


def _reduced_floats(view: GraphView, node: Node) -> str | None:
    if node.string_attribute("reduction", "none") == "none" or dtype_of(node.output) in FLOATS:
        return None
    return "a reduction of scattered integers is not known to be right"


def _known_k(view: GraphView, node: Node) -> str | None:
    if not node.int_attribute("sorted", 1):
        return "OpenVINO's unsorted TopK is sorted by index"
    k = node.input(1)
    if k is not None and held_constant(view, k) is None:
        return "OpenVINO's TopK ends the process where it keeps nothing, and nothing says how many this one keeps"
    return None


def _whole_blocks(view: GraphView, node: Node) -> str | None:
    image, block = (held_constant(view, node.input(index)) for index in (1, 2))
    data = node.input(0)
    if image is None or block is None or data is None or not is_static(data) or data.shape is None:
        return "OpenVINO's Col2Im ends the process where sizes do not fit, and nothing says that these do"
    channels, size = data.shape[-2], int(np.prod(block.array()))
    if not isinstance(channels, int) or size < 1 or channels % size:
        return f"{channels} rows are not a multiple of blocks of {size} elements"
    return None


def _known_slice_axes(view: GraphView, node: Node) -> str | None:
    data, axes = node.input(0), node.input(3)
    if axes is None or data is None:
        return None
    found, rank = held_constant(view, axes), data.rank or 0
    if found is not None and all(-rank <= int(axis) < rank for axis in found.array().reshape(-1)):
        return None
    return f"nothing proves that the axes in {axes.name!r} are those of the data; OpenVINO does not check them"


def _no_longer_than_its_axis(view: SizedView, node: Node) -> str | None:
    """Refuse a condition that may be longer than its axis: the rest is to be ignored, and OpenVINO reads behind it."""
    data, condition = node.input(0), node.input(1)
    why = "its condition may be longer than its axis; OpenVINO reads beyond the end then"
    if data is None or condition is None or data.shape is None or condition.shape is None:
        return why
    axis = node.attribute("axis")
    sizes = data.shape if axis is None else (data.shape[node.int_attribute("axis", 0)],)
    if sizes == condition.shape:
        return None
    known = [size for size in sizes if size is not None]
    lengths = [view.known.size_range(size)[1] for size in condition.shape if size is not None]
    if len(known) < len(sizes) or len(lengths) < len(condition.shape):
        return why
    return None if math.prod(lengths) <= math.prod(view.least_size(size) for size in known) else why


_NOT_NEGATIVE = proven_between(1, 0, lambda node: HIGHEST_SMALL)


def _steps(node: Node) -> int | None:
    """Return how many steps a ReverseSequence has, where that is known."""
    data, axis = node.input(0), node.int_attribute("time_axis", 0)
    size = None if data is None or data.shape is None else data.shape[axis]
    return size if isinstance(size, int) else None


MOVEMENT: Mapping[str, Rule] = {
    "Reshape": Rule(MOVED, ports={1: INDICES}, oldest=5),
    "Flatten": Rule(MOVED),
    "Transpose": Rule(MOVED),
    "Squeeze": Rule(MOVED, ports={1: INDICES}, conditions=(_known_axes,)),
    "Unsqueeze": Rule(MOVED, ports={1: INDICES}, conditions=(_known_axes,)),
    "Concat": Rule(MOVED, oldest=4),
    "Split": Rule(MOVED, ports={1: INDICES}, conditions=(_splits_evenly, _NOT_NEGATIVE)),
    "Slice": Rule(MOVED, ports=dict.fromkeys(range(1, 5), INDICES), conditions=(_known_slice_axes,)),
    "Expand": Rule(MOVED, ports={1: INDICES}, conditions=(_has_axes,)),
    "Tile": Rule(MOVED, ports={1: INDICES}, conditions=(_known_tiles, _NOT_NEGATIVE), oldest=6),
    "Pad": Rule(
        FLOATS | {DataType.INT32},
        ports={1: INDICES, 3: INDICES},
        conditions=(only_attributes(mode=("constant", "reflect", "edge")),),
        oldest=2,
    ),
    "GatherElements": Rule(MOVED, ports={1: INDICES}, conditions=(_of_equal_sizes,)),
    "ScatterND": Rule(MOVED, ports={1: INDICES}, conditions=(_reduced_floats,)),
    "Compress": Rule(MOVED, ports={1: BOOL}, conditions=(_no_longer_than_its_axis,)),
    "DepthToSpace": Rule(FLOATS),
    "SpaceToDepth": Rule(FLOATS, conditions=(without_attributes(mode="DCR"),)),
    "ReverseSequence": Rule(MOVED, ports={1: INDICES}, conditions=(proven_between(1, 0, _steps),)),
    "Trilu": Rule(MOVED, ports={1: INDICES}),
    "CenterCropPad": Rule(MOVED, ports={1: INDICES}),
    "Col2Im": Rule(FLOATS, ports={1: INDICES, 2: INDICES}, conditions=(_whole_blocks,)),
    "Shape": Rule(MOVED, results={0: INT64}),
    "Size": Rule(MOVED, results={0: INT64}),
    "ConstantOfShape": Rule(MOVED, ports={0: INT64}),
    "EyeLike": Rule(MOVED),
    "NonZero": Rule(MOVED, results={0: INT64}),
    "OneHot": Rule(
        MOVED,
        ports={0: FLOATS | INDICES, 1: FLOATS | INDICES},
        conditions=(proven_between(1, 1, lambda node: HIGHEST_SMALL),),
    ),
    "Range": Rule(FLOATS | INDICES, conditions=(fits_float32,)),
    "TopK": Rule(FLOATS, ports={1: INDICES}, results={1: INT64}, conditions=(_known_k,)),
    "ArgMax": Rule(FLOATS, results={0: INT64}, conditions=(nonempty_data,)),
    "ArgMin": Rule(FLOATS, results={0: INT64}, conditions=(nonempty_data,)),
}
"""Rules by operator."""
