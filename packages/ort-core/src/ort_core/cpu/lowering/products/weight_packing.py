"""Weights in the order in which kernels read them, filled in by threads of their own while the lowering goes on.

The memory of a packed weight is there at once, so that steps can point to it; its contents are there when the packing
has finished. Copies in numpy let go of the interpreter's lock. What is packed twice from the same memory in the same
layout, by two nodes, by a second attempt to lower a group or by another session of the same file, is packed once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from ort_core.plugin import raise_interruption
from ort_core.plugin.forks import side_threads
from ort_core.plugin.memory import (
    LargePages,
    PackedWeight,
    WeightKey,
    WeightStore,
    is_mapped,
    read_ahead,
    release_pages,
)

Fill = Callable[[np.ndarray], object]
MIN_SHARED_NBYTES = 1 << 18  # below it (about 100 us) a weight is packed at once: to hand it over costs as much


class WeightPacking:
    """The weights of one partition while it is compiled; leaving the ``with`` block waits for all of them.

    Who runs the partition holds this object: it holds what is shared with other sessions.

    Args:
        num_threads: how many threads pack; with 0 each weight is packed at once.
        store: where sessions find what others have packed; without one nothing is shared.
        target: what the layouts depend on besides what their names say.
    """

    def __init__(self, num_threads: int = 0, store: WeightStore | None = None, target: str = "") -> None:
        self._num_threads = num_threads
        self._store = WeightStore() if store is None else store
        self._target = target
        self._pages = LargePages()
        self._pool: ThreadPoolExecutor | None = None
        self._used: dict[WeightKey, PackedWeight] = {}
        self._alone: dict[WeightKey, tuple[np.ndarray, np.ndarray]] = {}  # small, with their sources: packed at once

    def packed(self, source: np.ndarray, layout: str, allocate: Callable[[], np.ndarray], fill: Fill) -> np.ndarray:
        """Return ``source`` in another layout; filled in when the packing has finished.

        Args:
            source: the weight; it must not change.
            layout: tells this layout from all others that the same source may be packed in.
            allocate: returns the memory.
            fill: writes all of it.
        """
        key = WeightKey.of(source, f"{self._target} {layout}")
        found = self._used.get(key)
        if found is not None:
            return found.buffer
        if is_mapped(source):
            found, is_new = self._store.claim(key, source, allocate)
            self._used[key] = found
            if is_new:
                self._start_or_fail(found, fill)
            return found.buffer
        return self._packed_alone(key, source, allocate, fill)

    def placed(self, array: np.ndarray) -> np.ndarray:
        """Return a contiguous copy of a weight that is packed already, beside others in large pages."""
        return self._pages.copied(array)

    def _packed_alone(
        self, key: WeightKey, source: np.ndarray, allocate: Callable[[], np.ndarray], fill: Fill
    ) -> np.ndarray:
        """Pack what no other session can find: its address says which weight it is while this packing goes on only."""
        known = self._alone.get(key)
        if known is not None:
            return known[1]
        buffer = allocate()
        if self._is_packed_at_once(buffer):
            fill(buffer)
            self._alone[key] = source, buffer
        else:
            found = self._used[key] = PackedWeight(source, buffer)
            self._start_or_fail(found, fill)
        return buffer

    def _is_packed_at_once(self, buffer: np.ndarray) -> bool:
        return self._num_threads == 0 or buffer.nbytes < MIN_SHARED_NBYTES

    def finish(self) -> None:
        """Wait until all weights are packed.

        Raises:
            MemoryError: there was no room for one.
        """
        for weight in self._used.values():
            weight.packed.result()

    def __enter__(self) -> WeightPacking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            if self._pool is not None:
                self._pool.shutdown()  # what another session may wait for is packed to its end
            self._alone = {}
            self._used = {key: weight for key, weight in self._used.items() if is_mapped(weight.source)}

    def _start_or_fail(self, weight: PackedWeight, fill: Fill) -> None:
        """Start a packing that another session may wait for already: it hears of what goes wrong before it began."""
        try:
            self._start(weight, fill)
        except BaseException as error:
            if not weight.packed.done():
                weight.packed.set_exception(error)
            raise

    def _start(self, weight: PackedWeight, fill: Fill) -> None:
        if self._is_packed_at_once(weight.buffer):
            _pack(weight, fill)
            weight.packed.result()
            return
        if self._pool is None:
            self._pool = side_threads(self._num_threads, "ort-weight-packing")
        self._pool.submit(_pack, weight, fill)


def _pack(weight: PackedWeight, fill: Fill) -> None:
    try:
        read_ahead(weight.source)
        fill(weight.buffer)
        release_pages(weight.source)
    except BaseException as error:  # noqa: BLE001 - handed to all who wait for the weight, and raised there
        weight.packed.set_exception(error)
        raise_interruption(error)
    else:
        weight.packed.set_result(None)
