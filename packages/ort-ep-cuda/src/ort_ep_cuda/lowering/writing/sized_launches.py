"""Launches over sizes that grow: kernels read them from the device's memory, so that one captured launch serves all.

    map_1a(in0, out, count = 64 * past)   ->   map_1a_s4(in0, out, &sizes[3])

The kernel stays what it was, as a function; a kernel around it reads those of its arguments that grow. An address that
moves by a size is its buffer's start and how many bytes lie before it; the start of a buffer that each run may have
elsewhere, such as a cache of the caller's, is read as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ort_ep_cuda.lowering.program import Argument, Launch, Pointer
from ort_ep_cuda.lowering.values.growing import CannotGrow, grows
from ort_ep_cuda.lowering.writing.writer import reading


def sized(
    launch: Launch, word: Callable[[int], Pointer], start: Callable[[int], Pointer], movable: Collection[int]
) -> Launch:
    """Return a launch whose arguments stay the same while sizes grow.

    Args:
        launch: as it was lowered; the launch itself is returned where none of its arguments changes.
        word: gives the place in which a run finds a size, an ``int64``.
        start: gives the place in which a run finds the start of a buffer.
        movable: the buffers whose start is read there.

    Raises:
        CannotGrow: the kernel is a user's own, which is launched as it is.
    """
    changed = tuple(_kind(argument, movable) for argument in launch.arguments)
    if not any(changed):
        return launch
    if launch.kernel.entry:
        raise CannotGrow(f"the kernel {launch.kernel.entry!r} of {launch.kernel.operator} takes sizes by value")
    arguments: list[Argument] = []
    for argument, kind in zip(launch.arguments, changed, strict=True):
        if kind == "n":
            arguments.append(word(argument))  # type: ignore[arg-type]  # a Size, which no other code may tell from an int
        elif isinstance(argument, Pointer) and kind == "p":
            arguments += [Pointer(argument.buffer), word(argument.offset_nbytes)]
        elif isinstance(argument, Pointer) and kind == "e":
            arguments += [start(argument.buffer), word(argument.offset_nbytes)]
        else:
            arguments.append(argument)
    read = {argument.buffer for argument in arguments if isinstance(argument, Pointer)} - set(launch.writes)
    kernel = reading(launch.kernel, "".join(kind or "-" for kind in changed))
    return replace(launch, kernel=kernel, arguments=tuple(arguments), reads=tuple(sorted({*launch.reads, *read})))


def _kind(argument: Argument, movable: Collection[int]) -> str:
    if isinstance(argument, Pointer):
        if argument.buffer in movable:
            return "e"
        return "p" if grows(argument.offset_nbytes) else ""
    return "n" if grows(argument) else ""
