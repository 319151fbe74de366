"""What a compiled partition asks of a GPU: memory, streams, functions, graphs, library calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ort_core.plugin.kernels import RunGuard
from ort_ep_cuda.idle_memory import IdleMemory
from ort_ep_cuda.lowering.libraries.libraries import Libraries
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep
from ort_ep_cuda.lowering.program import FunctionCall, Kernel


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What decides generated code and reports: ``architecture`` is ``sm_90`` and so on."""

    name: str
    architecture: str
    versions: tuple[tuple[str, str], ...] = ()


class Memory(Protocol):
    """Device memory; given back when nobody refers to it any more."""

    @property
    def address(self) -> int:
        """The device's address."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""


class Function(Protocol):
    """A loaded kernel."""


class Graph(Protocol):
    """Captured work."""


class GpuStream(Protocol):
    """A queue of work; one thread uses it at a time."""

    def upload(self, source: np.ndarray, address: int) -> None:
        """Copy a contiguous array to the device. ``source`` must stay unchanged until the stream is through."""

    def download(self, address: int, target: np.ndarray) -> None:
        """Copy from the device into a contiguous array; its content counts when the stream is through."""

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copy within the device."""

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to zero."""

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[np.generic],
    ) -> None:
        """Start a kernel; pointers are 64-bit integers."""

    def run_library(
        self, step: AnyLibraryStep, addresses: Sequence[int], own: Callable[[], None] | None = None
    ) -> None:
        """Enqueue a library call; an address for each of the step's operands. The first of its kind may be tuned.

        ``own`` enqueues generated kernels that do the same, where there are any: a candidate like the library's.
        """

    def call(
        self, step: FunctionCall, inputs: Sequence[int | None], outs: Sequence[int | None], guard: RunGuard
    ) -> None:
        """Call a user's function on arrays at addresses, and enqueue the copies of its results."""

    def begin_capture(self) -> None:
        """Record what is enqueued from now on instead of doing it."""

    def end_capture(self) -> Graph:
        """Return what was recorded."""

    def abort_capture(self) -> None:
        """Record no longer, and forget what was recorded; never raises."""

    def replay(self, graph: Graph) -> None:
        """Enqueue recorded work."""

    def synchronize(self) -> None:
        """Block the host until all work is done; raises what went wrong on the device."""

    def settle(self) -> None:
        """Block the host until nothing is under way any more; never raises, whatever went wrong."""


class Gpu(Protocol):
    """One device as a session uses it."""

    @property
    def facts(self) -> GpuFacts:
        """What the device is."""

    @property
    def idle(self) -> IdleMemory:
        """Who holds memory for later runs."""

    @property
    def libraries(self) -> Libraries:
        """What may be fused into library calls."""

    def allocate(self, nbytes: int) -> Memory:
        """Return memory; ``AllocationLimitExceeded`` where there is not enough."""

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return host bytes that the device copies from and to without a detour."""

    def stream(self) -> GpuStream:
        """Return a queue of its own."""

    def functions(self, kernels: Sequence[Kernel]) -> Mapping[str, Function]:
        """Return kernels ready to launch, by name; those not yet known are compiled.

        Generated ones are compiled together, a user's by itself. ``EPFail`` where a user's does not compile.
        """
