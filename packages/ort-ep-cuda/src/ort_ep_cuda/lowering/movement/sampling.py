"""Sampling at points that come from data: grids of coordinates (GridSample) and regions of interest (RoiAlign).

A thread takes one result and walks the few places around each of its points; which those are follows from the mode and
the padding, which are written into the kernel.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_REFLECT = """
const auto reflect = [](@G@ at, @G@ low, @G@ high) {
  const @G@ span = high - low;
  if (span <= 0) return low;
  if (at >= low && at <= high) return at;
  const @G@ distance = at < low ? low - at : at - high, turns = floor(distance / span);
  const @G@ rest = distance - turns * span;
  return ((long long)turns % 2 == 0) == (at < low) ? low + rest : high - rest;
};
"""
_AXIS = """
const @G@ low@A@ = @LOW@, high@A@ = (@G@)size@A@ - 1 - low@A@;
@G@ at@A@ = @PLACE@;
if (!(at@A@ > -9.0e18f && at@A@ < 9.0e18f)) at@A@ = low@A@;
@INSIDE@
const @G@ first@A@ = @FIRST@, part@A@ = at@A@ - first@A@;
"""
_TAP = """
for (int k@A@ = 0; k@A@ < @TAPS@; ++k@A@) {
  @G@ place@A@ = first@A@ + k@A@ - @BEFORE@;
  @MOVED@
  const @C@ weight@A@ = @WEIGHT@;
"""
_CUBIC = """
const auto cubic = [](@G@ distance) {
  const @G@ a = (@G@)-0.75;
  return distance <= 1 ? ((a + 2) * distance - (a + 3)) * distance * distance + 1
                       : ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a;
};
"""


def refuse_grid_sample(node: Node) -> str | None:
    """Return why a sampling is not generated: its mode, its padding, its rank or integers between which it stands."""
    mode, padding = node.string_attribute("mode", "linear"), node.string_attribute("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        return f"GridSample by mode {mode!r} and padding {padding!r} is not generated"
    x, grid = node.input(0), node.input(1)
    assert x is not None
    assert grid is not None
    if x.rank is None or not 3 <= x.rank <= 5:
        return "GridSample over one to three axes of known rank is generated, no other"
    if not element_type(grid).is_float or (not element_type(x).is_float and _MODES[mode] != "nearest"):
        return "interpolation of integers is not generated"
    return None


def lower_grid_sample(facts: LoweredNode) -> None:
    """Store what the input holds at each point of the grid; the grid names the last axis first."""
    x, grid = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    space = len(x.shape) - 2
    if grid.shape[-1] != space or grid.shape[0] != x.shape[0] or len(grid.shape) != len(x.shape):
        raise InvalidArgument(
            f"{facts.node.describe()}: a grid of shape {grid.shape} does not fit {x.shape}, expected [N, ..., {space}]"
        )
    out = facts.builder.result(facts.output, (*x.shape[:2], *grid.shape[1:-1]))
    if not out.size:
        return
    if not math.prod(x.shape[2:]):
        raise InvalidArgument(f"{facts.node.describe()}: nothing can be sampled of the shape {x.shape}")
    texts = {"T": STORAGE[x.dtype], "S": STORAGE[grid.dtype], "C": STORAGE[compute_type(x.dtype)]}
    texts["G"] = STORAGE[compute_type(grid.dtype)]
    sizes = ", ".join(f"long long size{a}" for a in range(space))
    parameters = (
        f"const @T@* x, const @S@* grid, @T@* out, long long channels, long long points, {sizes}, long long count"
    )
    kernel = filled("grid_sample", parameters, _grid_body(facts.node, space), texts)
    arguments = (*pointers(x, grid, out), *numbers(x.shape[1], math.prod(grid.shape[1:-1]), *x.shape[2:]))
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x, grid], [out]))


def _grid_body(node: Node, space: int) -> str:
    mode = _MODES[node.string_attribute("mode", "linear")]
    padding = node.string_attribute("padding_mode", "zeros")
    is_aligned = node.int_attribute("align_corners", 0) == 1
    lines = [_REFLECT if padding == "reflection" else "", _CUBIC if mode == "cubic" else ""]
    lines.append(f"const @S@* point = grid + (i / (channels * points) * points + i % points) * {space};")
    lines.append("const @T@* image = x + i / points * (" + " * ".join(f"size{a}" for a in range(space)) + ");")
    axes = [_axis(mode, padding, is_aligned, a, space) for a in range(space)]
    taps = [_tap(mode, padding, a) for a in range(space)]
    inside = " && ".join(f"place{a} >= 0 && place{a} < size{a}" for a in range(space))
    place = "0"
    for a in range(space):
        place = f"({place} * size{a} + (long long)place{a})"
    lines += ["@C@ value = 0;", *axes, *taps]
    weight = " * ".join(f"weight{a}" for a in range(space))
    term = f"ort_load(image[{place}])" if mode == "nearest" else f"ort_load(image[{place}]) * ({weight})"
    lines += [f"if ({inside}) value += {term};", *["}"] * space, "out[i] = ort_store<@T@>::of(value);"]
    return "\n".join(line for line in lines if line)


def _axis(mode: str, padding: str, is_aligned: bool, axis: int, space: int) -> str:
    """Return where a point stands on an axis, and the place below it."""
    given = f"ort_load(point[{space - 1 - axis}])"
    place = f"({given} + 1) * (@G@)0.5 * (@G@)(size@A@ - 1)"
    if not is_aligned:
        place = f"(({given} + 1) * (@G@)size@A@ - 1) * (@G@)0.5"
    inside = "" if mode != "nearest" else "at@A@ = rint(at@A@);"
    if mode != "cubic" and padding == "border":
        inside += " at@A@ = ort_min(ort_max(at@A@, (@G@)0), (@G@)(size@A@ - 1));"
    if mode != "cubic" and padding == "reflection":
        inside += " at@A@ = reflect(at@A@, low@A@, high@A@);"
    first = "at@A@" if mode == "nearest" else "floor(at@A@)"
    text = _AXIS.strip("\n").replace("@LOW@", "0" if is_aligned else "(@G@)-0.5").replace("@PLACE@", place)
    return text.replace("@INSIDE@", inside).replace("@FIRST@", first).replace("@A@", str(axis))


def _tap(mode: str, padding: str, axis: int) -> str:
    """Return the loop over the places around a point on an axis, with their weights."""
    weight = {"nearest": "1", "linear": "k@A@ ? part@A@ : 1 - part@A@"}
    weight["cubic"] = "cubic(fabs((@G@)(k@A@ - 1) - part@A@))"
    moved = ""
    if padding == "reflection":
        moved = "place@A@ = trunc(reflect(place@A@, low@A@, high@A@)); "
    if padding != "zeros":
        moved += "place@A@ = ort_min(ort_max(place@A@, (@G@)0), (@G@)(size@A@ - 1));"
    text = _TAP.strip("\n").replace("@TAPS@", str(_TAPS[mode])).replace("@BEFORE@", "1" if mode == "cubic" else "0")
    return text.replace("@MOVED@", moved).replace("@WEIGHT@", weight[mode]).replace("@A@", str(axis))


_ROI = """
const long long column = i % columns, row = i / columns % rows, channel = i / columns / rows % channels;
const long long region = i / columns / rows / channels;
const long long named = (long long)images[region];
const long long image = ort_index(named < 0 ? batch : named, batch, status, node);  // none is counted from the end
const @C@ half = (@C@)(@HALF@);
const @C@ left = ort_load(rois[region * 4]) * scale - half, top = ort_load(rois[region * 4 + 1]) * scale - half;
@C@ width = ort_load(rois[region * 4 + 2]) * scale - half - left;
@C@ height = ort_load(rois[region * 4 + 3]) * scale - half - top;
@AT_LEAST@
width /= (@C@)columns; height /= (@C@)rows;
const long long across = ratio > 0 ? ratio : (long long)ceil(width), down = ratio > 0 ? ratio : (long long)ceil(height);
const @T@* plane = x + (image * channels + channel) * size0 * size1;
@C@ value = @START@;
for (long long a = 0; a < down; ++a) {
  const @C@ y = top + (@C@)row * height + ((@C@)a + (@C@)0.5) * height / (@C@)down;
  for (long long b = 0; b < across; ++b) {
    const @C@ z = left + (@C@)column * width + ((@C@)b + (@C@)0.5) * width / (@C@)across;
    const bool is_inside = y >= -1 && y <= size0 && z >= -1 && z <= size1;
    const @C@ at0 = is_inside ? ort_max(y, (@C@)0) : (@C@)0, at1 = is_inside ? ort_max(z, (@C@)0) : (@C@)0;
    const long long low0 = ort_min((long long)at0, size0 - 1), low1 = ort_min((long long)at1, size1 - 1);
    const long long high0 = ort_min(low0 + 1, size0 - 1), high1 = ort_min(low1 + 1, size1 - 1);
    const @C@ part0 = low0 >= size0 - 1 ? (@C@)0 : at0 - (@C@)low0;
    const @C@ part1 = low1 >= size1 - 1 ? (@C@)0 : at1 - (@C@)low1;
    const @C@ scale0 = is_inside ? (@C@)1 : (@C@)0;
    const @C@ v00 = ort_load(plane[low0 * size1 + low1]) * ((1 - part0) * (1 - part1) * scale0);
    const @C@ v01 = ort_load(plane[low0 * size1 + high1]) * ((1 - part0) * part1 * scale0);
    const @C@ v10 = ort_load(plane[high0 * size1 + low1]) * (part0 * (1 - part1) * scale0);
    const @C@ v11 = ort_load(plane[high0 * size1 + high1]) * (part0 * part1 * scale0);
    @COMBINED@
  }
}
out[i] = ort_store<@T@>::of(@RESULT@);
"""
_AVERAGE = {
    "START": "0",
    "COMBINED": "value += v00 + v01 + v10 + v11;",
    "RESULT": "across > 0 && down > 0 ? value / (@C@)(across * down) : (@C@)0",
}
_LARGEST = {
    "START": "-(@C@)__int_as_float(0x7f800000)",
    "COMBINED": "value = ort_max(value, ort_max(ort_max(v00, v01), ort_max(v10, v11)));",
    "RESULT": "across > 0 && down > 0 ? value : (@C@)0",
}


def refuse_roi_align(node: Node) -> str | None:
    """Return why a pooling of regions is not generated: its mode, its coordinates, its rank or its type."""
    mode = node.string_attribute("mode", "avg")
    coordinates = node.string_attribute("coordinate_transformation_mode", "half_pixel")
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        return f"RoiAlign by mode {mode!r} and coordinates {coordinates!r} is not generated"
    x = node.input(0)
    assert x is not None
    return (
        None if x.rank == 4 and element_type(x).is_float else "RoiAlign of four axes of floats is generated, no other"
    )


def lower_roi_align(facts: LoweredNode) -> None:
    """Cut each region into bins, and store of each the mean of the points in it, or the largest weighted corner."""
    x, rois, images = (facts.builder.dense(facts.value(k)) for k in range(3))
    node = facts.node
    rows, columns = node.int_attribute("output_height", 1), node.int_attribute("output_width", 1)
    if rois.shape[1:] != (4,) or images.shape != rois.shape[:1]:
        raise InvalidArgument(f"{node.describe()}: rois {rois.shape} and batch_indices {images.shape} do not fit")
    out = facts.builder.result(facts.output, (rois.shape[0], x.shape[1], rows, columns))
    if not out.size or not x.size:
        return
    mode = "half_pixel" if facts.opset >= 16 else "output_half_pixel"
    is_half = node.string_attribute("coordinate_transformation_mode", mode) == "half_pixel"
    at_least = "" if is_half else "width = ort_max(width, (@C@)1); height = ort_max(height, (@C@)1);"
    chosen = _AVERAGE if node.string_attribute("mode", "avg") == "avg" else _LARGEST
    texts = {
        **chosen, "HALF": "0.5" if is_half else "0", "AT_LEAST": at_least, "T": STORAGE[x.dtype],
        "I": STORAGE[images.dtype], "C": STORAGE[compute_type(x.dtype)],
    }  # fmt: skip
    parameters = (
        "const @T@* x, const @T@* rois, const @I@* images, @T@* out, long long batch, long long channels,"
        " long long size0, long long size1, long long rows, long long columns, long long ratio, float scale,"
        " int* status, int node, long long count"
    )
    kernel = filled("roi_align", parameters, _ROI, texts)
    sizes = numbers(*x.shape, rows, columns, node.int_attribute("sampling_ratio", 0))
    scale = np.float32(node.float_attribute("spatial_scale", 1.0))
    arguments = (*pointers(x, rois, images, out), *sizes, scale, *facts.builder.check(node))
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x, rois, images], [out]))
