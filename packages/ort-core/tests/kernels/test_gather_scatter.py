"""Kernels that read and write at indices, against plain loops over all positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.reference.movement import gather, scatter

TYPES = [t for t in DataType if t is not DataType.UNDEFINED]
REDUCE: dict[str, Callable[[float, float], float]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def sample(data_type: DataType, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    if data_type is DataType.STRING:
        return np.array([f"s{i}" for i in range(count)], object).reshape(shape)
    first = 1 if data_type is DataType.FLOAT8E8M0 else 0  # that type has powers of two only, no zero
    return (first + np.arange(count) % 2).astype(data_type.numpy).reshape(shape)


@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
def test_gathering_and_scattering_back_restores_every_element_type(data_type: DataType) -> None:
    data = sample(data_type, (3, 4))
    order = np.array([2, -3, 1])
    taken = gather.gather(data, order, axis=0)
    assert taken.dtype == data.dtype
    assert taken.tolist() == data[[2, 0, 1]].tolist()
    blank = np.zeros_like(data)
    assert scatter.scatter_nd(blank, order[:, None], taken).tolist() == data.tolist()
    grid = np.broadcast_to(order[:, None], (3, 4))
    assert scatter.scatter_elements(blank, grid, taken, axis=0).tolist() == data.tolist()
    assert gather.gather_elements(data, grid, axis=0).tolist() == taken.tolist()
    assert gather.gather_nd(data, order[:, None]).tolist() == taken.tolist()
    assert gather.compress(data, np.array([False, True]), axis=1).tolist() == data[:, [1]].tolist()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1)])
def test_gather_puts_the_shape_of_the_indices_in_place_of_the_axis(shape: tuple[int, ...]) -> None:
    data = np.arange(12).reshape(3, 4)[::-1]
    found = gather.gather(data, np.zeros(shape, np.int32), axis=-1)
    assert found.shape == (3, *shape)


def test_a_scalar_result_stays_an_array_of_its_type() -> None:
    for data in (np.array(["a", "b"], object), np.array([1, 2], np.int8)):
        found = gather.gather(data, np.array(1))
        assert isinstance(found, np.ndarray)
        assert found.dtype == data.dtype
        assert gather.gather_nd(data, np.array([1])).shape == ()


@pytest.mark.parametrize("index", [3, -4, 2**40])
def test_an_index_outside_names_the_range_that_is_allowed(index: int) -> None:
    data, where = np.zeros((3, 3)), np.array([[index]])
    with pytest.raises(InvalidArgument, match=r"idx=-?\d+ must be within the inclusive range \[-3,2\]"):
        gather.gather(data, where)
    with pytest.raises(InvalidArgument, match="Out of range value in index tensor"):
        gather.gather_elements(data, where)
    with pytest.raises(InvalidArgument, match="invalid index found"):
        gather.gather_nd(data, where)
    with pytest.raises(InvalidArgument, match="indices element out of data bounds"):
        scatter.scatter_elements(data, where, np.ones((1, 1)))
    with pytest.raises(InvalidArgument, match="invalid indice found"):
        scatter.scatter_nd(data, where, np.ones((1, 3)))


@pytest.mark.parametrize("batch_dims", [0, 1, 2])
def test_gather_nd_reads_each_batch_on_its_own(batch_dims: int) -> None:
    random = np.random.default_rng(batch_dims)
    data = random.integers(0, 99, (2, 3, 4, 5))
    depth = 2
    lead = (2, 3)[:batch_dims]
    sizes = data.shape[batch_dims : batch_dims + depth]
    indices = np.stack([random.integers(-n, n, (*lead, 6)) for n in sizes], axis=-1)
    found = gather.gather_nd(data, indices, batch_dims=batch_dims)
    assert found.shape == (*lead, 6, *data.shape[batch_dims + depth :])
    for position in np.ndindex(*lead, 6):
        expected = data[(*position[:-1], *indices[position].tolist())]
        assert (found[position] == expected).all()


@pytest.mark.parametrize("reduction", sorted(REDUCE))
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements_combines_repeated_writes_in_order(reduction: str, axis: int) -> None:
    random = np.random.default_rng(7)
    data = random.integers(-4, 5, (4, 5)).astype(np.float64)
    indices = random.integers(-4, 4, (3, 4))
    updates = random.integers(-4, 5, (3, 4)).astype(np.float64)
    expected = data.copy()
    for position in np.ndindex(indices.shape):
        place = list(position)
        place[axis] = int(indices[position])
        expected[tuple(place)] = REDUCE[reduction](expected[tuple(place)], updates[position])
    found = scatter.scatter_elements(data, indices, updates, axis=axis, reduction=reduction)
    assert (found == expected).all()


@pytest.mark.parametrize("reduction", sorted(REDUCE))
@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.UINT64], ids=str)
def test_scatter_nd_combines_slices_in_the_type_of_the_data(reduction: str, dtype: DataType) -> None:
    data = np.array([[1, 2], [3, 4], [5, 6]]).astype(dtype.numpy)
    updates = np.array([[2, 3], [3, 2], [1, 1]]).astype(dtype.numpy)
    found = scatter.scatter_nd(data, np.array([[0], [0], [-1]]), updates, reduction=reduction)
    expected = data.astype(np.float64)
    for row, update in zip((0, 0, 2), updates.astype(np.float64), strict=True):
        for column in range(2):
            expected[row, column] = REDUCE[reduction](expected[row, column], update[column])
    assert found.dtype == data.dtype
    assert (found.astype(np.float64) == expected).all()


def test_scatter_nd_without_coordinates_writes_the_whole_tensor() -> None:
    data = np.array([1.0, 2.0])
    updates = np.array([[10.0, 20.0], [100.0, 200.0]])
    assert scatter.scatter_nd(data, np.empty((2, 0), np.int64), updates, reduction="add").tolist() == [111, 222]
    assert scatter.scatter_nd(data, np.empty((2, 0), np.int64), updates).tolist() == [100, 200]


def test_scatter_leaves_its_input_as_it_was() -> None:
    data = np.zeros(3)
    scatter.scatter_elements(data, np.array([0]), np.array([5.0]))
    assert data.tolist() == [0, 0, 0]


def test_scatter_refuses_updates_of_another_shape() -> None:
    with pytest.raises(InvalidArgument, match="dimensions differs at position=1 3 vs 2"):
        scatter.scatter_elements(np.zeros((2, 4)), np.zeros((1, 3), int), np.zeros((1, 2)), axis=1)
    with pytest.raises(InvalidArgument, match="updates tensor should have shape"):
        scatter.scatter_nd(np.zeros((2, 4)), np.zeros((1, 1), int), np.zeros((1, 3)))
    with pytest.raises(InvalidArgument, match="unknown reduction"):
        scatter.scatter_nd(np.zeros(2), np.zeros((1, 1), int), np.zeros(1), reduction="mean")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_marks_indices_inside_and_ignores_others(axis: int) -> None:
    indices = np.array([[0, -1, 9], [2, -4, 1]])
    found = gather.one_hot(indices, np.array([3]), np.array([5, 8], np.int16), axis=axis)
    expected = np.full((2, 3, 3), 5, np.int16)
    for i, j in np.ndindex(2, 3):
        if -3 <= indices[i, j] < 3:
            expected[i, j, indices[i, j]] = 8
    assert (found == np.moveaxis(expected, -1, axis)).all()
    assert found.dtype == np.int16


@pytest.mark.parametrize(("index", "expected"), [(2, [0, 0, 1]), (-3, [1, 0, 0]), (3, [0, 0, 0])])
def test_one_hot_of_one_index_is_one_row(index: int, expected: list[int]) -> None:
    found = gather.one_hot(np.array(index), np.array(3), np.array([0, 1], np.float32))
    assert found.tolist() == expected


def test_one_hot_refuses_a_size_that_no_tensor_has() -> None:
    with pytest.raises(InvalidArgument, match="output tensor size would overflow"):
        gather.one_hot(np.zeros((2, 2), np.int64), np.array(2**62), np.array([0.0, 1.0]))
    with pytest.raises(InvalidArgument, match="Depth is negative"):
        gather.one_hot(np.zeros(2, np.int64), np.array(-1), np.array([0.0, 1.0]))


def test_compress_takes_a_condition_shorter_than_the_axis() -> None:
    data = np.arange(6).reshape(2, 3)
    assert gather.compress(data, np.array([True, False, False, True])).tolist() == [0, 3]
    assert gather.compress(data, np.array([False, True]), axis=0).tolist() == [[3, 4, 5]]
    assert gather.compress(data, np.empty(0, bool), axis=1).shape == (2, 0)
