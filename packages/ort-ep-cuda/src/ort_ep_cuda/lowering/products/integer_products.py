"""Products of 8-bit integers, summed exactly in int32: generated, since no library takes zero points.

Matrices are multiplied as they are, on tensor cores; what their zero points add is taken off behind, by sums of rows
and columns. Quantized results (QLinear...) are rounded by the next elementwise kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, cast, unary
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elements.elementwise import along_axis
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.products.products import as_matrices
from ort_ep_cuda.lowering.products.tensor_cores import THREADS, TILE, tiled_product
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import (
    blocks_for,
    launched,
    numbers,
    pointers,
    replaced,
)

BYTES = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}
DEPTH = 64  # bytes of a row of 16 words
_LOAD = """for (int piece = threadIdx.x; piece < 1024; piece += 128) {
      const int r = @R@, w = @W@;
      const long long at = @AT@0 + r;
      unsigned int found = 0;
      if (at < @COUNT@)
        for (int j = 0; j < 4; ++j) {
          const long long k = first + 4 * w + j;
          if (k < inner) found |= (unsigned int)(unsigned char)(@READ@) << (8 * j);
        }
      tile_@N@[r][w] = found;
    }"""
_LOAD_CHUNKS = """for (int piece = threadIdx.x; piece < 256; piece += 128) {
      const int r = piece / 4;
      const long long at = @AT@0 + r, k = first + piece % 4 * 16;
      ort_chunk<unsigned int, 4> found;
      for (int j = 0; j < 4; ++j) found.elements[j] = 0;
      if (at < @COUNT@ && k < inner) found = *(const ort_chunk<unsigned int, 4>*)(@N@ + @PLACE@);
      *(ort_chunk<unsigned int, 4>*)&tile_@N@[r][piece % 4 * 4] = found;
    }"""
_A_PLACE, _B_PLACE = "batch * batch_a + at * row_a + k * inner_a", "batch * batch_b + k * inner_b + at * column_b"
_NUMBERS = (
    "tiles", "rows", "columns", "inner", "batch_a", "row_a", "inner_a", "batch_b", "inner_b", "column_b", "za_step",
    "zb_step",
)  # fmt: skip
# sum (a - p)(b - q) = sum ab - p sum b - q sum a + inner p q; the sums of rows and columns are taken of the same words
_BEFORE_A = "int rows_of[2][2] = {{0, 0}, {0, 0}};"
_BEFORE_B = "int columns_of[4] = {0, 0, 0, 0};"
_STEP_A = """#pragma unroll
  for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int n = 0; n < 4; ++n)
          rows_of[i][n % 2] = ort_bytes<@SA@, false>::dot(left[i][n], 0x01010101u, rows_of[i][n % 2]);"""
_STEP_B = """#pragma unroll
  for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int n = 0; n < 2; ++n)
          columns_of[j] = ort_bytes<@SB@, false>::dot(right[j][n], 0x01010101u, columns_of[j]);"""
_BEHIND_A = """#pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int n = 0; n < 2; ++n)
      #pragma unroll
      for (int step = 1; step < 4; step *= 2) rows_of[i][n] += __shfl_xor_sync(0xffffffffu, rows_of[i][n], step);"""
_BEHIND_B = """#pragma unroll
  for (int j = 0; j < 4; ++j)
    #pragma unroll
    for (int step = 1; step < 4; step *= 2) columns_of[j] += __shfl_xor_sync(0xffffffffu, columns_of[j], step);
  int shares[4][2];
  #pragma unroll
  for (int j = 0; j < 4; ++j)
    #pragma unroll
    for (int n = 0; n < 2; ++n) shares[j][n] = __shfl_sync(0xffffffffu, columns_of[j], (place * 2 + n) * 4);"""
_POINT_B = "(unsigned int)(int)zb[zb_step ? column : 0]"


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
    _multiply(facts, left, right, (2, 3), out)


def lower_qlinear_matmul(facts: LoweredNode) -> None:
    """Multiply matrices of bytes, then scale and round to bytes."""
    a, b = facts.builder.view(facts.value(0)), facts.builder.view(facts.value(3))
    left, right, shape = as_matrices(a, b)
    total = facts.builder.temporary(DataType.INT32, shape)
    _multiply(facts, left, right, (2, 5), total)
    row, column = max(len(shape) - 2, 0), max(len(shape) - 1, 0)
    define_rounded(facts, total, (row, column))


def define_rounded(facts: LoweredNode, total: TensorView, axes: tuple[int, int]) -> None:
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


def point_of(facts: LoweredNode, index: int, of: TensorView) -> TensorView:
    """Return a zero point as memory: of one element, or of one for each row or column."""
    if facts.has(index):
        return facts.builder.dense(facts.value(index))
    return facts.builder.table("no zero point", np.zeros(1, of.dtype.numpy))


def _multiply(
    facts: LoweredNode,
    a: TensorView,
    b: TensorView,
    places: tuple[int, int],
    out: TensorView,
) -> None:
    """Store the product; ``places`` are the inputs that are zero points."""
    if not out.size:
        return
    points, has = (point_of(facts, places[0], a), point_of(facts, places[1], b)), [facts.has(place) for place in places]
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    if len(batch) > 1:
        a, b = (facts.builder.stored(LazyTensor.of(view)) for view in (a, b))
    count = math.prod(batch)
    steps = [view.strides[len(batch) - 1] if batch else 0 for view in (a, b)]
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    tiles = count * -(-rows // TILE) * -(-columns // TILE)
    texts = [STORAGE[view.dtype] for view in (a, b, *points)]
    names = [f"const {text}* {name}" for text, name in zip(texts, ("a", "b", "za", "zb"), strict=True)]
    parameters = [*names, "int* out", *(f"long long {name}" for name in _NUMBERS)]
    signed = ["true" if view.dtype is DataType.INT8 else "false" for view in (a, b)]
    loads = (
        load_tile("a", _A_PLACE, steps[0], a.strides[-2:], inner, a.offset),
        load_tile("b", _B_PLACE, steps[1], b.strides[:-3:-1], inner, b.offset),
    )
    kernel = tiled_product(
        "integer_product",
        ", ".join(parameters),
        {"LOAD_A": loads[0], "LOAD_B": loads[1], **less_points(has[0], has[1]), "SA": signed[0], "SB": signed[1],
         "KIND": f"ort_bytes<{signed[0]}, {signed[1]}>", "SUM": "int", "DEPTH": str(DEPTH)},
    )  # fmt: skip
    sizes = numbers(
        tiles, rows, columns, inner, steps[0], *a.strides[-2:], steps[1], *b.strides[-2:],
        int(points[0].size > 1), int(points[1].size > 1),
    )  # fmt: skip
    arguments = (*pointers(a, b, *points, out), *sizes)
    facts.builder.add(launched(kernel, blocks_for(tiles), (THREADS, 1, 1), arguments, [a, b, *points], [out]))


def load_tile(name: str, place: str, batch: int, strides: Shape, inner: int, offset: int) -> str:
    """Return the lines that store a tile of a factor: 16 bytes at once where they lie so, else each byte.

    ``strides`` are those of its rows (columns of the right factor) and of what is summed over.
    """
    across, along = strides
    is_whole = along == 1 and not any(size % 16 for size in (batch, across, inner, offset))
    by_rows = along <= across
    texts = {
        "N": name, "AT": "row" if name == "a" else "column", "COUNT": "rows" if name == "a" else "columns",
        "R": "piece / 16" if by_rows else "piece % 64", "W": "piece % 16" if by_rows else "piece / 64",
        "READ": f"{name}[{place}]", "PLACE": place,
    }  # fmt: skip
    return replaced(_LOAD_CHUNKS if is_whole else _LOAD, texts)


def less_points(has_a: bool, has_b: bool, row: str = "row") -> dict[str, str]:
    """Return the texts of a product whose factors have zero points, or none; ``row`` tells which one a row has."""
    point_a, point_b = f"(unsigned int)(int)za[za_step ? {row} : 0]", _POINT_B
    total = "(unsigned int)sums[i][j][n]"
    if has_a:
        total += f" - {point_a} * (unsigned int)shares[j][n % 2]"
    if has_b:
        total += f" - {point_b} * (unsigned int)rows_of[i][n / 2]"
    if has_a and has_b:
        total += f" + (unsigned int)inner * {point_a} * {point_b}"
    parts = {
        "BEFORE": (_BEFORE_B, _BEFORE_A), "STEP": (_STEP_B, _STEP_A), "BEHIND": (_BEHIND_B, _BEHIND_A),
    }  # fmt: skip
    return {
        **{name: "\n".join([of_b] * has_a + [of_a] * has_b) for name, (of_b, of_a) in parts.items()},
        "RESULT": f"(int)({total})",
    }
