"""MatMul of integers compiled: numpy's products, which wrap, for every size and batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ort_core as ort

TYPES = (np.int32, np.int64, np.uint32, np.uint64)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(each.dtype), [f"{name}{axis}" for axis in range(each.ndim)]
        )
        for name, each in (("a", a), ("b", b))
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])], "g", given, [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    found: np.ndarray = session.run(None, {"a": a, "b": b})[0]
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batches", [((), ()), ((3,), ()), ((2, 3), (2, 3)), ((2, 1), (1, 1))])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 7, 33), (5, 3, 64), (9, 20, 15), (3, 0, 5), (13, 2, 100)])
def test_products_are_those_of_numpy(
    dtype: type, batches: tuple[tuple[int, ...], tuple[int, ...]], sizes: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    rows, depth, columns = sizes
    generator, limits = np.random.default_rng(rows), np.iinfo(dtype)
    a = generator.integers(limits.min, limits.max, (*batches[0], rows, depth), dtype, endpoint=True)
    b = generator.integers(limits.min, limits.max, (*batches[1], depth, columns), dtype, endpoint=True)
    assert np.array_equal(product(a, b), a @ b)
