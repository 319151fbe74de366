"""What sessions tell of inputs and outputs, exactly as onnxruntime tells it: names, types, shapes."""

from __future__ import annotations

import warnings

import onnxruntime
import pytest
from onnx import parser
from onnx.backend.test.case.node import collect_testcases

import ort_core

HEAD = '<ir_version: 8, opset_import: ["": 13]> '
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
STRONGER = ("test_unique",)  # the inverse is as long as the input, which onnxruntime does not infer
SMALL_MODELS = (  # with computed sizes, unnamed ones, ranks that nobody tells, names of their own
    "attention_past_state", "cuda_graph_with_shape_nodes", "dynamic_quantize_matmul_int8", "gh_issue_9671",
    "invalid_dim_param_value_repetition", "multi_stream_models/cpu_if", "optional_inputs_ir3",
    "transform/fp16model_loop", "TRTEP_test_model/mnist",
)  # fmt: skip
GRAPHS = {
    "declared_names_stay": "g (float[P] p, float[S] s) => (float[total] y) { y = Concat<axis = 0>(p, s) }",
    "computed_without_a_name": "g (float[P] p, float[S] s) => (float[] y) { y = Concat<axis = 0>(p, s) }",
    "names_flow_to_nameless_outputs": "g (float[A, 2, N] x) => (y) { y = Transpose(x) }",
    "other_names_of_the_same_size": "g (float[A, A, 7] x) => (float[B, C, D] y) { y = Relu(x) }",
    "sizes_replace_names": "g (float[2, 3] x) => (float[N, K] y) { y = Relu(x) }",
    "a_size_that_contradicts": "g (float[N, 4] x) => (float[N, 5] y) { y = Relu(x) }",
    "a_size_that_contradicts_beside_others": "g (float[N, 4, 2] x) => (float[M, 5, 2] y) { y = Relu(x) }",
    "a_size_that_contradicts_beside_unknown_ones": "g (float[N, 4] x) => (int64[3, 7] y) { y = NonZero(x) }",
    "a_rank_that_contradicts": "g (float[N, 4] x) => (float[N] y) { y = Relu(x) }",
    "a_scalar": "g (float x) => (float y) { y = Relu(x) }",
    "the_input_itself": "g (float[N, 4] x) => (float[M, K] y) { y = Identity(x) }",
    "of_contents": "g (float[N, 4] x) => (int64[two, M] y) { y = NonZero(x) }",
    "with_a_default": "g (float[N] x, float[1] f = {2}) => (float[M] y) { y = Mul(x, f) }",
}


def described(engine, content, level, sizes, denoted):
    options = engine.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(engine.GraphOptimizationLevel, level)
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    for denotation, size in denoted.items():
        options.add_free_dimension_override_by_denotation(denotation, size)
    session = engine.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    questions = (session.get_inputs, session.get_outputs, session.get_overridable_initializers)
    return [[(value.name, value.type, value.shape) for value in question()] for question in questions]


def assert_equal(content, sizes=None, denoted=None, levels=LEVELS):
    for level in levels:
        ours, theirs = (
            described(engine, content, level, sizes or {}, denoted or {}) for engine in (ort_core, onnxruntime)
        )
        assert ours == theirs, level


@pytest.mark.parametrize("sizes", [{}, {"N": 6}, {"A": 5, "P": 2}], ids=["free", "N", "A,P"])
@pytest.mark.parametrize("graph", list(GRAPHS))
def test_shapes_are_shown_as_onnxruntime_shows_them(graph, sizes):
    assert_equal(parser.parse_model(HEAD + GRAPHS[graph]).SerializeToString(), sizes)


def test_unnamed_sizes_and_unknown_ranks_are_shown_as_onnxruntime_shows_them():
    model = parser.parse_model(
        HEAD + "g (float[N, 4] x, float[M] z) => (float[K, 4] y, float[J] w) { y = Relu(x) w = Relu(z) }"
    )
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].Clear()
    for value in (model.graph.input[1], model.graph.output[1]):
        value.type.tensor_type.ClearField("shape")
    assert_equal(model.SerializeToString())
    session = ort_core.InferenceSession(model.SerializeToString())
    assert [value.shape for value in session.get_inputs()] == [[None, 4], []]


def test_constants_of_old_files_are_no_initializers_to_override():
    head = '<ir_version: 3, opset_import: ["": 7]> '
    text = "g (float[N] x, float[1] f) => (float[N] y) <float[1] f = {2}> { y = Mul(x, f) }"
    content = parser.parse_model(head + text).SerializeToString()
    assert_equal(content)
    with pytest.raises(ort_core.errors.InvalidArgument, match="Invalid input name: f"):
        ort_core.InferenceSession(content).run(None, {"x": [1.0], "f": [1.0]})


@pytest.mark.parametrize("sizes", [{}, {"N": 3}, {"M": 9}], ids=["free", "same", "other"])
def test_a_size_by_denotation_is_that_of_every_input_with_it(sizes):
    model = denoted_model()
    assert_equal(model.SerializeToString(), sizes, {"DATA_BATCH": 3, "NOT_THERE": 7})


@pytest.mark.parametrize(
    ("sizes", "denoted", "message"),
    [({}, {"DATA_CHANNEL": 9}, "Invalid free dimension override"),
     ({"N": 5}, {"DATA_BATCH": 4}, "Conflicting free dimension overrides")],
)  # fmt: skip
def test_a_size_by_denotation_that_contradicts_is_refused(sizes, denoted, message):
    content = denoted_model().SerializeToString()
    for engine in (ort_core, onnxruntime):
        with pytest.raises(Exception, match=message) as caught:
            described(engine, content, "ORT_ENABLE_ALL", sizes, denoted)
        assert type(caught.value).__name__ == "InvalidArgument"


def denoted_model():
    model = parser.parse_model(HEAD + "g (float[N, 4] x, float[N, 4] z) => (float[M, 4] y) { y = Relu(x) }")
    for axis, denotation in enumerate(("DATA_BATCH", "DATA_CHANNEL")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].denotation = denotation
    return model


def test_every_node_case_is_shown_as_onnxruntime_shows_it(request):
    if not request.config.getoption("--every-case"):
        pytest.skip("onnx's 1,884 node cases: minutes, in `nox -s sweeps`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own generators
        cases = collect_testcases(None)
    compared = 0
    for case in cases:
        content = case.model.SerializeToString()
        if not case.name.startswith(STRONGER) and is_taken(content):
            assert_equal(content)
            compared += 1
    assert compared > 0.9 * len(cases)


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_models_of_onnxruntimes_tests_are_shown_as_onnxruntime_shows_them(name, external_test_data):
    content = (external_test_data / "cases" / "testdata_models" / f"{name}.onnx").read_bytes()
    assert_equal(content, levels=LEVELS[::3])


def is_taken(content):
    try:
        described(onnxruntime, content, "ORT_DISABLE_ALL", {}, {})
    except Exception:  # noqa: BLE001 - onnxruntime has no kernel: its errors have no base class
        return False
    return True
