"""Products and convolutions of 8-bit integers, summed exactly in int32: generated, since no library takes zero points.

A block computes a tile of 16 x 16 results and reads tiles of both factors through shared memory; zero points are taken
off as they are read. Quantized results (QLinear...) are rounded by the next elementwise kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, cast, unary
from ort_core.plugin.ops import known_sizes, node_windows
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.convolutions import window_counts
from ort_ep_cuda.lowering.elementwise import along_axis
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.preamble import STORAGE
from ort_ep_cuda.lowering.products import as_matrices
from ort_ep_cuda.lowering.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.views import Shape, TensorView
from ort_ep_cuda.lowering.writer import (
    Worker,
    blocks_for,
    filled,
    launch_elements,
    launched,
    numbers,
    pointers,
    template,
    walk,
)

BYTES = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}
_TILE = 16
_PRODUCT = """
__shared__ int tile_a[16][16];
__shared__ int tile_b[16][17];
@TILES@
  const long long across = tile % ((columns + 15) / 16), rest = tile / ((columns + 15) / 16);
  const long long row = rest % ((rows + 15) / 16) * 16 + threadIdx.y, column = across * 16 + threadIdx.x;
  const long long batch = rest / ((rows + 15) / 16);
  int total = 0;
  for (long long first = 0; first < inner; first += 16) {
    const long long ka = first + threadIdx.x, kb = first + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && ka < inner
        ? (int)a[batch * batch_a + row * row_a + ka * inner_a] - (int)za[za_step ? row : 0] : 0;
    tile_b[threadIdx.y][threadIdx.x] = kb < inner && column < columns
        ? (int)b[batch * batch_b + kb * inner_b + column * column_b] - (int)zb[zb_step ? column : 0] : 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) total += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) out[(batch * rows + row) * columns + column] = total;
}
"""
_NUMBERS = (
    "tiles", "rows", "columns", "inner", "batch_a", "row_a", "inner_a", "batch_b", "inner_b", "column_b", "za_step",
    "zb_step",
)  # fmt: skip


def refuse_integer_product(node: Node) -> str | None:
    """Return why a product of integers is not generated: factors other than of 8 bits, or zero points of matrices."""
    is_quantized = node.op_type.startswith("QLinear")
    factors = (0, 3) if is_quantized else (0, 1)
    for index in factors:
        value = node.input(index)
        if value is None or element_type(value) not in BYTES:
            return f"{node.op_type} of other integers than those of 8 bits is not generated"
    for index in (1, 2, 4, 5) if is_quantized else (2, 3):
        value = node.input(index)
        shape = getattr(value.type, "shape", None) if value is not None else ()
        if shape is None or len(shape) > 1:
            return f"{node.op_type} with zero points or scales of more than one axis is not generated"
    if is_quantized and element_type(node.output) not in BYTES:
        return f"{node.op_type} to {element_type(node.output).text} is not generated"
    return None


def lower_matmul_integer(facts: LoweredNode) -> None:
    """Multiply matrices of bytes, zero points taken off, into int32."""
    a, b = facts.builder.view(facts.value(0)), facts.builder.view(facts.value(1))
    left, right, shape = as_matrices(a, b)
    out = facts.builder.result(facts.output, shape)
    _multiply(facts, left, right, (_point(facts, 2, a), _point(facts, 3, b)), out)


def lower_qlinear_matmul(facts: LoweredNode) -> None:
    """Multiply matrices of bytes, then scale and round to bytes."""
    a, b = facts.builder.view(facts.value(0)), facts.builder.view(facts.value(3))
    left, right, shape = as_matrices(a, b)
    total = facts.builder.temporary(DataType.INT32, shape)
    _multiply(facts, left, right, (_point(facts, 2, a), _point(facts, 5, b)), total)
    row, column = max(len(shape) - 2, 0), max(len(shape) - 1, 0)
    _define_rounded(facts, total, (row, column))


def _define_rounded(facts: LoweredNode, total: TensorView, axes: tuple[int, int]) -> None:
    """Define ``saturate(rint(total * a_scale * b_scale / y_scale) + y_zero_point)``, and a bias within the total."""
    scales = [
        along_axis(facts.tensor(1), total.shape, axes[0]), along_axis(facts.tensor(4), total.shape, axes[1]),
        along_axis(facts.tensor(6), total.shape, axes[1]), along_axis(facts.tensor(7), total.shape, axes[1]),
    ]  # fmt: skip
    bias = [along_axis(facts.tensor(8), total.shape, axes[1])] if facts.has(8) else []
    dtype = element_type(facts.output)
    low, high = BYTES[dtype]

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        whole = roots[0] + roots[5] if len(roots) > 5 else roots[0]
        a, b, y = (cast(root, DataType.FLOAT) for root in roots[1:4])
        rounded = unary("rint", cast(whole, DataType.FLOAT) * (a * b / y)) + cast(roots[4], DataType.FLOAT)
        return cast(cast(binary("min", binary("max", rounded, float(low)), float(high)), DataType.INT32), dtype)

    facts.builder.define(facts.output, combine([LazyTensor.of(total), *scales, *bias], meaning, dtype))


def _point(facts: LoweredNode, index: int, of: TensorView) -> TensorView:
    """Return a zero point as memory: of one element, or of one for each row or column."""
    if facts.has(index):
        return facts.builder.dense(facts.value(index))
    return facts.builder.table("no zero point", np.zeros(1, of.dtype.numpy))


def _multiply(
    facts: LoweredNode, a: TensorView, b: TensorView, points: tuple[TensorView, TensorView], out: TensorView
) -> None:
    if not out.size:
        return
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    if len(batch) > 1:
        a, b = (facts.builder.stored(LazyTensor.of(view)) for view in (a, b))
    count = math.prod(batch)
    steps = [view.strides[len(batch) - 1] if batch else 0 for view in (a, b)]
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    tiles = count * -(-rows // _TILE) * -(-columns // _TILE)
    texts = [STORAGE[view.dtype] for view in (a, b, *points)]
    names = [f"const {text}* {name}" for text, name in zip(texts, ("a", "b", "za", "zb"), strict=True)]
    parameters = [*names, "int* out", *(f"long long {name}" for name in _NUMBERS)]
    kernel = template(
        "integer_product", ", ".join(parameters), _PRODUCT, {"TILES": walk(Worker.BLOCK, "tile", "tiles")}
    )
    sizes = numbers(
        tiles, rows, columns, inner, steps[0], *a.strides[-2:], steps[1], *b.strides[-2:],
        int(points[0].size > 1), int(points[1].size > 1),
    )  # fmt: skip
    arguments = (*pointers(a, b, *points, out), *sizes)
    facts.builder.add(launched(kernel, blocks_for(tiles), (_TILE, _TILE, 1), arguments, [a, b, *points], [out]))


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


def lower_convolution_integer(facts: LoweredNode) -> None:
    """Convolve bytes, zero points taken off, into int32; a quantized form is scaled and rounded to bytes."""
    is_quantized = facts.node.op_type == "QLinearConv"
    x = facts.builder.dense(facts.value(0))
    weights = facts.builder.dense(facts.value(3 if is_quantized else 1))
    axes = node_windows(facts.node, x.shape[2:], weights.shape[2:])
    sizes = window_counts(facts.node, axes)
    shape = (x.shape[0], weights.shape[0], *sizes)
    out = facts.builder.temporary(DataType.INT32, shape) if is_quantized else facts.builder.result(facts.output, shape)
    points = (_point(facts, 2, x), _point(facts, 5 if is_quantized else 3, weights))
    per_axis = [
        known_sizes((axis.size, axis.count, axis.taps, axis.stride, axis.dilation, axis.before)) for axis in axes
    ]
    if out.size:
        _convolve(facts, x, weights, points, out, per_axis)
    if is_quantized:
        _define_rounded(facts, out, (1, 1))


def _convolve(
    facts: LoweredNode,
    x: TensorView,
    weights: TensorView,
    points: tuple[TensorView, TensorView],
    out: TensorView,
    per_axis: Sequence[Shape],
) -> None:
    axes = range(len(per_axis))
    names = [f"{name}{a}" for a in axes for name in ("size", "result", "window", "stride", "dilation", "pad")]
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
