"""Mod of floats and of integers of a run: exact with the sign of either side, and nothing is divided by zero."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort
from ort_core.errors import InvalidArgument

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def session_of(dtype: type, fmod: int) -> ort.InferenceSession:
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [helper.make_tensor_value_info(name, elements, [f"{name}{axis}" for axis in range(2)]) for name in "ab"]
    nodes = [helper.make_node("Mod", ["a", "b"], ["y"], fmod=fmod)]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    return session


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_remainders_of_integers_are_python_s(dtype: type, fmod: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    limits = np.iinfo(dtype)
    edges = {limits.min, limits.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, limits.max // 2, limits.max - 1, limits.max}
    drawn = np.random.default_rng(1).integers(limits.min, limits.max, 60, dtype, endpoint=True)
    some = np.array([*(each for each in edges if each >= limits.min), *drawn.tolist()], dtype)
    a, b = some[:, None], some[some != 0][None]
    found = session_of(dtype, fmod).run(None, {"a": a, "b": b})[0]
    for x, row in zip(a[:, 0].tolist(), found.tolist(), strict=True):
        wanted = [abs(x) % abs(y) * (-1 if x < 0 else 1) if fmod else x % y for y in b[0].tolist()]
        assert row == wanted


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_floats_are_exact_with_either_sign(fmod: int) -> None:
    random = np.random.default_rng(2)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 0.5, 1e-45, -3.4e38, 6, -3, 2.5]
    a = np.append(random.uniform(-1e5, 1e5, 40), special).astype(np.float32)[:, None]
    b = np.append(random.uniform(-7, 7, 40), special).astype(np.float32)[None]
    found = session_of(np.float32, fmod).run(None, {"a": a, "b": b})[0]
    with np.errstate(all="ignore"):
        wanted = (np.fmod if fmod else np.mod)(a, b)
    is_nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    np.testing.assert_array_equal(found[~is_nan].view(np.int32), wanted[~is_nan].view(np.int32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("place", [0, 57, 99])
def test_a_zero_is_refused_wherever_it_stands(dtype: type, place: int) -> None:
    b = np.full((1, 100), 3, dtype)
    session = session_of(dtype, 0)
    assert not session.run(None, {"a": b, "b": b})[0].any()
    b[0, place] = 0
    with pytest.raises(InvalidArgument, match="modulo by zero"):
        session.run(None, {"a": np.ones((1, 100), dtype), "b": b})
