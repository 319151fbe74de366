"""Kernels that do nothing but compute, or nothing but read: what profiles measure the machine's ceilings with."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products.bfloat16_product import dot_pairs, rounds_both
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.codegen.quantized.integer_convolution_plan import has_byte_tiles
from ort_core.cpu.codegen.quantized.integer_dot import ByteProducts, has_byte_products

_TILE_SUMS = 4
CHAINS = 12  # independent sums: a multiply-add's latency (4 cycles) times two units, with some to spare
LINE_NBYTES = 64


def kinds_of(target: Target) -> tuple[str, ...]:
    """Return the kinds of arithmetic that have a unit of their own on a target, by which ``Roofline`` names them.

    Without an instruction for them bytes are multiplied as pairs, at a rate that depends on what is around, and
    bfloat16 is widened to float32.
    """
    has_bytes, has_pairs = has_byte_products(target), rounds_both(target)
    return ("float32", "float64", *(("int8",) if has_bytes else ()), *(("bfloat16",) if has_pairs else ()))


def multiply_add_kernel(target: Target, kind: str = "float32") -> tuple[str, Emitter]:
    """Return a kernel of ``CHAINS`` chains of fused multiply-adds, or dot products, in registers.

    The argument table: where each thread has a vector (64 bytes apart), zeros at first, and the number of rounds.
    """
    name = f"ceiling_multiply_add_{kind}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, thread = emitter.parameter("args"), emitter.parameter("thread")
    out, rounds = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1)
    own = emitter.element(out, emitter.mul(thread, LINE_NBYTES), "i8")
    if _instruction(target, kind):
        _multiply_tiles(emitter, _instruction(target, kind), own, rounds)
        return name, emitter
    element, lanes = ("double", target.lanes // 2) if kind == "float64" else ("float", target.lanes)
    type_ = vector_type(lanes, "i32" if kind == "int8" else element)
    factor = emitter.load(type_, own, 4)
    sums = [emitter.variable(type_, zero(type_)) for _ in range(CHAINS)]
    with emitter.loop(0, rounds, unroll=False):
        for each in sums:
            emitter.store(_multiply_add(emitter, target, kind, factor, emitter.load(type_, each)), each)
    add = "add" if kind == "int8" else "fadd"
    total = emitter.load(type_, sums[0])
    for each in sums[1:]:
        total = emitter.binary(add, total, emitter.load(type_, each))
    emitter.store(total, own, 4)
    return name, emitter


def _instruction(target: Target, kind: str) -> str:
    """Return the instruction that multiplies registers of tiles, ``""`` where vectors are multiplied."""
    if kind == "int8" and has_byte_tiles(target):
        return matrix_tiles.byte_products(False, True)
    return matrix_tiles.FLOAT_PAIRS if kind == "bfloat16" and has_tile_products(target) else ""


def _multiply_tiles(emitter: Emitter, instruction: str, own: IRValue, rounds: IRValue) -> None:
    """Emit rounds of products of two tiles with two, of zeros."""
    with matrix_tiles.configured(emitter, [(matrix_tiles.ROWS, matrix_tiles.LINE_NBYTES)] * matrix_tiles.TILES):
        for tile in range(matrix_tiles.TILES):
            matrix_tiles.clear(emitter, tile)
        with emitter.loop(0, rounds, unroll=False):
            for sums in range(_TILE_SUMS):
                matrix_tiles.multiply(emitter, instruction, sums, 4 + sums // 2, 6 + sums % 2)
    emitter.store(integer(0), own, 4)


def _multiply_add(emitter: Emitter, target: Target, kind: str, factor: IRValue, total: IRValue) -> IRValue:
    if kind == "int8":
        return ByteProducts(emitter, target).add(total, (factor,), (factor,))
    if kind == "bfloat16":
        return dot_pairs(emitter, factor, factor, total)
    return emitter.fma(total, factor, factor)


def multiply_add_flops(target: Target, rounds: int, kind: str = "float32") -> int:
    """Return the operations of one thread: two for each product of each lane of each chain in each round."""
    if _instruction(target, kind):
        nbytes = matrix_tiles.ROWS * matrix_tiles.ROWS * matrix_tiles.LINE_NBYTES
        return 2 * _TILE_SUMS * nbytes // (1 if kind == "int8" else 2) * rounds
    products = {"float32": target.lanes, "float64": target.lanes // 2, "int8": 4 * target.lanes}
    return 2 * CHAINS * products.get(kind, 2 * target.lanes) * rounds


def read_kernel(target: Target) -> tuple[str, Emitter]:
    """Return a kernel in which each thread adds up its own block of floats, over and over.

    The argument table: where each thread stores a vector (64 bytes apart), the floats, how many bytes a thread's
    block has (a multiple of ``CHAINS`` vectors), and the number of passes.
    """
    name = "ceiling_read"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, thread = emitter.parameter("args"), emitter.parameter("thread")
    out, data = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1, "ptr")
    nbytes, passes = emitter.argument(args, 2), emitter.argument(args, 3)
    type_ = vector_type(target.lanes, "float")
    block = emitter.element(data, emitter.mul(thread, nbytes), "i8")
    step = CHAINS * target.vector_nbytes
    sums = [emitter.variable(type_, zero(type_)) for _ in range(CHAINS)]
    with emitter.loop(0, passes, unroll=False), emitter.loop(0, emitter.udiv(nbytes, step), unroll=False) as i:
        start = emitter.element(block, emitter.mul(i, step), "i8")
        for number, each in enumerate(sums):
            at = emitter.element(start, number * target.vector_nbytes, "i8")
            emitter.store(emitter.binary("fadd", emitter.load(type_, each), emitter.load(type_, at, 4)), each)
    total = emitter.load(type_, sums[0])
    for each in sums[1:]:
        total = emitter.binary("fadd", total, emitter.load(type_, each))
    emitter.store(total, emitter.element(out, emitter.mul(thread, LINE_NBYTES), "i8"), 4)
    return name, emitter


def block_nbytes(target: Target, wanted: int) -> int:
    """Return the largest size of a thread's block that is no larger than wanted, at least one step."""
    step = CHAINS * target.vector_nbytes
    return max(step, wanted // step * step)
