"""quantize_static beside onnxruntime's own tool, by the same ranges: the same nodes, names, types and numbers."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model, relative_error, run_onnxruntime, run_ours
from float_models import Builder, conv, feeds_of, gemm
from onnxruntime.quantization import CalibrationMethod as TheirMethod
from onnxruntime.quantization import QuantFormat as TheirFormat
from onnxruntime.quantization import QuantType as TheirType
from onnxruntime.quantization import quantize_static as theirs
from static_models import STATIC

from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from ort_quantization.errors import InvalidQuantization

INT8, UINT8, INT16, UINT16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16, QuantType.QUInt16
TYPES = [(UINT8, INT8), (UINT8, UINT8), (INT8, INT8)]

# Models with tensors that several nodes read, which the tool gives one scale even where that does not suit all
SHARING = ("tied gemms", "shared bias")
CLIPPED = ("many readers",)  # in the QOperator format: see test_removed_clips

MIN_MAX = CalibrationMethod.MinMax

# One step of 255 that falls to the other side, somewhere in a small model.
ONE_STEP = 0.02


class Reader:
    """Gives a few random samples of a model."""

    def __init__(self, model, count=3):
        self.left = iter([feeds_of(model, seed) for seed in range(count)])

    def get_next(self):
        return next(self.left, None)


def translated(value):
    """The choices of ours as the other tool names them."""
    if isinstance(value, QuantType):
        return TheirType[value.name]
    if isinstance(value, dict):
        return {key: translated(each) for key, each in value.items()}
    return [translated(each) for each in value] if isinstance(value, list) else value


def both(
    tmp_path, model, quant_format=QuantFormat.QDQ, types=(UINT8, INT8), method=CalibrationMethod.MinMax, **choices
):
    """Quantize a model with both tools, by the same ranges, and return the three files."""
    source, here, there, ranges = (tmp_path / name for name in ("float.onnx", "here.onnx", "there.onnx", "ranges.json"))
    onnx.save(model, source)
    activations, weights = types
    options = choices.pop("extra_options", {})
    quantize_static(
        source, here, Reader(model), quant_format, activation_type=activations, weight_type=weights,
        calibrate_method=method, calibration_cache_path=ranges, extra_options=copy.deepcopy(options), **choices,
    )  # fmt: skip
    theirs(
        source, there, None, TheirFormat[quant_format.name], activation_type=TheirType[activations.name],
        weight_type=TheirType[weights.name], calibrate_method=TheirMethod[method.name], calibration_cache_path=ranges,
        extra_options=translated(options), **choices,
    )  # fmt: skip
    return source, here, there


@pytest.mark.sweep(parts=4)
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", [name for name in STATIC if name not in SHARING])
def test_models_are_quantized_as_onnxruntime_quantizes_them(tmp_path, name, types, per_channel, quant_format):
    if name in CLIPPED and quant_format is QuantFormat.QOperator:
        pytest.skip("the tool leaves out a Relu that changes the result")
    _, here, there = both(tmp_path, STATIC[name](), quant_format, types, per_channel=per_channel)
    assert_same_model(here, there)


@pytest.mark.parametrize(
    ("name", "quant_format", "per_channel"),
    [
        ("tied gemms", QuantFormat.QDQ, False),
        ("tied gemms", QuantFormat.QOperator, False),
        ("shared bias", QuantFormat.QDQ, False),
        ("shared bias", QuantFormat.QDQ, True),
    ],
    ids=str,
)
def test_shared_tensors_are_quantized_as_onnxruntime_does_where_that_is_right(
    tmp_path, name, quant_format, per_channel
):
    _, here, there = both(tmp_path, STATIC[name](), quant_format, per_channel=per_channel)
    assert_same_model(here, there)


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", [*SHARING, "factors"])
def test_shared_tensors_and_factors_are_right_for_every_reader(tmp_path, name, per_channel, quant_format):
    """Where the tool is wrong: a bias at another node's scale, a bias divided by its factor, scales of another axis."""
    model = gemm(True) if name == "factors" else STATIC[name]()
    source, here, there = both(tmp_path, model, quant_format, per_channel=per_channel)
    expected = run_onnxruntime(source, feeds_of(model))
    found = relative_error(run_onnxruntime(here, feeds_of(model)), expected)
    assert found < 0.05
    assert found <= relative_error(run_onnxruntime(there, feeds_of(model)), expected) + 0.01


# Of each kind one is compiled: that takes seconds.
COMPILED = {
    QuantFormat.QDQ: ("residual network", "branches and joins", "transformer block", "normalizations"),
    QuantFormat.QOperator: ("residual network", "branches and joins", "transformer block"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("name", STATIC)
def test_quantized_models_give_in_both_engines_nearly_what_floats_give(tmp_path, name, quant_format):
    model = STATIC[name]()
    source, here, _ = both(tmp_path, model, quant_format, per_channel=True)
    feeds = feeds_of(model)
    expected = run_onnxruntime(here, feeds)
    if name in COMPILED[quant_format]:
        assert relative_error(run_ours(here, feeds), expected) < ONE_STEP
    reals = [each for each in run_onnxruntime(source, feeds) if each.dtype.kind == "f"]
    assert relative_error([each for each in expected if each.dtype.kind == "f"], reals) < 0.1


@pytest.mark.sweep
@pytest.mark.parametrize(
    "options",
    [
        {"ActivationSymmetric": True},
        {"ActivationRestrictedAsymmetric": True},
        {"WeightSymmetric": False},
        {"MinimumRealRange": 0.5},
        {"ForceQuantizeNoInputCheck": True},
        {"MatMulConstBOnly": True},
        {"AddQDQPairToWeight": True},
        {"OpTypesToExcludeOutputQuantization": ["Conv", "MatMul", "Gemm"]},
        {"DedicatedQDQPair": True},
        {"QuantizeBias": False},
        {"UseQDQContribOps": True},
        {"QDQKeepRemovableActivations": True},
        {"QDQDisableWeightAdjustForInt32Bias": True},
        {"extra.Sigmoid.nnapi": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
def test_extra_options_are_followed_as_onnxruntime_follows_them(tmp_path, quant_format, options):
    clipped = CLIPPED if quant_format is QuantFormat.QOperator else ()
    for name in {"residual network", "many readers", "branches and joins", "large bias"}.difference(clipped):
        (tmp_path / name).mkdir()
        _, here, there = both(tmp_path / name, STATIC[name](), quant_format, extra_options=options)
        assert_same_model(here, there)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "choices",
    [
        {"reduce_range": True, "per_channel": True},
        {"nodes_to_exclude": ["Conv_3", "Add_6"]},
        {"nodes_to_quantize": ["Conv_0", "Relu_1", "Gemm_9"]},
        {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"]},
        {"per_channel": True, "extra_options": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
def test_choices_of_nodes_and_operators_are_followed(tmp_path, quant_format, choices):
    for name in ("residual network", "transformer block"):
        (tmp_path / name).mkdir()
        _, here, there = both(tmp_path / name, STATIC[name](), quant_format, **choices)
        assert_same_model(here, there)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
def test_numbers_of_scales_stand_in_the_fields_where_programs_read_them(tmp_path, quant_format, per_channel):
    """Many a program reads ``tensor.float_data[0]``."""
    fields = ("float_data", "int32_data", "raw_data")
    _, *files = both(tmp_path, STATIC["residual network"](), quant_format, per_channel=per_channel)
    used = [
        {
            tensor.name: [name for name in fields if getattr(tensor, name)]
            for tensor in onnx.load(path).graph.initializer
            if tensor.name.endswith(("_scale", "_zero_point")) and "_quantized_" not in tensor.name  # not of a bias
        }
        for path in files
    ]
    assert used[0] == used[1]
    assert any(name == ["float_data"] for name in used[0].values())


@pytest.mark.parametrize(
    "types",
    [(UINT16, INT8), (INT16, INT16), (UINT8, QuantType.QInt4), (UINT16, QuantType.QUInt4)],
    ids=str,
)
def test_other_widths_are_quantized_as_onnxruntime_does(tmp_path, types):
    for name in ("matmul", "residual network"):
        (tmp_path / name).mkdir()
        _, here, there = both(tmp_path / name, STATIC[name](), QuantFormat.QDQ, types)
        assert_same_model(here, there)


def test_floats_of_8_bits_are_quantized_as_onnxruntime_does(tmp_path):
    types, method = (QuantType.QFLOAT8E4M3FN, QuantType.QFLOAT8E4M3FN), CalibrationMethod.Distribution
    for name in ("matmul", "gemm"):
        (tmp_path / name).mkdir()
        _, here, there = both(tmp_path / name, STATIC[name](), QuantFormat.QDQ, types, method)
        assert_same_model(here, there)


def test_floats_of_8_bits_take_their_scales_from_distributions_behind_a_softmax_too(tmp_path):
    types, model = {"activation_type": QuantType.QFLOAT8E4M3FN, "weight_type": QuantType.QFLOAT8E4M3FN}, Builder(19)
    model.node("Softmax", [model.node("MatMul", ["x", model.weight("w", 8, 8)], "h")], "y")
    made = model.model({"x": (4, 8)}, ["y"])  # onnxruntime's tool raises AttributeError: it forgets the moments
    quantize_static(made, tmp_path / "a.onnx", Reader(made), calibrate_method=CalibrationMethod.Distribution, **types)
    onnx.save(made, tmp_path / "float.onnx")
    found, expected = (run_onnxruntime(tmp_path / name, feeds_of(made)) for name in ("a.onnx", "float.onnx"))
    assert relative_error(found, expected) < 0.15
    with pytest.raises(InvalidQuantization, match=r"8-bit floats.*Distribution"):
        quantize_static(made, tmp_path / "b.onnx", Reader(made), **types)


def test_floats_of_8_bits_hold_numbers_that_hardly_differ(tmp_path):
    b = Builder()
    scores = b.node(
        "Mul", [b.node("MatMul", ["x", b.weight("w", 16, 12)], "h"), b.constant("part", np.float32(0.1))], "s"
    )
    shares = b.node("Sigmoid", [scores], "shares")  # near a half, a thirtieth apart
    gains = b.node("Mul", [shares, b.constant("gain", np.full(12, 3, np.float32))], "g")  # equal: a deviation of zero
    b.node("MatMul", [gains, b.weight("w2", 12, 5)], "y")
    model = b.model({"x": (6, 16)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(model), QuantFormat.QDQ,
        activation_type=QuantType.QFLOAT8E4M3FN, weight_type=QuantType.QFLOAT8E4M3FN,
        calibrate_method=CalibrationMethod.Distribution,
    )  # fmt: skip
    exact = run_onnxruntime(tmp_path / "float.onnx", feeds_of(model))
    for run in (run_onnxruntime, run_ours):
        assert relative_error(run(tmp_path / "small.onnx", feeds_of(model)), exact) < 0.15


def test_blocks_are_quantized_as_onnxruntime_does(tmp_path):
    options = {"BlockSize": 8}
    _, here, there = both(tmp_path, STATIC["matmul"](), QuantFormat.QDQ, (UINT8, INT8), extra_options=options)
    assert_same_model(here, there)


@pytest.mark.parametrize(
    "overrides",
    [
        {"c0": [{"quant_type": UINT16}]},
        {"w0": [{"quant_type": INT16, "axis": 0}], "b0": [{"quant_type": INT16}]},
        {"w1": [{"axis": 0, "rmin": -1.0 - i, "rmax": 1.0 + i} for i in range(8)]},
        {"p0": [{"scale": np.array(0.05, np.float32), "zero_point": np.array(3, np.uint8)}]},
        {"p0": [{"quant_type": UINT8, "convert": {"quant_type": UINT16}}]},
        {"p0": [{"quant_type": UINT8, "convert": {"quant_type": UINT16, "recv_nodes": {"Add_6"}}}]},
        {"y": [{"quant_type": UINT8, "convert": {"quant_type": UINT16}}]},
        {"a0": [{"symmetric": True, "rmin": np.float32(-3.0), "rmax": np.float32(1.0)}]},
    ],
    ids=lambda each: " ".join(str(key) for key in each),
)
def test_choices_for_single_tensors_are_followed(tmp_path, overrides):
    options = {"TensorQuantOverrides": overrides}
    _, here, there = both(tmp_path, STATIC["residual network"](), extra_options=options)
    assert_same_model(here, there)


@pytest.mark.parametrize("method", [CalibrationMethod.Entropy, CalibrationMethod.Percentile], ids=str)
def test_other_methods_of_calibration_give_models_that_run(tmp_path, method):
    model = STATIC["conv"]()
    source, here, there = both(tmp_path, model, method=method)
    assert_same_model(here, there)
    feeds = feeds_of(model)
    assert relative_error(run_onnxruntime(here, feeds), run_onnxruntime(source, feeds)) < 0.2


def test_ranges_of_the_tools_own_calibrations_agree(tmp_path):
    """Without a shared file of ranges each tool runs the samples: scales agree to the rounding of the engines."""
    model = STATIC["residual network"]()
    source, here, there = (tmp_path / name for name in ("float.onnx", "here.onnx", "there.onnx"))
    onnx.save(model, source)
    quantize_static(source, here, Reader(model), activation_type=UINT8)
    theirs(source, there, Reader(model), activation_type=TheirType.QUInt8)
    found, expected = (onnx.load(path) for path in (here, there))
    assert sorted(each.op_type for each in found.graph.node) == sorted(each.op_type for each in expected.graph.node)
    scales = [
        {
            each.name: onnx.numpy_helper.to_array(each)
            for each in model.graph.initializer
            if each.name.endswith("_scale")
        }
        for model in (found, expected)
    ]
    assert scales[0].keys() == scales[1].keys()
    for name, scale in scales[1].items():
        np.testing.assert_allclose(scales[0][name], scale, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("shape", [(10,), (1, 10), (1,), (6, 10)])
def test_a_bias_of_any_shape_has_its_channels_last(tmp_path, shape, form):
    b = Builder()
    b.node("Gemm", ["x", b.weight("w", 16, 10), b.weight("b", *shape)], "y")
    model = b.model({"x": (6, 16)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(model), form, per_channel=True, activation_type=UINT8
    )
    feeds = feeds_of(model)
    exact, found = run_onnxruntime(tmp_path / "float.onnx", feeds), run_onnxruntime(tmp_path / "small.onnx", feeds)
    assert relative_error(found, exact) < 0.1
    assert relative_error(run_ours(tmp_path / "small.onnx", feeds), exact) < 0.1


@pytest.mark.parametrize("bias", [1.0, 3e7], ids=["ordinary", "beyond 32 bits"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_groups_of_a_transposed_convolution_share_scales_and_have_a_bias_each(tmp_path, per_channel, bias):
    b = Builder()
    numbers = np.linspace(-bias, bias, 6, dtype=np.float32)
    inputs = ["x", b.weight("w", 8, 3, 2, 2), b.constant("b", numbers)]
    b.node("ConvTranspose", inputs, "y", group=2, strides=[2, 2])
    model = b.model({"x": (2, 8, 5, 4)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(model), per_channel=per_channel,
        activation_type=QuantType.QInt8, extra_options={"ActivationSymmetric": True},
    )  # fmt: skip
    feeds = feeds_of(model)
    exact = run_onnxruntime(tmp_path / "float.onnx", feeds)
    for found in (run_onnxruntime(tmp_path / "small.onnx", feeds), run_ours(tmp_path / "small.onnx", feeds)):
        assert relative_error(found, exact) < 0.02


@pytest.mark.parametrize("has_override", [False, True])
def test_scales_by_channel_bring_an_old_model_to_the_opset_that_has_them(tmp_path, has_override):
    model = conv(11)
    onnx.save(model, tmp_path / "float.onnx")
    overrides = {"TensorQuantOverrides": {"w": [{"quant_type": INT8, "axis": 0}]}} if has_override else {}
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(model), per_channel=not has_override,
        activation_type=UINT8, extra_options=overrides,
    )  # fmt: skip
    assert onnx.load(tmp_path / "small.onnx").opset_import[0].version == 13
    feeds = feeds_of(model)
    exact = run_onnxruntime(tmp_path / "float.onnx", feeds)
    assert relative_error(run_onnxruntime(tmp_path / "small.onnx", feeds), exact) < 0.1


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("between", ["MaxPool", "Flatten"])
def test_a_relu_behind_what_keeps_its_scale_stays(tmp_path, between, form):
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 8, 3, 3, 3)], "c")
    pooled = {"kernel_shape": [2, 2], "strides": [2, 2]} if between == "MaxPool" else {}
    hidden = b.node(between, [hidden], "p", **pooled)
    b.node("Relu", [hidden], "y")
    model = b.model({"x": (1, 3, 8, 8)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", Reader(model), form, activation_type=UINT8)
    feeds = feeds_of(model)
    found, exact = (run_onnxruntime(tmp_path / f"{name}.onnx", feeds) for name in ("small", "float"))
    assert found[0].min() >= 0
    assert relative_error(found, exact) < 0.1
