"""Resampling along one axis: each output is a weighted sum of a few inputs, found in tables."""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import divide, kernel_emitter, position, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue

MAX_TAPS = 16  # of an output along an axis; antialiasing takes two or four for each pixel that it skips


def resampling_kernel(name: str, taps: int) -> list[Emitter]:
    """Return the functions of ``y[o, i, :] = sum over k of weights[i, k] * x[o, places[i, k], :]``, the kernel last.

    The argument table: x, y, places (int64), weights (float32) as pointers, the outer count, the sizes of the axis in x
    and in y, and the length of the innermost, contiguous axis. Places are not checked: they must lie in the axis. One
    tap is a copy, and its weight is not read.
    """
    inner = _inner_function(f"{name}.inner", taps)
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, y, places, weights = (emitter.argument(args, i, "ptr") for i in range(4))
    outer, size, made, length = (emitter.argument(args, i) for i in range(4, 8))
    with share_of(emitter, emitter.mul(outer, made)) as unit:
        block, index = divide(emitter, unit, made)
        lines, factors = [], []
        for tap in range(taps):
            entry = emitter.add(emitter.mul(index, taps), tap)
            place = emitter.load("i64", emitter.element(places, entry, "i64"))
            lines.append(position(emitter, x, [(emitter.add(emitter.mul(block, size), place), length)]))
            if taps > 1:
                factors.append(emitter.load("float", emitter.element(weights, entry)))
        emitter.call_void(inner.name, position(emitter, y, [(unit, length)]), length, *lines, *factors)
    return [inner, emitter]


def _inner_function(name: str, taps: int) -> Emitter:
    """Return the sum over whole lines, which the compiler vectorizes."""
    parameters = [("ptr noalias", "y"), ("i64", "length")]
    parameters += [("ptr noalias readonly", f"x{k}") for k in range(taps)]
    parameters += [("float", f"w{k}") for k in range(taps)] if taps > 1 else []
    emitter = Emitter(name, parameters, linkage="internal")
    with emitter.loop(0, emitter.parameter("length")) as i:
        numbers = [emitter.load("float", emitter.element(emitter.parameter(f"x{k}"), i)) for k in range(taps)]
        emitter.store(_sum(emitter, numbers), emitter.element(emitter.parameter("y"), i))
    return emitter


def _sum(emitter: Emitter, numbers: list[IRValue]) -> IRValue:
    if len(numbers) == 1:
        return numbers[0]
    total = emitter.binary("fmul", numbers[0], emitter.parameter("w0"))
    for k, number in enumerate(numbers[1:], 1):
        total = emitter.fma(number, emitter.parameter(f"w{k}"), total)
    return total
