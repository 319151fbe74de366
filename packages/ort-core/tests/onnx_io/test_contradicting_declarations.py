"""Models whose declarations contradict their contents: refused or run as onnxruntime does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CPU = ["CPUExecutionProvider"]


def declared(
    name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def addition(
    inputs: Sequence[onnx.ValueInfoProto], initializers: Sequence[onnx.TensorProto] = (), **graph: object
) -> onnx.ModelProto:
    """Return a model of y = x + c."""
    node = helper.make_node("Add", ["x", "c"], ["y"], name="sum")
    made = helper.make_graph([node], "added", inputs, [declared("y", None)], initializers, **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def outcome(module: ModuleType, model: onnx.ModelProto) -> object:
    """Return the result, or the class of the refusal."""
    try:
        session = module.InferenceSession(model.SerializeToString(), providers=CPU)
        return session.run(None, {"x": X})[0].tolist()
    except Exception as error:  # noqa: BLE001 - both packages' exceptions, compared by the class of onnxruntime's
        names = [each.__name__ for each in type(error).__mro__]
        return next(name for name in names if hasattr(onnxruntime.capi.onnxruntime_pybind11_state, name))


def weights(name: str = "c", times: float = 1) -> onnx.TensorProto:
    return numpy_helper.from_array(X * np.float32(times), name)


@pytest.mark.parametrize(
    "shape", [None, [2, 3], ["n", 3], ["n", "n"], [None, 3], [2, -1], [-7, 3], [1, 3], [6], [2, 3, 1], []], ids=str
)
def test_an_initializer_fits_the_shape_that_its_input_declares(shape: list[int | str | None] | None) -> None:
    model = addition([declared("x", [2, 3]), declared("c", shape)], [weights()])
    assert outcome(ort, model) == outcome(onnxruntime, model)


def test_an_initializer_has_the_type_that_its_input_declares() -> None:
    model = addition([declared("x", [2, 3]), declared("c", [2, 3], TensorProto.DOUBLE)], [weights()])
    assert outcome(ort, model) == outcome(onnxruntime, model) == "Fail"


@pytest.mark.parametrize("is_input", [False, True])
def test_the_last_of_two_initializers_of_one_name_holds(is_input: bool, caplog: pytest.LogCaptureFixture) -> None:
    inputs = [declared("x", [2, 3]), *([declared("c", None)] if is_input else [])]
    model = addition(inputs, [weights(), weights(times=3)])
    with caplog.at_level(logging.WARNING):
        assert outcome(ort, model) == outcome(onnxruntime, model) == (X * 4).tolist()
    assert "Duplicate initializer (dense, sparse or ConstantNode): 'c'" in caplog.text


def test_an_input_without_a_type_is_refused() -> None:
    model = addition([onnx.ValueInfoProto(name="x")], [weights()])
    assert outcome(ort, model) == outcome(onnxruntime, model) == "Fail"


@pytest.mark.parametrize("size", [-1, -2, -(2**40)])
def test_a_declared_size_below_zero_is_unknown(size: int) -> None:
    model = addition([declared("x", [size, 3])], [weights()])
    assert outcome(ort, model) == outcome(onnxruntime, model) == (X * 2).tolist()
    assert ort.InferenceSession(model.SerializeToString(), providers=CPU).get_inputs()[0].shape == [None, 3]


@pytest.mark.parametrize(("inputs", "outputs"), [(["x", "x"], ["y"]), (["x"], ["y", "z"])])
def test_a_call_gives_no_more_than_its_function_has(inputs: list[str], outputs: list[str]) -> None:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], imports[:1])
    node = helper.make_node("F", inputs, outputs, domain="own")
    graph = helper.make_graph([node], "called", [declared("x", [2, 3])], [declared("y", None)])
    model = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=[function])
    assert outcome(onnxruntime, model) == "Fail"
    with pytest.raises(ort.OrtError, match=r"function own::F has 1"):
        ort.InferenceSession(model.SerializeToString(), providers=CPU)
