"""QLinearSoftmax, QLinearReduceMean and QLinearWhere compile as the reals between two conversions."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core

KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def _tensors(dtype):
    middle = 128 if dtype is np.uint8 else 3
    numbers = {
        "s": np.float32(0.05), "z": dtype(middle), "s2": np.float32([0.031]), "z2": np.array([middle - 2], dtype),
        "chance": np.float32(1 / 256), "least": dtype(np.iinfo(dtype).min), "out": np.float32(0.04),
    }  # fmt: skip
    return [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()]


CASES = {
    "softmax": ("QLinearSoftmax", ["x", "s", "z", "chance", "least"], {"axis": -1, "opset": 13}),
    "softmax of an axis": ("QLinearSoftmax", ["x", "s", "z", "chance", "least"], {"axis": 1, "opset": 13}),
    "old softmax": ("QLinearSoftmax", ["x", "s", "z", "chance", "least"], {"axis": 2, "opset": 12}),
    "mean": ("QLinearReduceMean", ["x", "s", "z", "out", "z"], {"axes": [1, 2], "keepdims": 0}),
    "mean of an axis": ("QLinearReduceMean", ["x", "s", "z", "out", "z"], {"axes": [-1], "keepdims": 1}),
    "where": ("QLinearWhere", ["c", "x", "s", "z", "y", "s2", "z2", "out", "z"], {}),
}


def _mean(x, attributes, dtype):
    """What the operator means: onnxruntime declares it and has no kernel."""
    numbers = {each.name: numpy_helper.to_array(each) for each in _tensors(dtype)}
    real = (x.astype(np.float64) - float(numbers["z"])) * float(numbers["s"])
    mean = real.mean(axis=tuple(attributes["axes"]), keepdims=bool(attributes["keepdims"]))
    span = np.iinfo(dtype)
    return np.clip(np.rint(mean / float(numbers["out"])) + float(numbers["z"]), span.min, span.max).astype(dtype)


@pytest.mark.parametrize("dtype", KINDS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("case", CASES)
def test_results_are_onnxruntimes_and_all_is_native(case: str, dtype: type) -> None:
    op_type, inputs, attributes = CASES[case]
    random = np.random.default_rng(3)
    span = np.iinfo(dtype)
    feeds = {
        "x": random.integers(span.min, span.max + 1, (4, 5, 37)).astype(dtype),
        "y": random.integers(span.min, span.max + 1, (5, 1)).astype(dtype),
        "c": random.integers(0, 2, (4, 1, 37)).astype(bool),
    }
    feeds = {name: each for name, each in feeds.items() if name in inputs}
    kinds = {"x": KINDS[dtype], "y": KINDS[dtype], "c": TensorProto.BOOL}
    given = [helper.make_tensor_value_info(name, kinds[name], each.shape) for name, each in feeds.items()]
    result = helper.make_tensor_value_info("r", KINDS[dtype], None)
    node = helper.make_node(op_type, inputs, ["r"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", given, [result], _tensors(dtype))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    session = ort_core.InferenceSession(model)
    (found,) = session.run(None, feeds)
    if op_type == "QLinearReduceMean":
        wanted = _mean(feeds["x"], attributes, dtype)
    else:
        (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 1, "float32 sums in another order may end on the other side of a half"
    assert np.count_nonzero(apart) <= max(1, apart.size // 50)
    assert "numpy" not in str(session.explain())


def test_scales_that_are_inputs_stay_with_the_operator() -> None:
    node = helper.make_node("QLinearSoftmax", ["x", "s", "z", "t", "z"], ["r"], domain="com.microsoft", opset=13)
    given = [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 5])]
    given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "st"]
    given.append(helper.make_tensor_value_info("z", TensorProto.UINT8, []))
    result = helper.make_tensor_value_info("r", TensorProto.UINT8, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", given, [result]), opset_imports=imports, ir_version=8)
    feeds = {"x": np.arange(10, dtype=np.uint8).reshape(2, 5), "z": np.array(0, np.uint8)}
    feeds |= {"s": np.array(0.1, np.float32), "t": np.array(1 / 256, np.float32)}
    found, wanted = (
        each(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for each in (ort_core.InferenceSession, onnxruntime.InferenceSession)
    )
    np.testing.assert_array_equal(found, wanted)
