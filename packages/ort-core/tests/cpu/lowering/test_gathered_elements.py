"""GatherElements compiled: any axis, element size and index type, and what is out of bounds is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort
from ort_core.errors import InvalidArgument

TYPES = (np.float32, np.uint8, np.int16, np.float64, np.bool_, np.int64)


def gathering(data: np.ndarray, indices: np.ndarray, axis: int) -> ort.InferenceSession:
    given = []
    for name, each in (("x", data), ("i", indices)):
        dims = [f"{name}{axis}" for axis in range(each.ndim)]
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), dims))
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("seed", range(60))
def test_each_index_reads_its_element(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    generator = np.random.default_rng(seed)
    rank = 1 + seed % 4
    axis = int(generator.integers(0, rank))
    shape = [int(size) for size in generator.integers(1, 40 if rank < 4 else 9, rank)]
    counts = [int(generator.integers(0, size + 1)) for size in shape]
    counts[axis] = int(generator.integers(0, 70))
    data = (100 * generator.standard_normal(shape)).astype(TYPES[seed % len(TYPES)])
    indices = generator.integers(-shape[axis], shape[axis], counts).astype((np.int64, np.int32)[seed // 4 % 2])
    (y,) = gathering(data, indices, axis).run(None, {"x": data, "i": indices})
    within = data[tuple(slice(None) if k == axis else slice(count) for k, count in enumerate(counts))]
    wanted = np.take_along_axis(within, np.where(indices < 0, indices + shape[axis], indices).astype(np.int64), axis)
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("index", [-6, 5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, 9, 16])
@pytest.mark.parametrize("axis", [0, 1])
def test_an_index_out_of_bounds_is_refused(index: int, place: int, axis: int) -> None:
    data = np.zeros((5, 5), np.float32)
    indices = np.zeros((5, 17) if axis else (17, 5), np.int32)
    indices[(2, place) if axis else (place, 2)] = index
    with pytest.raises(InvalidArgument, match="Out of range"):
        gathering(data, indices, axis).run(None, {"x": data, "i": indices})


def test_no_elements_at_all_are_refused() -> None:
    data, indices = np.zeros((2, 0), np.float32), np.zeros((2, 3), np.int64)
    with pytest.raises(InvalidArgument, match="Out of range"):
        gathering(data, indices, 1).run(None, {"x": data, "i": indices})
