"""Bytes looked up in a table of 256 bytes.

AVX512-VBMI chooses among 128 bytes in two registers by one instruction. Other processors of x86 choose among 16 bytes,
and give 0 for an index with its highest bit set: so each 16 bytes of the table are asked for those indices that they
have, all others being raised to such ones, and the 16 answers are joined. Elsewhere bytes are loaded one by one.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import kernel_emitter
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import share
from ort_core.cpu.codegen.quantized.integer_dot import splat_text

TABLE_NBYTES = 256
_LINE = 64  # bytes of a register, and of what threads share no part of
_AT_ONCE = 8  # bytes of a word that is written whole
_VECTOR = f"<{_LINE} x i8>"
_CHOOSE = "llvm.x86.avx512.vpermi2var.qi.512"
_SHUFFLES = {16: "llvm.x86.avx512.pshuf.b.512", 8: "llvm.x86.avx2.pshuf.b", 4: "llvm.x86.ssse3.pshuf.b.128"}
_FEATURES = {16: "avx512bw", 8: "avx2", 4: "ssse3"}
_REACH = 16  # bytes among which a shuffle chooses
_RAISED = 128 - _REACH  # what brings an index of 16 and more, saturated, to one with its highest bit set


@memoized
def byte_table_kernel(target: Target) -> tuple[str, Emitter]:
    """Return the kernel ``y[i] = table[x[i]]``.

    The argument table: ``x`` (bytes, contiguous), the table, ``y``, and how many bytes there are.
    """
    name = "byte_table"
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, table, y = (emitter.argument(args, i, "ptr") for i in range(3))
    count = emitter.argument(args, 3)
    first, last = share(emitter, emitter.udiv(emitter.add(count, _LINE - 1), _LINE))
    start = emitter.mul(first, _LINE)
    stop = emitter.minimum(emitter.mul(last, _LINE), count)
    if _chooses_bytes(target):
        start = _by_registers(emitter, x, table, y, start, stop)
    elif "x86_64" in target.triple and target.has(_FEATURES[target.lanes]):
        start = _by_shuffles(emitter, target.lanes, (x, table, y), start, stop)
    else:
        start = _by_words(emitter, x, table, y, start, stop)
    with emitter.loop(start, stop, unroll=False, hint="byte") as i:
        found = _looked_up(emitter, table, emitter.load("i8", emitter.element(x, i, "i8"), 1))
        emitter.store(found, emitter.element(y, i, "i8"), 1)
    return name, emitter


def _chooses_bytes(target: Target) -> bool:
    return target.lanes * 4 == _LINE and target.has("avx512vbmi")


def _by_registers(e: Emitter, x: IRValue, table: IRValue, y: IRValue, start: IRValue, stop: IRValue) -> IRValue:
    """Look up whole registers of bytes; return where the rest begins."""
    parts = [e.load(_VECTOR, e.element(table, part * _LINE, "i8"), 1) for part in range(TABLE_NBYTES // _LINE)]
    whole = e.sub(stop, e.urem(e.sub(stop, start), _LINE))
    with e.loop(start, whole, _LINE, hint="line") as i:
        places = e.load(_VECTOR, e.element(x, i, "i8"), 1)
        low, high = (e.call(_VECTOR, _CHOOSE, left, places, right) for left, right in (parts[:2], parts[2:]))
        is_high = e.assign(f"<{_LINE} x i1>", f"icmp slt {places.typed}, zeroinitializer")
        e.store(e.select(is_high, high, low), e.element(y, i, "i8"), 1)
    return whole


def _by_shuffles(
    e: Emitter, lanes: int, places: tuple[IRValue, IRValue, IRValue], start: IRValue, stop: IRValue
) -> IRValue:
    """Look up whole registers of bytes, 16 bytes of the table at a time; return where the rest begins."""
    (x, table, y), nbytes = places, lanes * 4
    type_ = f"<{nbytes} x i8>"
    everywhere = ", ".join(f"i32 {index % _REACH}" for index in range(nbytes))
    parts = []
    for first in range(0, TABLE_NBYTES, _REACH):
        few = e.load(f"<{_REACH} x i8>", e.element(table, first, "i8"), 1)
        parts.append(e.assign(type_, f"shufflevector {few.typed}, {few.typed}, <{nbytes} x i32> <{everywhere}>"))
    raised, reach = (IRValue(type_, splat_text(number, 8, nbytes)) for number in (_RAISED, _REACH))
    whole = e.sub(stop, e.urem(e.sub(stop, start), nbytes))
    with e.loop(start, whole, nbytes, unroll=False, hint="vector") as i:
        index, made = e.load(type_, e.element(x, i, "i8"), 1), IRValue(type_, "zeroinitializer")
        for number, part in enumerate(parts):
            index = e.binary("sub", index, reach) if number else index
            chosen = e.call(type_, f"llvm.uadd.sat.v{nbytes}i8", index, raised)
            made = e.binary("or", made, e.call(type_, _SHUFFLES[lanes], part, chosen))
        e.store(made, e.element(y, i, "i8"), 1)
    return whole


def _by_words(e: Emitter, x: IRValue, table: IRValue, y: IRValue, start: IRValue, stop: IRValue) -> IRValue:
    """Look up words of bytes, written whole; return where the rest begins."""
    whole = e.sub(stop, e.urem(e.sub(stop, start), _AT_ONCE))
    with e.loop(start, whole, _AT_ONCE, unroll=False, hint="word") as i:
        word = e.load("i64", e.element(x, i, "i8"), 1)
        made: IRValue = integer(0)
        for index in range(_AT_ONCE):
            shifted = e.assign("i64", f"lshr {word.typed}, {8 * index}") if index else word
            byte = e.assign("i8", f"trunc {shifted.typed} to i8")
            wide = e.assign("i64", f"zext {_looked_up(e, table, byte).typed} to i64")
            placed = e.assign("i64", f"shl {wide.typed}, {8 * index}") if index else wide
            made = e.binary("or", made, placed)
        e.store(made, e.element(y, i, "i8"), 1)
    return whole


def _looked_up(e: Emitter, table: IRValue, byte: IRValue) -> IRValue:
    place = e.assign("i64", f"zext {byte.typed} to i64")
    return e.load("i8", e.element(table, place, "i8"), 1)
