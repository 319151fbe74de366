"""Resizing and padding axis by axis, with tables of the places that are read and their weights, made on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import lift
from ort_core.plugin.ops import (
    ResizedAxis,
    ResizeFilter,
    changed_axes,
    goes_by_scale,
    nearest_inputs,
    plan_resized_axes,
    source_coordinates,
)
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_INTERPOLATE = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = rest % result_size, first = rest / result_size * axis_size;
@C@ value = 0;
for (long long k = 0; k < reads; ++k)
  value += weights[at * reads + k] * ort_load(x[(first + places[at * reads + k]) * inner_size + inner]);
out[i] = ort_store<@T@>::of(value);
"""
_PICK = """
const long long inner = i % inner_size, rest = i / inner_size;
out[i] = x[(rest / result_size * axis_size + places[rest % result_size]) * inner_size + inner];
"""
_SIZES = "long long inner_size, long long axis_size, long long result_size, long long reads, long long count"
COORDINATES = frozenset(
    {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "tf_half_pixel_for_nn"}
)


def refuse_resize(node: Node) -> str | None:
    """Return why a resizing is not generated."""
    coordinate = node.string_attribute("coordinate_transformation_mode", "half_pixel")
    if coordinate not in COORDINATES:
        return f"Resize by coordinates {coordinate!r} is not generated"
    value = node.input(0)
    dtype = getattr(value.type, "dtype", None) if value is not None else None
    if node.string_attribute("mode", "nearest") != "nearest" and (dtype is None or not dtype.is_float):
        return "interpolation of integers is not generated"
    return None


def lower_resize(facts: LoweredNode) -> None:
    """Resize one axis after the other; those that stay as they are cost nothing."""
    x = facts.builder.dense(facts.value(0))
    plan = planned(facts, x.shape)
    shape = tuple(axis.made for axis in plan)
    axes = changed_axes(plan, antialias=_is_filtered(facts.node))
    if not axes or not math.prod(shape):
        facts.builder.stored(LazyTensor.of(x), facts.builder.result(facts.output, shape))
        return
    for number, axis in enumerate(axes):
        wanted = (*x.shape[:axis], shape[axis], *x.shape[axis + 1 :])
        is_last = number == len(axes) - 1
        out = facts.builder.result(facts.output, wanted) if is_last else facts.builder.temporary(x.dtype, wanted)
        _resize_axis(facts, x, out, axis, plan[axis])
        x = out


def planned(facts: LoweredNode, shape: Shape) -> list[ResizedAxis]:
    """Return how each axis is resized."""
    axes = [axis_of(a, len(shape)) for a in facts.node.ints_attribute("axes") or range(len(shape))]
    scales, sizes = facts.known(2), facts.known(3) if facts.has(3) else None
    given = None if scales is None or not scales.size else [float(each) for each in scales]
    wanted = None if given is not None or sizes is None else [int(each) for each in sizes]
    policy = facts.node.string_attribute("keep_aspect_ratio_policy", "stretch")
    return plan_resized_axes(shape, axes, given, wanted, policy)


def _is_filtered(node: Node) -> bool:
    return bool(node.int_attribute("antialias", 0))


def _resize_axis(facts: LoweredNode, x: TensorView, out: TensorView, axis: int, resized: ResizedAxis) -> None:
    places, weights = resize_table(
        facts.node, facts.opset, resized, np.float64 if x.dtype is DataType.DOUBLE else np.float32
    )
    table = facts.builder.table("places", places.astype(np.int64))
    sizes = numbers(math.prod(x.shape[axis + 1 :]), x.shape[axis], out.shape[axis], places.shape[1])
    if weights is None:
        _pick(facts, x, table, out, axis)
        return
    factors = facts.builder.table("weights", weights.astype(compute_type(x.dtype).numpy))
    parameters = f"const @T@* x, const long long* places, const @C@* weights, @T@* out, {_SIZES}"
    kernel = filled("interpolate", parameters, _INTERPOLATE, _types(x.dtype))
    arguments = (*pointers(x, table, factors, out), *sizes)
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x, table, factors], [out]))


def _pick(facts: LoweredNode, x: TensorView, table: TensorView, out: TensorView, axis: int) -> None:
    """Take one place of an axis for each of the result."""
    parameters = f"const @T@* x, const long long* places, @T@* out, {_SIZES}"
    kernel = filled("pick", parameters, _PICK, _types(x.dtype))
    sizes = numbers(math.prod(x.shape[axis + 1 :]), x.shape[axis], out.shape[axis], 1)
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(x, table, out), *sizes), [x, table], [out]))


def _types(dtype: DataType) -> dict[str, str]:
    return {"T": STORAGE[dtype], "C": STORAGE[compute_type(dtype)]}


def resize_table(
    node: Node, opset: int, axis: ResizedAxis, dtype: type[np.floating]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return for each output the inputs that it reads ``[made, inputs]``, and their weights; none for the nearest."""
    mode = node.string_attribute("mode", "nearest")
    transformation = node.string_attribute("coordinate_transformation_mode", "half_pixel")
    by_scale = goes_by_scale(mode, axis.scale, opset)
    at = source_coordinates(axis, transformation, by_scale=by_scale, dtype=dtype)
    if mode == "nearest":
        return nearest_inputs(at, axis, node.string_attribute("nearest_mode", "round_prefer_floor"))[:, None], None
    coefficient, excludes = node.float_attribute("cubic_coeff_a", -0.75), bool(node.int_attribute("exclude_outside", 0))
    return ResizeFilter(mode == "cubic", coefficient, _is_filtered(node), excludes).mixed_inputs(at, axis)


PAD_MODES = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
"""By ONNX's name of a padding without a constant: numpy's, which makes the table of places."""


def refuse_pad(node: Node) -> str | None:
    """Return why a padding is not generated: its mode is not known."""
    mode = node.string_attribute("mode", "constant")
    return None if mode in (*PAD_MODES, "constant") else f"padding by mode {mode!r} is not generated"


def lower_pad(facts: LoweredNode) -> None:
    """Pad with a constant, or with elements of the axis; negative padding cuts."""
    before, after = _pad_sizes(facts, len(facts.tensor(0).shape))
    mode = facts.node.string_attribute("mode", "constant")
    if mode == "constant":
        _pad_with_constant(facts, before, after)
    else:
        _pad_with_elements(facts, before, after, PAD_MODES[mode])


def _pad_sizes(facts: LoweredNode, rank: int) -> tuple[list[int], list[int]]:
    given = facts.integers(1, "pads") or (0,) * (2 * rank)
    axes = facts.integers(3, "") if facts.has(3) else None
    chosen = axes if axes is not None else tuple(range(rank))
    before, after = [0] * rank, [0] * rank
    for number, axis in enumerate(chosen):
        before[axis_of(axis, rank)], after[axis_of(axis, rank)] = given[number], given[number + len(chosen)]
    return before, after


def _pad_with_elements(facts: LoweredNode, before: Sequence[int], after: Sequence[int], mode: str) -> None:
    x = facts.builder.dense(facts.value(0))
    axes = [axis for axis in range(len(x.shape)) if before[axis] or after[axis]]
    if not axes:
        facts.builder.define(facts.output, facts.tensor(0))
    for axis in axes:
        cut = range(x.shape[axis])[max(0, -before[axis]) : x.shape[axis] - max(0, -after[axis])]
        places = np.pad(np.array(cut, np.int64), (max(0, before[axis]), max(0, after[axis])), mode=mode)  # type: ignore[call-overload]  # a mode of the table
        wanted = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
        is_last = axis == axes[-1]
        out = facts.builder.result(facts.output, wanted) if is_last else facts.builder.temporary(x.dtype, wanted)
        if out.size:
            _pick(facts, x, facts.builder.table("places", places), out, axis)
        x = out


def _pad_with_constant(facts: LoweredNode, before: Sequence[int], after: Sequence[int]) -> None:
    x = facts.tensor(0)
    out = facts.builder.result(facts.output, tuple(s + b + a for s, b, a in zip(x.shape, before, after, strict=True)))
    facts.builder.stored(_padding(facts, x.dtype, out.shape), out)
    inside = out
    for axis in range(len(x.shape)):
        cut, size = max(0, -before[axis]), x.shape[axis]
        size = size - cut - max(0, -after[axis])
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        x = x.moved(lambda v, a=axis, f=cut, n=size: v.sliced(a, f, 1, n), shape)  # type: ignore[misc]  # a lambda's defaults bind the loop's variables
        inside = inside.sliced(axis, max(0, before[axis]), 1, size)
    facts.builder.stored(x, inside)


def _padding(facts: LoweredNode, dtype: DataType, shape: Shape) -> LazyTensor:
    if facts.has(2):
        value = facts.tensor(2)
        return value.moved(lambda view: view.reshaped(()) or view, ()).broadcast_to(shape)
    content = facts.node.float_attribute("value", 0.0)
    return LazyTensor(lift(content if dtype.is_float else 0, compute_type(dtype)), (), shape, dtype)
