"""The range of a tensor and the grid of unsigned bytes that covers it: what DynamicQuantizeLinear computes first.

The tensor is cut into blocks; each block's least and greatest number are stored, then one thread joins them.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import kernel_emitter
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import share
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import binary, cast, element, maximum, minimum, select, unary

BLOCK = 1 << 14  # numbers of a block: 64 KiB, read in a few microseconds
_CHAINS = 4  # vectors in flight
F32 = DataType.FLOAT


@memoized
def block_ranges_kernel(target: Target) -> tuple[str, Emitter]:
    """Return the kernel that writes each block's range.

    The argument table: the numbers (contiguous), the ranges (two float32 for each block: least and greatest, with 0
    among the numbers), and how many numbers there are.
    """
    name = "block_ranges"
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, ranges = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1, "ptr")
    count = emitter.argument(args, 2)
    first, last = share(emitter, emitter.udiv(emitter.add(count, BLOCK - 1), BLOCK))
    with emitter.loop(first, last, unroll=False, hint="block") as block:
        start = emitter.mul(block, BLOCK)
        stop = emitter.minimum(emitter.add(start, BLOCK), count)
        low, high = _range(emitter, x, start, stop, target.lanes)
        place = emitter.element(ranges, emitter.mul(block, 2))
        emitter.store(low, place)
        emitter.store(high, emitter.element(place, 1))
    return name, emitter


def _range(emitter: Emitter, x: IRValue, start: IRValue, stop: IRValue, lanes: int) -> tuple[IRValue, IRValue]:
    whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), lanes * _CHAINS))
    slots = [[_zero(emitter, lanes) for _ in range(2)] for _ in range(_CHAINS)]
    rest = [_zero(emitter, 1) for _ in range(2)]
    with emitter.loop(start, whole, lanes * _CHAINS, unroll=False) as i:
        for chain, pair in enumerate(slots):
            place = emitter.element(x, emitter.add(i, chain * lanes))
            _widen(emitter, pair, emitter.load(vector_type(lanes, "float"), place, 4), lanes)
    with emitter.loop(whole, stop, unroll=False) as i:
        _widen(emitter, rest, emitter.load("float", emitter.element(x, i), 4), 1)
    found = []
    for side, operation in enumerate(("min", "max")):
        value = emitter.load("float", rest[side])
        for pair in slots:
            vector = emitter.load(vector_type(lanes, "float"), pair[side])
            for lane in range(lanes):
                each = emitter.assign("float", f"extractelement {vector.typed}, i32 {lane}")
                value = _joined(emitter, operation, value, each, 1)
        found.append(value)
    return found[0], found[1]


@memoized
def grid_kernel() -> tuple[str, Emitter]:
    """Return the kernel that joins the ranges into a scale and a zero point; one thread does it.

    The argument table: the ranges, the scale (float32), the zero point (uint8), and how many numbers there were.
    """
    name = "dynamic_grid"
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    ranges, scale_at, zero_at = (emitter.argument(args, i, "ptr") for i in range(3))
    blocks = emitter.udiv(emitter.add(emitter.argument(args, 3), BLOCK - 1), BLOCK)
    with emitter.when(emitter.compare("eq", emitter.parameter("piece"), 0)):
        sides = [_zero(emitter, 1) for _ in range(2)]
        with emitter.loop(0, blocks, unroll=False) as block:
            place = emitter.element(ranges, emitter.mul(block, 2))
            for side, operation in enumerate(("min", "max")):
                value = emitter.load("float", emitter.element(place, side))
                emitter.store(_joined(emitter, operation, emitter.load("float", sides[side]), value, 1), sides[side])
        low, high = element(0, F32), element(1, F32)
        scale = select(binary("eq", low, high), 1.0, (high - low) / 255.0)
        zero = unary("rint", minimum(maximum(-low / scale, 0.0), 255.0))
        loaded = [emitter.load("float", side) for side in sides]
        printer = ScalarPrinter(emitter, 1, lambda index: loaded[index])
        emitter.store(printer.print(scale), scale_at)
        emitter.store(printer.print(cast(zero, DataType.UINT8)), zero_at)
    return name, emitter


def _zero(emitter: Emitter, width: int) -> IRValue:
    value = constant(0.0, F32, width)
    return emitter.variable(value.type, value, "range")


def _widen(emitter: Emitter, pair: list[IRValue], value: IRValue, width: int) -> None:
    for slot, operation in zip(pair, ("min", "max"), strict=True):
        emitter.store(_joined(emitter, operation, emitter.load(value.type, slot), value, width), slot)


def _joined(emitter: Emitter, operation: str, left: IRValue, right: IRValue, width: int) -> IRValue:
    joined = binary(operation, element(0, F32), element(1, F32))
    return ScalarPrinter(emitter, width, lambda index: (left, right)[index]).print(joined)
