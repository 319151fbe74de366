"""Weights of few bits with a scale for each block: products (MatMulNBits), rows of tables (GatherBlockQuantized).

With few rows a product is bound by how fast its weights are read: a warp reads the codes of one to four columns, eight
to a lane, and multiplies what they stand for. With many rows of 16-bit floats tiles of the weights are unpacked in
shared memory, for tensor cores; of float32 the weights are written out once, and a library multiplies exactly.
"""

from __future__ import annotations

import math

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.libraries.anchors import Addend, Anchor, lower_anchor
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import product_of
from ort_ep_cuda.lowering.products.tensor_cores import THREADS, TILE, tiled_product
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import (
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

MAXIMUM_ROWS = 16  # beyond it the weights are read so often that writing them out costs less
ROWS_AT_ONCE = 4  # of one warp, which reads a code once for all of them
WARPS = 8  # of one block
_WARPS_AT_ONCE = 2048  # about as many as keep a device busy with reading
_WORDS = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}  # eight codes
_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
_INPUTS = ("A", "B", "scales", "zero_points", "g_idx", "bias")


def refuse_nbits_product(node: Node) -> str | None:
    """Return why MatMulNBits is not generated: columns in an order of their own, bits, blocks, or types."""
    if node.input(4) is not None:
        return "MatMulNBits with g_idx is not generated"
    if node.int_attribute("weight_prepacked", 0):
        return "MatMulNBits of weights that were packed for one device is not generated"
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 0)
    if bits not in _WORDS or block < 16 or block & (block - 1):
        return f"MatMulNBits of {bits} bits in blocks of {block} is not generated"
    for index in (0, 2, 3, 5):
        value = node.input(index)
        allowed = _FLOATS | {DataType.UINT8} if index == 3 else _FLOATS
        if value is not None and element_type(value) not in allowed:
            return f"MatMulNBits with {_INPUTS[index]} of {element_type(value).text} is not generated"
    return None


def lower_nbits_product(facts: LoweredNode) -> None:
    """Store ``A @ W' + bias``, ``W[n, k] = (code - zero point) * scale`` of the block."""
    columns, inner = facts.node.int_attribute("N", 0), facts.node.int_attribute("K", 0)
    a = facts.builder.dense(facts.value(0))
    rows = math.prod(a.shape[:-1])
    shape = (*a.shape[:-1], columns)
    if rows <= MAXIMUM_ROWS:
        _few_rows(facts, a, facts.builder.result(facts.output, shape), rows)
        return
    if a.dtype in _ON_TENSOR_CORES:
        _many_rows(facts, a, facts.builder.result(facts.output, shape), rows)
        return
    weights = _written_out(facts, a.dtype)
    factor = a.regrouped((rows, inner))
    product = product_of(facts, factor, weights.permuted((1, 0)), (rows, columns))
    addend = Addend(facts.tensor(5)) if facts.has(5) else None
    lower_anchor(facts, Anchor(product, shape, addend))


_POINT_OF_BYTES = "(float)((points[column * point_nbytes + block * @BITS@ / 8] >> (block * @BITS@ % 8)) & @MASK@)"
_CODES = """
  const long long block = k / @BLOCK@;
  const @WORD@ word = *(const @WORD@*)(codes + (column * blocks + block) * (@BLOCK@ * @BITS@ / 8)
                                       + k % @BLOCK@ * @BITS@ / 8);
  const float scale = ort_load(scales[column * blocks + block]), point = @POINT@;
"""
_WEIGHTS = "const unsigned char* codes, const @S@* scales, const @Z@* points"
_FEW_ROWS = """
@WALK@
  const long long groups = (columns + @COLUMNS@ - 1) / @COLUMNS@;
  const long long start = piece % groups * @COLUMNS@, first = piece / groups * @ROWS@;
  float sums[@ROWS@][@COLUMNS@];
  for (int r = 0; r < @ROWS@; ++r)
    for (int c = 0; c < @COLUMNS@; ++c) sums[r][c] = 0.0f;
  #pragma unroll @UNROLL@
  for (long long k = threadIdx.x * 8; k < @INNER@; k += 256) {
    float x[@ROWS@][8], total[@ROWS@];
    for (int r = 0; r < @ROWS@; ++r) {
      const @T@* row = a + (first + r < rows ? first + r : first) * @INNER@ + k;
      @LOAD@
      total[r] = 0.0f;
      for (int j = 0; j < 8; ++j) total[r] += x[r][j];
    }
    for (int c = 0; c < @COLUMNS@; ++c) {
      const long long column = start + c < columns ? start + c : start;
      @CODES@
      float parts[@ROWS@];
      for (int r = 0; r < @ROWS@; ++r) parts[r] = 0.0f;
      @PRODUCTS@
      for (int r = 0; r < @ROWS@; ++r)
        sums[r][c] += @PART@ * scale;
    }
  }
  for (int c = 0; c < @COLUMNS@; ++c)
    for (int r = 0; r < @ROWS@; ++r) {
      const long long column = start + c;
      float sum = sums[r][c];
      for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
      if (threadIdx.x == 0 && first + r < rows && column < columns)
        out[(first + r) * columns + column] = ort_store<@T@>::of(sum@BIAS@);
    }
}
"""
_WHOLE_CHUNKS = """for (int part = 0; part < 8; part += @CHUNK@) {
        const ort_chunk<@T@, @CHUNK@> piece = *(const ort_chunk<@T@, @CHUNK@>*)(row + part);
        for (int j = 0; j < @CHUNK@; ++j) x[r][part + j] = ort_load(piece.elements[j]);
      }"""
_UP_TO_THE_END = "for (int j = 0; j < 8; ++j) x[r][j] = k + j < @INNER@ ? ort_load(row[j]) : 0.0f;"


def _few_rows(facts: LoweredNode, a: TensorView, out: TensorView, rows: int) -> None:
    if not out.size:
        return
    columns, inner = facts.node.int_attribute("N", 0), facts.node.int_attribute("K", 0)
    reads, texts, sizes = _weights(facts)
    at_once = 1 if rows == 1 else ROWS_AT_ONCE
    side_by_side = _columns_at_once(columns)
    bias = [facts.builder.dense(facts.value(5))] if facts.has(5) else []
    bits = facts.node.int_attribute("bits", 4)
    levels = 1 << bits
    chunk = 16 // min(a.dtype.numpy.itemsize, 4)
    is_whole = inner % 8 == 0 and a.offset % chunk == 0
    texts = {
        "WALK": walk(Worker.WARP, "piece", "count"), "LOAD": _WHOLE_CHUNKS if is_whole else _UP_TO_THE_END,
        "CODES": _CODES, "PRODUCTS": _products(bits), "T": STORAGE[a.dtype],
        "ROWS": str(at_once), "COLUMNS": str(side_by_side), "CHUNK": str(chunk), "INNER": str(inner),
        "UNROLL": str(4 // side_by_side if at_once == 1 else 1),
        "PART": f"(parts[r] * {levels}.0f - total[r] * ({levels}.0f + point))" if bits < 8 else "parts[r]",
        "BIAS": " + ort_load(bias[column])" if bias else "", **texts,
    }  # fmt: skip
    parameters = f"const @T@* a, {_WEIGHTS}, {f'const {STORAGE[bias[0].dtype]}* bias, ' if bias else ''}@T@* out, "
    parameters += "long long rows, long long columns, long long blocks, long long point_nbytes, "
    kernel = template("few_rows_of_bits", f"{parameters}long long count", _FEW_ROWS, texts)
    count = -(-columns // side_by_side) * ((rows + at_once - 1) // at_once)
    operands = [a, *reads, *bias]
    arguments = (*pointers(*operands, out), *numbers(rows, columns, *sizes, count))
    facts.builder.add(launched(kernel, blocks_for(count, WARPS), (32, WARPS, 1), arguments, operands, [out]))


def _columns_at_once(columns: int) -> int:
    """Return how many columns a warp takes: what it reads of the left matrix serves all of them, if warps suffice."""
    return 4 if columns >= 4 * _WARPS_AT_ONCE else 2 if columns >= 2 * _WARPS_AT_ONCE else 1


def _products(bits: int) -> str:
    """Return the lines that multiply eight codes.

    A code of few bits is made the first digits behind the point of a number from 1 up to 2, by a shift and a mask: what
    that adds, and the zero point, are taken off once for all eight. With codes of a byte the sum would lose digits:
    they are made those of a number from 2^23 on, and both are taken off at once.
    """
    lines = []
    for j in range(8):
        word, place = (
            ("(unsigned int)word", bits * j) if bits * j < 32 else ("(unsigned int)(word >> 32)", bits * j - 32)
        )
        if bits < 8:
            move, mask = 23 - bits - place, ((1 << bits) - 1) << (23 - bits)
            code = f"({word} {'<<' if move >= 0 else '>>'} {abs(move)}) & {mask:#x}u"
            lines.append(f"const float weight{j} = __int_as_float((int)({code} | 0x3f800000u));")
        else:
            code = f"({word} >> {place}) & 255u"
            lines.append(f"const float weight{j} = __int_as_float((int)({code} | 0x4b000000u)) - 8388608.0f - point;")
        lines.append(f"for (int r = 0; r < @ROWS@; ++r) parts[r] += x[r][{j}] * weight{j};")
    return "\n      ".join(lines)


_LOAD_ROWS = """for (int piece = threadIdx.x; piece < 256; piece += 128) {
      const int r = piece / 4;
      const long long row = row0 + r, k = first + piece % 4 * 8;
      ort_chunk<@T@, 8> found;
      for (int j = 0; j < 8; ++j) found.elements[j].bits = 0;
      if (row < rows) {
        @READ@
      }
      *(ort_chunk<@T@, 8>*)&tile_a[r][piece % 4 * 4] = found;
    }"""
_READ_CHUNK = "if (k < inner) found = *(const ort_chunk<@T@, 8>*)(a + row * inner + k);"
_READ_EACH = "for (int j = 0; j < 8; ++j) if (k + j < inner) found.elements[j] = a[row * inner + k + j];"
_UNPACK = """for (int piece = threadIdx.x; piece < 256; piece += 128) {
      const int c = piece / 4;
      const long long column = column0 + c, k = first + piece % 4 * 8;
      ort_chunk<@T@, 8> found;
      for (int j = 0; j < 8; ++j) found.elements[j].bits = 0;
      if (column < columns && k < inner) {
        @CODES@
        for (int j = 0; j < 8; ++j)
          if (k + j < inner)
            found.elements[j] = ort_store<@T@>::of(((float)((word >> (j * @BITS@)) & @MASK@) - point) * scale);
      }
      *(ort_chunk<@T@, 8>*)&tile_b[c][piece % 4 * 4] = found;
    }"""
_DEPTH = 32  # 16-bit elements of a row of 16 words
_ON_TENSOR_CORES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


def _many_rows(facts: LoweredNode, a: TensorView, out: TensorView, rows: int) -> None:
    if not out.size:
        return
    columns, inner = facts.node.int_attribute("N", 0), facts.node.int_attribute("K", 0)
    reads, texts, sizes = _weights(facts)
    bias = [facts.builder.dense(facts.value(5))] if facts.has(5) else []
    is_whole = inner % 8 == 0 and a.offset % 8 == 0
    texts = {
        "LOAD_A": _LOAD_ROWS, "LOAD_B": _UNPACK, "READ": _READ_CHUNK if is_whole else _READ_EACH, "CODES": _CODES,
        "RESULT": f"ort_store<@T@>::of(sums[i][j][n]{' + ort_load(bias[column])' if bias else ''})",
        "KIND": STORAGE[a.dtype], "SUM": "float", "DEPTH": str(_DEPTH), "T": STORAGE[a.dtype], **texts,
    }  # fmt: skip
    parameters = f"const @T@* a, {_WEIGHTS}, {f'const {STORAGE[bias[0].dtype]}* bias, ' if bias else ''}@T@* out, "
    parameters += "long long rows, long long columns, long long inner, long long blocks, long long point_nbytes, "
    kernel = tiled_product("many_rows_of_bits", f"{parameters}long long tiles", texts)
    tiles = -(-columns // TILE) * ((rows + TILE - 1) // TILE)
    operands = [a, *reads, *bias]
    arguments = (*pointers(*operands, out), *numbers(rows, columns, inner, *sizes, tiles))
    facts.builder.add(launched(kernel, blocks_for(tiles), (THREADS, 1, 1), arguments, operands, [out]))


_WRITE_OUT = """
const long long column = i / chunks, k = i % chunks * 8;
@CODES@
for (int j = 0; j < 8 && k + j < inner; ++j)
  out[column * inner + k + j] = ort_store<@T@>::of(((float)((word >> (j * @BITS@)) & @MASK@) - point) * scale);
"""


def _written_out(facts: LoweredNode, dtype: DataType) -> TensorView:
    """Return the weights ``[columns, inner]`` as numbers."""
    columns, inner = facts.node.int_attribute("N", 0), facts.node.int_attribute("K", 0)
    reads, texts, sizes = _weights(facts)
    out = facts.builder.temporary(dtype, (columns, inner))
    parameters = f"{_WEIGHTS}, @T@* out, long long inner, long long chunks, long long blocks, long long point_nbytes, "
    texts = {"CODES": _CODES, "T": STORAGE[dtype], **texts}
    kernel = filled("weights_of_bits", f"{parameters}long long count", _WRITE_OUT, texts)
    chunks = -(-inner // 8)
    arguments = (*pointers(*reads, out), *numbers(inner, chunks, *sizes))
    facts.builder.add(launch_elements(kernel, columns * chunks, arguments, reads, [out]))
    return out


def _weights(facts: LoweredNode) -> tuple[list[TensorView], dict[str, str], tuple[int, int]]:
    """Return what is read of codes, scales and zero points; how; the blocks of a column, and its bytes of points."""
    bits, block = facts.node.int_attribute("bits", 4), facts.node.int_attribute("block_size", 0)
    blocks = -(-facts.node.int_attribute("K", 0) // block)
    codes, scales = (facts.builder.dense(facts.value(index)) for index in (1, 2))
    _check_blocks(facts, blocks, codes, scales)
    points = facts.builder.dense(facts.value(3)) if facts.has(3) else codes  # not read
    if not facts.has(3):
        point = f"{1 << (bits - 1)}.0f"
    else:
        point = _POINT_OF_BYTES if points.dtype is DataType.UINT8 else "ort_load(points[column * blocks + block])"
    texts = {
        "S": STORAGE[scales.dtype], "Z": STORAGE[points.dtype], "POINT": point, "WORD": _WORDS[bits],
        "BLOCK": str(block), "BITS": str(bits), "MASK": str((1 << bits) - 1),
    }  # fmt: skip
    return [codes, scales, points], texts, (blocks, -(-blocks * bits // 8))


def _check_blocks(facts: LoweredNode, blocks: int, codes: TensorView, scales: TensorView) -> None:
    """Raise ``InvalidArgument`` where inputs are not as large as the attributes say: kernels read what those say."""
    columns, bits = facts.node.int_attribute("N", 0), facts.node.int_attribute("bits", 4)
    block = facts.node.int_attribute("block_size", 0)
    wanted = {1: (codes, columns * blocks * block * bits // 8), 2: (scales, columns * blocks)}
    if facts.has(3):
        points = facts.builder.dense(facts.value(3))
        each = -(-blocks * bits // 8) if points.dtype is DataType.UINT8 else blocks
        wanted[3] = (points, columns * each)
    if facts.has(5):
        wanted[5] = (facts.builder.dense(facts.value(5)), columns)
    inner = facts.builder.dense(facts.value(0)).shape[-1]
    if inner != facts.node.int_attribute("K", 0):
        raise InvalidArgument(f"{facts.node.describe()}: A has {int(inner)} columns, expected the attribute K")
    for index, (view, count) in wanted.items():
        if view.size != count:
            raise InvalidArgument(
                f"{facts.node.describe()}: {_INPUTS[index]} has {view.size} elements, its attributes say {count}"
            )


def refuse_block_gather(node: Node) -> str | None:
    """Return why GatherBlockQuantized is not generated: anything but rows of bytes along the last axis."""
    data, scales = node.input(0), node.input(2)
    assert data is not None
    assert scales is not None
    rank = len(getattr(data.type, "shape", None) or ())
    if element_type(data) is not DataType.UINT8 or element_type(scales) not in _FLOATS:
        return f"GatherBlockQuantized of {element_type(data).text} is not generated"
    if (
        rank < 2
        or node.int_attribute("gather_axis", 0) % rank
        or node.int_attribute("quantize_axis", 1) % rank != rank - 1
    ):
        return "GatherBlockQuantized along axes other than the first and the last is not generated"
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 128)
    if bits not in _WORDS or block < 16 or block & (block - 1):
        return f"GatherBlockQuantized of {bits} bits in blocks of {block} is not generated"
    return None


_GATHER = """
const long long k = i % width, rest = i / width;
const long long found = (long long)indices[rest / inner_rows], wanted = found < 0 ? found + axis_size : found;
const bool is_inside = wanted >= 0 && wanted < axis_size;
const long long column = (is_inside ? wanted : 0) * inner_rows + rest % inner_rows, block = k / @BLOCK@;
const float scale = ort_load(scales[column * blocks + block]), point = @POINT@;
const int code = codes[column * row_nbytes + k * @BITS@ / 8] >> (int)(k * @BITS@ % 8) & @MASK@;
out[i] = ort_store<@T@>::of(is_inside ? ((float)code - point) * scale : 0.0f);
"""


def lower_block_gather(facts: LoweredNode) -> None:
    """Store rows as numbers; an index out of range gives a row of zeros."""
    data, indices, scales = (facts.builder.dense(facts.value(index)) for index in (0, 1, 2))
    bits, block = facts.node.int_attribute("bits", 4), facts.node.int_attribute("block_size", 128)
    points = facts.builder.dense(facts.value(3)) if facts.has(3) else data  # not read
    width, blocks = data.shape[-1] * (8 // bits), scales.shape[-1]
    if scales.shape[:-1] != data.shape[:-1] or blocks != -(-width // block):
        raise InvalidArgument(
            f"{facts.node.describe()}: scales {list(scales.shape)} do not belong to data {list(data.shape)}"
        )
    out = facts.builder.result(facts.output, (*indices.shape, *data.shape[1:-1], width))
    if not out.size:
        return
    texts = {
        "POINT": _POINT_OF_BYTES if facts.has(3) else f"{1 << (bits - 1)}.0f", "T": STORAGE[out.dtype],
        "S": STORAGE[scales.dtype], "Z": "unsigned char", "I": STORAGE[indices.dtype],
        "BLOCK": str(block), "BITS": str(bits), "MASK": str((1 << bits) - 1),
    }  # fmt: skip
    parameters = f"{_WEIGHTS}, const @I@* indices, @T@* out, long long width, long long inner_rows, "
    parameters += "long long axis_size, long long row_nbytes, long long blocks, long long point_nbytes, long long count"
    kernel = filled("gather_of_bits", parameters, _GATHER, texts)
    sizes = numbers(width, math.prod(data.shape[1:-1]), data.shape[0], data.shape[-1], blocks, -(-blocks * bits // 8))
    reads = [data, scales, points, indices]
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(*reads, out), *sizes), reads, [out]))
