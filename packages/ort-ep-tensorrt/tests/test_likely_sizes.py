"""Likely sizes: values that TensorRT is asked with before a run are ones that the operator takes."""

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.testing.claims import typed_model, view_of
from ort_ep_tensorrt.lowering.fixed_inputs import fixed_inputs, sample_of
from ort_ep_tensorrt.lowering.likely_sizes import likely_values

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
BUILT_WITH = {  # what TensorRT must know when it builds, and the sizes that nothing but a run tells
    "grid": "g (float[3,2,3] t, int64[4] s) => (float[a,b,c,d] y) { y = AffineGrid(t, s) }",
    "grid of three axes": "g (float[2,3,4] t, int64[5] s) => (float[a,b,c,d,e] y) { y = AffineGrid(t, s) }",
    "columns": "g (float[1,5,5] x, int64[2] i, int64[2] b) => (float[n,c,h,w] y) { y = Col2Im(x, i, b) }",
    "columns of a block": (
        "g (float[1,12,6] x, int64[2] i) => (float[n,c,h,w] y) <int64[2] b = {2,3}> "
        "{ y = Col2Im<strides=[2,1], pads=[0,1,0,1]>(x, i, b) }"
    ),
    "columns of an image": (
        "g (float[1,8,9] x, int64[2] b) => (float[n,c,h,w] y) <int64[2] i = {4,4}> { y = Col2Im(x, i, b) }"
    ),
    "transform": "g (float[1,10,7,1] x, int64 axis) => (float[a,b,c,d] y) { y = DFT(x, , axis) }",
    "inverse": "g (float[1,10,6,2] x, int64 axis) => (float[a,b,c,d] y) { y = DFT<inverse=1>(x, , axis) }",
    "sizes": "g (float[1,2,4,4] x, int64[4] s) => (float[a,b,c,d] y) { y = Resize<antialias=1>(x, , , s) }",
}
READ_ON_THE_HOST = {
    "two axes": "g (float[6,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }",
    "one axis": "g (float[6,4] x, int64[1] s) => (float[a] y) { y = Reshape(x, s) }",
    "no axis": "g (float[1,1] x, int64[0] s) => (float y) { y = Reshape(x, s) }",
    "more axes": "g (float[6,4] x, int64[4] s) => (float[a,b,c,d] y) { y = Reshape(x, s) }",
    "a spread": "g (float[3,1] x, int64[3] s) => (float[a,b,c] y) { y = Expand(x, s) }",
    "the values themselves": "g (int64[3] s) => (float[a,b,c] y) { y = ConstantOfShape(s) }",
}
random = np.random.default_rng(5)


def samples(text, of):
    """Return a model, and made-up values for each input: those that decide as ``of`` has them, others random."""
    model = onnx.parser.parse_model(HEADER + text)
    graph = view_of(typed_model(model)).graph
    deciding = of(graph)
    others = [value for value in graph.inputs if value.name not in deciding]
    data = {value.name: random.standard_normal(value.shape).astype(value.type.dtype.numpy) for value in others}
    return model, {**data, **deciding}


@pytest.mark.parametrize("text", BUILT_WITH.values(), ids=BUILT_WITH)
def test_values_that_an_engine_is_built_with_are_taken_by_the_operator(text):
    def made_up(graph):
        found = {v.name: sample_of(v, node) for v, node in fixed_inputs(graph.inputs, graph.nodes).items()}
        assert found
        assert all(each is not None for each in found.values()), found
        return found

    model, feeds = samples(text, made_up)
    with ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"]) as session:
        assert session.run(None, feeds)[0].size


@pytest.mark.parametrize("text", READ_ON_THE_HOST.values(), ids=READ_ON_THE_HOST)
def test_sizes_that_an_engine_is_tried_with_hold_as_many_elements(text):
    def made_up(graph):
        value = next(each for each in graph.inputs if each.name == "s")
        return {"s": np.array(likely_values(value, tuple(value.shape)), np.int64)}

    model, feeds = samples(text, made_up)
    with ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"]) as session:
        assert session.run(None, feeds)[0].size
