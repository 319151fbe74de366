"""Operators that move elements and compute nothing: shapes, order, joins and cuts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.conditions import only_attributes, ranks
from ort_ep_coreml.lowering.elementwise import unary
from ort_ep_coreml.lowering.emission import EmissionState, axis_of, can_write_sizes
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, MOVED, NARROW, Rule
from ort_ep_coreml.mil import Operand


def _transpose(to: EmissionState, node: Node) -> Operand:
    permutation = node.ints_attribute("perm") or tuple(reversed(range(rank_of(node.input(0)))))
    return to.emit("transpose", x=to.operand(node.input(0)), perm=np.array(permutation, np.int32))


def _reshaped(to: EmissionState, node: Node) -> Operand:
    """Lower to a reshape to the sizes of the result, which inference found."""
    source, shape = node.input(0), node.output.shape or ()
    assert source is not None, "required"
    sizes = to.sizes(shape, source) if can_write_sizes(shape, source) else to.operand(node.input(1))
    return to.emit("reshape", x=to.operand(source), shape=sizes)


def _result_can_be_written(context: LoweringContext, node: Node) -> str | None:
    shape = node.output.shape
    if shape == () and rank_of(node.input(0)) == 0:
        return None
    if can_write_sizes(shape, node.input(0)):
        return None
    return f"more than one size of the result of {node.op_type} is open, and the input does not have them"


def _not_to_scalar(context: LoweringContext, node: Node) -> str | None:
    return "Core ML has no reshape to a scalar" if node.output.shape == () else None


def _squeeze(to: EmissionState, node: Node) -> Operand:
    source = node.input(0)
    given = to.context.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    if axes is None:
        axes = tuple(place for place, size in enumerate(source.shape or ()) if size == 1)  # type: ignore[union-attr]  # required
    places = sorted(axis + rank_of(source) if axis < 0 else axis for axis in axes)
    if not places:
        return to.emit("identity", x=to.operand(source))
    return to.emit("squeeze", x=to.operand(source), axes=np.array(places, np.int32))


def _unsqueeze(to: EmissionState, node: Node) -> Operand:
    given = to.context.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    rank = rank_of(node.output)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes or ())
    return to.emit("expand_dims", x=to.operand(node.input(0)), axes=np.array(places, np.int32))


def _axes_are_known(context: LoweringContext, node: Node) -> str | None:
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


def _pieces_are_known(context: LoweringContext, node: Node) -> str | None:
    axis = axis_of(node, node.input(0), 0)
    if len(list(node.present_outputs())) != len(node.outputs):
        return "one of the pieces is left out"
    sizes = [value.shape[axis] if value.shape is not None else None for value in node.present_outputs()]
    if all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return "the sizes of the pieces are not all known beforehand"


def _tile(to: EmissionState, node: Node) -> Operand:
    repeats = to.context.constant(node.input(1))
    assert repeats is not None, "a constant is read beforehand"
    return to.emit("tile", x=to.operand(node.input(0)), reps=repeats.astype(np.int32))


def _repeats_are_positive(context: LoweringContext, node: Node) -> str | None:
    repeats = context.constant(node.input(1))
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


def _shape_is_read(context: LoweringContext, node: Node) -> str | None:
    """Refuse sizes that inference did not find, unless the program computes them and both sides read zeros alike."""
    reason = _result_can_be_written(context, node)
    value = node.input(1)
    if reason is None or value is None or context.constant(value) is not None:
        return reason
    if value in context.outside:
        return reason
    is_alike = not node.int_attribute("allowzero", 0) and rank_of(node.output) == rank_of(node.input(0))
    return None if is_alike or _has_no_zero(context, value) else reason


def _has_no_zero(context: LoweringContext, value: Value) -> bool:
    """Return whether the numbers of a computed shape are proven to be other than 0, which both sides read otherwise."""
    producer = value.producer
    parts = list(producer.present_inputs()) if producer is not None and producer.op_type == "Concat" else [value]
    for part in parts:
        constant, found = context.constant(part), context.interval(part)
        if constant is not None:
            if not constant.all():
                return False
        elif found is None or found[0] < 1:
            return False
    return True


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
    "Tile": Rule(_tile, MOVED, beforehand=(1,), conditions=(_repeats_are_positive,), required=2, oldest=6),
    "DepthToSpace": Rule(_depth_to_space, conditions=(ranks(4, 4),)),
    "SpaceToDepth": Rule(_depth_to_space, conditions=(ranks(4, 4),)),
    "Dropout": Rule(unary("identity"), ports={1: FLOATS, 2: BOOL}, conditions=(only_attributes(is_test=1),)),
}
"""Rules by operator."""
