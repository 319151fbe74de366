"""Kernels that change shapes or move elements, against numpy, for every element type, zero sizes and odd strides."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ort_core.errors import AllocationLimitExceeded, InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.movement import movement, pad, shapes

TYPES = [t for t in DataType if t is not DataType.UNDEFINED]


def context(outputs: int = 1, opset: int = 21, guard: Any = None) -> KernelContext:
    return KernelContext("", "", opset, "", (True,) * outputs, (None,) * outputs, {}, guard or Unguarded())


def sample(data_type: DataType, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array with few distinct values, not contiguous where it has two dimensions."""
    count = int(np.prod(shape))
    if data_type is DataType.STRING:
        flat = np.array([f"s{i % 3}" for i in range(count)], object)
    else:
        first = 1 if data_type is DataType.FLOAT8E8M0 else 0  # that type has powers of two only, no zero
        flat = (first + np.arange(count) % 2).astype(data_type.numpy)
    array = flat.reshape(shape[::-1]).transpose() if len(shape) == 2 else flat.reshape(shape)
    return array


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0)])
def test_movement_keeps_the_element_type_and_the_values(data_type: DataType, shape: tuple[int, int]) -> None:
    data = sample(data_type, shape)
    rows, columns = shape
    assert_same(movement.transpose(data), data.T)
    assert_same(shapes.flatten(data, axis=0), data.reshape(1, rows * columns))
    assert_same(shapes.unsqueeze(data, np.array([0, -1])), data[None, :, :, None])
    assert_same(shapes.squeeze(data[None], np.array([0])), data)
    assert_same(movement.concat(data, data, axis=-1), np.concatenate([data, data], axis=1))
    assert_same(movement.tile(data, np.array([2, 3])), np.tile(data, (2, 3)))
    assert_same(movement.expand(data, np.array([2, 1, 1])), np.broadcast_to(data, (2, *shape)))
    assert_same(movement.slice_10(data, np.array([-1]), np.array([-9]), np.array([0]), np.array([-1])), data[::-1])
    parts = movement.split(data, np.array([0, columns]), axis=1, ctx=context(2))
    assert_same(parts[0], data[:, :0])
    assert_same(parts[1], data)


@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
def test_fill_values_are_zero_or_the_empty_string(data_type: DataType) -> None:
    data = sample(data_type, (2, 2))
    nothing = "" if data_type is DataType.STRING else np.zeros((), data_type.numpy)[()]
    padded = pad.pad(data, np.array([1, 0, 0, 1]))
    assert padded.dtype == data.dtype
    assert padded[0].tolist() == [nothing] * 3
    assert_same(padded[1:, :2], data)
    lower = movement.trilu(data, upper=0)
    assert lower[0, 1] == nothing
    assert_same(lower[:, 0], data[:, 0])


@pytest.mark.parametrize(
    ("found", "requested", "allowzero", "expected"),
    [
        ((2, 3), [3, -1], False, (3, 2)),
        ((2, 3), [0, -1], False, (2, 3)),
        ((0, 3), [3, 0], True, (3, 0)),
        ((0, 3), [-1, 3], False, (0, 3)),
        ((2, 0, 3), [0, -1], True, (0, 6)),
        ((0, 3, 5), [0, 3, -1], False, (0, 3, 5)),
        ((0, 8, 0), [0, 1, 8, -1], False, (0, 1, 8, 0)),
        ((), [1, 1], False, (1, 1)),
        ((1,), [], False, ()),
    ],
)
def test_reshape_resolves_zero_and_minus_one(
    found: tuple[int, ...], requested: list[int], allowzero: bool, expected: tuple[int, ...]
) -> None:
    assert shapes.target_shape(found, requested, allowzero=allowzero) == expected


@pytest.mark.parametrize("requested", [[4, 2], [-1, 4], [-1, -1], [-2, 3], [2, 3, 0]])
def test_reshape_refuses_what_does_not_fit(requested: list[int]) -> None:
    with pytest.raises(InvalidArgument, match=r"Reshape|reshaped"):
        shapes.reshape(np.zeros((2, 3)), np.array(requested))


def test_shape_clamps_start_and_end() -> None:
    data = np.zeros((2, 3, 4))
    assert shapes.shape(data).tolist() == [2, 3, 4]
    assert shapes.shape(data, start=-2).tolist() == [3, 4]
    assert shapes.shape(data, start=1, end=-1).tolist() == [3]
    assert shapes.shape(data, start=-9, end=9).tolist() == [2, 3, 4]
    assert shapes.shape(np.float32(1).reshape(())).shape == (0,)


@settings(max_examples=150, deadline=None)
@given(
    length=st.integers(0, 6),
    start=st.integers(-8, 8),
    end=st.one_of(st.integers(-8, 8), st.sampled_from([2**63 - 1, -(2**63)])),
    step=st.sampled_from([-(2**63) + 1, -3, -2, -1, 1, 2, 3, 2**63 - 1]),
)
def test_slice_follows_the_specification_for_any_numbers(length: int, start: int, end: int, step: int) -> None:
    # The specification's words: negative counts from the end, then clamp, then walk.
    data = np.arange(length)
    low, high = (0, length) if step > 0 else (-1, length - 1)
    first = min(max(start + length if start < 0 else start, 0), high)
    stop = min(max(end + length if end < 0 else end, low), high)
    expected = [int(data[i]) for i in range(first, stop, step)] if length else []
    found = movement.slice_10(data, np.array([start]), np.array([end]), np.array([0]), np.array([step]))
    assert found.tolist() == expected


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("amounts", [((1, 2), (0, 1)), ((0, 0), (2, 2)), ((2, 2), (3, 3))])
def test_pad_equals_numpy_in_every_mode(mode: str, amounts: tuple[tuple[int, int], ...]) -> None:
    data = np.arange(12, dtype=np.float32).reshape(4, 3)[:, ::-1]
    data = np.concatenate([data, data], axis=1)[:, :4]
    starts, ends = zip(*amounts, strict=True)
    found = pad.pad(data, np.array([*starts, *ends]), mode=mode)
    assert_same(found, np.pad(data, amounts, mode=mode))


def test_pad_crops_where_pads_are_negative_and_takes_axes() -> None:
    data = np.arange(12).reshape(3, 4)
    found = pad.pad(data, np.array([-1, 2]), np.array([7]), np.array([-1]))
    expected = np.pad(data[:, 1:], ((0, 0), (0, 2)), constant_values=7)
    assert_same(found, expected)
    assert pad.pad(data, np.array([-2, 0, -2, 0])[[0, 1, 1, 1]]).shape == (1, 4)


def test_pad_refuses_a_reflection_longer_than_the_axis() -> None:
    with pytest.raises(InvalidArgument, match="pre-pad"):
        pad.pad(np.zeros((3,)), np.array([3, 0]), mode="reflect")
    with pytest.raises(InvalidArgument, match="Cannot use 'edge' mode to pad dimension with a value of 0"):
        pad.pad(np.zeros((0,)), np.array([1, 0]), mode="edge")


@pytest.mark.parametrize("k", [-(2**63), -5, -1, 0, 2, 2**63 - 1])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_equals_numpy_for_any_diagonal(k: int, upper: int) -> None:
    data = np.arange(1, 25, dtype=np.int32).reshape(2, 3, 4)
    clamped = min(max(k, -10), 10)
    expected = np.triu(data, clamped) if upper else np.tril(data, clamped)
    assert_same(movement.trilu(data, np.array(k), upper=upper), expected)


@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0), (2, 0)])
def test_reverse_sequence_reverses_each_row_up_to_its_length(time_axis: int, batch_axis: int) -> None:
    data = np.arange(24).reshape(2, 3, 4)
    lengths = np.array([(i * 2 + 1) % (data.shape[time_axis] + 1) for i in range(data.shape[batch_axis])])
    found = movement.reverse_sequence(data, lengths, time_axis=time_axis, batch_axis=batch_axis)
    expected = data.copy()
    for entry, length in enumerate(lengths):
        row = np.moveaxis(np.moveaxis(expected, batch_axis, 0)[entry], time_axis - (batch_axis < time_axis), 0)
        row[:length] = row[:length][::-1].copy()
    assert_same(found, expected)


def test_split_gives_the_remainder_to_the_last_part_since_opset_18() -> None:
    data = np.arange(7)
    found = movement.split(data, num_outputs=3, ctx=context(3, 18))
    assert [part.tolist() for part in found] == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.raises(InvalidArgument, match="split evenly"):
        movement.split_2(data, ctx=context(3, 11))
    with pytest.raises(InvalidArgument, match="Sum of sizes"):
        movement.split(data, np.array([3, 3]), ctx=context(2, 13))


def test_concat_leaves_out_empty_inputs_of_another_shape() -> None:
    data = np.ones((2, 3))
    assert_same(movement.concat(np.empty(0), data, axis=0), data)
    with pytest.raises(InvalidArgument, match="must match"):
        movement.concat(data, np.ones((2, 4)), axis=0)


class Limited(Unguarded):
    def check_allocation(self, nbytes: int, what: str) -> None:
        if nbytes > 1000:
            raise AllocationLimitExceeded(f"{what}: {nbytes} bytes")


@pytest.mark.parametrize("grow", ["expand", "tile", "pad"])
def test_growth_is_shown_to_the_guard_before_memory_is_taken(grow: str) -> None:
    data, ctx, huge = np.zeros(1, np.float32), context(guard=Limited()), np.array([2**31])
    calls = {
        "expand": lambda: movement.expand(data, huge, ctx=ctx),
        "tile": lambda: movement.tile(data, huge, ctx=ctx),
        "pad": lambda: pad.pad(data, np.array([2**31, 0]), ctx=ctx),
    }
    with pytest.raises(AllocationLimitExceeded):
        calls[grow]()


def test_overflowing_sizes_are_invalid_arguments() -> None:
    data = np.zeros((2, 2), np.float32)
    for repeats in ([2**62, 1], [2**62, 2**62], [-1, 1]):
        with pytest.raises(InvalidArgument):
            movement.tile(data, np.array(repeats))


@pytest.mark.parametrize("axis", [-4, 3])
def test_an_axis_outside_the_rank_is_an_invalid_argument(axis: int) -> None:
    data = np.zeros((1, 1, 1))
    calls = [
        lambda: movement.concat(data, axis=axis),
        lambda: shapes.squeeze(data, np.array([axis])),
        lambda: movement.split(data, axis=axis, ctx=context()),
        lambda: movement.slice_10(data, np.array([0]), np.array([1]), np.array([axis])),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call()


def test_inputs_are_not_modified() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = data.copy()
    for upper, mode in itertools.product((0, 1), ("constant", "edge")):
        movement.trilu(data, upper=upper)
        pad.pad(data, np.array([1, 1, 1, 1]), mode=mode)
    assert_same(data, before)
