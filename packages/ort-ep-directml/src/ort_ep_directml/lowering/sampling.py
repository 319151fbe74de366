"""GridSample: coordinates become indices of neighbors and their shares; DirectML gathers, and adds what it found.

Along each axis a point has one neighbor (nearest), two (linear) or four (cubic). Every combination of them, one from
each axis, is gathered from the input with its spatial dimensions made one, times the product of its shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.activations import scaled, times
from ort_ep_directml.lowering.elementwise import BYTE, FLOATS, binary, clamp, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.movement import sliced
from ort_ep_directml.lowering.operand import Operand, expanded
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import RoundingMode

_WIDE = ElementType.FLOAT32
_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75  # the coefficient of the cubic filter, which ONNX fixes
_FARTHEST = 2.0**63  # what lies beyond, or is not a number, stands at the low edge, as in ONNX Runtime


@dataclass(frozen=True, slots=True)
class _Neighbor:
    """A neighbor of every point along one axis.

    Attributes:
        index: within the axis, as 32-bit integers.
        share: how much it counts; ``None``: it is the only one.
        inside: 1 where it lies inside; ``None``: always.
    """

    index: Operand
    share: Operand | None
    inside: Operand | None


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial dimension: its size, where coordinates of -1 and 1 lie, and what stands outside."""

    size: int
    is_aligned: bool
    padding: str

    @property
    def low(self) -> float:
        """Where a coordinate of -1 lies."""
        return 0.0 if self.is_aligned else -0.5

    @property
    def span(self) -> float:
        """How far a coordinate of 1 lies from there."""
        return self.size - 1.0 if self.is_aligned else float(self.size)


def _places(to: EmissionState, axis: _Axis, points: Operand) -> Operand:
    """Append the places along an axis that normalized coordinates mean, counted in elements."""
    moved = scaled(to, points, 1.0, 1.0)
    whole = scaled(to, moved, axis.size - 1.0) if axis.is_aligned else scaled(to, moved, axis.size, -1.0)
    found = scaled(to, whole, 0.5)
    far = expanded(to.scalar(_WIDE, _FARTHEST), found.sizes)
    is_near = binary(to, "ELEMENT_WISE_LOGICAL_LESS_THAN", unary(to, "ELEMENT_WISE_ABS", found), far, BYTE)
    edge = expanded(to.scalar(_WIDE, axis.low), found.sizes)
    return to.emit("ELEMENT_WISE_IF", (_WIDE, found.sizes), Condition=is_near, A=found, B=edge)


def _mirrored(to: EmissionState, axis: _Axis, at: Operand) -> Operand:
    """Append places mirrored at both ends until they lie between them."""
    if not axis.span:
        return clamp(to, at, axis.low, axis.low)
    double = 2 * axis.span
    begun = scaled(to, at, 1.0, -axis.low)
    turns = unary(to, "ELEMENT_WISE_FLOOR", binary(to, "ELEMENT_WISE_DIVIDE", begun, to.scalar(_WIDE, double)))
    rest = binary(to, "ELEMENT_WISE_SUBTRACT", begun, scaled(to, turns, double))
    return scaled(to, unary(to, "ELEMENT_WISE_ABS", scaled(to, rest, 1.0, -axis.span)), -1.0, axis.span + axis.low)


def _inside(to: EmissionState, axis: _Axis, at: Operand) -> Operand:
    """Append places moved inside as the padding has it; of zeros they stay."""
    if axis.padding == "border":
        return clamp(to, at, 0.0, axis.size - 1.0)
    return _mirrored(to, axis, at) if axis.padding == "reflection" else at


def _neighbor(to: EmissionState, axis: _Axis, at: Operand, share: Operand | None) -> _Neighbor:
    inside = None
    if axis.padding == "zeros":
        ends = (("GREATER_THAN_OR_EQUAL", 0.0), ("LESS_THAN_OR_EQUAL", axis.size - 1.0))
        after, before = (binary(to, f"ELEMENT_WISE_LOGICAL_{k}", at, to.scalar(_WIDE, end), BYTE) for k, end in ends)
        inside = binary(to, "ELEMENT_WISE_LOGICAL_AND", after, before)
    if axis.padding == "reflection":
        at = _rounded(to, _mirrored(to, axis, at))
    return _Neighbor(to.cast(clamp(to, at, 0.0, axis.size - 1.0), ElementType.INT32), share, inside)


def _rounded(to: EmissionState, at: Operand) -> Operand:
    return unary(to, "ELEMENT_WISE_ROUND", at, RoundingMode=int(RoundingMode.HALVES_TO_NEAREST_EVEN))


def _neighbors(to: EmissionState, axis: _Axis, points: Operand, mode: str) -> list[_Neighbor]:
    at = _places(to, axis, points)
    if mode == "nearest":
        return [_neighbor(to, axis, _inside(to, axis, _rounded(to, at)), None)]
    at = at if mode == "cubic" else _inside(to, axis, at)
    base = unary(to, "ELEMENT_WISE_FLOOR", at)
    fraction = binary(to, "ELEMENT_WISE_SUBTRACT", at, base)
    rest = scaled(to, fraction, -1.0, 1.0)
    if mode == "linear":
        pairs = [(0.0, rest), (1.0, fraction)]
    else:
        shares = (_far(to, fraction), _near(to, fraction), _near(to, rest), _far(to, rest))
        pairs = [(place - 1.0, share) for place, share in enumerate(shares)]
    return [_neighbor(to, axis, scaled(to, base, 1.0, shift) if shift else base, share) for shift, share in pairs]


def _near(to: EmissionState, distance: Operand) -> Operand:
    """Append the cubic filter at distances up to one."""
    slope = scaled(to, distance, _CUBIC + 2, -(_CUBIC + 3))
    return scaled(to, times(to, times(to, slope, distance), distance), 1.0, 1.0)


def _far(to: EmissionState, before: Operand) -> Operand:
    """Append the cubic filter at distances that are one more than these."""
    distance = scaled(to, before, 1.0, 1.0)
    slope = scaled(to, times(to, scaled(to, distance, _CUBIC, -5 * _CUBIC), distance), 1.0, 8 * _CUBIC)
    return scaled(to, times(to, slope, distance), 1.0, -4 * _CUBIC)


def _gathered(to: EmissionState, flat: Operand, axes: list[_Axis], chosen: tuple[_Neighbor, ...]) -> Operand:
    """Append the elements at one combination of neighbors, times their shares; zero where one lies outside."""
    place = chosen[0].index
    for axis, each in zip(axes[1:], chosen[1:], strict=True):
        whole = times(to, place, to.scalar(ElementType.INT32, axis.size))
        place = binary(to, "ELEMENT_WISE_ADD", whole, each.index)
    sizes = (*flat.sizes[:2], place.sizes[2])
    found = to.emit("GATHER_ELEMENTS", (flat.dtype, sizes), Input=flat, Indices=expanded(place, sizes), Axis=2)
    masks = [each.inside for each in chosen if each.inside is not None]
    if masks:
        mask = reduce(lambda a, b: binary(to, "ELEMENT_WISE_LOGICAL_AND", a, b), masks)
        zero = expanded(to.scalar(flat.dtype, 0), sizes)
        parts = {"Condition": expanded(mask, sizes), "A": found, "B": zero}
        found = to.emit("ELEMENT_WISE_IF", (flat.dtype, sizes), **parts)
    shares = [each.share for each in chosen if each.share is not None]
    return times(to, found, reduce(lambda a, b: times(to, a, b), shares)) if shares else found


def _grid_sample(to: EmissionState, node: Node) -> Operand:
    x, grid, sizes = to.operand(node.input(0)), to.operand(node.input(1)), to.sizes(node.output)
    mode, padding = node.string_attribute("mode", "linear"), node.string_attribute("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        raise Refused(f"GridSample by {mode} with {padding} outside is not in the standard")
    mode = _MODES[mode]
    if grid.dtype not in FLOATS or (mode != "nearest" and x.dtype not in FLOATS):
        raise Refused(f"GridSample of {x.dtype.text} at {grid.dtype.text} by {mode} is left to others")
    rank = x.rank - 2
    batch, channels = x.sizes[:2]
    aligned = bool(node.int_attribute("align_corners", 0))
    axes = [_Axis(size, aligned, padding) for size in x.sizes[2:]]
    points = to.reshape(to.cast(grid, _WIDE), (batch, 1, math.prod(sizes[2:]), rank))
    found = []
    for place, axis in enumerate(axes):
        column = sliced(to, points, (0, 0, 0, rank - 1 - place), (*points.sizes[:3], 1), (1, 1, 1, 1))
        found.append(_neighbors(to, axis, to.reshape(column, points.sizes[:3]), mode))
    wide = x if mode == "nearest" else to.cast(x, _WIDE)
    flat = to.reshape(wide, (batch, channels, math.prod(x.sizes[2:])))
    parts = [_gathered(to, flat, axes, chosen) for chosen in itertools.product(*found)]
    total = reduce(lambda a, b: binary(to, "ELEMENT_WISE_ADD", a, b), parts)
    return to.cast(to.reshape(total, sizes), x.dtype)


SAMPLING: Mapping[str, Rule] = {"GridSample": Rule(_grid_sample, required=2)}
"""Rules by operator."""
