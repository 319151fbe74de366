"""Operators on sequences and optionals: a sequence is a list that is never changed, an absent optional is ``None``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import ValueType
from ort_core.kernels.kernel import KernelContext, SubgraphRunner, kernel
from ort_core.kernels.reference.arrays.axes import integers, resolve_axis, shape_text, single_integer
from ort_core.kernels.reference.movement.movement import join

Value = Any  # a tensor, a sequence or an optional: what an optional may hold


@kernel("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[np.ndarray]:
    """Y = [] of tensors of element type ``dtype``."""
    return []


@kernel("SequenceConstruct", since=11)
def sequence_construct(*inputs: np.ndarray) -> list[np.ndarray]:
    """Y = the inputs as one sequence."""
    return list(inputs)


@kernel("SequenceLength", since=11)
def sequence_length(sequence: list[np.ndarray]) -> np.ndarray:
    """Y = the number of entries."""
    return np.array(len(sequence), np.int64)


@kernel("SequenceAt", since=11)
def sequence_at(sequence: list[np.ndarray], position: np.ndarray) -> np.ndarray:
    """Y = the entry at ``position``; negative counts from the end."""
    return sequence[_position(position, len(sequence), len(sequence) - 1)]


@kernel("SequenceInsert", since=11)
def sequence_insert(
    sequence: list[np.ndarray], tensor: np.ndarray, position: np.ndarray | None = None
) -> list[np.ndarray]:
    """Y = the sequence with ``tensor`` before ``position`` (default: at the end)."""
    length = len(sequence)
    at = length if position is None else _position(position, length, length)
    return [*sequence[:at], tensor, *sequence[at:]]


@kernel("SequenceErase", since=11)
def sequence_erase(sequence: list[np.ndarray], position: np.ndarray | None = None) -> list[np.ndarray]:
    """Y = the sequence without the entry at ``position`` (default: the last)."""
    length = len(sequence)
    at = _position(np.array(-1) if position is None else position, length, length - 1)
    return [*sequence[:at], *sequence[at + 1 :]]


def _position(position: np.ndarray, length: int, last: int) -> int:
    index = single_integer(position, "position", "Sequence operator")
    if not -length <= index <= last:
        raise InvalidArgument(
            f"Invalid sequence index ({index}) specified for sequence of size ({length}); expected [{-length},{last}]"
        )
    return index + length if index < 0 else index


@kernel("SplitToSequence", since=11)
def split_to_sequence(
    data: np.ndarray, split: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[np.ndarray]:
    """Y = X cut along ``axis``: into single slices (``keepdims``: with the axis), or by size(s).

    The specification ignores ``keepdims`` where ``split`` is given. PyTorch exports ``unbind`` with a scalar ``split``
    of 1 and without the axis, and onnxruntime takes it so.
    """
    position = resolve_axis(axis, data.ndim, "SplitToSequence")
    length = data.shape[position]
    before = (slice(None),) * position
    if split is None or (not keepdims and split.ndim == 0 and split == 1):
        picks = [slice(i, i + 1) for i in range(length)] if keepdims else list(range(length))
        return [np.asarray(data[(*before, pick, ...)]) for pick in picks]
    sizes = integers(split.reshape(-1), "split", "SplitToSequence")
    if split.ndim == 0:
        if sizes[0] <= 0:
            raise InvalidArgument(f"SplitToSequence: a scalar 'split' must be positive, got {sizes[0]}")
        sizes = [min(sizes[0], length - start) for start in range(0, length, sizes[0])]
    if any(size < 0 for size in sizes) or sum(sizes) != length:
        raise InvalidArgument(
            f"split_size_sum ({sum(sizes)}) != split_dim_size ({length}): the sizes {sizes} must be >= 0 and add up to "
            f"dimension {position} of {shape_text(data.shape)}"
        )
    stops = np.cumsum([0, *sizes]).tolist()
    return [data[(*before, slice(a, b))] for a, b in itertools.pairwise(stops)]


@kernel("ConcatFromSequence", since=11)
def concat_from_sequence(
    sequence: list[np.ndarray], *, axis: int, new_axis: int = 0, ctx: KernelContext | None = None
) -> np.ndarray:
    """Y = the entries one after the other along ``axis``, which is a new one with ``new_axis``."""
    if not sequence:
        raise InvalidArgument("ConcatFromSequence: must have 1 or more inputs, got an empty sequence")
    if not new_axis:
        return join(sequence, axis, "ConcatFromSequence", ctx)
    if any(entry.shape != sequence[0].shape for entry in sequence):
        shapes = ", ".join(shape_text(entry.shape) for entry in sequence)
        raise InvalidArgument(f"ConcatFromSequence: with new_axis all entries need one shape, got {shapes}")
    return np.stack(sequence, axis=resolve_axis(axis, sequence[0].ndim + 1, "ConcatFromSequence"))


@kernel("SequenceMap", since=17)
def sequence_map(
    sequence: list[np.ndarray],
    *additional_inputs: list[np.ndarray] | np.ndarray,
    body: SubgraphRunner,
    ctx: KernelContext,
) -> tuple[list[np.ndarray], ...]:
    """Y = the results of ``body`` for each entry; further sequences advance along, tensors stay."""
    for other in additional_inputs:
        if isinstance(other, list) and len(other) != len(sequence):
            raise InvalidArgument(f"SequenceMap: sequences of lengths {len(sequence)} and {len(other)} do not match")
    outputs: tuple[list[np.ndarray], ...] = tuple([] for _ in body.output_types)
    for step, entry in enumerate(sequence):
        ctx.guard.check()
        others = (other[step] if isinstance(other, list) else other for other in additional_inputs)
        for collected, result in zip(outputs, body(entry, *others), strict=True):
            collected.append(result)
    return outputs


@kernel("Optional", since=15)
def optional(value: Value = None, *, type: ValueType | None = None) -> Value:
    """Y = the value, or the absence of one of ``type``."""
    return value


@kernel("OptionalHasElement", since=15)
def optional_has_element(value: Value = None) -> np.ndarray:
    """Y = whether there is a value."""
    return np.array(value is not None)


@kernel("OptionalGetElement", since=15)
def optional_get_element(value: Value) -> Value:
    """Y = the value, which must be there."""
    if value is None:
        raise InvalidArgument(
            "Trying to use OptionalGetElement on an optional type OrtValue which contains no data; "
            "guard it by OptionalHasElement and If"
        )
    return value
