"""Access to a part of a vector in memory: nothing that is left out is read or written.

The one place where masked intrinsics are used. LLVM 22 stores the wrong element where one lane of a mask is on and the
value is a truncation of wider integers: four bytes for one. So masks serve floats of 32 and 64 bits only, which no
truncation makes. The first elements of a vector of any type but float32 go in pieces: each a plain load or store of an
integer of 8 to 64 bits, or of a vector of more, as large as a power of two allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, suffix, vector_type

_BITS = {"i8": 8, "i16": 16, "half": 16, "bfloat": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}
_WORD_BITS = 64
_MASKED = "float"
_TRUSTED = ("float", "double")


def load_first(emitter: Emitter, type_: str, count: int, address: IRValue, align: int) -> IRValue:
    """Load the first ``count`` elements of a vector type, at least one and fewer than it has; the others are 0."""
    element, width = _parts(type_)
    if element == _MASKED:
        return load_masked(emitter, type_, address, align, _constant_mask(width, count))
    value = IRValue(type_, "zeroinitializer")
    for first, size in _pieces(count):
        piece = _load_piece(emitter, element, size, emitter.element(address, first, element), align)
        wide = _shuffled(emitter, piece, [*range(size), *[-1] * (width - size)])
        lanes = [width + lane - first if first <= lane < first + size else lane for lane in range(width)]
        value = _shuffled(emitter, value, lanes, wide)
    return value


def store_first(emitter: Emitter, value: IRValue, count: int, address: IRValue, align: int) -> None:
    """Store the first ``count`` elements of a vector: at least one and fewer than it has."""
    element, width = _parts(value.type)
    if element == _MASKED:
        store_masked(emitter, value, address, align, _constant_mask(width, count))
        return
    for first, size in _pieces(count):
        piece = _shuffled(emitter, value, range(first, first + size))
        bits = size * _BITS[element]
        if bits <= _WORD_BITS:
            piece = emitter.assign(f"i{bits}", f"bitcast {piece.typed} to i{bits}")
        emitter.store(piece, emitter.element(address, first, element), align)


def load_masked(emitter: Emitter, type_: str, address: IRValue, align: int, mask: IRValue) -> IRValue:
    """Load the elements whose lane of the mask is on; the others are 0."""
    zeros = IRValue(type_, "zeroinitializer")
    return emitter.call(type_, f"llvm.masked.load.{suffix(type_)}.p0", address, IRValue("i32", str(align)), mask, zeros)


def store_masked(emitter: Emitter, value: IRValue, address: IRValue, align: int, mask: IRValue) -> None:
    """Store the float32 or float64 elements whose lane of the mask is on.

    Raises:
        ValueError: the elements are neither, of which alone LLVM can be trusted with a mask.
    """
    element, _ = _parts(value.type)
    if element not in _TRUSTED:
        raise ValueError(f"A masked store takes float32 or float64, not {value.type}; store that in pieces.")
    function = f"llvm.masked.store.{suffix(value.type)}.p0"
    emitter.declarations[f"declare void @{function}({value.type}, ptr, i32, {mask.type})"] = None
    emitter.call_void(function, value, address, IRValue("i32", str(align)), mask)


def _load_piece(emitter: Emitter, element: str, size: int, address: IRValue, align: int) -> IRValue:
    bits, type_ = size * _BITS[element], f"<{size} x {element}>"
    if bits > _WORD_BITS:
        return emitter.load(type_, address, align)
    word = emitter.load(f"i{bits}", address, align)
    return emitter.assign(type_, f"bitcast {word.typed} to {type_}")


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """Cut elements into powers of two, largest first: the first element of each and how many it has."""
    first = 0
    while first < count:
        size = 1 << (count - first).bit_length() - 1
        yield first, size
        first += size


def _parts(type_: str) -> tuple[str, int]:
    """Return the element type of a vector type and its number of lanes."""
    width, _, element = type_[1:-1].partition(" x ")
    return element, int(width)


def _constant_mask(width: int, count: int) -> IRValue:
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(width))
    return IRValue(vector_type(width, "i1"), f"<{bits}>")


def _shuffled(emitter: Emitter, left: IRValue, lanes: Sequence[int], right: IRValue | None = None) -> IRValue:
    """Return the chosen lanes of two vectors as a vector, also of one lane; lane -1 may be anything."""
    element, _ = _parts(left.type)
    chosen = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
    other = right.text if right else "poison"
    instruction = f"shufflevector {left.typed}, {left.type} {other}, <{len(lanes)} x i32> <{chosen}>"
    return emitter.assign(f"<{len(lanes)} x {element}>", instruction)
