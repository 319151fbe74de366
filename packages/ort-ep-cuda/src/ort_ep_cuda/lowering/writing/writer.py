"""The writer of CUDA C++: templates with places for texts, walks of a grid over its work, names by content, launches.

Every kernel of this package is written here: a name that is made of its content, ``extern "C"`` around its parameters
and lines, and a launch that reads and writes views. In templates ``@T@`` is how elements lie in memory, ``@C@`` the
type they are computed in, ``@I@`` the type of indices; sizes are arguments.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import cast

import numpy as np

from ort_ep_cuda.lowering.program import MAXIMUM_THREADS, Argument, Kernel, Launch, Pointer
from ort_ep_cuda.lowering.values.growing import grows, largest
from ort_ep_cuda.lowering.values.views import TensorView

THREADS = 256  # 128 to 512 differ by a few per cent on current devices
MAXIMUM_BLOCKS = 1 << 16  # beyond it a thread takes several elements: starting a block is no longer free
_HEAD = re.compile(r'extern "C" __global__ void (\w+)\((.*?)\) \{')
Size = tuple[int, int, int]


class Worker(Enum):
    """Who takes one piece of work after the other: where it starts, and how far it is to the next."""

    THREAD = ("(long long)blockIdx.x * blockDim.x + threadIdx.x", "(long long)gridDim.x * blockDim.x")
    WARP = ("(long long)blockIdx.x * blockDim.y + threadIdx.y", "(long long)gridDim.x * blockDim.y")
    BLOCK = ("blockIdx.x", "gridDim.x")


def walk(worker: Worker, variable: str, count: str) -> str:
    """Return the head of a loop over pieces of work, up to its brace."""
    first, step = worker.value
    return f"for (long long {variable} = {first}; {variable} < {count}; {variable} += {step}) {{"


def elements_loop(body: str | Sequence[str], variable: str = "i") -> list[str]:
    """Return the lines of a loop by threads over ``count`` elements."""
    first, step = Worker.THREAD.value
    return [
        f"for (long long {variable} = {first}; {variable} < count;",
        f"     {variable} += {step}) {{",
        *(f"  {line}" for line in (body.strip("\n").splitlines() if isinstance(body, str) else body)),
        "}",
    ]


def index_type(is_wide: bool) -> str:
    """Return the type of positions: 32 bits where they do, since divisions of 64 bits cost several times more."""
    return "long long" if is_wide else "int"


def coordinates(position: str, sizes: Sequence[str], strides: Sequence[Sequence[str]], targets: Sequence[str]) -> str:
    """Return one line that adds, for each target, the offset of a flat position over axes of the given sizes.

    Args:
        position: an expression, consumed by a name of its own.
        sizes: of the axes; the first is not used.
        strides: for each target one text per axis.
        targets: names of variables that are added to.
    """
    prefix = f"rest_{targets[0]}"
    lines = [f"Index {prefix} = {position};"]
    for axis in range(len(sizes) - 1, -1, -1):
        if axis:
            lines.append(f"const Index {prefix}_{axis} = {prefix} % {sizes[axis]}; {prefix} /= {sizes[axis]};")
        coordinate = f"{prefix}_{axis}" if axis else prefix
        lines += [f"{target} += {coordinate} * {s[axis]};" for target, s in zip(targets, strides, strict=True)]
    return " ".join(lines)


def replaced(text: str, texts: Mapping[str, str]) -> str:
    """Return a template with ``@NAME@`` replaced by the texts, in their order."""
    for name, found in texts.items():
        text = text.replace(f"@{name}@", found)
    return text


def named(prefix: str, parameters: Sequence[str], body: Sequence[str]) -> Kernel:
    """Return a kernel named by its content."""
    text = "\n".join(f"  {line}" for line in body)
    digest = hashlib.sha256(f"{parameters}{text}".encode()).hexdigest()[:16]
    name = f"{prefix}_{digest}"
    return Kernel(name, f'extern "C" __global__ void {name}({", ".join(parameters)}) {{\n{text}\n}}\n')


def template(prefix: str, parameters: str, body: str, texts: Mapping[str, str]) -> Kernel:
    """Return the kernel of a template, which walks over its work itself."""
    declared = [part.strip() for part in replaced(parameters, texts).split(",")]
    return named(prefix, declared, replaced(body, texts).strip("\n").splitlines())


def filled(prefix: str, parameters: str, body: str, texts: Mapping[str, str]) -> Kernel:
    """Return the kernel of a template that one thread runs for each ``i`` below ``count``."""
    return template(prefix, parameters, "\n".join(elements_loop(replaced(body, texts))), texts)


def reading(kernel: Kernel, kinds: str) -> Kernel:
    """Return the kernel around a kernel that reads arguments of kind ``n``, moves those of ``p``, both for ``e``."""
    head = _HEAD.search(kernel.source)
    assert head is not None, f"a generated kernel has a head: {kernel.source[:80]}"
    declared = [part.strip() for part in head[2].split(",")]
    name = f"{kernel.name}_s{int(''.join(str('-npe'.index(kind)) for kind in kinds), 4):x}"
    outer: list[str] = []
    inner: list[str] = []
    for parameter, kind in zip(declared, kinds, strict=True):
        kept, variable = parameter.rsplit(" ", 1)
        if kind == "n":
            outer.append(f"const long long* {variable}")
            inner.append(f"*{variable}")
        elif kind == "p":
            outer += [parameter, f"const long long* {variable}_behind"]
            inner.append(f"({kept})((char*){variable} + *{variable}_behind)")
        elif kind == "e":
            outer += [f"const long long* {variable}_at", f"const long long* {variable}_behind"]
            inner.append(f"({kept})((char*)*{variable}_at + *{variable}_behind)")
        else:
            outer.append(parameter)
            inner.append(variable)
    body = kernel.source[head.end() :]
    before = kernel.source[: head.start()]  # functions that it calls, guarded against a second time
    function = f"{before}static __device__ __forceinline__ void {name}_of({head[2]}) {{{body}"
    around = f'extern "C" __global__ void {name}({", ".join(outer)}) {{\n  {name}_of({", ".join(inner)});\n}}\n'
    return Kernel(name, function + around)


def blocks_for(pieces: int, per_block: int = 1) -> Size:
    """Return a grid with a place for each piece of work, as far as blocks go, and as far as sizes may grow."""
    return (min(max(1, -(-largest(pieces) // per_block)), MAXIMUM_BLOCKS), 1, 1)


def launched(
    kernel: Kernel,
    grid: Size,
    block: Size,
    arguments: Sequence[Argument],
    reads: Sequence[TensorView],
    writes: Sequence[TensorView],
) -> Launch:
    """Return a launch that reads and writes the buffers of views."""
    assert math.prod(block) <= MAXIMUM_THREADS, f"{kernel.name} is compiled for smaller blocks than {block}"
    buffers = (tuple(view.buffer for view in views) for views in (reads, writes))
    return Launch(kernel, grid, block, tuple(arguments), *buffers)


def launch_elements(
    kernel: Kernel, count: int, arguments: Sequence[Argument], reads: Sequence[TensorView], writes: Sequence[TensorView]
) -> Launch:
    """Return the launch with one thread for each of ``count`` results; ``count`` is the last argument."""
    grid, block = blocks_for(count, THREADS), (THREADS, 1, 1)
    return launched(kernel, grid, block, (*arguments, *numbers(count)), reads, writes)


def pointers(*views: TensorView) -> tuple[Argument, ...]:
    """Return the addresses of views."""
    return tuple(Pointer.of(view) for view in views)


def numbers(*values: int) -> tuple[Argument, ...]:
    """Return sizes as arguments; one that grows stays itself until the program is built."""
    return tuple(cast("Argument", value) if grows(value) else np.int64(value) for value in values)
