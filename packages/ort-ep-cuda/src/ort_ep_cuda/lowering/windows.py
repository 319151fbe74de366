"""Pooling over windows, and resizing axis by axis with tables of places and weights computed on the host."""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.products import window_pads
from ort_ep_cuda.lowering.templates import filled, launch_elements, numbers, pointers
from ort_ep_cuda.lowering.tensors import LazyTensor
from ort_ep_cuda.lowering.views import TensorView

_NUMBERS_OF_AXIS = ("size", "result", "window", "stride", "dilation", "pad", "pad_after")


def refuse_pool(node: Node) -> str | None:
    """Return why a pooling is not generated."""
    if len(list(node.present_outputs())) > 1:
        return "MaxPool with indices is not generated"
    if node.int_attribute("storage_order", 0):
        return "MaxPool in column-major order is not generated"
    value = node.input(0)
    shape = getattr(value.type, "shape", None) if value is not None else None
    if shape is None or not 3 <= len(shape) <= 5:
        return "only pooling over one to three axes of space of known rank is generated"
    dtype = getattr(value.type, "dtype", None) if value is not None else None
    if dtype is None or compute_type(dtype) not in (DataType.FLOAT, DataType.DOUBLE):
        return f"{node.op_type} of {dtype.text if dtype else 'unknown type'} is not generated"
    return None


def lower_pool(facts: LoweredNode) -> None:
    """Reduce the window of each result by its maximum or mean."""
    x = facts.builder.dense(facts.value(0))
    space = len(x.shape) - 2
    window = facts.node.ints_attribute("kernel_shape") or ()
    strides = facts.node.ints_attribute("strides") or (1,) * space
    dilations = facts.node.ints_attribute("dilations") or (1,) * space
    extent = [d * (k - 1) + 1 for d, k in zip(dilations, window, strict=True)]
    before, after = window_pads(facts.node, x.shape[2:], extent, strides)
    is_ceiled = facts.node.int_attribute("ceil_mode", 0) == 1
    sizes = [_pooled(x.shape[2 + a], before[a], after[a], extent[a], strides[a], is_ceiled) for a in range(space)]
    out = facts.builder.result(facts.output, (*x.shape[:2], *sizes))
    if not out.size:
        return
    per_axis = [
        (x.shape[2 + a], sizes[a], window[a], strides[a], dilations[a], before[a], after[a]) for a in range(space)
    ]
    declared = ", ".join(f"long long {name}{a}" for a in range(space) for name in _NUMBERS_OF_AXIS)
    parameters = f"const @T@* x, @T@* out, {declared}, long long count"
    kernel = filled("pool", parameters, _pool_body(facts.node, space), _types(x.dtype))
    arguments = (*pointers(x, out), *numbers(*(number for axis in per_axis for number in axis)))
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x], [out]))


def _pooled(size: int, before: int, after: int, extent: int, stride: int, is_ceiled: bool) -> int:
    span = size + before + after - extent
    count = (-(-span // stride) if is_ceiled else span // stride) + 1
    return count - 1 if is_ceiled and (count - 1) * stride >= size + before else count


def _types(dtype: DataType) -> dict[str, str]:
    return {"T": STORAGE[dtype], "C": STORAGE[compute_type(dtype)]}


def _pool_body(node: Node, space: int) -> str:
    is_mean = node.op_type == "AveragePool"
    is_padding_counted = is_mean and node.int_attribute("count_include_pad", 0) == 1
    lines = ["long long rest = i;"]
    for a in reversed(range(space)):
        lines.append(f"const long long start{a} = rest % result{a} * stride{a} - pad{a}; rest /= result{a};")
    lines.append(f"@C@ value = {'0' if is_mean else _lowest()};")
    if is_mean:
        lines.append("long long counted = 0;")
    for a in range(space):
        lines.append(f"for (long long k{a} = 0; k{a} < window{a}; ++k{a}) {{")
        lines.append(f"const long long at{a} = start{a} + k{a} * dilation{a};")
        if is_padding_counted:
            lines.append(f"if (at{a} >= size{a} + pad_after{a}) break;")
    inside = " && ".join(f"at{a} >= 0 && at{a} < size{a}" for a in range(space))
    place = "rest"
    for a in range(space):
        place = f"({place} * size{a} + at{a})"
    if is_padding_counted:
        lines.append("++counted;")
    lines.append(f"if (!({inside})) continue;")
    if is_mean:
        lines.append(f"value += ort_load(x[{place}]);" + ("" if is_padding_counted else " ++counted;"))
    else:
        lines.append(f"value = ort_max(value, ort_load(x[{place}]));")
    lines += ["}"] * space
    lines.append(f"out[i] = ort_store<@T@>::of({'value / (@C@)counted' if is_mean else 'value'});")
    return "\n".join(lines)


def _lowest() -> str:
    return "(@C@)-__int_as_float(0x7f800000)"


_INTERPOLATE = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = rest % result_size, first = rest / result_size * axis_size;
@C@ value = 0;
for (long long k = 0; k < taps; ++k)
  value += (@C@)weights[at * taps + k] * ort_load(x[(first + places[at * taps + k]) * inner_size + inner]);
out[i] = ort_store<@T@>::of(value);
"""
_PICK = """
const long long inner = i % inner_size, rest = i / inner_size;
out[i] = x[(rest / result_size * axis_size + places[rest % result_size]) * inner_size + inner];
"""
_SIZES = "long long inner_size, long long axis_size, long long result_size, long long taps, long long count"
COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"})


def refuse_resize(node: Node) -> str | None:
    """Return why a resizing is not generated."""
    if node.int_attribute("antialias", 0) or node.int_attribute("exclude_outside", 0):
        return "Resize with antialias or exclude_outside is not generated"
    if node.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch" or node.ints_attribute("axes"):
        return "Resize of chosen axes, or one that keeps the aspect ratio, is not generated"
    coordinate = node.string_attribute("coordinate_transformation_mode", "half_pixel")
    if coordinate not in COORDINATES:
        return f"Resize by coordinates {coordinate!r} is not generated"
    value = node.input(0)
    dtype = getattr(value.type, "dtype", None) if value is not None else None
    if node.string_attribute("mode", "nearest") != "nearest" and (dtype is None or not dtype.is_float):
        return "interpolation of integers is not generated"
    return None


def lower_resize(facts: LoweredNode) -> None:
    """Resize one axis after the other; an axis of unchanged size and scale costs nothing."""
    x = facts.builder.dense(facts.value(0))
    scales, sizes = facts.known(2), facts.known(3) if facts.has(3) else None
    if scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
        shape = tuple(math.floor(size * factor) for size, factor in zip(x.shape, factors, strict=True))
    else:
        shape = tuple(int(size) for size in (sizes if sizes is not None else x.shape))
        factors = [wanted / size if size else 1.0 for wanted, size in zip(shape, x.shape, strict=True)]
    axes = [a for a in range(len(shape)) if factors[a] != 1.0]
    if not axes or not math.prod(shape):
        facts.builder.stored(LazyTensor.of(x), facts.builder.result(facts.output, shape))
        return
    for number, axis in enumerate(axes):
        wanted = (*x.shape[:axis], shape[axis], *x.shape[axis + 1 :])
        is_last = number == len(axes) - 1
        out = facts.builder.result(facts.output, wanted) if is_last else facts.builder.temporary(x.dtype, wanted)
        _resize_axis(facts, x, out, axis, factors[axis])
        x = out


def _resize_axis(facts: LoweredNode, x: TensorView, out: TensorView, axis: int, factor: float) -> None:
    places, weights = resize_table(facts.node, x.shape[axis], out.shape[axis], factor)
    table = facts.builder.table("places", places.astype(np.int64))
    sizes = numbers(math.prod(x.shape[axis + 1 :]), x.shape[axis], out.shape[axis], places.shape[1])
    if weights is None:
        kernel = filled("pick", f"const @T@* x, const long long* places, @T@* out, {_SIZES}", _PICK, _types(x.dtype))
        facts.builder.add(launch_elements(kernel, out.size, (*pointers(x, table, out), *sizes), [x, table], [out]))
        return
    factors = facts.builder.table("weights", weights.astype(np.float32))
    parameters = f"const @T@* x, const long long* places, const float* weights, @T@* out, {_SIZES}"
    kernel = filled("interpolate", parameters, _INTERPOLATE, _types(x.dtype))
    arguments = (*pointers(x, table, factors, out), *sizes)
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x, table, factors], [out]))


def resize_table(node: Node, size: int, result: int, factor: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Return for each place of the result the places it reads ``[result, taps]`` and their weights.

    Weights are ``None`` for the nearest place. Places outside are moved to the border.
    """
    at = _source_coordinates(node, size, result, factor)
    mode = node.string_attribute("mode", "nearest")
    if mode == "nearest":
        return np.clip(_nearest(node, at), 0, size - 1)[:, None], None
    first = np.floor(at).astype(np.int64)
    part = at - first
    if mode == "linear":
        return np.clip(np.stack([first, first + 1], 1), 0, size - 1), np.stack([1 - part, part], 1)
    a = node.float_attribute("cubic_coeff_a", -0.75)
    weights = np.stack([_cubic(part + 1, a), _cubic(part, a), _cubic(1 - part, a), _cubic(2 - part, a)], 1)
    return np.clip(first[:, None] + np.arange(-1, 3), 0, size - 1), weights


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)


def _source_coordinates(node: Node, size: int, result: int, factor: float) -> np.ndarray:
    mode = node.string_attribute("coordinate_transformation_mode", "half_pixel")
    places = np.arange(result, dtype=np.float64)
    if mode == "asymmetric":
        return places / factor
    if mode == "align_corners":
        return places * ((size - 1) / (result - 1) if result > 1 else 0.0)
    if mode == "pytorch_half_pixel" and result <= 1:
        return np.zeros_like(places)
    if mode == "half_pixel_symmetric":
        adjustment = result / (factor * size)
        return size / 2 * (1 - adjustment) + (places + 0.5) / factor - 0.5
    return (places + 0.5) / factor - 0.5


def _nearest(node: Node, at: np.ndarray) -> np.ndarray:
    mode = node.string_attribute("nearest_mode", "round_prefer_floor")
    rounded: dict[str, np.ndarray] = {
        "round_prefer_floor": np.ceil(at - 0.5), "round_prefer_ceil": np.floor(at + 0.5), "floor": np.floor(at),
        "ceil": np.ceil(at),
    }  # fmt: skip
    return rounded[mode].astype(np.int64)
