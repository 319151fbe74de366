"""Local functions whose nodes and names do not fit together: left out where no node calls them, as by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import ort_core

BROKEN = {  # inputs and nodes of a function that returns b
    "reads_what_nobody_gives": (["a"], [("Relu", ["z"], "b")]),
    "gives_a_name_twice": (["a"], [("Relu", ["a"], "b"), ("Abs", ["a"], "b")]),
    "has_an_input_twice": (["a", "a"], [("Relu", ["a"], "b")]),
}


def content(kind: str, caller: str) -> bytes:
    """Return a model with a broken function, which the graph calls, or another function, or nothing."""
    inputs, nodes = BROKEN[kind]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = [helper.make_node(op_type, given, [name]) for op_type, given, name in nodes]
    functions = [helper.make_function("own", "Broken", inputs, ["b"], made, opsets)]
    called = "Broken" if caller == "graph" else "Outer" if caller == "function" else "Abs"
    if caller == "function":
        body = [helper.make_node("Broken", ["a"] * len(inputs), ["b"], domain="own")]
        functions.append(helper.make_function("own", "Outer", ["a"], ["b"], body, opsets))
    given = ["x"] * (len(inputs) if caller == "graph" else 1)
    node = helper.make_node(called, given, ["y"], domain="" if called == "Abs" else "own")
    values = [helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8).SerializeToString()


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_function_that_no_node_calls_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    feeds = {"x": np.float32([-1, 0, 2])}
    for engine in (onnxruntime, ort_core):
        session = engine.InferenceSession(content(kind, ""), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], np.abs(feeds["x"]))
    assert "own::Broken is left out" in caplog.text


@pytest.mark.parametrize("caller", ["graph", "function"])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_function_that_a_node_calls_is_refused(kind: str, caller: str) -> None:
    with pytest.raises(ort_core.errors.InvalidGraph, match=r"\(z\)|'z'|\(a\)|\(b\)"):
        ort_core.InferenceSession(content(kind, caller), providers=["CPUExecutionProvider"])
