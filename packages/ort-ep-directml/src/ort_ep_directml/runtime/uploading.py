"""Weights on their way to the device: through one small piece of memory that both sides see, given back behind.

Arrays lie in buffers of bounded size, since Direct3D promises none beyond 2 GB: as many in one as fit, a larger one in
a buffer of its own. The staging memory is filled and copied piece by piece, so that the host never holds all of them
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ort_ep_directml.abi import d3d12
from ort_ep_directml.runtime.device import DmlDevice
from ort_ep_directml.runtime.memory import Buffer, build_buffer, offsets, rounded
from ort_ep_directml.runtime.recording import CommandRecording, Span

PIECE_NBYTES = 64 << 20  # of staging memory: a few milliseconds of a bus, far more than a copy costs to start
BUFFER_NBYTES = 256 << 20  # of weights that lie together


def uploaded(device: DmlDevice, arrays: Sequence[np.ndarray]) -> list[Span]:
    """Return where copies of arrays lie on the device; each buffer lives as long as a span of it.

    Raises:
        HResultError: there is not enough memory, or the device was lost.
    """
    if not arrays:
        return []
    total = offsets([array.nbytes for array in arrays])[-1]
    staging = build_buffer(device, d3d12.HEAP_TYPE_UPLOAD, min(PIECE_NBYTES, total))
    found: list[Span] = []
    try:
        for group in _groups(arrays):
            places = offsets([array.nbytes for array in group])
            target = build_buffer(device, d3d12.HEAP_TYPE_DEFAULT, places[-1])
            _fill(device, staging, target, group, places)
            found += [Span(target, place, -(-array.nbytes // 4) * 4) for place, array in zip(places, group)]
    finally:
        staging.release()
    return found


def _groups(arrays: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Give arrays that share a buffer, in their order."""
    group: list[np.ndarray] = []
    held = 0
    for array in arrays:
        if group and held + rounded(array.nbytes) > BUFFER_NBYTES:
            yield group
            group, held = [], 0
        group.append(array)
        held += rounded(array.nbytes)
    yield group


def _fill(
    device: DmlDevice, staging: Buffer, target: Buffer, arrays: Sequence[np.ndarray], places: Sequence[int]
) -> None:
    """Copy arrays to their places, as much at a time as the staging memory holds."""
    for first in range(0, places[-1], staging.nbytes):
        nbytes = min(staging.nbytes, places[-1] - first)
        with staging.written() as memory:
            for place, array in zip(places, arrays):
                start, end = max(place, first), min(place + array.nbytes, first + nbytes)
                if start < end:
                    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                    memory[start - first : end - first] = content[start - place : end - place]
        recording = CommandRecording(device)
        recording.copy(Span(staging, 0, nbytes), Span(target, first, nbytes))
        recording.close()
        recording.execute()  # behind it the buffer may be used in any way
