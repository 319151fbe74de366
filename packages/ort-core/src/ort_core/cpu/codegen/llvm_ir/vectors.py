"""Vector instructions beyond the emitter's own: lane masks, masked access, shuffles, transposes.

Masked access is what keeps a tail inside its tensor: a lane that is off touches no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_masked, store_masked


def word_nbytes(word: str) -> int:
    """Return how many bytes a word has: a ``float`` or a ``double``."""
    return {"float": 4, "double": 8}[word]


def zero(type_: str) -> IRValue:
    """Return the zero of a vector type or of a float type."""
    return IRValue(type_, "zeroinitializer" if type_.startswith("<") else "0.0")


def lane_mask(emitter: Emitter, count: IRValue, width: int) -> IRValue:
    """Return the mask whose first ``count`` lanes are on; ``count`` (i64) may exceed the width or be negative."""
    type_ = vector_type(width, "i64")
    lanes = IRValue(type_, "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">")
    limit = emitter.splat(count, width)
    return emitter.assign(vector_type(width, "i1"), f"icmp slt {type_} {lanes.text}, {limit.text}", "m")


def load_vector(emitter: Emitter, address: IRValue, width: int, mask: IRValue | None = None) -> IRValue:
    """Load ``width`` words from any address; lanes that the mask leaves out are not read and are 0."""
    type_, align = vector_type(width, emitter.word), word_nbytes(emitter.word)
    if mask is None:
        return emitter.load(type_, address, align)
    return load_masked(emitter, type_, address, align, mask)


def store_vector(emitter: Emitter, value: IRValue, address: IRValue, mask: IRValue | None = None) -> None:
    """Store a vector of words at any address; lanes that the mask leaves out are not written."""
    align = word_nbytes(emitter.word)
    if mask is None:
        emitter.store(value, address, align)
        return
    store_masked(emitter, value, address, align, mask)


def each_vector(emitter: Emitter, count: IRValue, width: int, body: Callable[[IRValue, IRValue | None], None]) -> None:
    """Emit the body for every whole vector of ``count`` elements, then with a mask for the rest of them."""
    whole = emitter.sub(count, emitter.urem(count, width))
    with emitter.loop(0, whole, width, unroll=False, hint="j") as j:
        body(j, None)
    with emitter.when(emitter.compare("slt", whole, count)):
        body(whole, lane_mask(emitter, emitter.sub(count, whole), width))


def copy_row(emitter: Emitter, width: int, source: IRValue, target: IRValue, count: IRValue) -> None:
    """Copy ``count`` words."""

    def copy(j: IRValue, mask: IRValue | None) -> None:
        value = load_vector(emitter, emitter.element(source, j), width, mask)
        store_vector(emitter, value, emitter.element(target, j), mask)

    each_vector(emitter, count, width, copy)


def shuffle(emitter: Emitter, left: IRValue, right: IRValue, lanes: Sequence[int]) -> IRValue:
    """Return the chosen lanes of two vectors of one type; lane ``width + i`` is lane ``i`` of the right one."""
    element = left.type[1:-1].partition(" x ")[2]
    chosen = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {left.typed}, {right.typed}, <{len(lanes)} x i32> <{chosen}>"
    return emitter.assign(f"<{len(lanes)} x {element}>", text)


def transpose(emitter: Emitter, rows: Sequence[IRValue]) -> list[IRValue]:
    """Transpose a square of vectors: as many as each has lanes, a power of two.

    Each stage swaps the off-diagonal squares of size ``step`` of every square of size ``2 * step``.
    """
    width = len(rows)
    out = list(rows)
    step = 1
    while step < width:
        upper = [lane if not lane & step else width + lane - step for lane in range(width)]
        lower = [lane + step if not lane & step else width + lane for lane in range(width)]
        for i in (i for i in range(width) if not i & step):
            left, right = out[i], out[i + step]
            out[i] = shuffle(emitter, left, right, upper)
            out[i + step] = shuffle(emitter, left, right, lower)
        step *= 2
    return out


def lane_sums(emitter: Emitter, vectors: Sequence[IRValue]) -> IRValue:
    """Return the sums of the lanes of each vector, of as many vectors as each has lanes: 4, 8 or 16."""
    return joined_lanes(emitter, vectors, lambda left, right: emitter.binary("fadd", left, right))


def joined_lanes(emitter: Emitter, vectors: Sequence[IRValue], join: Callable[[IRValue, IRValue], IRValue]) -> IRValue:
    """Return a vector of what ``join`` makes of the lanes of each vector; there are as many as each has lanes.

    Each stage joins neighbors of two vectors: single lanes within each 4, then whole fours.
    """
    width, out = len(vectors), list(vectors)
    while len(out) > 1:
        first, second = _neighbors(width, are_fours=len(out) * 4 <= width)
        out = [
            join(shuffle(emitter, left, right, first), shuffle(emitter, left, right, second))
            for left, right in zip(out[::2], out[1::2], strict=True)
        ]
    return out[0]


def _neighbors(width: int, *, are_fours: bool) -> tuple[list[int], list[int]]:
    """Return the even and the odd lanes of two vectors within each 4 lanes, or the even and odd 4 lanes of them."""
    if are_fours:
        even = [start + lane for start in range(0, 2 * width, 8) for lane in range(4)]
        return even, [lane + 4 for lane in even]
    even = [block + side + lane for block in range(0, width, 4) for side in (0, width) for lane in (0, 2)]
    return even, [lane + 1 for lane in even]


def prefetch(emitter: Emitter, address: IRValue, *, write: bool, level: int) -> None:
    """Ask for a cache line: ``level`` 3 into L1, 2 into L2. Any address is allowed."""
    emitter.declarations["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] = None
    hints = (IRValue("i32", str(value)) for value in (int(write), level, 1))
    emitter.call_void("llvm.prefetch.p0", address, *hints)
