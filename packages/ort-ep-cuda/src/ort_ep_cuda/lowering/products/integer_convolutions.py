"""Convolutions of 8-bit integers, summed exactly in int32: products on tensor cores whose right factor is not stored.

    out[image, filter, position] = sum over k of weights[filter, k] * x[image, what tap k of that position reads]

The matrix of what each position reads (im2col) is made tile by tile in shared memory, where the product reads it. A
table says for each ``k`` how far its element lies from the position's first, and along which axes. Places of padding
hold the zero point, which is taken off behind. Few filters or taps (depthwise convolutions) leave nothing to tensor
cores: there a thread takes one result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.ir import DataType
from ort_core.plugin.ops import known_sizes, node_windows
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.convolutions import window_counts
from ort_ep_cuda.lowering.products.integer_products import DEPTH, define_rounded, less_points, load_tile, point_of
from ort_ep_cuda.lowering.products.tensor_cores import THREADS, TILE, tiled_product
from ort_ep_cuda.lowering.values.growing import grows
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import blocks_for, filled, launch_elements, launched, numbers, pointers

LEAST_FILTERS, LEAST_TAPS = 8, 32  # of a group: below them most of a tile is empty
_NAMES = ("size", "result", "window", "stride", "dilation", "pad")
_CONVOLVE = """
@PLACES@
const long long filter = rest % filters, image = rest / filters, group = filter / (filters / groups);
int total = 0;
for (long long c = 0; c < channels; ++c) {
@LOOPS@
  const int v = (int)x[@X@] - (int)zx[0], w = (int)weights[@W@] - (int)zw[zw_step ? filter : 0];
  total += v * w;
@ENDS@
}
out[i] = total;
"""


_PLACES_OF_TILE = """const ort_chunk<int, 4>* table = (const ort_chunk<int, 4>*)taps;
  const long long position = column0 + threadIdx.x % 64;
  long long left = position;
@STARTS@
  const @X@* image = x + batch * image_size;
  const long long start = @START@;"""
_LOAD_POSITIONS = """for (int w = threadIdx.x / 64; w < 16; w += 2) {
      unsigned int found = 0;
      if (position < columns)
        for (int j = 0; j < 4; ++j) {
          const long long k = first + 4 * w + j;
          if (k >= inner) break;
          const ort_chunk<int, 4> tap = table[k];
          const bool is_inside = @INSIDE@;
          const int code = is_inside ? (int)image[start + tap.elements[0]] : (int)zb[0];
          found |= (unsigned int)(unsigned char)code << (8 * j);
        }
      tile_b[threadIdx.x % 64][w] = found;
    }"""


def _takes_tiles(x: TensorView, weights: TensorView, groups: int) -> bool:
    """Return whether a convolution is a product on tensor cores: of fixed sizes, with enough filters and taps."""
    if any(grows(size) for size in (*x.shape, *weights.shape)):
        return False
    filters, taps = weights.shape[0] // max(groups, 1), math.prod(weights.shape[1:])
    return filters >= LEAST_FILTERS and taps >= LEAST_TAPS and math.prod(x.shape[2:]) * weights.shape[1] < 2**31


def _tap_table(channels: int, per_axis: Sequence[Shape]) -> np.ndarray:
    """Return for each element that a position reads: how far it lies behind the first, and along each axis."""
    sizes, windows, dilations = ([axis[n] for axis in per_axis] for n in (0, 2, 4))
    places = np.indices((channels, *windows)).reshape(1 + len(windows), -1)
    moved = places[1:] * np.array(dilations)[:, None]
    offset = places[0]
    for size, along in zip(sizes, moved, strict=True):
        offset = offset * size + along
    table = np.zeros((places.shape[1], 4), np.int32)
    table[:, 0] = offset
    table[:, 1 : 1 + len(windows)] = moved.T
    return table


def _multiply_positions(
    facts: LoweredNode,
    x: TensorView,
    weights: TensorView,
    points: tuple[TensorView, TensorView],
    has: tuple[bool, bool],
    out: TensorView,
    per_axis: Sequence[Shape],
) -> None:
    """Add the product of filters and positions, for each image and group."""
    axes, groups = range(len(per_axis)), facts.node.int_attribute("group", 1)
    rows, columns, inner = weights.shape[0] // groups, math.prod(out.shape[2:]), math.prod(weights.shape[1:])
    taps = facts.builder.table("taps", _tap_table(weights.shape[1], per_axis))
    starts = [f"  const int start{a} = (int)(left % result{a} * stride{a} - pad{a}); left /= result{a};" for a in axes]
    start, inside = "0", []
    for a in axes:
        start = f"({start}) * size{a} + start{a}"
        inside.append(f"(unsigned int)(start{a} + tap.elements[{a + 1}]) < (unsigned int)size{a}")
    signed = ["true" if view.dtype is DataType.INT8 else "false" for view in (weights, x)]
    texts = less_points(*has, row="batch % groups * rows + row")
    before = _PLACES_OF_TILE.replace("@STARTS@", "\n".join(reversed(starts))).replace("@START@", start)
    texts = {
        **texts, "BEFORE": f"{texts['BEFORE']}\n  {before}",
        "LOAD_A": load_tile("a", "(batch % groups * rows + at) * inner + k", rows * inner, (inner, 1), inner, 0),
        "LOAD_B": _LOAD_POSITIONS.replace("@INSIDE@", " && ".join(inside)),
        "X": STORAGE[x.dtype], "SA": signed[0], "SB": signed[1],
        "KIND": f"ort_bytes<{signed[0]}, {signed[1]}>", "SUM": "int", "DEPTH": str(DEPTH),
    }  # fmt: skip
    reads = [weights, x, points[1], points[0], taps]
    names = ("a", "x", "za", "zb", "taps")
    declared = [f"const {STORAGE[view.dtype]}* {name}" for view, name in zip(reads, names, strict=True)]
    per_place = [f"{name}{a}" for a in axes for name in ("size", "result", "stride", "pad")]
    counts = ("tiles", "rows", "columns", "inner", "groups", "image_size", "za_step", "zb_step", *per_place)
    parameters = [*declared, "int* out", *(f"long long {name}" for name in counts)]
    kernel = tiled_product("integer_positions", ", ".join(parameters), texts)
    tiles = out.shape[0] * groups * -(-rows // TILE) * -(-columns // TILE)
    image_size = weights.shape[1] * math.prod(x.shape[2:])
    sizes = numbers(
        tiles, rows, columns, inner, groups, image_size, int(points[1].size > 1), 0,
        *(axis[n] for axis in per_axis for n in (0, 1, 3, 5)),
    )  # fmt: skip
    facts.builder.add(
        launched(kernel, blocks_for(tiles), (THREADS, 1, 1), (*pointers(*reads, out), *sizes), reads, [out])
    )


def _counts(facts: LoweredNode, index: int) -> bool:
    """Return whether a zero point is there that is not known to be zero."""
    value = facts.node.input(index)
    return value is not None and (value.constant is None or bool(value.constant.array().any()))


def lower_convolution_integer(facts: LoweredNode) -> None:
    """Convolve bytes, zero points taken off, into int32; a quantized form is scaled and rounded to bytes."""
    is_quantized = facts.node.op_type == "QLinearConv"
    x = facts.builder.dense(facts.value(0))
    weights = facts.builder.dense(facts.value(3 if is_quantized else 1))
    axes = node_windows(facts.node, x.shape[2:], weights.shape[2:])
    sizes = window_counts(facts.node, axes)
    shape = (x.shape[0], weights.shape[0], *sizes)
    out = facts.builder.temporary(DataType.INT32, shape) if is_quantized else facts.builder.result(facts.output, shape)
    of_weights = 5 if is_quantized else 3
    points = (point_of(facts, 2, x), point_of(facts, of_weights, weights))
    per_axis = [
        known_sizes((axis.size, axis.count, axis.kernel, axis.stride, axis.dilation, axis.before)) for axis in axes
    ]
    if out.size and _takes_tiles(x, weights, facts.node.int_attribute("group", 1)):
        has = (_counts(facts, of_weights), _counts(facts, 2))
        _multiply_positions(facts, x, weights, points, has, out, per_axis)
    elif out.size:
        _convolve(facts, x, weights, points, out, per_axis)
    if is_quantized:
        define_rounded(facts, out, (1, 1))


def _convolve(
    facts: LoweredNode,
    x: TensorView,
    weights: TensorView,
    points: tuple[TensorView, TensorView],
    out: TensorView,
    per_axis: Sequence[Shape],
) -> None:
    axes = range(len(per_axis))
    names = [f"{name}{a}" for a in axes for name in _NAMES]
    places = ["long long rest = i;"]
    places += [
        f"const long long start{a} = rest % result{a} * stride{a} - pad{a}; rest /= result{a};" for a in reversed(axes)
    ]
    loops = [
        f"for (long long k{a} = 0; k{a} < window{a}; ++k{a}) {{ const long long at{a} = start{a} + k{a} * dilation{a}; "
        f"if (at{a} < 0 || at{a} >= size{a}) continue;"
        for a in axes
    ]
    x_place, w_place = "(image * groups + group) * channels + c", "filter * channels + c"
    for a in axes:
        x_place, w_place = f"({x_place}) * size{a} + at{a}", f"({w_place}) * window{a} + k{a}"
    texts = {
        "PLACES": "\n".join(places), "LOOPS": "\n".join(loops), "ENDS": "}" * len(per_axis), "X": x_place, "W": w_place,
    }  # fmt: skip
    reads = [x, weights, *points]
    names_of_reads = ("x", "weights", "zx", "zw")
    pointed = [f"const {STORAGE[view.dtype]}* {name}" for view, name in zip(reads, names_of_reads, strict=True)]
    declared = ", ".join(f"long long {name}" for name in ("channels", "filters", "groups", "zw_step", *names))
    parameters = f"{', '.join(pointed)}, int* out, {declared}, long long count"
    kernel = filled("integer_convolution", parameters, _CONVOLVE, texts)
    groups = facts.node.int_attribute("group", 1)
    sizes = numbers(
        weights.shape[1], weights.shape[0], groups, int(points[1].size > 1), *(n for axis in per_axis for n in axis)
    )
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(*reads, out), *sizes), reads, [out]))
