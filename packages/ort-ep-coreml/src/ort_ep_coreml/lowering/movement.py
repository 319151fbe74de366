"""Operators that move elements and compute nothing: shapes, order, joins and cuts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, is_static, rank_of
from ort_ep_coreml.lowering.conditions import constant_inputs, only_attributes, static_inputs, static_outputs
from ort_ep_coreml.lowering.elementwise import unary
from ort_ep_coreml.lowering.emission import EmissionState, axis_of, can_write_sizes
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, MOVED, NUMBERS, Rule
from ort_ep_coreml.mil import INT32_LIMITS, Operand


def _transpose(to: EmissionState, node: Node) -> Operand:
    permutation = node.ints_attribute("perm") or tuple(reversed(range(rank_of(node.input(0)))))
    return to.emit("transpose", x=to.operand(node.input(0)), perm=np.array(permutation, np.int32))


def _reshaped(to: EmissionState, node: Node) -> Operand:
    """Lower to a reshape to the sizes of the result, which inference found."""
    source = node.input(0)
    assert source is not None, "required"
    return to.emit("reshape", x=to.operand(source), shape=to.sizes(node.outputs[0].shape or (), source))  # type: ignore[union-attr]  # an output that is lowered


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


def _pad(to: EmissionState, node: Node) -> Operand:
    mode = {"edge": "replicate"}.get(text := node.string_attribute("mode", "constant"), text)
    inputs: dict[str, Operand] = {"x": to.operand(node.input(0)), "pad": np.array(_paddings(to.asked, node), np.int32)}
    if mode == "constant":
        value = to.asked.constant(node.input(2))
        fill = node.float_attribute("value", 0.0) if value is None else float(value.reshape(-1)[0])
        inputs["constant_val"] = to.scalar(node.input(0), fill)
    return to.emit("pad", **inputs, mode=mode)


def _paddings(asked: Asked, node: Node) -> list[int]:
    """Return what is padded before and behind each axis, axis by axis."""
    rank = rank_of(node.input(0))
    given, axes = asked.constant(node.input(1)), asked.constant(node.input(3))
    pads = [int(each) for each in given.reshape(-1)] if given is not None else list(node.ints_attribute("pads") or ())
    places = list(range(rank)) if axes is None else [int(each) % rank for each in axes.reshape(-1)]
    found = [0] * (2 * rank)
    for index, axis in enumerate(places):
        found[2 * axis], found[2 * axis + 1] = pads[index], pads[index + len(places)]
    return found


def _pads_as_lowered(asked: Asked, node: Node) -> str | None:
    mode, pads = node.string_attribute("mode", "constant"), _paddings(asked, node)
    if mode not in ("constant", "reflect", "edge"):
        return f"Pad with mode={mode!r} is not lowered: Core ML has none"
    if min(pads, default=0) < 0:
        return "Pad with negative numbers, which cuts"
    if mode != "constant" and any(pads[:-4]):
        return f"Core ML pads by {mode} along the last two axes only"
    return None


def _tile(to: EmissionState, node: Node) -> Operand:
    repeats = to.asked.constant(node.input(1))
    assert repeats is not None, "constant_inputs was asked"
    return to.emit("tile", x=to.operand(node.input(0)), reps=repeats.astype(np.int32))


def _expand(to: EmissionState, node: Node) -> Operand:
    source, target = node.input(0), node.output.shape or ()
    assert source is not None, "required"
    shape = (*[1] * (len(target) - rank_of(source)), *(source.shape or ()))
    operand = to.operand(source)
    if len(shape) != rank_of(source):
        operand = to.reshape(operand, [size for size in shape if isinstance(size, int)])
    repeats = [
        new // old for new, old in zip(target, shape, strict=True) if isinstance(new, int) and isinstance(old, int)
    ]
    if all(each == 1 for each in repeats):
        return to.emit("identity", x=operand)
    return to.emit("tile", x=operand, reps=np.array(repeats, np.int32))


def _depth_to_space(to: EmissionState, node: Node) -> Operand:
    block = node.int_attribute("blocksize", 1)
    if node.op_type == "SpaceToDepth":
        return to.emit("space_to_depth", x=to.operand(node.input(0)), block_size=block)
    if node.string_attribute("mode", "DCR") == "CRD":
        return to.emit("pixel_shuffle", x=to.operand(node.input(0)), upscale_factor=block)
    return to.emit("depth_to_space", x=to.operand(node.input(0)), block_size=block)


def _shape(to: EmissionState, node: Node) -> Operand:
    rank = rank_of(node.input(0))
    found = to.emit("shape", x=to.operand(node.input(0)))
    start, end, _ = slice(node.int_attribute("start", 0), node.int_attribute("end", rank)).indices(rank)
    if (start, end) == (0, rank):
        return found
    return to.emit("slice_by_index", x=found, begin=np.array([start], np.int32), end=np.array([end], np.int32))


def _has_sizes(asked: Asked, node: Node) -> str | None:
    return "the shape of a scalar is empty; Core ML has no empty tensors" if rank_of(node.input(0)) == 0 else None


_SIZES = {1: INTS}

MOVEMENT: Mapping[str, Rule] = {
    "Transpose": Rule(_transpose, MOVED),
    "Reshape": Rule(
        _reshaped, MOVED, ports=_SIZES, conditions=(_not_to_scalar, _result_can_be_written), required=2, oldest=5
    ),
    "Flatten": Rule(_reshaped, MOVED, conditions=(_result_can_be_written,)),
    "Squeeze": Rule(_squeeze, MOVED, ports=_SIZES, conditions=(constant_inputs(1), _axes_are_known)),
    "Unsqueeze": Rule(_unsqueeze, MOVED, ports=_SIZES, conditions=(constant_inputs(1),)),
    "Concat": Rule(_concat, NUMBERS, oldest=4),
    "Split": Rule(_split, NUMBERS, ports=_SIZES, conditions=(_pieces_are_known,), outputs=64),
    "Slice": Rule(
        _slice,
        MOVED,
        ports={1: INTS, 2: INTS, 3: INTS, 4: INTS},
        conditions=(constant_inputs(1, 2, 3, 4), _slices_as_lowered),
    ),
    "Pad": Rule(
        _pad, FLOATS, ports={1: INTS, 3: INTS}, conditions=(constant_inputs(1, 2, 3), _pads_as_lowered), oldest=2
    ),
    "Tile": Rule(_tile, NUMBERS, ports=_SIZES, conditions=(constant_inputs(1),), required=2, oldest=6),
    "Expand": Rule(_expand, NUMBERS, ports=_SIZES, conditions=(static_inputs(0), static_outputs), required=2),
    "DepthToSpace": Rule(_depth_to_space),
    "SpaceToDepth": Rule(_depth_to_space),
    "Shape": Rule(_shape, MOVED, results={0: INTS}, conditions=(_has_sizes,)),
    "Dropout": Rule(unary("identity"), ports={1: FLOATS, 2: BOOL}, conditions=(only_attributes(is_test=1),)),
}
"""Rules by operator."""
