"""Weights in the order in which kernels read them, filled in by threads of their own while the lowering goes on.

The memory of a packed weight is there at once, so that steps can point to it; its contents are there when the packing
has finished. Copies in numpy let go of the interpreter's lock. What is packed twice from the same memory in the same
layout, by two nodes or by a second attempt to lower a group, is packed once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np

from ort_core.plugin.memory import read_ahead, release_pages

Fill = Callable[[np.ndarray], object]
MIN_SHARED_NBYTES = 1 << 18  # below it (about 100 us) a weight is packed at once: to hand it over costs as much


class WeightPacking:
    """The weights of one partition while it is compiled; leaving the ``with`` block waits for all of them.

    Args:
        num_threads: how many threads pack; with 0 each weight is packed at once.
    """

    def __init__(self, num_threads: int = 0) -> None:
        self._num_threads = num_threads
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: list[Future[None]] = []
        self._packed: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}

    def packed(self, source: np.ndarray, layout: str, allocate: Callable[[], np.ndarray], fill: Fill) -> np.ndarray:
        """Return ``source`` in another layout; filled in when the packing has finished.

        Args:
            source: the weight; it must not change.
            layout: tells this layout from all others that the same source may be packed in.
            allocate: returns the memory.
            fill: writes all of it.
        """
        place = source.__array_interface__
        key = (place["data"][0], source.shape, source.strides, source.dtype.str, layout)
        found = self._packed.get(key)
        if found is None:
            found = self._packed[key] = (allocate(), source)  # an address is only unique while the source lives
            self._start(source, found[0], fill)
        return found[0]

    def finish(self) -> None:
        """Wait until all weights are packed.

        Raises:
            MemoryError: there was no room for one.
        """
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.result()

    def __enter__(self) -> WeightPacking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._packed.clear()
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def _start(self, source: np.ndarray, target: np.ndarray, fill: Fill) -> None:
        if self._num_threads == 0 or target.nbytes < MIN_SHARED_NBYTES:
            _pack(source, target, fill)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, "ort-weight-packing")
        self._jobs.append(self._pool.submit(_pack, source, target, fill))


def _pack(source: np.ndarray, target: np.ndarray, fill: Fill) -> None:
    read_ahead(source)
    fill(target)
    release_pages(source)
