"""Slice: between bounds that are constants, or that the program computes of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import Node, Value
from ort_core.plugin.ops import slice_range
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import INTS, MOVED, NARROW, Rule
from ort_ep_coreml.lowering.terms import first
from ort_ep_coreml.mil import Operand, Ref, Size

_END = 2**29  # no axis of a tensor of Core ML is as long: where a slice ends there, it ends with the axis
Bound = int | None
"""A bound that is known, or ``None``: the program computes it."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What becomes of one axis; ``place`` is where its bounds stand in the inputs."""

    axis: int
    place: int
    start: Bound
    stop: Bound
    step: int


def _numbers(context: LoweringContext, node: Node, place: int, name: str) -> list[int] | None:
    """Return an input's numbers, or those of the attribute that stood for it; ``None`` where it is computed."""
    value = node.input(place)
    constant = context.constant(value)
    if constant is not None:
        return [int(each) for each in constant.reshape(-1)]
    return None if value is not None else list(node.ints_attribute(name) or ())


def _count(node: Node, place: int, numbers: list[int] | None) -> int | None:
    if numbers is not None:
        return len(numbers)
    size = sizes_of(node.inputs[place])[0]  # type: ignore[arg-type]  # present: it is computed
    return size if isinstance(size, int) else None


def _cuts(context: LoweringContext, node: Node) -> list[_Cut] | None:
    """Return what is cut; ``None`` where nobody knows how many bounds there are."""
    starts, stops = _numbers(context, node, 1, "starts"), _numbers(context, node, 2, "ends")
    count, rank = _count(node, 1, starts), rank_of(node.input(0))
    if count is None or count != _count(node, 2, stops):
        return None
    axes = _numbers(context, node, 3, "axes") or list(range(count))
    steps = _numbers(context, node, 4, "steps") or [1] * count
    return [
        _Cut(
            axes[at] % rank,
            at,
            None if starts is None else starts[at],
            None if stops is None else stops[at],
            steps[at],
        )
        for at in range(count)
    ]


def _slice(to: EmissionState, node: Node) -> Operand:
    cuts, rank, shape = _cuts(to.context, node), rank_of(node.input(0)), sizes_of(node.inputs[0])  # type: ignore[arg-type]  # required
    assert cuts is not None, "_slices_as_lowered was asked"
    begin: list[Operand] = [np.array([0], np.int32)] * rank
    end: list[Operand] = [np.array([0], np.int32)] * rank
    stride = np.ones(rank, np.int32)
    opens, closes = np.ones(rank, np.bool_), np.ones(rank, np.bool_)
    for cut in cuts:
        size, start, stop = shape[cut.axis], cut.start, cut.stop
        stride[cut.axis] = cut.step
        if isinstance(size, int) and start is not None and stop is not None:
            kept = slice_range(size, start, stop, cut.step)
            start, stop = kept.start, kept.stop
        opens[cut.axis] = start == 0 and cut.step > 0
        closes[cut.axis] = stop is not None and (stop < 0 if isinstance(size, int) else stop >= _END)
        begin[cut.axis] = _one(start) if start is not None else _computed(to, node, 1, cut)
        end[cut.axis] = _one(0 if closes[cut.axis] else stop) if stop is not None else _computed(to, node, 2, cut)
    return to.emit(
        "slice_by_index",
        x=to.operand(node.input(0)),
        begin=_vector(to, begin),
        end=_vector(to, end),
        stride=stride,
        begin_mask=opens,
        end_mask=closes,
    )


def _one(number: int | None) -> np.ndarray:
    return np.array([number], np.int32)


def _computed(to: EmissionState, node: Node, place: int, cut: _Cut) -> Operand:
    """Return a computed bound as one number, not beyond the end of its axis: Core ML does not look."""
    at, after = np.array([cut.place], np.int32), np.array([cut.place + 1], np.int32)
    bound = to.emit("slice_by_index", x=to.operand(node.input(place)), begin=at, end=after)
    size = sizes_of(node.inputs[0])[cut.axis]  # type: ignore[arg-type]  # required
    if isinstance(size, int):
        return to.emit("minimum", x=bound, y=_one(size))
    axis, behind = np.array([cut.axis], np.int32), np.array([cut.axis + 1], np.int32)
    whole = to.emit("slice_by_index", x=to.emit("shape", x=first(to, node).operand), begin=axis, end=behind)
    return to.emit("minimum", x=bound, y=whole)


def _vector(to: EmissionState, parts: list[Operand]) -> Operand:
    constants = [part for part in parts if isinstance(part, np.ndarray)]
    if len(constants) == len(parts):
        return np.concatenate(constants)
    return to.emit("concat", values=tuple(part for part in parts if isinstance(part, (Ref, np.ndarray))), axis=0)


def _slices_as_lowered(context: LoweringContext, node: Node) -> str | None:
    cuts, shape = _cuts(context, node), sizes_of(node.inputs[0])  # type: ignore[arg-type]  # required
    if cuts is None:
        return "how many axes Slice cuts is not known beforehand"
    for cut in cuts:
        reason = _cut_refusal(context, node, cut, shape[cut.axis])
        if reason is not None:
            return reason
    return None


def _cut_refusal(context: LoweringContext, node: Node, cut: _Cut, size: Size) -> str | None:
    for place, bound in ((1, cut.start), (2, cut.stop)):
        reason = None if bound is not None else _bound_refusal(context, node, node.inputs[place], cut)
        if reason is not None:
            return reason
    if isinstance(size, int) and cut.start is not None and cut.stop is not None:
        return None
    is_upwards = (cut.start is None or cut.start >= 0) and (cut.stop is None or cut.stop >= 0)
    reaches = cut.stop is None or cut.stop >= _END or isinstance(size, int)
    if cut.step == 1 and is_upwards and reaches:
        return None
    if cut.step == 1 and cut.start is not None and cut.start >= 0 and cut.stop is not None and cut.stop < 0:
        return None  # all but the last few
    start, stop = (("computed" if each is None else each) for each in (cut.start, cut.stop))
    return f"Slice of axis {cut.axis}, whose size is {size}, with start {start}, end {stop} and step {cut.step}"


def _bound_refusal(context: LoweringContext, node: Node, value: Value | None, cut: _Cut) -> str | None:
    assert value is not None, "it is computed"
    found = context.interval(value)
    if value not in context.outside and found is not None and found[0] >= 0 and cut.step == 1:
        return None
    return f"the bounds {value.name!r} of Slice are not constants, and nothing proves that they are sizes of tensors"


SLICING: Mapping[str, Rule] = {
    "Slice": Rule(
        _slice, MOVED | NARROW, ports={1: INTS, 2: INTS}, beforehand=(3, 4), conditions=(_slices_as_lowered,)
    ),
}
"""Rules by operator."""
