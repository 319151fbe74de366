"""Relocations: which words of a program's argument table are addresses, and what they are counted from.

It is the same for all signatures, so that a new one costs a few operations on arrays and no walk over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.plugin import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.lowering.views import Buffer

Words: TypeAlias = "npt.NDArray[np.int64]"


@frozen
class Relocations:
    """Positions of words by their base.

    ``inputs`` and ``outputs`` are by number; ``given`` are all of these, inputs first, with the number of the array
    that each is counted from (``given_numbers``): a run writes them at once. ``arena`` positions come with the slots
    that they lie in (``arena_slots``); ``constants`` with the number of the array that each is in
    (``constant_numbers``) and the address of its data (``constant_addresses``). ``arrays`` are the constants.
    """

    inputs: tuple[Words, ...]
    outputs: tuple[tuple[Words, ...], ...]
    given: Words
    given_numbers: Words
    errors: Words
    arena: Words
    arena_slots: Words
    constants: Words
    constant_numbers: Words
    arrays: tuple[np.ndarray, ...]
    constant_addresses: Words

    @classmethod
    def of(
        cls, buffers: Mapping[Buffer, Sequence[int]], slot_of: Callable[[Buffer], int], inputs: int, outputs: int
    ) -> Relocations:
        """Sort the words of a table by the buffers that they point into."""
        from ort_core.cpu.lowering.views import Place  # a program out of the cache comes with its relocations

        inputs_at = [_words(())] * inputs
        outputs_at: list[list[Words]] = [[] for _ in range(outputs)]
        errors = _words(())
        arena: list[tuple[int, int]] = []
        constants: list[tuple[int, int]] = []
        arrays: list[np.ndarray] = []
        for buffer, where in buffers.items():
            if buffer.place is Place.INPUT:
                inputs_at[buffer.index] = _words(where)
            elif buffer.place is Place.OUTPUT:
                outputs_at[buffer.index].append(_words(where))
            elif buffer.place is Place.ERROR:
                errors = _words(where)
            elif buffer.place is Place.CONSTANT:
                assert buffer.array is not None
                constants.extend(zip(where, repeat(len(arrays))))
                arrays.append(buffer.array)
            else:
                arena.extend(zip(where, repeat(slot_of(buffer))))
        lists = tuple(tuple(each) for each in outputs_at)
        return cls.with_arrays(tuple(inputs_at), lists, errors, *_columns(arena), *_columns(constants), tuple(arrays))

    @classmethod
    def with_arrays(
        cls, inputs: tuple[Words, ...], outputs: tuple[tuple[Words, ...], ...], errors: Words, arena: Words,
        arena_slots: Words, constants: Words, constant_numbers: Words, arrays: tuple[np.ndarray, ...],
    ) -> Relocations:  # fmt: skip
        """Return a relocations over these constants, wherever they lie now."""
        addresses = _words([array.__array_interface__["data"][0] for array in arrays])[constant_numbers]
        by_array = [*inputs, *(np.concatenate([_words(()), *groups]) for groups in outputs)]
        given = np.concatenate([_words(()), *by_array])
        numbers = np.repeat(np.arange(len(by_array)), [len(each) for each in by_array])
        return cls(
            inputs, outputs, given, numbers, errors, arena, arena_slots, constants, constant_numbers, arrays, addresses
        )


def _words(values: Sequence[int]) -> Words:
    return np.array(values, np.int64)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Words, Words]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
