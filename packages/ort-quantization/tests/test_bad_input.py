"""Bad models and bad data: each is refused or told of in one sentence that says what was found and what to do."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import Builder, conv, feeds_of, matmul, tied_embedding, tied_gemms
from onnx import TensorProto, helper, numpy_helper
from static_models import STATIC

from ort_core.errors import OrtError
from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.models.model_files import converted_to
from ort_quantization.models.unseen_types import inferred_seen

FORMATS = pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)


class Reader:
    """Gives samples from a list."""

    def __init__(self, samples):
        self.left = iter(samples)

    def get_next(self):
        return next(self.left, None)


class Raising:
    """Gives a sample, and then raises."""

    def __init__(self, sample):
        self.left = [sample]

    def get_next(self):
        return self.left.pop()


def quantized(tmp_path, model, samples=None, quant_format=QuantFormat.QDQ, **choices):
    """Quantize a model statically by samples of its own, and return the paths of both."""
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    reader = Reader([feeds_of(model, seed) for seed in range(3)]) if samples is None else samples
    quantize_static(source, target, reader, quant_format, activation_type=QuantType.QUInt8, **choices)
    return source, target


X = np.ones((1, 3, 11, 11), np.float32)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (None, "no calibration_data_reader was given"),
        (5, "has a get_next.*found a int"),
        ([X], "gave a ndarray at sample 0; a dictionary"),
        ([], "gave no sample"),
        (Reader([]), "gave no sample"),
        (Raising({"x": X}), "raised IndexError at sample 1"),
        (Reader([X]), "gave a ndarray at sample 0; a dictionary"),
        (Reader([{"x": X}, {"x": X[0]}]), "sample 1.*rank.*x"),
        (Reader([{"x": X[:, :2]}]), "sample 0.*Got: 2 Expected: 3"),
        (Reader([{"x": X.astype(np.float64)}]), r"sample 0.*tensor\(double\).*astype"),
        (Reader([{"y": X}]), "sample 0.*'x'.*missing"),
        (Reader([{"x": X, "y": X}]), "sample 0.*Invalid input name: y"),
        (Reader([{"x": X * np.nan}]), "'x' had NaN or infinities in every"),
        (Reader([{"x": X * np.inf}]), "'x' had NaN or infinities in every"),
    ],
    ids=lambda each: "" if isinstance(each, str) else type(each).__name__,
)
def test_data_that_gives_no_ranges_is_refused(tmp_path, reader, message):
    source = tmp_path / "float.onnx"
    onnx.save(conv(), source)
    with pytest.raises(InvalidCalibration, match=f"(?s){message}") as refusal:
        quantize_static(source, tmp_path / "quantized.onnx", reader)
    assert isinstance(refusal.value, ValueError)
    assert not (tmp_path / "quantized.onnx").exists()


@FORMATS
def test_samples_with_nan_among_others_are_left_out_with_a_word(tmp_path, caplog, quant_format):
    model = conv()
    samples = [feeds_of(model, seed) for seed in range(3)]
    samples[1]["x"] = samples[1]["x"] * np.nan
    with caplog.at_level(logging.WARNING):
        source, target = quantized(tmp_path, model, Reader(samples), quant_format)
    assert "NaN" in caplog.text
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05


def constant_values():
    """Weights of zeros, of one number, and of none; an activation that is always the same."""
    b = Builder()
    zeros = b.node("MatMul", ["x", b.constant("zeros", np.zeros((6, 6), "f"))], "z")
    ones = b.node("MatMul", ["x", b.constant("ones", np.full((6, 6), 0.3, "f"))], "o")
    same = b.node("Mul", ["x", b.constant("nothing", np.float32(0))], "n")
    same = b.node("Add", [same, b.constant("five", np.float32(-5))], "s")
    b.node("Add", [b.node("Add", [zeros, ones], "a"), same], "y")
    return b.model({"x": (2, 6)}, ["y"])


@FORMATS
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("make", [constant_values, tied_gemms, tied_embedding, STATIC["shared bias"]])
def test_constant_shared_and_tied_tensors_give_nearly_what_floats_give(tmp_path, make, per_channel, quant_format):
    model = make()
    source, target = quantized(tmp_path, model, None, quant_format, per_channel=per_channel)
    feeds = feeds_of(model, 0)
    found, expected = run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)
    assert all(np.isfinite(each).all() for each in found)
    assert relative_error(found, expected) < 0.05


@FORMATS
@pytest.mark.parametrize("first", list(QuantFormat), ids=str)
def test_a_model_that_is_quantized_again_is_told_of(tmp_path, caplog, first, quant_format):
    source, target = quantized(tmp_path, conv(), None, first)
    expected = run_onnxruntime(source, feeds_of(conv(), 0))
    with caplog.at_level(logging.WARNING):
        quantized(tmp_path, onnx.load(target), None, quant_format)
    assert "was it quantized before?" in caplog.text
    assert relative_error(run_onnxruntime(target, feeds_of(conv(), 0)), expected) < 0.05


def test_weights_without_an_axis_of_channels_are_told_of_once(tmp_path, caplog):
    b = Builder()
    gain, value = b.weight("gain", 8), "x"
    for place in range(4):
        value = b.node("LayerNormalization", [value, gain], f"h{place}")
    model = b.model({"x": (2, 8)}, [value])
    with caplog.at_level(logging.WARNING):
        quantized(tmp_path, model, None, QuantFormat.QDQ, per_channel=True)
    assert caplog.text.count("no axis of channels") == 1
    assert caplog.text.count("'gain'") == 1


def test_a_bias_beside_values_that_were_quantized_by_channel_stays_in_reals(tmp_path, caplog):
    """Their scales are as many as channels, and the bias of a product has one for each of its weights' channels."""
    b = Builder()
    parameters = [b.constant("s", np.linspace(0.01, 0.06, 6, dtype="f")), b.constant("p", np.full(6, 128, np.uint8))]
    given = b.node("QuantizeLinear", ["x", *parameters], "q", axis=2)
    value = b.node("DequantizeLinear", [given, *parameters], "v", axis=2)
    b.node("InstanceNormalization", [value, b.weight("gain", 1), b.weight("shift", 1)], "y")
    model = b.model({"x": (1, 1, 6)}, ["y"])
    with caplog.at_level(logging.WARNING):
        source, target = quantized(tmp_path, model, None, QuantFormat.QDQ)
    assert "stays in float: 'v' has no one scale" in caplog.text
    feeds = feeds_of(model)
    found, expected = (run_onnxruntime(path, feeds) for path in (target, source))
    assert relative_error(found, expected) < 0.05


def test_a_model_of_quantized_operators_only_is_told_of(tmp_path, caplog):
    b = Builder()
    parameters = [b.constant("s", np.float32(0.1)), b.constant("p", np.uint8(3))]
    inputs = ["x", *parameters, b.constant("w", np.ones((4, 4), np.uint8)), *parameters, *parameters]
    b.node("QLinearMatMul", inputs, "y")
    model = b.model({"x": (2, 4)}, ["y"], {"x": TensorProto.UINT8, "y": TensorProto.UINT8})
    with caplog.at_level(logging.WARNING):
        quantize_dynamic(model, tmp_path / "quantized.onnx")
    assert "nothing was quantized: the model has quantized operators already (QLinearMatMul)" in caplog.text


def test_a_model_that_is_quantized_already_is_told_of(tmp_path, caplog):
    b = Builder()
    b.node("Conv", ["x", b.weight("w", 3, 2, 3, 3), b.weight("b", 3)], "y")
    _, once = quantized(tmp_path, b.model({"x": (1, 2, 6, 6)}, ["y"]), None, QuantFormat.QDQ)
    with caplog.at_level(logging.WARNING):
        quantized(tmp_path, onnx.load(once), None, QuantFormat.QDQ)
    assert "the model has quantized operators already (DequantizeLinear, QuantizeLinear)" in caplog.text


def product_of(kind: int):
    dtype = helper.tensor_dtype_to_np_dtype(kind).type
    b = Builder()
    b.node("MatMul", ["x", b.weight("w", 8, 8, dtype=dtype, spread=9)], "y")
    return b.model({"x": (2, 8)}, ["y"], {"x": kind, "y": kind})


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize(("kind", "name"), [(TensorProto.DOUBLE, "DOUBLE"), (TensorProto.INT64, "INT64")])
def test_values_that_are_no_floats_are_told_of(tmp_path, caplog, kind, name, is_static):
    model = product_of(kind)
    with caplog.at_level(logging.WARNING):
        if is_static:
            quantized(tmp_path, model, Reader([feeds_of(model)]))
        else:
            quantize_dynamic(model, tmp_path / "quantized.onnx")
    assert f"nothing was quantized: its values are {name}" in caplog.text


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"nodes_to_exclude": ["MatMul_O"]},
            "nodes_to_exclude has 'MatMul_O', and no node has that name; did you mean",
        ),
        ({"nodes_to_quantize": ["head"]}, "nodes_to_quantize has 'head', and no node has that name"),
        ({"op_types_to_quantize": ["Conv"]}, "nothing was quantized: the model has none of the operators Conv; it has"),
        ({"nodes_to_exclude": ["MatMul_0", "MatMul_2", "Relu_1"]}, "nothing was quantized: no chosen operator"),
    ],
    ids=str,
)
def test_choices_that_nothing_follows_are_told_of(tmp_path, caplog, choices, message):
    with caplog.at_level(logging.WARNING):
        quantized(tmp_path, matmul(), **choices)
    assert message in caplog.text


@FORMATS
@pytest.mark.parametrize("opset", [*range(7, 12), 13, 19, 21, 23, 26])
def test_models_of_old_and_new_opsets_are_quantized(tmp_path, opset, quant_format):
    model = matmul(opset)
    model.ir_version = 8 if opset < 21 else 10
    source, target = quantized(tmp_path, model, None, quant_format)
    assert any("QuantizeLinear" in node.op_type for node in onnx.load(target).graph.node)
    assert onnx.load(target).opset_import[0].version == max(opset, 11) if opset < 10 else opset
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05


@pytest.mark.parametrize("opset", range(1, 7))
def test_an_opset_that_is_too_old_is_refused(tmp_path, opset):
    with pytest.raises(InvalidQuantization, match=f"opset {opset}.*7 to 28.*convert_version"):
        quantize_dynamic(matmul(opset), tmp_path / "quantized.onnx")


@FORMATS
def test_an_operator_of_ones_own_is_refused_with_its_name(tmp_path, quant_format):
    b = Builder()
    b.node("Mine", [b.node("MatMul", ["x", b.weight("w", 4, 4)], "h")], "y", domain="my.own")
    model = b.model({"x": (2, 4)}, ["y"])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(OrtError, match=r"my[.]own::Mine"):
        quantized(tmp_path, model, None, quant_format)


def test_a_bias_stays_in_reals_where_what_its_node_multiplies_has_no_scale(tmp_path, caplog):
    b = Builder()
    hidden = b.node("BiasGelu", ["x", b.weight("g", 8)], "h", domain="com.microsoft")  # of no type to ONNX
    b.node("Gemm", [hidden, b.weight("w", 8, 4), b.weight("c", 4)], "y")
    model = b.model({"x": (2, 8)}, ["y"])
    with caplog.at_level(logging.WARNING, "ort_quantization"):
        source, target = quantized(tmp_path, model)
    assert "the bias 'c' of node 'Gemm_1' stays in float: 'h' has no one scale" in caplog.text
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.03


@pytest.mark.parametrize("method", list(CalibrationMethod), ids=str)
def test_a_model_without_a_value_to_calibrate_stays_as_it_is(tmp_path, caplog, method):
    b = Builder()
    b.node("Neg", ["x"], "y")
    with caplog.at_level(logging.WARNING, "ort_quantization"):
        _, target = quantized(tmp_path, b.model({"x": (4,)}, ["y"]), calibrate_method=method)
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Neg"]
    assert "nothing" in caplog.text


@FORMATS
@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Percentile], ids=str)
def test_values_that_are_empty_in_all_samples_stay_in_reals(tmp_path, caplog, method, quant_format):
    b = Builder()
    new = b.node("MatMul", ["x", b.weight("w", 8, 8)], "n")
    b.node("MatMul", [b.node("Concat", ["past", new], "c", axis=0), b.weight("v", 8, 4)], "y")
    model = b.model({"x": ("n", 8), "past": ("p", 8)}, ["y"])
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(size=(3, 8)).astype("f"), "past": np.zeros((0, 8), "f")} for _ in range(3)]
    with caplog.at_level(logging.WARNING, "ort_quantization"):
        source, target = quantized(tmp_path, model, Reader(samples), quant_format, calibrate_method=method)
    assert "held no number in any sample stay in float: past" in caplog.text
    feeds = {"x": samples[0]["x"], "past": samples[1]["x"]}  # they may hold numbers later
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05


def test_trees_behind_a_value_of_unknown_type_do_not_end_the_process(tmp_path):
    """ONNX's own inference of TreeEnsemble reads a type that nothing has said."""
    numbers = {
        "nodes_splits": np.array([0.5], "f4"),
        "nodes_modes": np.zeros(1, "u1"),
        "leaf_weights": np.ones(2, "f4"),
    }
    lists = {"nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [1], "nodes_trueleafs": [1]}
    lists |= {"nodes_falseleafs": [1], "tree_roots": [0], "leaf_targetids": [0, 0], "n_targets": 1}
    tensors = {name: numpy_helper.from_array(array) for name, array in numbers.items()}
    trees = helper.make_node("TreeEnsemble", ["h"], ["y"], domain="ai.onnx.ml", **tensors, **lists)
    nodes = [helper.make_node("Unknown", ["x"], ["h"], domain="com.acme"), trees]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1]) for name in "xy")
    opsets = [helper.make_opsetid(*each) for each in (("", 21), ("ai.onnx.ml", 5), ("com.acme", 1))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets), tmp_path / "trees.onnx")
    quantize_dynamic(tmp_path / "trees.onnx", tmp_path / "quantized.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "quantized.onnx").graph.node] == ["Unknown", "TreeEnsemble"]
    half = convert_float_to_float16(onnx.load(tmp_path / "trees.onnx"))
    assert "TreeEnsemble" in {node.op_type for node in half.graph.node}


@pytest.mark.parametrize(
    ("domain", "op_type", "attributes"),
    [
        ("ai.onnx.ml", "LabelEncoder", {"keys_strings": ["a"], "values_floats": [1.0]}),
        ("ai.onnx.ml", "DictVectorizer", {"string_vocabulary": ["a"]}),
        ("", "RegexFullMatch", {"pattern": "a"}),
    ],
)
def test_an_operator_behind_a_value_of_unknown_type_does_not_end_the_process(domain, op_type, attributes, tmp_path):
    """ONNX's own inference of these reads a type that nothing has said, and its converter infers, too."""
    reader = helper.make_node(op_type, ["h"], ["y"], domain=domain, **attributes)
    nodes = [helper.make_node("Unknown", ["x"], ["h"], domain="com.acme"), reader]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1]) for name in "xy")
    opsets = [helper.make_opsetid(*each) for each in (("", 20), ("ai.onnx.ml", 4), ("com.acme", 1))]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets)
    for convert in (convert_float_to_float16, lambda given: converted_to(given, 21)):
        assert [node.op_type for node in convert(model).graph.node if node.op_type != "Cast"] == ["Unknown", op_type]


def test_labels_of_text_have_their_type_where_the_text_has_one():
    text = helper.make_node("StringNormalizer", ["x"], ["t"])
    labels = helper.make_node(
        "LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0]
    )
    more = helper.make_node("Neg", ["y"], ["z"])
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])
    opsets = [helper.make_opsetid(*each) for each in (("", 20), ("ai.onnx.ml", 4))]
    model = helper.make_model(helper.make_graph([text, labels, more], "g", [x], [z]), opset_imports=opsets)
    types = {each.name: each.type.tensor_type.elem_type for each in inferred_seen(model).graph.value_info}
    assert types == {"t": TensorProto.STRING, "y": TensorProto.FLOAT}
    assert [node.op_type for node in model.graph.node] == ["StringNormalizer", "LabelEncoder", "Neg"]


STATIC_FAULTS = [
    ({"quant_format": "QOperator"}, "is no format"),
    ({"activation_type": "QInt8"}, r"write QuantType\.QInt8"),
    ({"weight_type": 99}, "99 is no element type"),
    ({"op_types_to_quantize": "Conv"}, r"such as \['Conv'\]"),
    ({"nodes_to_exclude": "c0"}, "a list of names is expected"),
    ({"extra_options": [1]}, "a dictionary is expected"),
    ({"extra_options": {"TensorQuantOverrides": 5}}, "a dictionary of lists"),
    ({"extra_options": {"TensorQuantOverrides": {"x": [{"quant_type": "QInt8"}]}}}, r"write QuantType\.QInt8"),
    ({"extra_options": {"TensorQuantOverrides": {"w": [{"axis": 1}]}}}, "along the axis of their results"),
    ({"extra_options": {"CalibStridedMinMax": 2}}, "has no __len__"),
    ({"op_types_to_quantize": 3}, "op_types_to_quantize is 3; a list of names"),
    ({"nodes_to_quantize": [1]}, "nodes_to_quantize has 1 among its names"),
    ({"calibration_cache_path": "/proc/none/ranges.json"}, "files cannot be made|no folder"),
    *(
        ({"extra_options": {key: value}}, told)
        for key, value, told in (
            ("CalibSamplesAtOnce", "a", "a count of samples"),
            ("CalibProgress", 3, "a function of the count"),
            ("CalibStatePath", 3, "the path of a file"),
            ("QDQOpTypePerChannelSupportToAxis", ["Conv"], "a dictionary of axes"),
            ("QDQOpTypePerChannelSupportToAxis", {"Conv": "a"}, "has 'a' for Conv"),
            ("OpTypesToExcludeOutputQuantization", "Conv", r"such as \['Conv'\]"),
        )
    ),
    *(
        ({"extra_options": {"TensorQuantOverrides": {"h": [override]}}}, told)
        for override, told in (
            ({"scale": "a", "zero_point": 0}, "'scale' is 'a'; one finite number"),
            ({"scale": np.nan, "zero_point": 0}, "'scale' is nan; one finite number"),
            ({"scale": 0.0, "zero_point": 0}, "'scale' is 0.0; a number above 0"),
            ({"scale": 0.1, "zero_point": 999}, "'zero_point' is 999; INT8 has -128 to 127"),
            ({"rmin": "a", "rmax": 1.0}, "'rmin' is 'a'"),
            ({"rmin": 3.0, "rmax": 1.0}, "'rmin' is 3.0, which is more than 'rmax', 1.0"),
        )
    ),
]


@pytest.mark.parametrize(
    "content", ['{"data": {"x": 3}, "calibration_method": {"CLS": "CalibrationMethod", "value": "a.MinMax"}}',
                '{"data": {}, "calibration_method": 7}', '{"data": 5, "calibration_method": {"value": "None"}}'],
)  # fmt: skip
def test_a_file_of_ranges_that_holds_something_else_is_refused(tmp_path, content):
    ranges = tmp_path / "ranges.json"
    ranges.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidQuantization, match="is no file of calibrated ranges"):
        quantize_static(conv(), tmp_path / "a.onnx", calibration_cache_path=ranges)


@pytest.mark.parametrize(("choices", "told"), STATIC_FAULTS, ids=[told for _, told in STATIC_FAULTS])
def test_arguments_of_another_kind_are_refused_in_a_sentence(tmp_path, choices, told):
    model = conv()
    choices = {"quant_format": QuantFormat.QDQ, **choices}
    with pytest.raises((InvalidQuantization, InvalidCalibration), match=told):
        quantize_static(model, tmp_path / "a.onnx", Reader([feeds_of(model)]), **choices)


@pytest.mark.parametrize(
    ("model", "choices", "told"),
    [
        (conv(), {"weight_type": "QInt8"}, r"write QuantType\.QInt8"),
        (conv(), {"op_types_to_quantize": "Conv"}, "a list of names"),
        (conv(), {"extra_options": 5}, "a dictionary is expected"),
        (5, {}, "quantized, not int"),
        (conv().SerializeToString(), {}, "quantized, not bytes"),
    ],
    ids=["type", "names", "options", "number", "bytes"],
)
def test_arguments_of_quantize_dynamic_of_another_kind_are_refused_in_a_sentence(tmp_path, model, choices, told):
    with pytest.raises(InvalidQuantization, match=told):
        quantize_dynamic(model, tmp_path / "a.onnx", **choices)
