"""Hand-written kernels: what addresses its elements by data or by windows, as text with places for types.

Every kernel walks ``count`` results with one thread each. ``@T@`` is how elements lie in memory, ``@C@`` the type they
are computed in, ``@I@`` the type of indices; sizes are arguments, arrays of sizes are written out as arguments too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ort_ep_cuda.lowering.map_kernel import MAXIMUM_BLOCKS, THREADS, named
from ort_ep_cuda.lowering.program import Argument, Kernel, Launch, Pointer
from ort_ep_cuda.lowering.views import TensorView


def elements_loop(body: str) -> list[str]:
    """Return the lines of a kernel that runs ``body`` for every ``i`` below ``count``."""
    return [
        "for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;",
        "     i += (long long)gridDim.x * blockDim.x) {",
        *(f"  {line}" for line in body.strip("\n").splitlines()),
        "}",
    ]


def filled(prefix: str, parameters: str, body: str, texts: Mapping[str, str]) -> Kernel:
    """Return the kernel of a template with ``@NAME@`` replaced by ``texts``."""
    for name, text in texts.items():
        parameters, body = parameters.replace(f"@{name}@", text), body.replace(f"@{name}@", text)
    return named(prefix, [part.strip() for part in parameters.split(",")], elements_loop(body))


def launch_elements(
    kernel: Kernel, count: int, arguments: Sequence[Argument], reads: Sequence[TensorView], writes: Sequence[TensorView]
) -> Launch:
    """Return the launch with one thread for each of ``count`` results; ``count`` is the last argument."""
    blocks = min(max(1, math.ceil(count / THREADS)), MAXIMUM_BLOCKS)
    return Launch(
        kernel,
        (blocks, 1, 1),
        (THREADS, 1, 1),
        (*arguments, np.int64(count)),
        tuple(view.buffer for view in reads),
        tuple(view.buffer for view in writes),
    )


def pointers(*views: TensorView) -> tuple[Argument, ...]:
    """Return the addresses of views."""
    return tuple(Pointer.of(view) for view in views)


def numbers(*values: int) -> tuple[Argument, ...]:
    """Return sizes as arguments."""
    return tuple(np.int64(value) for value in values)
