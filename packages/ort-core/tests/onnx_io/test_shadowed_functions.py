"""Functions of a model that have the name of an operator: nodes of that name mean the operator, as in onnxruntime."""

from __future__ import annotations

import logging

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper

import ort_core as ort

X = np.array([1, -2, 3], np.float32)


def negating_model(domain: str, op_type: str, opset: int) -> ModelProto:
    """Return a model of one node, with a function of its name that negates."""
    own = [helper.make_opsetid("", opset)]
    function = helper.make_function(domain, op_type, ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], own)
    infos = [[helper.make_tensor_value_info(name, 1, [3])] for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], domain=domain)], "named", *infos)
    imports = own if domain in ("", "ai.onnx") else [*own, helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize(
    ("domain", "op_type", "opset", "is_operator"),
    [
        ("", "Relu", 21, True),
        ("ai.onnx", "Relu", 21, True),
        ("", "Gelu", 19, False),  # an operator since 20; onnxruntime refuses functions of new names in ai.onnx
        ("", "Gelu", 20, True),
        ("com.microsoft", "Gelu", 21, True),
        ("com.microsoft", "Negated", 21, False),
        ("of.mine", "Relu", 21, False),
    ],
)
def test_a_node_means_the_operator_of_its_name_where_the_imported_version_has_it(
    domain: str, op_type: str, opset: int, is_operator: bool, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = negating_model(domain, op_type, opset).SerializeToString()
    theirs = -X
    if (domain, opset) != ("", 19):
        (theirs,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    with caplog.at_level(logging.WARNING):
        (ours,) = ort.InferenceSession(content, providers=[provider]).run(None, {"x": X})
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert np.array_equal(ours, -X) is not is_operator
    assert ("the function is left out" in caplog.text) is is_operator
