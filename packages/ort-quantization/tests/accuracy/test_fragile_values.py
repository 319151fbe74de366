"""Values that 8 bits would ruin stay in float: what normalizations divide by, and what masks reach into."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as theirs

from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from ort_quantization.calibrate import create_calibrator
from ort_quantization.errors import InvalidCalibration

FORMATS = pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
TOLD = 0.1  # of the results' norm: 20 dB; what was ruined is near 1
SHAPE = (2, 8, 32)


def _weights(*names):
    random = np.random.default_rng(0)
    return [numpy_helper.from_array((random.normal(size=(32, 32)) / 5).astype("f"), name) for name in names]


def _model(nodes, constants, outputs=("y",)):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(SHAPE))]
    graph = helper.make_graph(nodes, "fragile", given, values, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _node(op_type, given, result, **attributes):
    return helper.make_node(op_type, given.split(), [result], f"{op_type}_{result}", **attributes)


def attention(low, by):
    """Causal attention whose mask is added, or chosen for."""
    later = np.triu(np.ones((8, 8), bool), 1)
    if by == "Add":
        constant = numpy_helper.from_array(np.where(later, low, 0).astype("f"), "mask")
        masked = [_node("Add", "s mask", "m")]
    else:
        constant = numpy_helper.from_array(later, "mask")
        masked = [_node("Where", "mask low s", "m")]
    products = [_node("MatMul", f"x w{each}", each) for each in "qkv"]
    scores = [_node("Transpose", "k", "t", perm=[0, 2, 1]), _node("MatMul", "q t", "s")]
    rest = [_node("Softmax", "m", "p", axis=-1), _node("MatMul", "p v", "y")]
    constants = [*_weights("wq", "wk", "wv"), constant, numpy_helper.from_array(np.float32(low), "low")]
    return _model([*products, *scores, *masked, *rest], constants)


def padded_pool():
    """A pool over borders of the lowest number, as old converters write them."""
    pads = numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64), "pads")
    low = numpy_helper.from_array(np.finfo(np.float32).min, "low")
    shape = numpy_helper.from_array(np.array([2, 1, 8, 32], np.int64), "shape")
    nodes = [
        _node("MatMul", "x w", "h"), _node("Relu", "h", "r"), _node("Reshape", "r shape", "i"),
        _node("Pad", "i pads low", "b"), _node("MaxPool", "b", "y", kernel_shape=[2, 2], strides=[2, 2]),
    ]  # fmt: skip
    return _model(nodes, [*_weights("w"), pads, low, shape])


def norm(kind):
    """A normalization as exporters write it, between two products."""
    axes = numpy_helper.from_array(np.array([-1], np.int64), "axes")
    constants = {"two": 2.0, "least": 1e-6, "part": 1 / 32, "half": -0.5, "zero": 0.0}
    tensors = [axes, *(numpy_helper.from_array(np.float32(each), name) for name, each in constants.items())]
    mean = "ReduceMean"
    bodies = {
        "moments": [  # E[x²] - E[x]², as flax has it: of inputs with one mean for all
            _node("Mul", "h h", "hh"), _node("ReduceSum", "hh axes", "ss"), _node("Mul", "ss part", "m2"),
            _node("ReduceSum", "h axes", "s"), _node("Mul", "s part", "m"), _node("Mul", "m m", "mm"),
            _node("Sub", "m2 mm", "raw"), _node("Max", "zero raw", "var"), _node("Add", "var least", "v"),
            _node("Sqrt", "v", "root"), _node("Reciprocal", "root", "by"), _node("Sub", "h m", "d"),
            _node("Mul", "d by", "n"),
        ],
        "layer": [
            _node(mean, "h", "m", axes=[-1]), _node("Sub", "h m", "d"), _node("Pow", "d two", "dd"),
            _node(mean, "dd", "var", axes=[-1]), _node("Add", "var least", "v"), _node("Sqrt", "v", "root"),
            _node("Div", "d root", "n"),
        ],
        "rms": [
            _node("Mul", "h h", "hh"), _node(mean, "hh", "var", axes=[-1]), _node("Add", "var least", "v"),
            _node("Pow", "v half", "by"), _node("Mul", "h by", "n"),
        ],
        "length": [_node("ReduceL2", "h", "l", axes=[-1]), _node("Max", "l least", "v"), _node("Div", "h v", "n")],
    }  # fmt: skip
    first, last = [_node("MatMul", "x w1", "g"), _node("Add", "g far", "h")], [_node("MatMul", "n w2", "y")]
    far = numpy_helper.from_array(np.float32(12 if kind == "moments" else 0), "far")
    return _model([*first, *bodies[kind], *last], [*_weights("w1", "w2"), *tensors, far])


def gelu(kind):
    """Gelu by Tanh as exporters write it, between two products; some inputs of it are large."""
    numbers = {"c": 0.044715, "root": 0.7978845608, "half": 0.5, "one": 1.0, "three": 3.0, "far": 4.0}
    tensors = [numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()]
    cube = {
        "product": [_node("Mul", "h h", "hh"), _node("Mul", "hh h", "hhh")],
        "power": [_node("Pow", "h three", "hhh")],
        "scaled": [_node("Mul", "h one", "hs"), _node("Mul", "hs h", "hh"), _node("Mul", "hh h", "hhh")],
    }
    inner = {
        "factored": [_node("Mul", "h h", "hh"), _node("Mul", "hh c", "p"), _node("Add", "p one", "p1"),
                     _node("Mul", "h p1", "sum")],
    }.get(kind) or [*cube[kind], _node("Mul", "hhh c", "p"), _node("Add", "h p", "sum")]  # fmt: skip
    rest = [
        _node("Mul", "sum root", "u"), _node("Tanh", "u", "t"), _node("Add", "t one", "t1"),
        _node("Mul", "h half", "b"), _node("Mul", "b t1", "n"), _node("MatMul", "n w2", "y"),
    ]  # fmt: skip
    nodes = [_node("MatMul", "x w1", "g"), _node("Mul", "g far", "h"), *inner, *rest]
    return _model(nodes, [*_weights("w1", "w2"), *tensors])


def _samples(seed, count=4):
    random = np.random.default_rng(seed)
    # rows of very different sizes, as tokens have
    return [{"x": (random.normal(size=SHAPE) * random.uniform(0.1, 3, (2, 8, 1))).astype("f")} for _ in range(count)]


class Reader:
    """Gives samples."""

    def __init__(self, samples):
        self.left = iter(samples)

    def get_next(self):
        return next(self.left, None)


def loss(tmp_path, model, quant_format="QDQ", tool=quantize_static, **options):
    """The error of a quantized model on samples that calibration did not see, in onnxruntime and here."""
    onnx.save(model, tmp_path / "float.onnx")
    method = getattr(theirs, "QuantFormat", None) if tool is not quantize_static else QuantFormat
    kind = theirs.QuantType if tool is not quantize_static else QuantType
    tool(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(_samples(1)), method[quant_format],
        activation_type=kind.QUInt8, weight_type=kind.QInt8, **options,
    )  # fmt: skip
    feeds = _samples(7, 1)[0]
    expected = run_onnxruntime(tmp_path / "float.onnx", feeds)
    runs = (run_onnxruntime, run_ours) if quant_format == "QDQ" else (run_onnxruntime,)
    found = [run(tmp_path / "small.onnx", feeds) for run in runs]
    return max(relative_error(each, expected) for each in found)


@pytest.mark.sweep
@FORMATS
@pytest.mark.parametrize("by", ["Add", "Where"])
@pytest.mark.parametrize("low", [-np.inf, float(np.finfo(np.float32).min), -1e9, -1e4])
def test_masked_attention_keeps_its_results(tmp_path, low, by, quant_format):
    assert loss(tmp_path, attention(low, by), quant_format) < TOLD


@pytest.mark.parametrize("method", ["Percentile", "Entropy"])
def test_infinite_masks_are_no_numbers_of_a_histogram(tmp_path, method):
    assert loss(tmp_path, attention(-np.inf, "Add"), calibrate_method=CalibrationMethod[method]) < 2 * TOLD


def test_what_masks_keep_in_reals_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        loss(tmp_path, attention(-1e9, "Add"))
    assert "'m' stays in float: its numbers reach from -1e+09" in caplog.text


@FORMATS
def test_borders_of_the_lowest_number_keep_the_rest(tmp_path, quant_format):
    assert loss(tmp_path, padded_pool(), quant_format) < TOLD


@FORMATS
@pytest.mark.parametrize("kind", ["moments", "layer", "rms", "length"])
def test_normalizations_keep_their_divisors(tmp_path, kind, quant_format):
    assert loss(tmp_path, norm(kind), quant_format) < TOLD
    read = {
        name
        for node in onnx.load(tmp_path / "small.onnx").graph.node
        if "uantize" in node.op_type
        for name in node.input
    }
    assert not read & {"var", "v", "root", "by", "hh", "l", "dd"}
    assert any(
        node.op_type.startswith(("Quantize", "QLinear")) for node in onnx.load(tmp_path / "small.onnx").graph.node
    )


@pytest.mark.sweep
@FORMATS
@pytest.mark.parametrize("kind", ["product", "power", "scaled", "factored"])
def test_activations_that_are_written_out_keep_their_powers(tmp_path, kind, quant_format):
    plain = loss(tmp_path, gelu(kind), quant_format, extra_options={"KeepFragileValues": False})
    kept = loss(tmp_path, gelu(kind), quant_format)
    nodes = onnx.load(tmp_path / "small.onnx").graph.node
    read = {name for node in nodes if "uantize" in node.op_type for name in node.input}
    assert not read & {"hh", "hhh", "p", "p1", "sum", "u"}
    assert any(node.op_type.startswith(("Quantize", "QLinear")) for node in nodes)
    assert kept < 0.03
    assert kept < plain / 1.5, "8 bits do not hold a cube"


def test_powers_outside_of_activations_and_of_16_bits_are_quantized(tmp_path):
    squares = _model([_node("MatMul", "x w1", "h"), _node("Mul", "h h", "hh"), _node("MatMul", "hh w2", "y")],
                     _weights("w1", "w2"))  # fmt: skip
    loss(tmp_path, squares)
    assert any("hh_scale" in node.input for node in onnx.load(tmp_path / "small.onnx").graph.node)
    onnx.save(gelu("product"), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(_samples(1)), activation_type=QuantType.QUInt16
    )
    assert any("hhh_scale" in node.input for node in onnx.load(tmp_path / "small.onnx").graph.node)


def test_what_is_kept_can_be_quantized_as_onnxruntimes_tool_does(tmp_path):
    for model in (attention(-1e9, "Add"), norm("moments")):
        there = loss(tmp_path, model, tool=theirs.quantize_static)
        expected = {node.name for node in onnx.load(tmp_path / "small.onnx").graph.node}
        here = loss(tmp_path, model, extra_options={"KeepFragileValues": False})
        assert {node.name for node in onnx.load(tmp_path / "small.onnx").graph.node} == expected
        assert here == pytest.approx(there, rel=0.05)
        assert there > 2 * TOLD, "the tool loses the results, which is why values are kept"


def test_choices_for_a_value_hold_whatever_its_range(tmp_path):
    chosen = {"TensorQuantOverrides": {"m": [{"quant_type": QuantType.QUInt8}]}}
    loss(tmp_path, attention(-1e9, "Add"), extra_options=chosen)
    assert any("m_scale" in node.input for node in onnx.load(tmp_path / "small.onnx").graph.node)


def test_scores_of_other_samples_are_not_cut(tmp_path):
    shifted = numpy_helper.from_array(np.float32(-4), "shift")
    nodes = [_node("MatMul", "x w", "h"), _node("Add", "h shift", "l"), _node("Sigmoid", "l", "y")]
    onnx.save(_model(nodes, [*_weights("w"), shifted]), tmp_path / "float.onnx")
    quiet = [{"x": each["x"] * np.float32(0.05)} for each in _samples(1)]
    quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(quiet), activation_type=QuantType.QUInt8)
    tensors = {each.name: each for each in onnx.load(tmp_path / "small.onnx").graph.initializer}
    assert numpy_helper.to_array(tensors["y_scale"]) == pytest.approx(1 / 255)


def outliers():
    """A model of two products with one number of 2,000 times the others between them, and samples of 100,000 each."""
    random = np.random.default_rng(3)
    bump = np.zeros((256, 400), np.float32)
    bump[0, 7] = 2000
    first, second = ((random.normal(size=size) / 6).astype("f") for size in ((32, 400), (400, 8)))
    second[7] = 0  # the large number does not reach the result
    constants = {"w1": first, "w2": second, "bump": bump}
    nodes = [_node("MatMul", "x w1", "h"), _node("Add", "h bump", "o"), _node("MatMul", "o w2", "y")]
    model = _model(nodes, [numpy_helper.from_array(each, name) for name, each in constants.items()])
    del model.graph.input[0].type.tensor_type.shape.dim[:2]
    model.graph.input[0].type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=256))
    return model, [{"x": random.normal(size=(256, 32)).astype("f")} for _ in range(4)]


@FORMATS
@pytest.mark.parametrize(
    ("choice", "keeps"),
    [({}, True), ({"extra_options": {"KeepFragileValues": False}}, False),
     ({"extra_options": {"TensorQuantOverrides": {"o": [{"quant_type": QuantType.QUInt8}]}}}, False)],
    ids=["by default", "if not asked for", "if chosen"],
)  # fmt: skip
def test_values_with_outliers_stay_in_float_and_it_is_said(tmp_path, caplog, quant_format, choice, keeps):
    model, samples = outliers()
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(samples), QuantFormat[quant_format],
        activation_type=QuantType.QUInt8, **choice,
    )  # fmt: skip
    is_told = "'o' stays in float: its numbers reach from" in caplog.text and "a step would be 7.8" in caplog.text
    assert is_told == keeps
    expected, found = (run_onnxruntime(tmp_path / f"{name}.onnx", samples[0]) for name in ("float", "small"))
    assert (relative_error(found, expected) < TOLD) == keeps


def test_moments_are_those_of_all_numbers_stacked_or_resumed(tmp_path):
    model, samples = outliers()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "float.onnx")
    numbers = np.concatenate([each["x"] for each in samples]).astype(np.float64)
    for runs in ({}, {"samples_at_once": 2}, {"state_path": tmp_path / "state"}):
        calibrator = create_calibrator(
            tmp_path / "float.onnx", augmented_model_path=tmp_path / "augmented.onnx",
            extra_options={"moments": True, **runs},
        )  # fmt: skip
        if "state_path" in runs:
            with pytest.raises(InvalidCalibration):
                calibrator.collect_data(Reader([*samples[:2], {"wrong": samples[0]["x"]}]))
        calibrator.collect_data(Reader(samples))
        found = calibrator.compute_data()["x"]
        np.testing.assert_allclose(found.avg, numbers.mean(), atol=1e-6)
        np.testing.assert_allclose(found.std, numbers.std(), rtol=1e-5)
        assert found.range_value == (numbers.min(), numbers.max())
