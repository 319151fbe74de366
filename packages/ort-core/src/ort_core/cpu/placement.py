"""Placement: which words of a program's argument table are addresses, and what they are counted from.

It is the same for all signatures, so that a new one costs a few operations on arrays and no walk over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.cpu.lowering.views import Buffer, Place


class Placement:
    """Positions of words by their base.

    ``inputs`` and ``outputs`` are by number; ``arena`` positions come with the slots that they lie in
    (``arena_slots``); ``constants`` with the addresses to add (``constant_addresses``).
    """

    def __init__(
        self, buffers: Mapping[Buffer, Sequence[int]], slot_of: Callable[[Buffer], int], inputs: int, outputs: int
    ) -> None:
        self.inputs: list[np.ndarray] = [np.empty(0, np.int64)] * inputs
        self.outputs: list[list[np.ndarray]] = [[] for _ in range(outputs)]
        self.errors = np.empty(0, np.int64)
        arena: list[tuple[int, int]] = []
        constants: list[tuple[int, int]] = []
        for buffer, where in buffers.items():
            if buffer.place is Place.INPUT:
                self.inputs[buffer.index] = np.array(where, np.int64)
            elif buffer.place is Place.OUTPUT:
                self.outputs[buffer.index].append(np.array(where, np.int64))
            elif buffer.place is Place.ERROR:
                self.errors = np.array(where, np.int64)
            elif buffer.place is Place.CONSTANT:
                assert buffer.array is not None
                constants.extend((position, buffer.array.ctypes.data) for position in where)
            else:
                arena.extend((position, slot_of(buffer)) for position in where)
        self.arena, self.arena_slots = _columns(arena)
        self.constants, self.constant_addresses = _columns(constants)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
