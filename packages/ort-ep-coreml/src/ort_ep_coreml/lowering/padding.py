"""Pad and CenterCropPad: cuts, Core ML's own padding where it has the mode, else places chosen axis by axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, NUMBERS, Rule
from ort_ep_coreml.lowering.terms import Term, first
from ort_ep_coreml.mil import Operand

_NUMPY_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
_OWN_AXES = 2  # reflect and replicate are for the last axes


def _paddings(context: LoweringContext, node: Node) -> list[tuple[int, int]]:
    """Return what is padded before and behind each axis; negative numbers cut."""
    rank = rank_of(node.input(0))
    given, axes = context.constant(node.input(1)), context.constant(node.input(3))
    pads = [int(each) for each in given.reshape(-1)] if given is not None else list(node.ints_attribute("pads") or ())
    places = list(range(rank)) if axes is None else [int(each) % rank for each in axes.reshape(-1)]
    found = [(0, 0)] * rank
    for index, axis in enumerate(places):
        found[axis] = (pads[index], pads[index + len(places)])
    return found


def _pad(to: EmissionState, node: Node) -> Operand:
    pads, rank = _paddings(to.context, node), rank_of(node.input(0))
    x, mode = first(to, node), node.string_attribute("mode", "constant")
    cut = [(min(before, 0), min(behind, 0)) for before, behind in pads]
    grown = [(max(before, 0), max(behind, 0)) for before, behind in pads]
    for axis, (before, behind) in enumerate(cut):
        if before or behind:
            x = x.cut(axis, -before, behind or None, rank)
    if not any(map(any, grown)):
        return to.emit("identity", x=x.operand)
    if mode == "constant":
        return _filled(to, node, x, grown).operand
    if all(not any(each) for each in grown[:-_OWN_AXES]) and mode in ("reflect", "edge") and not any(map(any, cut)):
        own = {"reflect": "reflect", "edge": "replicate"}[mode]
        if dtype_of(node.input(0)) in FLOATS and _is_within_axes(node, grown):
            zero = x.number(0)  # the default is float32 whatever is padded, and nothing that is read back
            return x.do("pad", pad=_flat(grown[-_OWN_AXES:]), mode=own, constant_val=zero).operand
    for axis, each in enumerate(grown):
        x = _chosen_places(x, node, axis, each, cut[axis], mode)
    return x.operand


def _is_within_axes(node: Node, grown: list[tuple[int, int]]) -> bool:
    """Return whether no axis is padded by more than it has: MIL's own reflection goes over it once."""
    sizes = node.input(0).shape or ()  # type: ignore[union-attr]  # required
    return all(
        not any(each) or (isinstance(size, int) and max(each) < size)
        for size, each in zip(sizes[-_OWN_AXES:], grown[-_OWN_AXES:], strict=True)
    )


def _filled(to: EmissionState, node: Node, x: Term, grown: list[tuple[int, int]]) -> Term:
    given = to.context.constant(node.input(2))
    fill = node.float_attribute("value", 0.0) if given is None else given.reshape(-1)[0]
    if dtype_of(node.input(0)) in FLOATS:
        return x.do("pad", pad=_flat(grown), mode="constant", constant_val=x.number(fill))
    wide = x.cast(np.dtype(np.float32), "fp32")  # MIL pads floats only: proven to be exact
    padded = wide.do("pad", pad=_flat(grown), mode="constant", constant_val=wide.number(float(fill)))
    return padded.cast(x.dtype, "bool" if dtype_of(node.input(0)) in BOOL else "int32")


def _flat(pads: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pads, np.int32).reshape(-1)


def _chosen_places(x: Term, node: Node, axis: int, pads: tuple[int, int], cut: tuple[int, int], mode: str) -> Term:
    size = (node.input(0).shape or ())[axis]  # type: ignore[union-attr]  # required
    if not any(pads):
        return x
    assert isinstance(size, int), "_pads_as_lowered was asked"
    places = np.pad(np.arange(size + sum(cut)), pads, mode=_NUMPY_MODES[mode])  # type: ignore[call-overload]  # a mode
    return x.do("gather", indices=places.astype(np.int32), axis=axis, validate_indices=False)


def _pads_as_lowered(context: LoweringContext, node: Node) -> str | None:
    mode, pads = node.string_attribute("mode", "constant"), _paddings(context, node)
    sizes = node.input(0).shape or ()  # type: ignore[union-attr]  # required
    if mode != "constant" and mode not in _NUMPY_MODES:
        return f"Pad with mode={mode!r} is not known"
    if mode != "constant" and any(any(each) and not isinstance(size, int) for size, each in zip(sizes, pads)):
        return f"Pad by {mode} of an axis whose size is not known beforehand"
    if mode != "constant" and dtype_of(node.input(0)) in BOOL:
        return f"Pad of booleans by {mode} is not lowered"
    return _is_exact_in_floats(context, node) if mode == "constant" else None


_EXACT = 2**24  # integers up to this are floats without a loss


def _is_exact_in_floats(context: LoweringContext, node: Node) -> str | None:
    value = node.input(0)
    assert value is not None, "required"
    if dtype_of(value) not in INTS:
        return None
    found, fill = context.interval(value), context.constant(node.input(2))
    bounds = (*(found or (_EXACT + 1,)), 0 if fill is None else int(fill.reshape(-1)[0]))
    if max(abs(each) for each in bounds) <= _EXACT:
        return None
    return f"Core ML pads floats only, and nothing proves that the integers of {value.name!r} are exact as such"


def _center(to: EmissionState, node: Node) -> Operand:
    x, rank = first(to, node), rank_of(node.input(0))
    pads: list[tuple[int, int]] = []
    shapes = zip(node.input(0).shape or (), node.output.shape or (), strict=True)  # type: ignore[union-attr]  # required
    for axis, (old, new) in enumerate(shapes):
        assert isinstance(old, int), "_sizes_are_fixed was asked"
        assert isinstance(new, int), "_sizes_are_fixed was asked"
        less = abs(new - old) // 2
        if new < old:
            x = x.cut(axis, less, less + new, rank)
        pads.append((less, new - old - less) if new > old else (0, 0))
    if any(map(any, pads)):
        x = x.do("pad", pad=_flat(pads), mode="constant", constant_val=x.number(0))
    return to.emit("identity", x=x.operand)


def _sizes_are_fixed(context: LoweringContext, node: Node) -> str | None:
    value = node.input(0)
    pairs = zip((value.shape if value is not None else None) or (), node.output.shape or (), strict=True)
    if all(isinstance(old, int) and isinstance(new, int) for old, new in pairs):
        return None
    return "CenterCropPad of sizes that are not known beforehand"


PADDING: Mapping[str, Rule] = {
    "Pad": Rule(_pad, NUMBERS | BOOL, beforehand=(1, 2, 3), conditions=(_pads_as_lowered,), oldest=2),
    "CenterCropPad": Rule(_center, beforehand=(1,), conditions=(_sizes_are_fixed,), required=2),
}
"""Rules by operator."""
