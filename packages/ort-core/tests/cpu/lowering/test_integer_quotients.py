"""Div of integers by integers of a run: exact towards zero for every type, and nothing is divided by zero."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort
from ort_core.errors import InvalidArgument

TYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def dividing(dtype: type, ranks: tuple[int, int], opset: int = 20) -> ort.InferenceSession:
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [
        helper.make_tensor_value_info(name, elements, [f"{name}{axis}" for axis in range(rank)])
        for name, rank in zip("ab", ranks, strict=True)
    ]
    nodes = [helper.make_node("Div", ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    return session


def towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quotients by Python's integers, wrapped into the type."""
    pairs = zip(*(each.reshape(-1).tolist() for each in np.broadcast_arrays(a, b)), strict=True)
    found = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    bits = 8 * a.dtype.itemsize
    return np.array([each % 2**bits for each in found], np.uint64).astype(a.dtype).reshape(np.broadcast(a, b).shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_quotients_are_exact_at_the_limits_and_beside_whole_ones(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    limits, generator = np.iinfo(dtype), random.Random(0)
    edges = [limits.min, limits.min + 1, -3, -2, -1, 0, 1, 2, 3, limits.max // 2, limits.max - 1, limits.max]
    numbers = [each for each in edges if each >= limits.min]
    for _ in range(300):  # products, and their neighbors
        b = generator.randrange(1, 2 ** generator.randrange(1, 8 * np.dtype(dtype).itemsize - 1))
        a = generator.randint(0, limits.max // b) * b
        numbers += [a, max(a - 1, 0), b]
    some = np.array(numbers[-300:] + numbers[: len(edges)], dtype)
    a, b = some[:, None], some[some != 0][None]
    assert np.array_equal(dividing(dtype, (2, 2)).run(None, {"a": a, "b": b})[0], towards_zero(a, b))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("place", [0, 1, 99])
def test_a_zero_is_refused_wherever_it_stands(dtype: type, place: int) -> None:
    b = np.ones(100, dtype)
    session = dividing(dtype, (1, 1))
    assert session.run(None, {"a": b, "b": b})[0].all()
    b[place] = 0
    with pytest.raises(InvalidArgument, match="division by zero"):
        session.run(None, {"a": np.ones(100, dtype), "b": b})
