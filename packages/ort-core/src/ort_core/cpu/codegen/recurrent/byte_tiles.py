"""Recurrent products of weights of 8 bits: states become integers of 16 bits, a high and a low byte each.

    s = max |h| / 32767    q = round(h / s)    q + 32768 = 256 high + low
    sum of w h = s scale (256 (sum of w high - 128 sum of w) + sum of w low)

They serve an operator that rounds states to 8 bits by definition. Sums of bytes are exact in 32 bits, and one row of a
step reads a quarter of what float32 weights take. A state with a number that is not finite makes all
sums NaN.

A rounded row takes the memory of the row: [padded] high bytes, [padded] low ones, s. A panel of weights begins with
[gate, lane] scales in float32 and 128 times the sums of columns in int32. Words of four bytes follow, [word, gate,
lane].
"""

from __future__ import annotations

import math

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, store_vector, zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_dot import WORD, ByteProducts, splat_text

HEAD_BYTES = 8  # of a column: its scale and its sum
MOST_UNITS = 1 << 16  # sums of 255 * 128 for each stay below 2**31
ROUND = "recurrent_round"
_LEAST = 1e-30  # a row of smaller numbers is taken for zeros: its reciprocal would overflow
_MOST = 3.4e38
_REACH, _OFFSET = 32767, 32768
_ROUND = [("ptr noalias readonly", "h"), ("i64", "units"), ("i64", "padded"), ("ptr noalias", "q")]
_TILE = [("ptr noalias readonly", "a"), ("i64", "a_row"), ("ptr noalias readonly", "b"), ("i64", "depth"),
         ("ptr noalias", "c")]  # fmt: skip


def byte_rows(gates: int, target: Target) -> tuple[int, ...]:
    """Return the row counts of tiles, greatest first: two sums a gate, weights and operands fill the registers."""
    most = min(4, max(1, (target.vector_registers - gates - 4) // (2 * gates)))
    return tuple(sorted({rows for rows in (most, 2, 1) if rows <= most}, reverse=True))


def round_function(target: Target) -> Emitter:
    """Return the function that rounds the first ``units`` numbers of a row; the others are zeros."""
    e, lanes = Emitter(ROUND, _ROUND, linkage="internal"), target.lanes
    words, floats, bytes_ = (vector_type(lanes, kind) for kind in ("i32", "float", "i8"))
    most = e.variable(words, zero(words), "most")
    source, units, result = (e.parameter(name) for name in ("h", "units", "q"))
    with e.loop(0, units, lanes, unroll=False, hint="unit") as unit:
        value = load_vector(e, e.element(source, unit), lanes, lane_mask(e, e.sub(units, unit), lanes))
        pattern = e.assign(words, f"bitcast {value.typed} to {words}")
        size = e.assign(words, f"and {pattern.typed}, {splat_text(0x7FFFFFFF, 32, lanes)}")  # in the order of sizes
        e.store(e.call(words, f"llvm.umax.v{lanes}i32", e.load(words, most), size), most)
    top = e.call("i32", f"llvm.vector.reduce.umax.v{lanes}i32", e.load(words, most))
    reach = e.assign("float", f"bitcast {top.typed} to float")
    is_number = e.assign("i1", f"fcmp ole {reach.typed}, {float32(_MOST).text}")
    is_whole = e.binary("and", is_number, e.assign("i1", f"fcmp oge {reach.typed}, {float32(_LEAST).text}"))
    step = e.assign("float", f"fdiv {reach.typed}, {float32(_REACH).text}")
    step = e.select(is_number, step, float32(math.nan))
    e.store(step, e.element(result, e.mul(e.parameter("padded"), 2), "i8"), 4)
    factor = e.splat(e.assign("float", f"fdiv {float32(_REACH).typed}, {reach.text}"), lanes)
    with e.loop(0, e.parameter("padded"), lanes, unroll=False, hint="unit") as unit:
        value = load_vector(e, e.element(source, unit), lanes, lane_mask(e, e.sub(units, unit), lanes))
        scaled = e.select(e.splat(is_whole, lanes), e.binary("fmul", value, factor), zero(floats))
        rounded = e.call(floats, f"llvm.rint.v{lanes}f32", scaled)
        number = e.assign(words, f"fptosi {rounded.typed} to {words}")
        number = e.assign(words, f"add {number.typed}, {splat_text(_OFFSET, 32, lanes)}")
        high = e.assign(words, f"lshr {number.typed}, {splat_text(8, 32, lanes)}")
        for half, place in ((high, unit), (number, e.add(unit, e.parameter("padded")))):
            e.store(e.assign(bytes_, f"trunc {half.typed} to {bytes_}"), e.element(result, place, "i8"), 1)
    return e


def byte_tile(name: str, rows: int, gates: int, target: Target) -> Emitter:
    """Emit ``c[r, g, lane] = sum over k of a[r, k] * b[k, g, lane]`` of rounded rows and a panel of bytes."""
    e, lanes = Emitter(name, _TILE, linkage="internal"), target.lanes
    words, floats = vector_type(lanes, "i32"), vector_type(lanes, "float")
    products = ByteProducts(e, target)
    padded, first, width = e.parameter("a_row"), e.parameter("b"), gates * lanes
    strips = [e.element(e.parameter("a"), e.mul(padded, row)) for row in range(rows)]
    sums = [[[e.variable(words, zero(words), "sum") for _ in range(gates)] for _ in range(rows)] for _ in range(2)]
    start = e.element(first, 2 * width)
    with e.loop(0, e.parameter("depth"), unroll=False, hint="word") as word:
        line = e.element(start, e.mul(word, width))
        panel = [products.prepared(e.element(line, gate * lanes)) for gate in range(gates)]
        for half, slots in enumerate(sums):
            for strip, row_slots in zip(strips, slots, strict=True):
                place = e.add(e.mul(word, WORD), e.mul(padded, half))
                four = products.spread(e.splat(e.load("i32", e.element(strip, place, "i8"), WORD), lanes))
                for slot, weight in zip(row_slots, panel, strict=True):
                    e.store(products.add(e.load(words, slot), four, weight), slot)
    for row, strip in enumerate(strips):
        step = e.splat(e.load("float", e.element(strip, e.mul(padded, 2), "i8"), 4), lanes)
        for gate in range(gates):
            high, low = (e.load(words, slots[row][gate]) for slots in sums)
            offset = e.load(words, e.element(first, width + gate * lanes), 4)
            high = e.assign(words, f"sub {high.typed}, {offset.text}")
            high, low = (e.assign(floats, f"sitofp {half.typed} to {floats}") for half in (high, low))
            total = e.fma(high, e.splat(float32(256), lanes), low)
            scale = e.binary("fmul", load_vector(e, e.element(first, gate * lanes), lanes), step)
            store_vector(e, e.binary("fmul", total, scale), e.element(e.parameter("c"), (row * gates + gate) * lanes))
    return e


def words_of(e: Emitter, units: IRValue) -> IRValue:
    """Return how many words of four bytes so many units fill."""
    return e.udiv(e.add(units, integer(WORD - 1)), integer(WORD))
