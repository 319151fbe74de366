"""Each form of ``Constant`` is taken in each opset, as onnxruntime takes it; sparse texts are filled with empties."""

from __future__ import annotations

import logging

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort

LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
FORMS = {
    "value_float": 2.5, "value_floats": [1.5, -2.0], "value_int": -3, "value_ints": [4, 5], "value_string": "é",
    "value_strings": ["a", ""],
}  # fmt: skip
X = np.zeros(1, np.float32)


def model_of_constant(opset: int, element_type: int, **values: object) -> ModelProto:
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", element_type, None)
    graph = helper.make_graph([node], "constant", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def results(model: ModelProto) -> list[np.ndarray]:
    found = []
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        found += ort.InferenceSession(model.SerializeToString(), options).run(
            None, {"x": X} if model.graph.input else {}
        )
    return found


@pytest.mark.parametrize("opset", [1, 9, 11, 12, 21])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_taken_in_each_opset(form, opset):
    element_types = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "string": TensorProto.STRING}
    model = model_of_constant(opset, element_types[form.split("_")[1].rstrip("s")], **{form: FORMS[form]})
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    for found in results(model):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("opset", [9, 21])
def test_a_sparse_form_is_made_dense_in_each_opset(opset):
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "values")
    places = numpy_helper.from_array(np.array([0, 4]), "places")
    model = model_of_constant(opset, TensorProto.FLOAT, sparse_value=helper.make_sparse_tensor(values, places, [2, 3]))
    for found in results(model):
        assert found.tolist() == [[1, 0, 0], [0, 2, 0]]


def test_the_first_of_several_values_is_taken_at_each_level_with_a_warning(caplog):
    dense = numpy_helper.from_array(np.ones((2, 3), np.float32))
    model = model_of_constant(21, TensorProto.FLOAT, value_float=2.5, value=dense)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    with caplog.at_level(logging.WARNING):
        found = results(model)
    assert [each.tolist() for each in found] == [expected.tolist()] * 2
    assert "'value_float' is taken and 'value' is ignored" in caplog.text


def test_texts_that_a_sparse_tensor_leaves_out_are_empty():
    values = helper.make_tensor("w", TensorProto.STRING, [2], ["a", "b"])
    places = numpy_helper.from_array(np.array([0, 4]), "places")
    y = helper.make_tensor_value_info("y", TensorProto.STRING, [2, 3])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "texts", [], [y])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for found in results(model):
        assert found.tolist() == [["a", "", ""], ["", "b", ""]]
