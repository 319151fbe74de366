"""Rewrites of ONNX's operators: what the parser is handed computes what ONNX's own backend cases expect."""

import functools
import warnings

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

import ort_core as ort
from ort_conformance.suites.resizing_cases import resizing_cases
from ort_core.plugin import Claim
from ort_core.plugin.ir import Node
from ort_core.testing.claims import typed_model, view_of
from ort_core.tolerances import compare
from ort_ep_tensorrt.capability import find_capability
from ort_ep_tensorrt.lowering.editing import LoweringRefusal
from ort_ep_tensorrt.lowering.legalization import Changes
from ort_ep_tensorrt.lowering.operator_rewrites import _OF_ONNX, writer_of
from ort_ep_tensorrt.program import program_of
from ort_ep_tensorrt.rules import built_in_parts
from ort_ep_tensorrt.settings import BuildSettings

LEAST = {  # how many of ONNX's cases of an operator are written in other words, at least
    "AffineGrid": 4, "AveragePool": 20, "BitShift": 9, "Col2Im": 5, "Compress": 5, "ConvInteger": 2, "CumProd": 9,
    "DFT": 10, "LpPool": 8, "MatMulInteger": 1, "MaxPool": 15, "MaxUnpool": 1, "Mod": 4, "QLinearConv": 1,
    "QLinearMatMul": 8, "ReduceMax": 1, "ReduceMin": 1, "Resize": 25,
}  # fmt: skip
IN_FLOAT32 = {"DFT": "approximate"}  # a matrix sums otherwise than a fast transform does


@functools.cache
def cases():
    """Return ONNX's cases of one node, by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    by_operator = {}
    for case in found:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in _OF_ONNX and not case.name.endswith("_expanded"):
            by_operator.setdefault(nodes[0].op_type, []).append(case)
    return by_operator


def handed(case, arrays):
    """Return the model that the parser is handed, weights inside, with data of the case for constants; or a refusal."""
    source = case.model() if callable(case.model) else case.model
    view = view_of(typed_model(source))
    names = [each.name for each in source.graph.input]
    known = {name: array for name, array in zip(names, arrays, strict=True) if name != names[0] and array.size <= 64}
    numbers = {n: a for n, a in known.items() if a.dtype.kind == "i" or source.graph.node[0].op_type == "Resize"}
    try:
        program = program_of(view, view.nodes, Changes(in_parts=frozenset({0}), fixed=numbers))
    except LoweringRefusal as refusal:
        return refusal
    model = onnx.load_from_string(program.content)
    for each in model.graph.initializer:
        if each.name in program.weights:
            each.CopyFrom(onnx.numpy_helper.from_array(program.weights[each.name], each.name))
    imports = model.opset_import[0]
    imports.version = max(imports.version, 11)  # Round is of 11; TensorRT's parser goes by names
    return model


@pytest.mark.parametrize("operator", sorted(LEAST))
def test_other_words_give_the_numbers_of_onnx(operator):
    written = 0
    for case in cases()[operator]:
        inputs, expected = ([np.asarray(array) for array in arrays] for arrays in case.data_sets[0])
        model = handed(case, inputs)
        if isinstance(model, LoweringRefusal):
            assert model.reason, case.name
            continue
        assert operator not in {node.op_type for node in model.graph.node} or operator in KEPT, case.name
        with ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"]) as session:
            fed = dict(zip([each.name for each in case.model.graph.input], inputs, strict=True))
            found = session.run(None, {each.name: fed[each.name] for each in session.get_inputs()})
        for array, wanted in zip(found, expected, strict=True):
            limit = IN_FLOAT32.get(operator, "rounding" if wanted.dtype.kind not in "iub" else "exact")
            assert array.dtype == wanted.dtype, case.name
            if operator in FEW_DIGITS:
                np.testing.assert_allclose(array, wanted, case.rtol, case.atol, err_msg=case.name)
            else:
                assert compare(array, wanted, limit).passes, f"{case.name}: {compare(array, wanted, limit)}"
        written += 1
    assert written >= LEAST[operator], "cases that are refused are no proof"


FEW_DIGITS = frozenset({"AveragePool"})
"""Operators of whose cases some have four digits of a result: they are judged as ONNX does."""
KEPT = frozenset({"Mod", "ReduceMax", "ReduceMin"})
"""Operators that are said by themselves, of another type or with another sign."""


@pytest.mark.parametrize("operator", sorted(LEAST.keys() - {"Compress"}))  # TensorRT-RTX lacks NonZero
def test_tensorrt_rtx_takes_the_other_words(rtx, operator):
    found = [find_capability(view_of(typed_model(case.model)), rtx, BuildSettings()) for case in cases()[operator]]
    taken = sum(any(isinstance(each, Claim) for each in answers) for answers in found)
    assert taken >= TAKEN_BY_RTX.get(operator, LEAST[operator])


TAKEN_BY_RTX = {"CumProd": 2}  # the others are in float64


def test_a_resize_of_opset_10_stays_asymmetric_in_other_words():
    text = (
        '<ir_version: 8, opset_import: ["" : 10]> g (float[1,2,3,4] x) => (float[a,b,c,d] y) '
        '<float[4] s = {1,1,2,1.5}> { y = Resize<mode="linear">(x, s) }'
    )
    model = onnx.parser.parse_model(text)
    view = view_of(typed_model(model))
    program = program_of(view, view.nodes, Changes(in_parts=frozenset({0})))
    written = onnx.load_from_string(program.content)
    assert "Resize" not in {node.op_type for node in written.graph.node}
    feeds = {"x": np.random.default_rng(4).standard_normal((1, 2, 3, 4)).astype(np.float32)}
    found, expected = (
        ort.InferenceSession(each.SerializeToString(), providers=["ReferenceExecutionProvider"]).run(None, feeds)[0]
        for each in (written, model)
    )
    assert compare(found, expected, "approximate").passes


def test_a_scale_that_is_not_the_ratio_of_sizes_is_said_in_other_words():
    written = 0
    for case in resizing_cases():
        node = view_of(typed_model(case.model())).nodes[0]
        if not built_in_parts(node, is_rtx=True):
            continue
        (data,) = case.data_sets()
        model = handed(case, list(data.feeds.values()))
        assert not {"Resize", "Upsample"} & {each.op_type for each in model.graph.node}, case.name
        with ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"]) as session:
            found = session.run(None, dict(data.feeds))[0]
        assert compare(found, data.expected[0], "approximate").passes, case.name
        written += 1
    assert written == RESIZED_BESIDE_THE_RATIO


RESIZED_BESIDE_THE_RATIO = 32
"""Cases of two of five pairs of scales: where 2 elements are 1.1 times as many (2), or 5 elements 0.4 times (2)."""


def test_a_window_that_reads_padding_alone_is_refused():
    text = (
        '<ir_version: 10, opset_import: ["" : 22]> g (float[1,1,1,4] x) => (float[1,1,1,4] y) '
        '{ y = LpPool<kernel_shape=[2,1], dilations=[2,1], auto_pad="SAME_UPPER">(x) }'
    )
    view = view_of(typed_model(onnx.parser.parse_model(text)))
    with pytest.raises(LoweringRefusal, match="reads padding alone"):
        program_of(view, view.nodes, Changes(in_parts=frozenset({0})))


def test_operators_of_other_domains_are_not_taken_for_those_of_onnx():
    for domain, is_written in (("", True), ("ai.onnx", True), ("com.microsoft.nchwc", False), ("mine", False)):
        assert (writer_of(Node("MaxPool", [], 1, {}, domain=domain)) is not None) is is_written
