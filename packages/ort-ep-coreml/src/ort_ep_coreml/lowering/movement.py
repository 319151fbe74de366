"""Operators that move elements and compute nothing: shapes, order, joins and cuts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, is_static, rank_of
from ort_ep_coreml.lowering.conditions import only_attributes, ranks
from ort_ep_coreml.lowering.elementwise import unary
from ort_ep_coreml.lowering.emission import EmissionState, axis_of, can_write_sizes
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, MOVED, NARROW, Rule
from ort_ep_coreml.mil import INT32_LIMITS, Operand


def _transpose(to: EmissionState, node: Node) -> Operand:
    permutation = node.ints_attribute("perm") or tuple(reversed(range(rank_of(node.input(0)))))
    return to.emit("transpose", x=to.operand(node.input(0)), perm=np.array(permutation, np.int32))


def _reshaped(to: EmissionState, node: Node) -> Operand:
    """Lower to a reshape to the sizes of the result, which inference found."""
    source, shape = node.input(0), node.output.shape or ()
    assert source is not None, "required"
    sizes = to.sizes(shape, source) if can_write_sizes(shape, source) else to.operand(node.input(1))
    return to.emit("reshape", x=to.operand(source), shape=sizes)


def _result_can_be_written(asked: Asked, node: Node) -> str | None:
    shape = node.output.shape
    if shape == () and rank_of(node.input(0)) == 0:
        return None
    if can_write_sizes(shape, node.input(0)):
        return None
    return f"more than one size of the result of {node.op_type} is open, and the input does not have them"


def _not_to_scalar(asked: Asked, node: Node) -> str | None:
    return "Core ML has no reshape to a scalar" if node.output.shape == () else None


def _squeeze(to: EmissionState, node: Node) -> Operand:
    source = node.input(0)
    given = to.asked.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    if axes is None:
        axes = tuple(place for place, size in enumerate(source.shape or ()) if size == 1)  # type: ignore[union-attr]  # required
    places = sorted(axis + rank_of(source) if axis < 0 else axis for axis in axes)
    if not places:
        return to.emit("identity", x=to.operand(source))
    return to.emit("squeeze", x=to.operand(source), axes=np.array(places, np.int32))


def _unsqueeze(to: EmissionState, node: Node) -> Operand:
    given = to.asked.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    rank = rank_of(node.output)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes or ())
    return to.emit("expand_dims", x=to.operand(node.input(0)), axes=np.array(places, np.int32))


def _axes_are_known(asked: Asked, node: Node) -> str | None:
    is_listed = node.input(1) is not None or node.ints_attribute("axes") is not None
    return None if is_listed or is_static(node.input(0)) else "Squeeze of whatever is 1, over open sizes"


def _concat(to: EmissionState, node: Node) -> Operand:
    values = to.operands(node)
    if len(values) == 1:
        return to.emit("identity", x=values[0])
    return to.emit("concat", values=tuple(values), axis=axis_of(node, node.input(0), 1))  # type: ignore[arg-type]  # no lists


def _split(to: EmissionState, node: Node) -> list[Operand]:
    axis = axis_of(node, node.input(0), 0)
    sizes = [value.shape[axis] for value in node.present_outputs() if value.shape is not None]
    source = to.operand(node.input(0))
    if len(sizes) == 1:
        return [to.emit("identity", x=source)]
    lengths = np.array(sizes, np.int32)
    return list(to.emit_many("split", len(sizes), x=source, split_sizes=lengths, axis=axis))


def _pieces_are_known(asked: Asked, node: Node) -> str | None:
    axis = axis_of(node, node.input(0), 0)
    if len(list(node.present_outputs())) != len(node.outputs):
        return "one of the pieces is left out"
    sizes = [value.shape[axis] if value.shape is not None else None for value in node.present_outputs()]
    if all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return "the sizes of the pieces are not all known beforehand"


def _slice_bounds(asked: Asked, node: Node) -> list[tuple[int, int, int, int]]:
    """Return (axis, start, end, step) of each axis that is cut."""
    given = [asked.constant(node.input(place)) for place in (1, 2, 3, 4)]
    texts = [node.ints_attribute(name) for name in ("starts", "ends", "axes")]
    starts, ends, axes, steps = (
        [int(each) for each in array.reshape(-1)] if array is not None else list(text or ())
        for array, text in zip(given, [*texts, None], strict=True)
    )
    rank = rank_of(node.input(0))
    axes = axes or list(range(len(starts)))
    steps = steps or [1] * len(starts)
    places = [axis + rank if axis < 0 else axis for axis in axes]
    return list(zip(places, starts, ends, steps, strict=True))


def _slice(to: EmissionState, node: Node) -> Operand:
    rank = rank_of(node.input(0))
    begin, end, stride = np.zeros(rank, np.int32), np.zeros(rank, np.int32), np.ones(rank, np.int32)
    opens, closes = np.ones(rank, np.bool_), np.ones(rank, np.bool_)
    shape = node.input(0).shape or ()  # type: ignore[union-attr]  # required
    for axis, start, stop, step in _slice_bounds(to.asked, node):
        size = shape[axis]
        stride[axis] = step
        if isinstance(size, int):
            start, stop, _ = slice(start, stop, step).indices(size)
        opens[axis] = start == 0 and step > 0
        closes[axis] = stop < 0 if isinstance(size, int) else stop >= INT32_LIMITS[1]
        begin[axis] = start
        end[axis] = 0 if closes[axis] else stop
    return to.emit(
        "slice_by_index",
        x=to.operand(node.input(0)),
        begin=begin,
        end=end,
        stride=stride,
        begin_mask=opens,
        end_mask=closes,
    )


def _slices_as_lowered(asked: Asked, node: Node) -> str | None:
    shape = node.input(0).shape or ()  # type: ignore[union-attr]  # required
    for axis, start, stop, step in _slice_bounds(asked, node):
        if isinstance(shape[axis], int):
            continue
        if step != 1 or start < 0 or not (stop < 0 or stop >= INT32_LIMITS[1]):
            return f"Slice of axis {axis}, whose size is open, with start {start}, end {stop} and step {step}"
    return None


def _tile(to: EmissionState, node: Node) -> Operand:
    repeats = to.asked.constant(node.input(1))
    assert repeats is not None, "a constant is read beforehand"
    return to.emit("tile", x=to.operand(node.input(0)), reps=repeats.astype(np.int32))


def _repeats_are_positive(asked: Asked, node: Node) -> str | None:
    repeats = asked.constant(node.input(1))
    if repeats is not None and repeats.size and int(repeats.min()) >= 1:
        return None
    return "the result of Tile is empty, or a scalar; Core ML has neither"


def _depth_to_space(to: EmissionState, node: Node) -> Operand:
    block = node.int_attribute("blocksize", 1)
    if node.op_type == "SpaceToDepth":
        if node.string_attribute("mode", "DCR") == "CRD":
            return to.emit("pixel_unshuffle", x=to.operand(node.input(0)), downscale_factor=np.array(block, np.uint32))
        return to.emit("space_to_depth", x=to.operand(node.input(0)), block_size=block)
    if node.string_attribute("mode", "DCR") == "CRD":
        return to.emit("pixel_shuffle", x=to.operand(node.input(0)), upscale_factor=block)
    return to.emit("depth_to_space", x=to.operand(node.input(0)), block_size=block)


def _shape_is_read(asked: Asked, node: Node) -> str | None:
    """Refuse sizes that inference did not find, unless the program computes them and both sides read zeros alike."""
    reason = _result_can_be_written(asked, node)
    value = node.input(1)
    if reason is None or value is None or asked.constant(value) is not None:
        return reason
    found, has_zeros = asked.interval(value), not node.int_attribute("allowzero", 0)
    is_alike = has_zeros and rank_of(node.output) == rank_of(node.input(0))
    return None if is_alike or (found is not None and found[0] >= 1) else reason


_MOVED = MOVED | NARROW

MOVEMENT: Mapping[str, Rule] = {
    "Transpose": Rule(_transpose, _MOVED),
    "Reshape": Rule(
        _reshaped, _MOVED, ports={1: INTS}, conditions=(_not_to_scalar, _shape_is_read), required=2, oldest=5
    ),
    "Flatten": Rule(_reshaped, _MOVED, conditions=(_result_can_be_written,)),
    "Squeeze": Rule(_squeeze, _MOVED, beforehand=(1,), conditions=(_axes_are_known,)),
    "Unsqueeze": Rule(_unsqueeze, _MOVED, beforehand=(1,)),
    "Concat": Rule(_concat, _MOVED, oldest=4),
    "Split": Rule(_split, MOVED, ports={1: INTS}, conditions=(_pieces_are_known,), outputs=64),
    "Slice": Rule(_slice, _MOVED, beforehand=(1, 2, 3, 4), conditions=(_slices_as_lowered,)),
    "Tile": Rule(_tile, MOVED, beforehand=(1,), conditions=(_repeats_are_positive,), required=2, oldest=6),
    "DepthToSpace": Rule(_depth_to_space, conditions=(ranks(4, 4),)),
    "SpaceToDepth": Rule(_depth_to_space, conditions=(ranks(4, 4),)),
    "Dropout": Rule(unary("identity"), ports={1: FLOATS, 2: BOOL}, conditions=(only_attributes(is_test=1),)),
}
"""Rules by operator."""
