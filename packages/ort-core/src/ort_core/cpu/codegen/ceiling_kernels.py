"""Kernels that do nothing but compute, or nothing but read: what profiles measure the machine's ceilings with."""

from __future__ import annotations

from ort_core.cpu.codegen.emitter import Emitter, float32, vector_type
from ort_core.cpu.codegen.nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.target import Target
from ort_core.cpu.codegen.vectors import zero

CHAINS = 12  # independent sums: a multiply-add's latency (4 cycles) times two units, with some to spare
LINE_NBYTES = 64


def multiply_add_kernel(target: Target) -> tuple[str, Emitter]:
    """Return a kernel of ``CHAINS`` chains of fused multiply-adds in registers.

    The argument table: where each thread stores a vector (64 bytes apart), and the number of rounds.
    """
    name = "ceiling_multiply_add"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, thread = emitter.parameter("args"), emitter.parameter("thread")
    out, rounds = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1)
    type_ = vector_type(target.lanes, "float")
    factor, term = emitter.splat(float32(0.5), target.lanes), emitter.splat(float32(0.25), target.lanes)
    sums = [emitter.variable(type_, zero(type_)) for _ in range(CHAINS)]
    with emitter.loop(0, rounds, unroll=False):
        for each in sums:
            emitter.store(emitter.fma(emitter.load(type_, each), factor, term), each)
    total = emitter.load(type_, sums[0])
    for each in sums[1:]:
        total = emitter.binary("fadd", total, emitter.load(type_, each))
    emitter.store(total, emitter.element(out, emitter.mul(thread, LINE_NBYTES), "i8"), 4)
    return name, emitter


def multiply_add_flops(target: Target, rounds: int) -> int:
    """Return the operations of one thread: two for each lane of each chain in each round."""
    return 2 * CHAINS * target.lanes * rounds


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
