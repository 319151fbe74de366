"""Resize and Upsample: each axis by itself.

What an axis becomes is asked of the numpy kernel, which holds ONNX's rules: nearest is a choice of places (the kernel
over their numbers), a filter is a matrix (the kernel over the identity). Core ML's own operations are used where they
mean exactly that choice or matrix, else a gather or a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.kernels import KernelContext, KernelSpec, Unguarded, reference_kernels
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.terms import Term, first
from ort_ep_coreml.mil import Operand

_SAMPLINGS = ("UNALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT")
_IMAGE = 2  # axes that Core ML's own operations resize: the last ones


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that changes: ``places`` for nearest, else ``matrix`` [out, size]."""

    axis: int
    size: int
    out: int
    places: np.ndarray | None
    matrix: np.ndarray | None


def sampled(size: int, out: int, mode: str) -> np.ndarray:
    """Return where Core ML's bilinear operations look, in float64, by the name of their sampling mode."""
    steps = np.arange(out, dtype=np.float64)
    if mode == "UNALIGN_CORNERS":
        places = steps * size / out + 0.5 * size / out - 0.5
    elif mode == "STRICT_ALIGN_CORNERS":
        places = steps * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        places = steps * size / out
    return places.clip(0, size - 1)


def bilinear_matrix(size: int, out: int, mode: str) -> np.ndarray:
    """Return the weights [out, size] of Core ML's bilinear operations along one axis."""
    places = sampled(size, out, mode)
    below = np.floor(places).astype(np.int64)
    above = np.minimum(below + 1, size - 1)
    found = np.zeros((out, size))
    np.add.at(found, (np.arange(out), below), 1 - (places - below))
    np.add.at(found, (np.arange(out), above), places - below)
    return found


def _axes(context: LoweringContext, node: Node) -> list[_Axis]:
    value = node.input(0)
    shape, target = value.shape or (), node.output.shape or ()  # type: ignore[union-attr]  # required
    sizes = [(axis, old, new) for axis, (old, new) in enumerate(zip(shape, target, strict=True))]
    given = _given(context, node, len(shape))
    return [
        _axis(context, node, axis, old, new, given)
        for axis, old, new in sizes
        if isinstance(old, int) and isinstance(new, int) and (old != new or _changes(given, axis))
    ]


def _given(context: LoweringContext, node: Node, rank: int) -> list[float | None]:
    """Return the scale of each axis; ``None`` where sizes are given."""
    if node.op_type == "Upsample" and context.opset(node) < 9:
        stated = node.attribute("scales")
        return [float(each) for each in stated]  # type: ignore[attr-defined]  # a list of floats there
    constant = context.constant(node.input(2 if _is_wide(context, node) else 1))
    if constant is None or not constant.size:
        return [None] * rank
    found: list[float | None] = [1.0] * rank
    for axis, scale in zip(_named(node, rank), constant.reshape(-1), strict=True):
        found[axis] = float(scale)
    return found


def _is_wide(context: LoweringContext, node: Node) -> bool:
    return node.op_type == "Resize" and context.opset(node) >= 11


def _named(node: Node, rank: int) -> list[int]:
    axes = node.ints_attribute("axes") or tuple(range(rank))
    return [axis % rank for axis in axes]


def _changes(given: list[float | None], axis: int) -> bool:
    scale = given[axis]
    return scale is not None and scale != 1.0


def _axis(context: LoweringContext, node: Node, axis: int, size: int, out: int, given: list[float | None]) -> _Axis:
    if node.string_attribute("mode", "nearest") == "nearest":
        numbers = np.arange(size, dtype=np.float32).reshape(size, 1)
        return _Axis(axis, size, out, _resized(context, node, numbers, out, given[axis])[:, 0].astype(np.int32), None)
    return _Axis(axis, size, out, None, _resized(context, node, np.eye(size), out, given[axis]))


def _resized(context: LoweringContext, node: Node, array: np.ndarray, out: int, scale: float | None) -> np.ndarray:
    """Return what the numpy kernel makes of the first axis of an array."""
    opset = context.opset(node)
    spec = reference_kernels().find("", node.op_type, opset)
    assert isinstance(spec, KernelSpec), spec
    attributes = {name: _plain(each.value) for name, each in node.attributes.items() if name not in ("axes", "scales")}
    scales = None if scale is None else np.array([scale, 1.0], np.float32)
    if node.op_type == "Upsample" and opset < 9:
        return np.asarray(spec.function(array, scales=tuple(scales.tolist()), **attributes))  # type: ignore[union-attr]  # stated
    kernel_context = KernelContext(node.op_type, "", opset, node.name, (True,), (None,), {}, Unguarded(), None, 1)
    if not _is_wide(context, node):
        return np.asarray(spec.function(array, scales, ctx=kernel_context, **attributes))
    attributes.pop("keep_aspect_ratio_policy", None)
    sizes = np.array([out, array.shape[1]]) if scale is None else None
    return np.asarray(spec.function(array, None, scales, sizes, ctx=kernel_context, **attributes))


def _plain(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _resize(to: EmissionState, node: Node) -> Operand:
    x, axes, rank = first(to, node), _axes(to.context, node), rank_of(node.input(0))
    own = _own_operation(x, axes, rank)
    if own is not None:
        return own.operand
    for each in axes:
        x = _picked(x, each) if each.places is not None else _mixed(x, each, rank)
    return to.emit("identity", x=x.operand) if not axes else x.operand


def _own_operation(x: Term, axes: list[_Axis], rank: int) -> Term | None:
    """Return Core ML's own operation where it means the same: over the last two axes, of at least three."""
    by_axis = {each.axis: each for each in axes}
    if rank <= _IMAGE or not axes or min(by_axis) < rank - _IMAGE:
        return None
    height, width = by_axis.get(rank - 2), by_axis.get(rank - 1)
    if all(each.places is not None for each in axes):
        factors = [1 if each is None else _repeats(each) for each in (height, width)]
        if None in factors:
            return None
        return x.do("upsample_nearest_neighbor", scale_factor_height=factors[0], scale_factor_width=factors[1])  # type: ignore[arg-type]  # not None
    for mode in _SAMPLINGS:
        if height is not None and width is not None and all(_is_bilinear(each, mode) for each in axes):
            return x.do(
                "resize_bilinear", target_size_height=height.out, target_size_width=width.out, sampling_mode=mode
            )
    return None


def _repeats(axis: _Axis) -> int | None:
    factor, rest = divmod(axis.out, axis.size)
    is_repeated = not rest and np.array_equal(axis.places, np.arange(axis.out) // factor)  # type: ignore[arg-type]  # nearest
    return factor if is_repeated else None


def _is_bilinear(axis: _Axis, mode: str) -> bool:
    own = bilinear_matrix(axis.size, axis.out, mode)
    return axis.matrix is not None and bool(np.allclose(axis.matrix, own, rtol=0, atol=1e-6))


def _picked(x: Term, axis: _Axis) -> Term:
    assert axis.places is not None, "nearest"
    return x.do("gather", indices=axis.places, axis=axis.axis, validate_indices=False)


def _mixed(x: Term, axis: _Axis, rank: int) -> Term:
    """Return the product of one axis with its matrix; a vector is a row for that time."""
    assert axis.matrix is not None, "a filter"
    weights = x.number(axis.matrix.T)
    if rank == 1:
        return (x.reshaped(1, -1) @ weights).reshaped(axis.out)
    order = [place for place in range(rank) if place != axis.axis] + [axis.axis]
    back = [order.index(place) for place in range(rank)]
    return (x.transposed(*order) @ weights).transposed(*back)


def _resizes_as_lowered(context: LoweringContext, node: Node) -> str | None:
    value = node.input(0)
    shape, target = (value.shape if value is not None else None) or (), node.output.shape
    if target is None or len(target) != len(shape):
        return "the rank of the result is not known beforehand"
    if not _sizes_are_known(context, node, value, target):
        return f"sizes that {node.op_type} changes are not known beforehand"
    if node.string_attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return "Resize with coordinate_transformation_mode='tf_crop_and_resize' is not lowered"
    fixed = [(a, b) for a, b in zip(shape, target, strict=True) if isinstance(a, int) and isinstance(b, int)]
    ratios = {new / old for old, new in fixed}
    policy = node.string_attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and len(ratios - {1.0}) > 1:
        return f"Resize with keep_aspect_ratio_policy={policy!r} and sizes that are rounded differently is not lowered"
    return None


def _sizes_are_known(context: LoweringContext, node: Node, value: Value | None, target: tuple[object, ...]) -> bool:
    shape = (value.shape if value is not None else None) or ()
    given = _given(context, node, len(shape))
    return all(
        (isinstance(old, int) and isinstance(new, int)) or (old == new and given[axis] in (None, 1.0))
        for axis, (old, new) in enumerate(zip(shape, target, strict=True))
    )


def _has_a_kernel(context: LoweringContext, node: Node) -> str | None:
    found = reference_kernels().find("", node.op_type, context.opset(node))
    return found.reason if isinstance(found, Rejection) else None


_CONDITIONS = (_has_a_kernel, _resizes_as_lowered)

RESIZING: Mapping[str, Rule] = {
    "Resize": Rule(_resize, beforehand=(1, 2, 3), conditions=_CONDITIONS),
    "Upsample": Rule(_resize, beforehand=(1, 2, 3), conditions=_CONDITIONS, oldest=7),
}
"""Rules by operator."""
