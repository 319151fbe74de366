"""Models in other operator sets: each adapter beside onnxruntime's results before and behind, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser
from opset_graphs import LAYOUT, REFUSED, SAME

from ort_conformance.suites.backend_cases import node_cases
from ort_core.errors import InvalidArgument
from ort_tools.opsets.conversion import convert_opset, opset_of
from ort_tools.opsets.refusal import OpsetRefusal

onnxruntime.set_default_logger_severity(4)


def run(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds_of(model):
    random = np.random.default_rng(5)
    feeds = {}
    for each in model.graph.input:
        shape = [dim.dim_value or 2 for dim in each.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        values = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 3, shape)
        feeds[each.name] = np.asarray(values, dtype)
    return feeds


def model_of(graph, opset):
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{graph}')
    model.ir_version = 8 if opset < 20 else 10
    return model


def kinds(model):
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


@pytest.mark.parametrize(("graph", "opset", "target", "operators"), SAME, ids=lambda each: str(each)[:60])
def test_the_model_of_another_opset_gives_the_same(graph, opset, target, operators):
    model = model_of(graph, opset)
    converted = convert_opset(model, target)
    onnx.checker.check_model(converted, full_check=True)
    assert opset_of(converted.opset_import) == target
    if operators is not None:
        assert kinds(converted) == operators
    feeds = feeds_of(model)
    for found, wanted in zip(run(converted, feeds), run(model, feeds), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=1e-5, atol=1e-6)


def test_a_batch_that_comes_first_is_transposed():
    model = model_of(LAYOUT, 14)
    converted = convert_opset(model, 13)  # onnxruntime runs layout 0 alone
    feeds = feeds_of(model)
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    for found, wanted in zip(run(converted, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("graph", "opset", "target", "words"), REFUSED, ids=lambda each: str(each)[:60])
def test_what_has_no_form_is_refused_with_its_name(graph, opset, target, words):
    with pytest.raises(OpsetRefusal) as caught:
        convert_opset(model_of(graph, opset), target)
    assert words in str(caught.value)
    assert f"opset {target}" in str(caught.value)


def test_functions_of_the_model_are_converted_or_inlined():
    text = """
    <ir_version: 8, opset_import: ["" : 13, "own" : 1]>
    g (float[2,3] x) => (float[2,3] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["" : 13]> twice (a) => (c) { b = Softmax<axis = 0>(a)  c = Add(b, b) }
    """
    model = parser.parse_model(text)
    raised, lowered = convert_opset(model, 18), convert_opset(model, 11)
    assert len(raised.functions) == 1
    assert opset_of(raised.functions[0].opset_import) == 18
    assert not lowered.functions  # the rank is known only where it is called
    feeds = feeds_of(model)
    for other in (raised, lowered):
        np.testing.assert_allclose(run(other, feeds)[0], run(model, feeds)[0], rtol=1e-6)


def test_the_given_model_is_not_changed_and_constants_that_became_attributes_are_gone():
    model = model_of("g (float[2,1] x) => (float[2] y) <int64[1] a = {1}> { y = Squeeze(x, a) }", 13)
    before = model.SerializeToString()
    converted = convert_opset(model, 11)
    assert model.SerializeToString() == before
    assert not converted.graph.initializer


@pytest.mark.parametrize("target", [6, 29])
def test_opsets_outside_are_named(target):
    with pytest.raises(InvalidArgument, match="from 7 to 28"):
        convert_opset(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }", 13), target)


def agree(found, expected):
    if isinstance(expected, np.ndarray) and expected.dtype.kind == "f" and isinstance(found, np.ndarray):
        same = np.allclose(found.astype("f8"), expected.astype("f8"), 2e-3, 1e-4, equal_nan=True)
        return bool(same and found.shape == expected.shape)
    return str(found) == str(expected)


@pytest.mark.filterwarnings("ignore")  # hostile numbers of onnx's cases
def test_node_cases_give_the_same_in_other_opsets_or_are_refused():
    cases = [case for case in node_cases(is_ml=False) if "@" not in case.name and not case.unjudged][::23]
    outcomes = {"equal": 0, "refused": 0}
    for number, case in enumerate(cases):
        model, data = case.model(), next(iter(case.data_sets()))
        try:
            own = run(model, data.feeds)
        except Exception:  # noqa: BLE001, S112 - onnxruntime has no kernel: no evidence
            continue
        if not all(map(agree, own, data.expected)):
            continue
        for target in ((28, 12), (28, 7), (26, 17))[number % 3]:
            try:
                converted = convert_opset(model, target)
            except OpsetRefusal:
                outcomes["refused"] += 1
                continue
            onnx.checker.check_model(converted)
            assert all(map(agree, run(converted, data.feeds), data.expected)), f"{case.name} to {target}"
            outcomes["equal"] += 1
    assert outcomes["equal"] > 60, outcomes
    assert outcomes["refused"] > 10, outcomes


def test_the_ir_version_fits_the_operator_set():
    model = model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }", 20)
    assert convert_opset(model, 28).ir_version == helper.find_min_ir_version_for([helper.make_opsetid("", 28)])
    assert convert_opset(model, 8).ir_version == 4  # initializers need not be inputs


def test_a_model_of_other_domains_alone_stays_as_it_is():
    graph = helper.make_graph(
        [helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)])
    assert convert_opset(model, 9) == model


def test_a_split_of_an_axis_that_is_not_there_is_refused_where_its_branch_is_never_taken_too():
    graph = """g (bool c, float[2, 6] x) => (float[2, 3] y) {
      y = If(c) <
        then_branch = t () => (float[2, 3] a) { a, b = Split<axis = 1, num_outputs = 2>(x) },
        else_branch = e () => (float[2, 3] d) {
          row = ReduceSum<keepdims = 0>(x)
          d, f = Split<axis = 1, num_outputs = 2>(row)
        }>
    }"""
    with pytest.raises(OpsetRefusal, match=r"Split making 'd'.*axis 1 is none of a tensor of rank 0"):
        convert_opset(model_of(graph, 18), 17)


def test_an_axis_that_a_tensor_does_not_have_is_refused_by_the_node():
    graph = """g (float[3] x) => (float[n] y) <int64[2] pads = {1, 1}, int64[1] axes = {2}> {
      y = Pad(x, pads, , axes)
    }"""
    with pytest.raises(OpsetRefusal, match=r"Pad making 'y'.*axis 2 is none of a tensor of rank 1"):
        convert_opset(model_of(graph, 18), 17)


def test_nodes_without_a_named_output_are_left_out_where_functions_are_inlined():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13, "own" : 1]>
        g (uint8[2,3] x) => (float[2,3] y) <float s = {0.5}, uint8 z = {3}> { y = own.Reals (x, s, z) }
        <domain: "own", opset_import: ["" : 13]> Reals (a, s, z) => (b) { b = DequantizeLinear <axis = 0> (a, s, z) }
    """)
    model.graph.node.insert(0, helper.make_node("Constant", [], [""], value_float=1.0))
    converted = convert_opset(model, 12)
    assert kinds(converted) == ["DequantizeLinear"]
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.testing.assert_array_equal(run(converted, {"x": x})[0], (x.astype(np.float32) - 3) / 2)
